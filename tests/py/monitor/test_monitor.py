"""The records that hivemind-monitor gathers, keeps and exports; the page and the program are test_monitor_page's."""

import dataclasses
import gc
import io
import math
import sys
import threading
import time
import types

import pytest
import rich.console
import torch

from hivemind_c import HivemindTimeoutError, ProgressTracker, get_dht_time
from hivemind_c.dht import news
from hivemind_c.dht.values import ValueWithExpiration, unpack
from hivemind_c.monitor import Failure, Gatherer, History, Point, Snapshot, gather, history, watch
from hivemind_c.monitor.checkpoints import Saver, load_checkpoint, save
from hivemind_c.monitor.gather import BEGINS_S, reference, views
from hivemind_c.monitor.news_cache import GIVE_UP_S, NewsCache
from hivemind_c.monitor.prometheus import exposition
from hivemind_c.monitor.sinks import Missing, Sinks
from hivemind_c.monitor.view import draw
from hivemind_c.monitor.watch import OWED_S, Watch
from hivemind_c.monitor.web import as_json
from hivemind_c.optim import speed
from hivemind_c.optim.epoch_record import NUMBERS
from hivemind_c.optim.reporter import LIVES_S
from optim_support import Peer, flat, network, settle, train_together
from support import eventually, resident

SAID = news.News(
    version="0.1.0", name="amber", role="trainer", time=1e9, lease=10.0, epoch=3, target=64, samples=640, speed=12.5,
    loss=0.25, rounds=6, failures=1, errors=((2, "nobody came"),), last=tuple(map(float, range(len(NUMBERS)))),
    troubles=("left_out", "of a later version"),
)  # fmt: skip


def snapshot(**changed):
    about = dict(
        time=time.time(),
        run_id="run",
        epoch=3,
        samples=32,
        target=64,
        speed=20.0,
        eta=1.5,
        num_peers=2,
        num_clients=0,
        loss=0.5,
    )
    return Snapshot(**{**about, **changed})


# ---- a peer's news ----


def test_news_come_through_as_they_were_said_and_texts_are_cut():
    assert news.read_news(unpack(news.write_news(SAID))) == SAID
    long = dataclasses.replace(SAID, name="x" * 5000, errors=tuple((i, "y" * 5000) for i in range(9)))
    heard = news.read_news(unpack(news.write_news(long)))
    assert (
        heard.name == "x" * 200
        and [epoch for epoch, _ in heard.errors] == [5, 6, 7, 8]
        and len(heard.errors[0][1]) == 200
    )
    assert len(news.write_news(long)) < 1500


def test_no_number_of_a_strangers_is_too_large_to_be_remembered():
    heard = news.read_news(unpack(news.write_news(dataclasses.replace(SAID, loss=2**64 - 1))))
    assert type(heard.loss) is float
    past = History(None, "run")
    past.add(snapshot(epoch=news.COUNT_MAX, target=news.COUNT_MAX, samples=news.COUNT_MAX, loss=heard.loss))
    assert past.points[-1].total == 2**63 - 1 and past.points[-1].loss == 2.0**64


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 3}, {"name": "x" * 201}, {"name": None}, {"role": "king"}, {"role": ["trainer"]}, {"time": -1},
        {"time": math.nan}, {"lease": 601}, {"epoch": -1},
        {"epoch": True}, {"epoch": 1 << 49}, {"epoch": 1.5}, {"target": 0}, {"samples": "9"}, {"speed": math.inf},
        {"speed": -1.0}, {"speed": True}, {"loss": math.nan}, {"loss": "low"},
        {"rounds": None}, {"failures": -1}, {"errors": None}, {"errors": [[1, "x"]] * 5}, {"errors": [[1]]},
        {"errors": [["1", "x"]]}, {"errors": [[1, "x" * 201]]}, {"more": 1}, {"last": [1.0] * 33}, {"last": ["1"]},
        {"last": [math.inf]}, {"last": [-1e19]}, {"last": [True]}, {"last": 1}, {"troubles": None}, {"troubles": [1]},
        {"troubles": ["x" * 33]}, {"troubles": ["alone"] * 9}, {"loading": [0.5]}, {"loading": [1.5, 1.0, 1.0]},
        {"loading": [0.5, -1.0, 1.0]}, {"loading": [0.5, 1.0, math.inf]}, {"loading": "half"},
    ],
)  # fmt: skip
def test_news_out_of_bounds_are_nobodys(wrong):
    value = unpack(news.write_news(SAID))
    value.update(wrong)
    with pytest.raises(ValueError):
        news.read_news(value)


def test_invalid_news_are_ignored(dhts):
    for value in (b"x", [], {"epoch": 1}, None):
        with pytest.raises(ValueError):
            news.read_news(value)
    key, end = news.key_of("strange", dhts[0].peer_id), get_dht_time() + 60
    value = unpack(news.write_news(SAID))
    assert dhts[0].store(key, value, end, subkey=news.subkey_of(dhts[0].peer_id))
    assert all(
        dhts[1].store(other, value, end, subkey=subkey) for other in news.keys("strange") for subkey in (b"somebody", 7)
    )
    assert all(
        dhts[0].store(other, value, end, subkey=news.subkey_of(dhts[0].peer_id)) for other in news.keys("strange")
    )  # once is enough
    assert dhts[2].store(key, "nonsense", end, subkey=news.subkey_of(dhts[2].peer_id))
    with pytest.raises(Exception, match="only that peer can store there"):
        dhts[3].store(key, value, end, subkey=news.subkey_of(dhts[1].peer_id))
    ((peer, heard, age),) = news.gather(dhts[3], "strange")
    assert (peer, heard) == (dhts[0].peer_id, SAID) and age == 0.0  # it lives longer than it says: as young as can be


# ---- who can be believed ----


def test_a_liar_is_in_doubt_and_moves_neither_epoch_nor_loss():
    honest = [(f"peer{i}", dataclasses.replace(SAID, speed=10.0 + i, samples=100, loss=0.5), 1.0) for i in range(5)]
    liar = ("liar", dataclasses.replace(SAID, epoch=1 << 40, speed=1e9, samples=1 << 40, loss=-1e9), 1.0)
    found = {view.peer_id: view for view in views([*honest, liar], 3)}
    assert found["liar"].doubt and not any(found[f"peer{i}"].doubt for i in range(5))
    assert found["liar"].share < 0.62 and math.isclose(sum(view.share for view in found.values()), 1.0)
    assert not views(honest, int(reference([3.0] * 5)))[0].doubt
    assert reference([1, 1, 1, 9, 9]) == 9 and reference([1, 1, 1, 1, 9, 9]) == 1 and reference([]) == 0


def test_peer_with_another_setup_is_marked_with_both_values():
    usual, other = b"optimizer: SGD\nweight_decay: 0\n", b"optimizer: SGD\nweight_decay: 0.1\n"
    told = [usual, usual, other, b"", b"optimizer: \x1b[2J\n", b"no setup"]
    heard = [(f"peer{i}", dataclasses.replace(SAID, setup=setup), 1.0) for i, setup in enumerate(told)]
    found = views(heard, 3)
    assert [view.differs for view in sorted(found, key=lambda view: view.peer_id)] == [
        "", "", "differs in weight_decay (0.1, most have 0)", "", "", ""
    ]  # fmt: skip
    shown = exposition(snapshot(peers=tuple(found)))
    assert 'hivemind_peer_setup_differs{run="run",peer="peer2",name="' in shown
    values = [line.split()[-1] for line in shown.splitlines() if line.startswith("hivemind_peer_setup_differs{")]
    assert values.count("1") == 1 and len(values) == 6


def test_count_of_old_records_puts_nobody_in_doubt(dht, monkeypatch):
    """Records of peers that are asked directly are as old as 20 s: a monitor that was started again showed two trainers
    of epoch 13 as liars, and no loss."""
    watcher = Gatherer(dht(), "run")
    monkeypatch.setattr(type(watcher._news), "whole", True)
    monkeypatch.setattr(Gatherer, "_has_fetched", True)
    heard = [
        (name, dataclasses.replace(SAID, epoch=13, loss=loss), 1.0) for name, loss in (("amber", 1.0), ("blue", 2.0))
    ]
    heard.append(("liar", dataclasses.replace(SAID, epoch=1_000_000, loss=-1e9), 1.0))

    def look(epoch, num_peers=3):
        now = watcher._snapshot(
            heard,
            types.SimpleNamespace(**{**vars(watcher._tracker.global_progress), "epoch": epoch, "num_peers": num_peers}),
            time.time(),
        )
        return now.loss, now.whole, now.speed, {view.peer_id for view in now.peers if view.doubt}

    assert look(0, 0) == (1.5, False, 0.0, {"liar"}), "the count is empty"
    assert look(0) == look(10) == (1.5, False, 0.0, {"liar"}), "and then of some epochs ago"
    assert look(11) == look(13) == (1.5, True, 0.0, {"liar"})
    watcher._begun -= BEGINS_S
    assert look(10) == (None, True, 0.0, {"amber", "blue", "liar"}), (
        "later whoever is far ahead of the count is in doubt"
    )
    watcher.shutdown()


def test_monitor_shows_the_trainers_progress(dhts):
    peers = [Peer(i, one, network(), run_id="seen", target_batch_size=64) for i, one in enumerate(dhts[:2])]
    liar = ProgressTracker(dhts[2], "seen", 64, start=True)
    watcher = Gatherer(dhts[3], "seen")
    try:
        train_together(peers, 3)
        value = unpack(news.write_news(dataclasses.replace(SAID, epoch=1 << 40, loss=1e30, time=get_dht_time())))
        dhts[2].store(
            news.key_of("seen", dhts[2].peer_id), value, get_dht_time() + 60, subkey=news.subkey_of(dhts[2].peer_id)
        )
        for peer, loss in zip(peers, (1.0, 2.0)):
            peer.optimizer.report_loss(torch.tensor(loss))
            peer.optimizer.reporter.add_failure(2, "nobody came")

        looks = []

        def seen():
            looks.append(watcher.look())
            return (
                looks[-1].num_peers == 2
                and looks[-1].epoch == 3
                and looks[-1].loss == 1.5
                and len(looks[-1].peers) == 3
                and len(looks[-1].failures) >= 2
            )

        assert eventually(seen), looks[-1]
        now = looks[-1]
        assert (now.target, now.num_peers, now.epoch, now.loss) == (64, 2, 3, 1.5)
        seen = {view.peer_id: view for view in now.peers}
        assert seen[dhts[2].peer_id].doubt.startswith(f"says swarm epoch {1 << 40}")
        for peer, loss in zip(peers, (1.0, 2.0)):
            view = seen[peer.dht.peer_id]
            assert (view.epoch, view.loss, view.failures, view.role) == (3, loss, 1, "trainer") and view.rounds >= 3
            assert (
                view.samples
                == sum(min(16 * len(peer.used.get(epoch, [])), 64) for epoch in range(3)) + peer.optimizer.local_samples
            ), "a peer counts with target_batch_size at most"
        assert {(f.peer_id, f.epoch, f.text) for f in now.failures} >= {
            (peer.dht.peer_id, 2, "nobody came") for peer in peers
        }
    finally:
        watcher.shutdown()
        liar.shutdown()
        for peer in peers:
            peer.optimizer.shutdown()


def test_no_step_waits_for_its_news(dht, monkeypatch):
    from hivemind_c.optim import reporter

    never, reached = threading.Event(), threading.Event()
    monkeypatch.setattr(reporter, "LEAST_S", 0.01)
    monkeypatch.setattr(reporter.Reporter, "_store", lambda self, optimizer, said: (reached.set(), never.wait(60)))
    peer = Peer(0, dht(), network(), run_id="slow")
    try:
        while not reached.is_set():
            peer.batch()
        epoch = peer.optimizer.local_epoch
        peer.train(epoch + 2)
        assert not never.is_set()
    finally:
        never.set()
        settle(peer.optimizer)
        peer.optimizer.shutdown()


def test_a_loss_that_is_no_number_is_not_told(dht):
    peer = Peer(0, dht(), network(), run_id="nan")
    reporter = peer.optimizer.reporter
    for value in (1.0, torch.tensor(3.0), torch.ones(2), "low", None):
        peer.optimizer.report_loss(value)
    assert reporter.news(6.0).loss == 2.0
    peer.optimizer.report_loss(torch.tensor(math.nan))
    assert reporter.news(6.0).loss == 2.0 and news.read_news(unpack(news.write_news(reporter.news(6.0))))
    peer.optimizer.shutdown()


# ---- what is kept ----


def test_a_restart_loses_nothing_and_runs_do_not_mix(tmp_path):
    path = str(tmp_path / "history.db")
    first = History(path, "run")
    for i in range(5):
        first.add(
            snapshot(time=100.0 + i, loss=None if i == 2 else 0.5, failures=(Failure(99.0, "peer", 2, "nobody came"),))
        )
    first.close()
    again, other = History(path, "run"), History(path, "another")
    assert [point.time for point in again.points] == [100.0, 101.0, 102.0, 103.0, 104.0] and again.points[
        2
    ].loss is None
    assert again.points[0] == Point(100.0, 3, 3 * 64 + 32, 20.0, 0.5, 2)
    assert again.failures() == [Failure(99.0, "peer", 2, "nobody came")]
    assert other.points == [] and other.failures() == []
    for one in (again, other):
        one.close()


def test_a_day_of_looking_takes_bounded_room(monkeypatch):
    monkeypatch.setattr(history, "KEPT_MAX", 3000)
    kept = History(None, "run")
    for i in range(12_000):
        kept.add(snapshot(time=float(i), failures=(Failure(float(i), "peer", i, "why"),)))
    rows = kept._db.execute("SELECT COUNT(*), MIN(time), MAX(time) FROM points").fetchone()
    assert rows[0] <= 3000 and rows[1:] == (0.0, 11_999.0)
    assert len(kept.points) <= history.SHOWN_MAX and kept.points[0].time == 0.0 and kept.points[-1].time == 11_999.0
    assert [point.time for point in kept.points] == sorted(point.time for point in kept.points)
    assert kept._db.execute("SELECT COUNT(*) FROM failures").fetchone()[0] <= 3500
    kept.close()


def test_a_restart_loses_no_failure_however_many_came_at_once(tmp_path):
    path = str(tmp_path / "history.db")
    first = History(path, "run")
    many = tuple(Failure(100.0, f"peer{i}", 2, "nobody came") for i in range(300))
    for time_ in (100.0, 101.0):
        first.add(snapshot(time=time_, failures=many))
    first.close()
    again = History(path, "run")
    assert set(again.failures()) == set(many)
    again.close()


def test_two_monitors_of_one_machine_have_keys_of_their_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first, held = history.own_key()
    second, other = history.own_key()
    assert first.endswith("hivemind_c/monitor.key") and second.endswith("hivemind_c/monitor-2.key")
    held.close()
    assert history.own_key()[0] == first
    other.close()


def test_nobody_fills_the_list_of_failures(dht):
    watcher = Gatherer(dht(), "run")
    honest = ("honest", dataclasses.replace(SAID, errors=((1, "nobody came"),)), 1.0)
    for i in range(200):
        liar = ("liar", dataclasses.replace(SAID, errors=tuple((4 * i + k, "x") for k in range(4))), 1.0)
        watcher._note_failures([honest, liar], float(i))
    failures = list(watcher._failures.values())
    assert len(failures) == 21 and failures[0].peer_id == "honest" and failures[-1].epoch == 799
    watcher.shutdown()


def test_old_failures_of_many_peers_stay_old(dht):
    watcher = Gatherer(dht(), "run")
    heard = [
        (f"peer{i}", dataclasses.replace(SAID, errors=tuple((k, "nobody came") for k in range(4))), 1.0)
        for i in range(200)
    ]
    for now in (1.0, 2.0, 3.0):
        watcher._note_failures(heard, now)
    assert len(watcher._failures) == 500 and {failure.time for failure in watcher._failures.values()} == {1.0}
    heard[0] = ("peer0", dataclasses.replace(SAID, errors=((9, "late"),)), 1.0)
    watcher._note_failures(heard, 4.0)
    assert [failure.peer_id for failure in watcher._failures.values() if failure.time > 1.0] == ["peer0"]
    watcher.shutdown()


# ---- a large swarm ----


class Reply(dict):
    came = answered = True
    given_up = False

    def done(self):
        return self.came

    def cancel(self):
        self.given_up = True

    def result(self, timeout=None):
        if not self.came:
            raise HivemindTimeoutError("it has not come yet")
        return ValueWithExpiration(self, get_dht_time() + 25) if self.answered else None


class Large:
    """A DHT with the news of many peers, which counts what is asked."""

    def __init__(self, node, run_id="large"):
        self.core, self.peer_id, self.client_mode, self.run_id = node.core, node.peer_id, False, run_id
        self.kept, self.asked, self.replies = {}, [], {}

    def tell(self, peers, **said):
        self.kept = {key: {} for key in news.keys(self.run_id)}
        for peer in peers:
            self.kept[news.key_of(self.run_id, peer)][news.subkey_of(peer)] = unpack(
                news.write_news(dataclasses.replace(SAID, **{"lease": 60.0, **said}))
            )

    def get(self, key, latest=False, return_future=False):
        self.asked.append(key)
        end = get_dht_time() + 60
        self.replies[key] = Reply(
            {subkey: ValueWithExpiration(value, end) for subkey, value in self.kept.get(key, {}).items()}
        )
        return self.replies[key]


def test_small_swarm_is_asked_each_look_and_a_large_one_less(dht):
    large = Large(dht())
    large.tell([f"12D3KooW{i:04}" for i in range(10)])
    cache = NewsCache(large, "large")
    for look in range(4):
        assert len(cache.look(0.5 * look)) == 10
    assert len(large.asked) == 4 * news.SHARDS
    names = [f"12D3KooW{i:04}" for i in range(1000)]
    large.tell(names)
    assert len(cache.look(10.0)) == 1000
    large.asked.clear()
    looks = 0
    while len(large.asked) < 3 * news.SHARDS:
        before = len(large.asked)
        assert len(cache.look(11.0 + looks)) == 1000 and len(large.asked) - before <= 2, "no look has much to do"
        looks += 1
    assert looks >= 3 * 7.5 - 2 and sorted(large.asked) == sorted(3 * news.keys("large"))
    large.tell(names[:500])
    assert len(cache.look(100.0)) == 500, "after a while without a look all are asked"


def test_peer_that_cannot_be_asked_is_gone_after_its_lease(dht):
    """It stays some seconds longer than its lease, if the monitor never asks for it again."""
    large = Large(dht())
    large.tell([f"12D3KooW{i:04}" for i in range(1000)])
    cache = NewsCache(large, "large")
    assert len(cache.look(0.0)) == 1000
    cache._due = lambda now: []  # nobody can be asked any more
    assert len(cache.look(59.0)) == 1000 and cache.look(59.0)[0][2] >= 58.0
    assert cache.look(76.0) == []


def test_monitor_that_may_not_ask_shows_the_last_news(dht):
    """A start on a busy machine costs so much that it asks nobody for OWED_S, as long as a small swarm's news live: its
    page lost everybody for a second."""
    large = Large(dht())
    large.tell([f"12D3KooW{i:04}" for i in range(10)], lease=LIVES_S)
    cache = NewsCache(large, "large")
    assert len(cache.look(0.0)) == 10
    assert len(cache.look(LIVES_S + 1, asking=False)) == 10 and OWED_S <= LIVES_S + 1 < LIVES_S + GIVE_UP_S
    large.tell([])
    assert cache.look(LIVES_S + 2) == [], "who tells no more is gone with the next answer"


def test_slow_node_delays_no_other_news(dht, monkeypatch):
    monkeypatch.setattr(Reply, "came", False)
    large = Large(dht())
    names = [f"12D3KooW{i:04}" for i in range(80)]
    large.tell(names)
    of = {key: len(kept) for key, kept in large.kept.items()}
    slow, lost, *quick = news.keys("large")
    cache = NewsCache(large, "large")
    assert cache.look(0.0) == [] and sorted(large.asked) == sorted(news.keys("large"))
    for key in quick:
        large.replies[key].came = True
    assert len(cache.look(0.1)) == 80 - of[slow] - of[lost] and not cache.whole
    assert large.asked.count(slow) == 1, "it is still asked"
    large.replies[slow].came = True
    assert len(cache.look(0.2)) == 80 - of[lost] and not cache.whole
    first = large.replies[lost]
    assert len(cache.look(16.0)) == 80 - of[lost] and cache.whole and first.given_up, "the swarm is shown without it"
    cache.look(16.1, asking=False)
    assert large.replies[lost] is first
    cache.look(20.0)
    large.replies[lost].came = True
    assert len(cache.look(20.1)) == 80


def test_peer_that_could_not_be_asked_outlives_its_lease(dht, monkeypatch):
    """The network is away: each question fails, and the peer is shown for some seconds beyond its lease."""
    large = Large(dht())
    large.tell([f"12D3KooW{i:04}" for i in range(10)])
    cache = NewsCache(large, "large")
    assert len(cache.look(0.0)) == 10
    monkeypatch.setattr(Reply, "answered", False)  # the network is away
    assert len(cache.look(59.0)) == 10 and min(age for _, _, age in cache.look(59.5)) >= 59.0
    assert cache.look(76.0) == []


@pytest.mark.parametrize("peers, every", [(20, 3), pytest.param(1000, 6, marks=pytest.mark.long)])
def test_a_day_of_peers_that_come_and_go_leaves_memory_flat(dht, tmp_path, monkeypatch, peers, every):
    monkeypatch.setattr(history, "KEPT_MAX", 200)
    monkeypatch.setattr(history, "SHOWN_MAX", 100)
    clock = [1e9]
    monkeypatch.setattr(gather, "time", types.SimpleNamespace(time=lambda: clock[0], monotonic=lambda: clock[0]))
    large = Large(dht(), "day")
    watching = Watch(Gatherer(large, "day", 64), History(str(tmp_path / "day.db"), "day"))
    hours = []
    for minute in range(0, 24 * 60, every):
        if minute % 6 == 0:  # all of them have other names, and have failed anew
            large.tell(
                [f"12D3KooW{minute:05}{i:03}" for i in range(peers)],
                epoch=minute,
                errors=((minute, "nobody came"), (minute, "x" * 200)),
            )
        clock[0] += 60 * every
        now = watching.look()
        assert len(now.peers) == peers and len(now.failures) <= 500
        exposition(now)
        if minute % 60 == 60 - every:
            gc.collect()
            hours.append((resident(), (tmp_path / "day.db").stat().st_size))
    watching.close()
    assert hours[-1][0] - hours[5][0] < 3 << 20, [size >> 10 for size, _ in hours]
    assert hours[-1][1] < 1.2 * hours[11][1] and hours[-1][1] < 2 << 20, [size >> 10 for _, size in hours]


class Looks:
    """A gatherer that sees what it is told."""

    def __init__(self, *snapshots):
        self.snapshots, self.known = list(snapshots), []

    def look(self, asking=True):
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]

    def known_failures(self, failures):
        self.known += failures

    def shutdown(self):
        pass


def test_watching_goes_on_when_a_listener_fails():
    class Broken:
        closed = False

        def look(self, now):
            raise OSError("the disk is full")

        def close(self):
            self.closed = True

    watching, broken, ended = Watch(Looks(snapshot()), History(None, "run"), 0.01), Broken(), threading.Event()
    watching.add(broken)
    thread = threading.Thread(target=watching.run, args=(ended,))
    thread.start()
    assert eventually(lambda: watching.looks >= 3)
    ended.set()
    thread.join(90)
    assert len(watching.points()) == watching.looks
    watching.close()
    assert broken.closed


def test_watching_continues_if_a_look_cannot_be_stored(caplog):
    strange = snapshot(failures=(Failure(1.0, "peer", 3, "\ud800"),))
    watching, ended = (
        Watch(Looks(snapshot(loss=2**64), strange, snapshot()), History(None, "run"), 0.01),
        threading.Event(),
    )
    thread = threading.Thread(target=watching.run, args=(ended,))
    thread.start()
    assert eventually(lambda: watching.looks >= 4)
    ended.set()
    thread.join(90)
    assert caplog.text.count("cannot use the history in memory") == 1
    watching.close()


class Spends:
    """A gatherer whose looks cost, a clock that they move, and an event that is set when the clock stands at an
    hour."""

    def __init__(self, first, asking, showing):
        self.costs, self.now, self.cpu, self.looks, self.asked = (first, asking, showing), 1000.0, 5.0, [], []

    def look(self, asking=True):
        first, more, showing = self.costs
        cost = showing + (first if not self.asked else more if asking else 0.0)
        self.now, self.cpu = self.now + cost, self.cpu + cost
        self.looks.append(self.now)
        if asking:
            self.asked.append(self.now)
        return snapshot()

    def known_failures(self, failures):
        pass

    def time(self):
        return types.SimpleNamespace(monotonic=lambda: self.now, process_time=lambda: self.cpu)

    def is_set(self):
        return self.now >= 4600.0

    def wait(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(
    "peers, first, asking, showing", [(20, 0.01, 0.004, 0.001), (1000, 0.3, 0.02, 0.006), (10_000, 3.0, 0.2, 0.06)]
)
def test_costly_looks_keep_the_page_fresh_and_use_little_cpu(monkeypatch, peers, first, asking, showing):
    """A costly look does not keep the page old. All looks together take little of the processor."""
    spends = Spends(first, asking, showing)
    monkeypatch.setattr(watch, "time", spends.time())
    Watch(spends, History(None, "run"), 0.5).run(spends)
    gaps = [later - sooner for sooner, later in zip(spends.looks, spends.looks[1:])]
    assert spends.cpu - 5.0 - first < 0.026 * 3600
    assert max(gaps) < (1.2 if peers <= 1000 else 8.0), max(gaps)
    if peers == 20:
        assert spends.asked == spends.looks
    if peers == 1000:  # an eighth of them each time, all in half of the time in which each tells once
        assert len(spends.asked) > 3600 * news.SHARDS / 15


def test_partial_look_is_shown_and_not_stored():
    told = []
    sinks = Sinks()
    sinks.add(lambda epoch, known: told.append(known["loss"]), lambda: None)
    watching = Watch(Looks(snapshot(loss=9.0, whole=False), snapshot(loss=0.5)), History(None, "run"))
    watching.add(sinks)
    assert watching.look().loss == watching.latest.loss == 9.0 and watching.points() == [] and told == []
    watching.look()
    assert [point.loss for point in watching.points()] == told == [0.5]


def test_late_monitor_stores_no_epoch_before_the_count(dht, monkeypatch):
    clock = [1e9]
    monkeypatch.setattr(gather, "time", types.SimpleNamespace(time=lambda: clock[0], monotonic=lambda: clock[0]))
    late = Large(dht())
    late.tell([f"12D3KooW{i:04}" for i in range(3)], epoch=700)
    watching = Watch(Gatherer(late, "large", 64), History(None, "large"))
    assert watching._gatherer._tracker.fetched_global_progress_this_epoch.wait(60)
    assert len(watching.look().peers) == 3 and not watching.latest.whole and watching.points() == []
    clock[0] += 6  # nobody counts: then they are all that there is
    assert watching.look().whole and len(watching.points()) == 1
    watching.close()


def test_samples_before_the_monitor_count_as_no_speed(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(speed, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    measured, seen = speed.Speed(), []
    for peers, epoch, samples in ((0, 0, 0), (5, 100, 10), (5, 100, 30), (0, 0, 0)):
        seen.append(
            measured.look(
                types.SimpleNamespace(num_peers=peers, epoch=epoch, samples_accumulated=samples, target_batch_size=64)
            )
        )
        clock[0] += 1
    assert seen == [0.0, 0.0, 20.0, 0.0]


# ---- where it goes ----


def test_prometheus_reads_any_name_of_a_peer():
    view = views([("12D3peer", dataclasses.replace(SAID, name='a"\n\\b'), 1.0)], 3)[0]
    text = exposition(snapshot(peers=(view,), eta=None))
    assert 'hivemind_epoch{run="run"} 3\n' in text and "hivemind_seconds_to_next_epoch" not in text
    assert 'hivemind_peer_loss{run="run",peer="12D3peer",name="a\\"\\n\\\\b"} 0.25\n' in text
    assert all(line.startswith(("# ", "hivemind_")) for line in text.splitlines())


def test_latest_epoch_and_troubles_of_a_peer_are_shown():
    other = dataclasses.replace(SAID, last=(1.0, None), troubles=())  # of a version with other fields
    now = snapshot(peers=tuple(views([("12D3peer", SAID, 1.0), ("12D3other", other, 1.0)], 3)), eta=None)
    text = exposition(now)
    labels = 'run="run",peer="12D3peer",name="amber"'
    for i, name in enumerate(NUMBERS):
        assert f"hivemind_peer_last_epoch_{name}{{{labels}}} {float(i)}\n" in text
    assert f'hivemind_peer_trouble{{{labels},trouble="left_out"}} 1\n' in text
    assert text.count("peer_trouble{") == 1 and text.count("peer_last_epoch_loss{") == 1
    rows = {row["peer_id"]: row for row in as_json(now)["peers"]}
    assert as_json(now)["numbers"] == NUMBERS
    assert rows["12D3peer"]["last"] == list(SAID.last) and rows["12D3other"]["last"] is None
    assert rows["12D3peer"]["troubles"] == ["misses swarm epochs again and again"]
    console = rich.console.Console(width=200, record=True, file=io.StringIO())
    console.print(draw(now, "join"))
    assert "misses swarm epochs again and again" in console.export_text()


def test_load_of_a_peer_is_shown_with_its_rate_and_rest():
    loads = dataclasses.replace(SAID, loading=(0.5, 2_500_000.0, 30.0))
    heard = news.read_news(unpack(news.write_news(loads)))
    assert heard == loads and b"loading" not in news.write_news(SAID)  # an older reader knows no such field
    loading = tuple(views([("12D3peer", heard, 1.0), ("12D3other", SAID, 1.0)], 3))
    now = snapshot(peers=loading, eta=None, advice="averages move at 20 Mbit/s")
    rows = {row["peer_id"]: row for row in as_json(now)["peers"]}
    assert rows["12D3peer"]["loading"] == "loads the state: 50% at 20 Mbit/s, 30 s left"
    assert not rows["12D3other"]["loading"]
    console = rich.console.Console(width=200, record=True, file=io.StringIO())
    console.print(draw(now, "join"))
    shown = console.export_text()
    assert "12D3peer loads the state: 50% at 20 Mbit/s, 30 s left" in shown and "averages move at 20 Mbit/s" in shown


def test_tensorboard_gets_each_epoch_once(tmp_path):
    sinks = Sinks()
    sinks.tensorboard(str(tmp_path))
    for epoch in (1, 1, 2):
        sinks.look(snapshot(epoch=epoch, loss=epoch / 4))
    sinks.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(1, 0.25), (2, 0.5)]


def test_wandb_gets_it_or_is_asked_for_in_one_sentence(monkeypatch):
    told = []

    class Run:
        def log(self, known, step):
            told.append((step, known["loss"]))

        def finish(self):
            told.append("finished")

    wandb = type("wandb", (), {"init": staticmethod(lambda project, name: told.append((project, name)) or Run())})
    sinks = Sinks()
    sinks.wandb("project", "run", wandb)
    sinks.look(snapshot())
    sinks.close()
    assert told == [("project", "run"), (3, 0.5), "finished"]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(Missing, match="pip install wandb"):
        Sinks().wandb("project", "run")


def test_the_swarms_state_is_saved_and_fits_the_model(dhts, tmp_path, caplog):
    peers = [Peer(i, one, network(), run_id="kept", delay_state_averaging=False) for i, one in enumerate(dhts[:2])]
    try:
        train_together(peers, 3)
        path = save(dhts[3], "kept", tmp_path)
        other = network(seed=5)
        epoch = load_checkpoint(torch.load(path, weights_only=True), other)
        assert path.name == f"kept-{epoch}.pt" and any(
            torch.equal(flat(other), after)
            for peer in peers
            for after in [peer.after.get(epoch - 1)]
            if after is not None
        )
        with pytest.raises(ValueError, match="another model"):
            load_checkpoint(torch.load(path, weights_only=True), torch.nn.Linear(2, 2))
        saver = Saver(dhts[3], "kept", 2, str(tmp_path / "saved"))
        for epoch in (1, 2, 3):
            saver.look(snapshot(epoch=epoch))
        saver._thread.join(120)
        assert len(list((tmp_path / "saved").iterdir())) == 1
        missing = Saver(dhts[3], "nobody", 1, str(tmp_path / "none"))
        missing.look(snapshot(epoch=1))
        missing.look(snapshot(epoch=2))
        missing._thread.join(120)
        assert "no checkpoint was written" in caplog.text and not (tmp_path / "none").exists()
    finally:
        for peer in peers:
            peer.optimizer.shutdown()


def test_a_terminal_shows_no_control_characters_of_a_stranger():
    from rich.console import Console

    peers = views(
        [
            ("12D3peer", dataclasses.replace(SAID, name="\x1b[2Jevil[red]"), 1.0),
            *[(f"p{i}", SAID, 1.0) for i in range(30)],
        ],
        3,
    )
    console = Console(width=160, force_terminal=False, record=True, file=open("/dev/null", "w"))
    console.print(
        draw(snapshot(peers=tuple(peers), failures=(Failure(1.0, "peer", 2, "bad\x07[bold]"),)), "INITIAL_PEERS=x")
    )
    text = console.export_text()
    assert "?[2Jevil[red]" in text and "bad?[bold]" in text and "\x1b" not in text and "and 11 more" in text
    assert "looking" in str(draw(None, ""))
