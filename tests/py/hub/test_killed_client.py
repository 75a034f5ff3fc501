"""A client that is killed costs the other clients of a hub no more than a peer that can be dialled."""

import time

from hubs import Hub, epoch_of, told, trainer

PACE = dict(client=True, target=480, pause=0.05, peers_least=3)  #: an epoch takes about half a second


def longest_epoch(trainers, epochs, seconds):
    """The longest time in which no trainer began an epoch, from now until each has begun so many more."""
    aim = max(map(epoch_of, trainers)) + epochs
    began, longest, last = time.monotonic(), 0.0, 0
    deadline = began + seconds
    while min(map(epoch_of, trainers)) < aim:
        assert time.monotonic() < deadline, [one.log[-10:] for one in trainers]
        if (now := min(map(epoch_of, trainers))) != last:
            last, began = now, time.monotonic()
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.01)
    return longest


def test_killed_client_holds_up_the_others_once(started, tmp_path):
    hub = started(Hub(tmp_path))
    trainers = [started(trainer([hub.address], first=1000 * i, **PACE)) for i in range(3)]
    for one in trainers:
        one.wait_for(lambda p: epoch_of(p) >= 5)
    usual = longest_epoch(trainers, 4, 60)
    trainers[2].kill()
    first = longest_epoch(trainers[:2], 1, 60)
    later = longest_epoch(trainers[:2], 5, 60)
    assert max(first, later) < 2.5 + usual, f"usual {usual:.2f} s, after the kill {first:.2f} s, then {later:.2f} s"
    assert {step["outcome"] for step in told(trainers[0])[-5:]} == {"averaged"}
