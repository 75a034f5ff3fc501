"""Which trainer a hub asks for its state, when it can dial none: the hub's own clock and DHT are of this test."""

from types import SimpleNamespace

import pytest

from hivemind_c.averaging import gifts
from hivemind_c.hub import receiver


class Keeper:
    """A keeper that holds nothing yet."""

    least, every, size_max, has_room = 0, 1, 1000, True

    def record(self, *_, **__):
        pass


@pytest.fixture
def asked(monkeypatch):
    """The requests of a hub, without a DHT. asked.now is the time."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(receiver, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(gifts, "store", lambda *_: None)
    one = receiver.Asked(SimpleNamespace(peer_id="hub"), "run", Keeper(), gifts.Arrivals())
    one.clock = clock
    return one


def clients(**epochs):
    return [(peer, "client", epoch) for peer, epoch in epochs.items()]


def look(asked, trainers, seconds=0.0):
    """The trainer that is asked after so many seconds with these trainers."""
    for _ in range(max(1, round(seconds))):
        asked.clock.now += min(1.0, seconds)
        asked._look(trainers)
    return asked.request and asked.request.giver


def test_hub_asks_a_trainer_of_the_newest_epoch():
    # others wait for a state, and give none: each choice must be the newest
    for _ in range(30):
        one = receiver.Asked(None, "run", Keeper(), gifts.Arrivals())
        assert one._choose([("amber", 1), ("blue", 2), ("coral", 1)]) == ("blue", 2)


def test_hub_leaves_a_trainer_that_falls_behind(asked):
    assert look(asked, clients(amber=1)) == "amber"
    assert look(asked, clients(amber=1, blue=2), 2) == "amber"
    assert look(asked, clients(amber=1, blue=2), 4) == "blue"


def test_liar_about_its_epoch_is_asked_once(asked):
    assert look(asked, clients(amber=5, liar=10**9)) == "liar"
    assert look(asked, clients(amber=5, liar=10**9), 62) == "amber"
    # the epoch of the liar counts no longer: amber may take as long as its epochs take
    assert look(asked, clients(amber=5, liar=10**9), 50) == "amber"


def test_trainer_is_asked_again_once_all_gave_nothing(asked):
    assert look(asked, clients(amber=1)) == "amber"
    assert look(asked, clients(amber=1), 62) == "amber" and not asked._failed


def test_hub_does_not_ask_while_a_trainer_can_be_dialled(asked):
    assert look(asked, [*clients(amber=3), ("blue", "trainer", 3)]) is None
