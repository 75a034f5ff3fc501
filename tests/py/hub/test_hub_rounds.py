"""A hub averages for trainers that nobody can dial, in processes of their own."""

from hubs import Hub, epoch_of, replicas, told, trainer

PACE = dict(client=True, target=128, pause=0.05, peers_least=2)  #: both trainers are needed for each epoch


def are_equal(trainers, since):
    """Whether the replicas of two trainers are equal to the bit in all epochs that both have seen, from one on."""
    one, two = map(replicas, trainers)
    common = [epoch for epoch in one.keys() & two.keys() if epoch >= since]
    return len(common) > 2 and all(one[epoch] == two[epoch] for epoch in common)


def test_clients_average_through_a_hub_to_the_bit(started, tmp_path):
    hub = started(Hub(tmp_path))
    trainers = [started(trainer([hub.address], first=1000 * i, **PACE)) for i in range(2)]
    for one in trainers:
        one.wait_for(lambda p: epoch_of(p) >= 6)
    assert are_equal(trainers, 0)
    for one in trainers:
        assert {step["outcome"] for step in told(one)} - {None} == {"averaged"}
    hub.has_logged("averaged gradients 4 for 2 peers")


def test_run_continues_when_one_of_two_hubs_dies(started, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = started(Hub(tmp_path / "one"))
    second = started(Hub(tmp_path / "two", "--initial_peers", first.address))
    addresses = [first.address, second.address]
    trainers = [started(trainer(addresses, first=1000 * i, **PACE)) for i in range(2)]
    for one in trainers:
        one.wait_for(lambda p: epoch_of(p) >= 3)
    second.has_logged("averaged gradients")
    first.kill()
    died = max(map(epoch_of, trainers))
    for one in trainers:
        one.wait_for(lambda p: epoch_of(p) >= died + 6)
    assert are_equal(trainers, died + 2)
    assert all(told(one)[-1]["outcome"] == "averaged" for one in trainers)


def test_full_hub_says_so_and_another_one_averages(started, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = started(Hub(tmp_path / "one", is_full=True))
    second = started(Hub(tmp_path / "two", "--initial_peers", first.address))
    trainers = [started(trainer([first.address, second.address], first=1000 * i, **PACE)) for i in range(2)]
    for one in trainers:
        one.wait_for(lambda p: epoch_of(p) >= 5)
    assert are_equal(trainers, 0) and {told(one)[-1]["outcome"] for one in trainers} == {"averaged"}
    assert "give it more --memory" in first.has_logged("this hub does not average: a round takes")
    assert len([line for line in first.log if "does not average" in line]) == 1
    assert not any("averaged gradients" in line for line in first.log)


def test_late_client_gets_the_state_of_clients_through_a_hub(started, tmp_path):
    hub = started(Hub(tmp_path, "--checkpoints", tmp_path / "states"))
    trainers = [started(trainer([hub.address], first=1000 * i, **{**PACE, "pause": 0.4})) for i in range(2)]
    for one in trainers:
        one.wait_for(lambda p: epoch_of(p) >= 2)
    late = started(trainer([hub.address], seed=1, first=5000, **{**PACE, "pause": 0.4, "peers_least": 1}))
    late.wait_for(lambda p: sum(step["outcome"] == "averaged" for step in told(p)) > 12)
    since = min(step["epoch"] for step in told(late) if step["outcome"] == "averaged")
    assert are_equal([trainers[0], late], since + 1) and are_equal(trainers, 0)
    assert list((tmp_path / "states").glob("test-*.state"))


def test_clients_average_only_their_state_through_a_hub(started, tmp_path):
    hub = started(Hub(tmp_path))
    local = {**PACE, "more": {"use_local_updates": True, "average_state_every": 2}}
    trainers = [started(trainer([hub.address], first=1000 * i, **local)) for i in range(2)]
    for one in trainers:
        one.wait_for(lambda p: epoch_of(p) >= 8)
    hub.has_logged("averaged state 3 for 2 peers")
    assert not any("gradients" in line for line in hub.log)
