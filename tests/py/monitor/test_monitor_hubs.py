"""The figures that a monitor shows of a run with hubs: the record of a hub is not that of a trainer."""

import dataclasses
import types

import pytest

from hivemind_c.monitor import Gatherer, History
from hivemind_c.monitor.gather import BEGINS_S
from hivemind_c.monitor.watch import Watch
from test_monitor import SAID

HUB = ("hub", dataclasses.replace(SAID, role="auxiliary", epoch=48, target=4096, samples=0, speed=0.0, loss=None), 1.0)
TRAINER = ("trainer", dataclasses.replace(SAID, epoch=48, target=64), 1.0)


@pytest.fixture
def watcher(dht, monkeypatch):
    """A Gatherer that reads the records in watcher.heard, and counts watcher.peers in watcher.epoch."""
    one = Gatherer(dht(), "run")
    one.heard, one.epoch, one.peers, count = [], 0, 0, one._tracker.global_progress
    monkeypatch.setattr(type(one._news), "look", lambda *_: one.heard)
    monkeypatch.setattr(type(one._news), "whole", True)
    monkeypatch.setattr(Gatherer, "_has_fetched", True)

    def counted(_):
        return types.SimpleNamespace(**{**vars(count), "epoch": one.epoch, "num_peers": one.peers})

    monkeypatch.setattr(type(one._tracker), "global_progress", property(counted))
    yield one
    one.shutdown()


def test_target_is_the_trainers_beside_more_hubs(watcher):
    watcher.heard = [HUB, ("hub2", HUB[1], 1.0)]
    watcher.look()
    assert watcher._next is None, "hubs say nothing of the target"
    watcher.heard.append(TRAINER)
    watcher.look()
    assert (watcher._next or watcher._tracker).target_batch_size == 64


def test_epoch_stays_once_the_trainers_have_gone(watcher):
    watcher.heard = [HUB]
    now = watcher.look()
    assert (now.epoch, now.num_peers, now.is_training) == (48, 0, False) and not now.peers[0].doubt
    watcher.heard, watcher.epoch, watcher.peers = [HUB, TRAINER], 49, 1
    assert watcher.look().epoch == 49 and watcher.look().is_training
    watcher.heard, watcher.epoch, watcher.peers = [HUB], 0, 0
    assert watcher.look().epoch == 49


def test_hub_alone_makes_no_points(watcher):
    watching = Watch(watcher, History(None, "run"))
    watcher._begun -= 2 * BEGINS_S  # a count that is late is no excuse any more
    watcher.heard = [HUB]
    watching.look()
    assert watching.points() == []
    watcher.heard, watcher.epoch, watcher.peers = [HUB, TRAINER], 49, 1
    watching.look()
    assert [point.epoch for point in watching.points()] == [49]
