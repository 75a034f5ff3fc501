"""ProgressTracker on real nodes: what one reports all learn, and nobody waits for anything."""

import math
import os
import signal
import threading
import time

import pytest

import hivemind_c
from hivemind_c.optim import GlobalTrainingProgress, LocalTrainingProgress, ProgressTracker
from support import eventually

QUICK = dict(min_refresh_period=0.1, max_refresh_period=1, default_refresh_period=0.3)

TRAINER = """
    import sys, time
    from hivemind_c import DHT
    from hivemind_c.optim import ProgressTracker

    epoch, peer = int(sys.argv[1]), sys.argv[2]
    dht = DHT([peer], start=True)
    tracker = ProgressTracker(dht, "run", 1000, start=True, min_refresh_period=0.1, max_refresh_period=1, default_refresh_period=0.3)
    tracker.report_local_progress(epoch, 100)
    print("reported", flush=True)
    for line in sys.stdin:
        epoch, samples = map(int, line.split())
        tracker.report_local_progress(epoch, samples)
"""


def tracker_of(node, target=1000, **options):
    return ProgressTracker(node, "run", target, start=True, **{**QUICK, **options})


def test_alone_a_contributor_is_the_swarm(dht):
    tracker = tracker_of(dht())
    assert tracker.global_progress.num_peers == 0 and not tracker.ready_to_update_epoch
    tracker.report_local_progress(0, 600)
    now = tracker.global_progress
    assert isinstance(now, GlobalTrainingProgress) and isinstance(tracker.local_progress, LocalTrainingProgress)
    assert (now.epoch, now.samples_accumulated, now.target_batch_size, now.num_peers, now.num_clients) == (0, 600, 1000, 1, 0)
    assert not tracker.ready_to_update_epoch
    tracker.report_local_progress(0, 1000)
    assert tracker.ready_to_update_epoch and tracker.should_begin_matchmaking
    assert tracker.update_epoch() == 1
    assert tracker.global_epoch == 1 and tracker.global_progress.samples_accumulated == 0 and not tracker.ready_to_update_epoch
    assert tracker.local_progress.epoch == 1 and tracker.local_progress.peer_id == tracker.dht.peer_id


def test_what_one_reports_the_other_learns(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(dht(first.get_visible_maddrs()))
    a.report_local_progress(3, 300)
    b.report_local_progress(3, 200)
    for tracker in (a, b):
        assert eventually(lambda: tracker.global_progress.num_peers == 2 and tracker.global_progress.samples_accumulated >= 500, 20)
        assert tracker.global_epoch == 3 and tracker.standing == "in step"
        assert tracker.fetched_global_progress_this_epoch.wait(20)
    b.report_local_progress(3, 800)
    assert eventually(lambda: a.ready_to_update_epoch, 20)
    b.shutdown()
    assert eventually(lambda: a.global_progress.num_peers == 1, 20)


def test_a_newcomer_learns_the_epoch_before_it_says_anything(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(dht(first.get_visible_maddrs()))
    a.report_local_progress(7, 10)
    assert eventually(lambda: b.global_epoch == 7, 20)
    assert b.standing == "behind" and not b.ready_to_update_epoch and b.global_progress.num_peers == 1
    b.update_epoch(7)
    assert b.standing == "in step"
    assert eventually(lambda: a.global_progress.num_peers == 2, 20)


def test_two_trackers_of_one_node_are_two_contributors(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(first)
    other = tracker_of(dht(first.get_visible_maddrs()))
    a.report_local_progress(0, 100)
    b.report_local_progress(0, 200)
    assert eventually(lambda: other.global_progress.num_peers == 2 and other.global_progress.samples_accumulated >= 300, 20)
    assert eventually(lambda: a.global_progress.num_peers == 2 and a.global_progress.samples_accumulated >= 300, 20)


def test_one_of_four_that_claims_a_later_epoch_moves_nobody(dht, program):
    first = dht()
    mine = tracker_of(first)
    mine.report_local_progress(5, 100)
    peer = first.get_visible_maddrs()[0]
    honest, liar = [program(TRAINER, 5, peer) for _ in range(2)], program(TRAINER, 1000000, peer)
    assert all(one.line() == "reported" for one in [*honest, liar])
    assert eventually(lambda: mine.global_progress.num_peers == 4, 30)
    assert mine.global_epoch == 5 and mine.standing == "in step"
    liar.say("5 100000000")
    assert eventually(lambda: mine.global_progress.samples_accumulated > 300, 30)
    time.sleep(1)
    assert mine.global_progress.samples_accumulated <= 3 * 100 + 8 * 100 and mine.global_epoch == 5
    honest[0].say("6 0")  # two of four have moved on: so has the swarm
    honest[1].say("6 0")
    assert eventually(lambda: mine.global_epoch == 6 and mine.ready_to_update_epoch and mine.standing == "late", 30)
    os.kill(liar.pid, signal.SIGKILL)


def test_a_peer_in_client_mode_is_counted_as_one(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(dht(first.get_visible_maddrs(), client_mode=True))
    a.report_local_progress(0, 100)
    b.report_local_progress(0, 100)
    assert eventually(lambda: a.global_progress.num_peers == 2 and a.global_progress.num_clients == 1, 20)
    assert b.local_progress.client_mode and not a.local_progress.client_mode


def test_reports_come_from_any_thread_and_the_speed_is_measured_without_pauses(dht):
    tracker = tracker_of(dht(), target=10**9, performance_ema_alpha=0.5)
    threads = [threading.Thread(target=lambda: [tracker.report_local_progress(0, n) for n in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.local_progress.samples_accumulated == 999
    tracker.update_epoch(1)
    for n in range(1, 11):
        time.sleep(0.01)
        with tracker.pause_updates():
            time.sleep(0.1)
        tracker.report_local_progress(1, n * 10)
    assert 10 / 0.11 < tracker.local_progress.samples_per_second < 10 / 0.01
    assert not math.isinf(tracker.estimated_next_update_time)


def test_what_is_wrong_is_said_at_once(dht):
    node = dht()
    with pytest.raises(ValueError, match="target_batch_size"):
        tracker_of(node, target=0)
    with pytest.raises(ValueError, match="min_refresh_period"):
        tracker_of(node, min_refresh_period=5)
    with pytest.raises(ValueError, match="performance_ema_alpha"):
        tracker_of(node, performance_ema_alpha=2)
    with pytest.raises(ValueError, match="prefix"):
        ProgressTracker(node, "", 1000, start=True)
    with pytest.raises(hivemind_c.HivemindError, match="run_in_background"):
        ProgressTracker(node, "run", 1000, start=False).report_local_progress(0, 1)
    tracker = tracker_of(node)
    with pytest.raises((OverflowError, TypeError, ValueError)):
        tracker.report_local_progress(-1, 1)
    with pytest.raises(ValueError, match="2\\^48"):
        tracker.report_local_progress(0, 2**60)


def test_a_tracker_outlives_its_node_without_harm(dht):
    node = dht()
    tracker = tracker_of(node)
    tracker.report_local_progress(2, 5)
    node.shutdown()
    tracker.report_local_progress(2, 6)  # it is noted, though nobody hears of it
    assert tracker.local_progress.samples_accumulated == 6
    assert eventually(lambda: not tracker.is_alive(), 10)
    tracker.shutdown()
    tracker.shutdown()
    with pytest.raises(hivemind_c.HivemindError):
        tracker.fetch_global_progress()


def test_waiting_ends_when_the_tracker_is_shut_down(dht):
    tracker = tracker_of(dht(["127.0.0.1:9"], ensure_bootstrap_success=False), max_refresh_period=10)
    tracker.shutdown()
    ended = threading.Event()

    def wait():
        try:
            tracker.fetched_global_progress_this_epoch.wait(60)
        except hivemind_c.HivemindError:
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(20)
