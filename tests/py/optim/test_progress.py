"""ProgressTracker on real nodes: what one reports all learn, and nobody waits for anything."""

import math
import os
import signal
import threading
import time

import pytest

import hivemind_c
from hivemind_c.optim import GlobalTrainingProgress, LocalTrainingProgress, ProgressTracker
from hivemind_c.dht import get_dht_time
from support import eventually

QUICK = dict(min_refresh_period=0.1, max_refresh_period=1, default_refresh_period=0.3)

TRAINER = """
    import sys, time
    from hivemind_c import DHT
    from hivemind_c.optim import ProgressTracker

    epoch, peer = int(sys.argv[1]), sys.argv[2]
    dht = DHT([peer], start=True, wait_timeout=30, startup_timeout=90)
    tracker = ProgressTracker(dht, "run", 1000, start=True, min_refresh_period=0.1, max_refresh_period=1,
        default_refresh_period=0.3)
    tracker.report_local_progress(epoch, 100)
    print("reported", flush=True)
    for line in sys.stdin:
        epoch, samples = map(int, line.split())
        tracker.report_local_progress(epoch, samples)
"""


def tracker_of(node, target=1000, **options):
    return ProgressTracker(node, "run", target, start=True, **{**QUICK, **options})


def test_lone_contributor_is_the_whole_swarm(dht):
    tracker = tracker_of(dht())
    assert tracker.global_progress.num_peers == 0 and not tracker.ready_to_update_epoch
    tracker.report_local_progress(0, 600)
    now = tracker.global_progress
    assert isinstance(now, GlobalTrainingProgress) and isinstance(tracker.local_progress, LocalTrainingProgress)
    assert (now.epoch, now.samples_accumulated, now.target_batch_size, now.num_peers, now.num_clients) == (
        0,
        600,
        1000,
        1,
        0,
    )
    assert not tracker.ready_to_update_epoch
    tracker.report_local_progress(0, 1000)
    assert tracker.ready_to_update_epoch and tracker.should_begin_matchmaking
    assert tracker.update_epoch() == 1
    assert (
        tracker.global_epoch == 1
        and tracker.global_progress.samples_accumulated == 0
        and not tracker.ready_to_update_epoch
    )
    assert tracker.local_progress.epoch == 1 and tracker.local_progress.peer_id == tracker.dht.peer_id


def test_reported_progress_reaches_the_other_peer(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(dht(first.get_visible_maddrs()))
    a.report_local_progress(3, 300)
    b.report_local_progress(3, 200)
    for tracker in (a, b):
        assert eventually(
            lambda: tracker.global_progress.num_peers == 2 and tracker.global_progress.samples_accumulated >= 500
        )
        assert tracker.global_epoch == 3 and tracker.standing == "in step"
        assert tracker.fetched_global_progress_this_epoch.wait(90)
    b.report_local_progress(3, 800)
    assert eventually(lambda: a.ready_to_update_epoch)
    b.shutdown()
    assert eventually(lambda: a.global_progress.num_peers == 1)


def test_a_newcomer_learns_the_epoch_before_it_says_anything(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(dht(first.get_visible_maddrs()))
    a.report_local_progress(7, 10)
    assert eventually(lambda: b.global_epoch == 7)
    assert b.standing == "behind" and not b.ready_to_update_epoch and b.global_progress.num_peers == 1
    b.update_epoch(7)
    assert b.standing == "in step"
    assert eventually(lambda: a.global_progress.num_peers == 2)


def test_stalled_peer_is_not_extrapolated(dht):
    first = dht()
    a, b = tracker_of(first, target=10**9), tracker_of(dht(first.get_visible_maddrs()), target=10**9)
    a.report_local_progress(0, 0)
    for n in range(1, 41):  # some 10,000 samples a second
        time.sleep(0.01)
        b.report_local_progress(0, 100 * n)
    assert eventually(lambda: a.global_progress.samples_accumulated >= 4000)
    assert eventually(
        lambda: a.global_progress.eta_next_epoch - get_dht_time() > 10**6
    )  # its program does nothing for a while
    time.sleep(1)
    assert a.global_progress.samples_accumulated <= 4000 + 500 and a.global_progress.num_peers == 2
    b.report_local_progress(0, 9000)
    assert eventually(lambda: a.global_progress.samples_accumulated >= 9000)


def test_two_trackers_of_one_node_are_two_contributors(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(first)
    other = tracker_of(dht(first.get_visible_maddrs()))
    a.report_local_progress(0, 100)
    b.report_local_progress(0, 200)
    assert eventually(lambda: other.global_progress.num_peers == 2 and other.global_progress.samples_accumulated >= 300)
    assert eventually(lambda: a.global_progress.num_peers == 2 and a.global_progress.samples_accumulated >= 300)


def test_defect_16_one_false_epoch_of_four_moves_nobody(dht, program):
    first = dht()
    mine = tracker_of(first)
    mine.report_local_progress(5, 100)
    peer = first.get_visible_maddrs()[0]
    honest, liar = [program(TRAINER, 5, peer) for _ in range(2)], program(TRAINER, 1000000, peer)
    assert all(one.line() == "reported" for one in [*honest, liar])
    assert eventually(lambda: mine.global_progress.num_peers == 4)
    assert mine.global_epoch == 5 and mine.standing == "in step"
    liar.say("5 100000000")
    assert eventually(lambda: mine.global_progress.samples_accumulated > 300)
    time.sleep(1)
    assert mine.global_progress.samples_accumulated <= 3 * 100 + 8 * 100 and mine.global_epoch == 5
    honest[0].say("6 0")  # two of four have moved on: so has the swarm
    honest[1].say("6 0")
    assert eventually(lambda: mine.global_epoch == 6 and mine.ready_to_update_epoch and mine.standing == "late")
    os.kill(liar.pid, signal.SIGKILL)


def test_a_peer_in_client_mode_is_counted_as_one(dht):
    first = dht()
    a, b = tracker_of(first), tracker_of(dht(first.get_visible_maddrs(), client_mode=True))
    a.report_local_progress(0, 100)
    b.report_local_progress(0, 100)
    assert eventually(lambda: a.global_progress.num_peers == 2 and a.global_progress.num_clients == 1)
    assert b.local_progress.client_mode and not a.local_progress.client_mode


def test_speed_is_measured_without_pauses_from_any_thread(dht):
    tracker = tracker_of(dht(), target=10**9, performance_ema_alpha=0.5)
    threads = [
        threading.Thread(target=lambda: [tracker.report_local_progress(0, n) for n in range(1000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.local_progress.samples_accumulated == 999
    tracker.update_epoch(1)
    longest, before = 0.0, time.monotonic()
    for n in range(1, 11):
        time.sleep(0.01)
        with tracker.pause_updates():
            paused = -time.monotonic()
            time.sleep(0.1)
            paused += time.monotonic()
        tracker.report_local_progress(1, n * 10)
        now = time.monotonic()
        longest, before = max(longest, now - before - paused), now
    assert 0.99 * 10 / longest < tracker.local_progress.samples_per_second < 10 / 0.01
    assert not math.isinf(tracker.estimated_next_update_time)


def test_wrong_options_are_refused_at_once(dht):
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
    assert eventually(lambda: not tracker.is_alive())
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
            tracker.fetched_global_progress_this_epoch.wait(300)
        except hivemind_c.HivemindError:
            pass
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    assert ended.wait(90)


def test_a_group_is_looked_for_when_few_enough_samples_lack(dht):
    with ProgressTracker(dht(), "lead", 100, batch_size_lead=30, start=True) as tracker:
        seen = []
        for samples in (60, 70, 100):
            tracker.report_local_progress(0, samples)
            seen.append((tracker.should_begin_matchmaking, tracker.ready_to_update_epoch))
    assert seen == [(False, False), (True, False), (True, True)]
