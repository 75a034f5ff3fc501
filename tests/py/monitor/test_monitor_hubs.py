"""The figures that a monitor shows of a run with hubs: a hub is no trainer, and a history may fail."""

import dataclasses
import logging
import types

import pytest

from hivemind_c.monitor import Gatherer, History
from hivemind_c.monitor.gather import BEGINS_S
from hivemind_c.monitor.watch import Watch
from test_monitor import SAID, snapshot

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


# ---- a history that fails ----


def warnings_of(caplog):
    return [one.getMessage() for one in caplog.records if one.name == "hivemind_c.monitor"]


@pytest.mark.parametrize("name", ["missing/x.db", "damaged.db"])
def test_history_that_cannot_be_opened_goes_on_in_memory(tmp_path, name, caplog):
    (tmp_path / "damaged.db").write_bytes(b"this is no database" * 100)
    path = str(tmp_path / name)
    with caplog.at_level(logging.WARNING, "hivemind_c.monitor"):
        past = History(path, "run")
        past.look(snapshot())
        past.look(snapshot())
    (line,) = warnings_of(caplog)
    assert f"run: cannot use the history in {path}: " in line and "in memory; move the file" in line
    assert len(past.points) == 2 and past.failures() == []
    past.close()


def test_full_disk_of_a_history_stops_no_listener(watcher, tmp_path, caplog):
    path, seen = str(tmp_path / "x.db"), []
    past = History(path, "run")
    watching = Watch(watcher, past)
    watching.add(types.SimpleNamespace(look=seen.append, close=lambda: None))
    watcher.heard, watcher.epoch, watcher.peers = [TRAINER], 48, 1
    (size,) = past._db.execute("PRAGMA page_count").fetchone()
    past._db.execute(f"PRAGMA max_page_count={size}")
    with caplog.at_level(logging.WARNING, "hivemind_c.monitor"):
        for _ in range(200):
            watching.look()
    (line,) = warnings_of(caplog)
    assert f"in {path}: database or disk is full" in line and len(seen) == len(past.points) == 200
    past._db.execute("PRAGMA max_page_count=1000")
    watching.look()
    assert len(warnings_of(caplog)) == 1 and not past._has_failed
    past.close()
    assert History(path, "run").points[-1].time == past.points[-1].time
