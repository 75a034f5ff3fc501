"""Ends of a peer with several ranks: if one rank ends, all end, in time and with a sentence that says why."""

import os
import signal
import time

import pytest
import torch

from hivemind_c import ProgressTracker
from support import HERE, eventually

KILL, TERM, STOP = signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP
LATEST_S = 10.0  #: from a rank's death to the end of fit on the others
SENTENCE_S = 2.0
EXIT_S = 60.0  #: for the end of the interpreter, which takes seconds on a busy machine
COMPUTING = dict(passes=1000, step_s=0.05)
VALIDATING = dict(passes=1000, step_s=0.01, slow_validation=0.3)


@pytest.fixture
def busy(peer, dht, tmp_path):
    """busy(when, ...) starts two ranks that do something by now: compute, wait in a round, or validate."""

    def start(when, devices=2, **options):
        about = dict(trainer=dict(default_root_dir=str(tmp_path)), stopped_s=2.0, **options)
        if when == "computing":
            running = peer(devices, **COMPUTING, **about).training()
            time.sleep(0.5)
        elif when == "validating":
            running = peer(devices, **VALIDATING, **about)
            for rank in running.ranks:
                rank.wait_for("validating")
        else:
            other = dht(host_maddrs=[HERE])
            ghost = ProgressTracker(other, "inside", 64, start=True)
            ghost.report_local_progress(0, 32)  # a peer that never comes to a round
            about["strategy"] = dict(matchmaking_time=12.0, averaging_timeout=14.0)
            addresses = [str(one) for one in other.get_visible_maddrs()]
            running = peer(devices, peers=addresses, **COMPUTING, **about).training()
            time.sleep(2.0)
            start.ghost = ghost
        return running

    yield start
    if hasattr(start, "ghost"):
        start.ghost.shutdown()


def ends_with(running, rank, sentence, began, code=None):
    """All ranks but this one have ended with the sentence, in time."""
    for other, one in enumerate(running.ranks):
        if other == rank and code is not None:
            assert one.ended(EXIT_S) == code
            continue
        assert one.ended(EXIT_S) != 0
        assert sentence in one.text, one.text
        end = one.said("end")  # none: the process ended where it was
        assert end is None or end["at"] - began < LATEST_S


@pytest.mark.parametrize("when", ["computing", "in a round", "validating"])
@pytest.mark.parametrize("rank", [0, 1])
def test_killed_rank_ends_all(busy, when, rank):
    running = busy(when)
    began = time.time()
    running.ranks[rank].kill(KILL)
    other = running.ranks[1 - rank]
    sentence = f"rank {rank} (process {running.ranks[rank].pid}) has died"
    assert eventually(lambda: sentence in other.text, timeout=SENTENCE_S), other.text
    assert eventually(lambda: other.code is not None, timeout=EXIT_S)
    ends_with(running, rank, f"rank {rank} (process", began, code=-KILL)


@pytest.mark.parametrize("rank", [0, 1])
def test_stopped_rank_ends_all_after_a_while(busy, rank):
    running = busy("computing")
    began = time.time()
    running.ranks[rank].kill(STOP)
    sentence = f"rank {rank} (process {running.ranks[rank].pid}) was stopped by a signal"
    ends_with(running, rank, sentence, began, code=-KILL)


def test_rank_that_runs_again_in_time_is_waited_for(busy):
    running = busy("computing", exact_batches=60)
    running.ranks[1].kill(STOP)
    time.sleep(1.0)
    running.ranks[1].kill(signal.SIGCONT)
    assert len({rank["parameters"] for rank in running.results()}) == 1


def test_other_ranks_wait_as_long_as_rank_0_runs(peer):
    assert {rank["epoch"] for rank in peer(2, hook="slow", passes=1, patience_s=2.0).results()} == {1}


def test_rank_0_limits_the_wait_for_a_report(peer):
    running = peer(2, hang_at=[1, 2], patience_s=2.0)
    ends_with(running, 1, "a report to rank 0 took longer than 0:00:02", time.time() + 60)


@pytest.mark.parametrize("rank", [0, 1])
def test_error_of_a_rank_is_raised_on_all(busy, rank):
    running = busy("computing", fail_at=[rank, 40])
    ends_with(running, None, "ValueError: this batch cannot be read", time.time() + 60)
    assert f"PeerError: rank {rank}: ValueError: this batch cannot be read" in running.ranks[1 - rank].text


def test_other_ranks_wait_for_the_checkpoint_of_a_denied_peer(peer, tmp_path):
    running = peer(2, denied_at=3, trainer=dict(default_root_dir=str(tmp_path)))
    ends_with(running, None, "the invitation has ended; a checkpoint is in", time.time() + 60)
    assert running.ranks[1].said("end")["at"] > running.ranks[0].said("saved")["at"]
    assert len(list(tmp_path.glob("not-admitted-*.ckpt"))) == 1


def test_ranks_that_hang_at_their_exit_end_by_an_alarm(peer):
    running = peer(2, fail_at=[1, 2], stuck_at_exit=True)
    for rank in running.ranks:
        assert rank.ended() == -signal.SIGALRM and "ValueError: this batch cannot be read" in rank.text


def test_error_of_a_rank_ends_rank_0_in_a_round(busy):
    running = busy("in a round", fail_at=[1, 2], target=16)
    ends_with(running, None, "ValueError: this batch cannot be read", time.time() + 60)


@pytest.mark.parametrize(
    "when, ranks",
    [("computing", [0]), ("computing", [1]), ("computing", [0, 1]), ("in a round", [1]), ("validating", [0, 1])],
)
def test_sigterm_stops_all_at_the_same_batch_with_one_checkpoint(busy, tmp_path, when, ranks):
    running = busy(when)
    for rank in ranks:
        running.ranks[rank].kill(TERM)
    ends = running.results()
    assert ends[0]["batches"] == ends[1]["batches"] and ends[0]["parameters"] == ends[1]["parameters"]
    assert [path.name for path in tmp_path.glob("**/*.ckpt")] == ["inside-preempted.ckpt"]
    assert "preempted: where training stood" in running.ranks[0].text
    assert "preempted" not in running.ranks[1].text


@pytest.mark.parametrize("ranks", [[0], [1], [0, 1]])
def test_sigterm_ends_a_long_validation_at_the_same_batch(peer, tmp_path, ranks):
    about = dict(trainer=dict(default_root_dir=str(tmp_path)), slow_validation=0.3, validation_batch=1)
    running = peer(2, **about)  # of 32 batches, 10 s
    for rank in running.ranks:
        rank.wait_for("validating")
    began = time.time()
    for rank in ranks:
        running.ranks[rank].kill(TERM)
    ends = running.results()
    assert max(end["at"] for end in ends) - began < 5.0
    assert len({rank.text.count('"validating"') for rank in running.ranks}) == 1
    assert [path.name for path in tmp_path.glob("**/*.ckpt")] == ["inside-preempted.ckpt"]


@pytest.fixture
def slurm(tmp_path):
    """slurm(tasks): the environment of a Slurm job, where scontrol writes down how it was called."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/scontrol").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    (tmp_path / "bin/scontrol").chmod(0o755)

    def environment(tasks):
        about = dict(JOB_ID="17", JOB_NAME="train", NODEID="0", NODELIST="127.0.0.1")
        about.update(NTASKS=str(tasks), NTASKS_PER_NODE=str(tasks))
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        return {**{f"SLURM_{name}": value for name, value in about.items()}, "PATH": path}

    return environment


@pytest.mark.parametrize("when", [COMPUTING, dict(VALIDATING, validation_batch=1)], ids=["computing", "validating"])
@pytest.mark.parametrize("devices, ranks", [(1, [0]), (2, [0]), (2, [1]), (2, [0, 1])])
def test_slurm_requeues_between_two_batches_with_one_checkpoint(peer, tmp_path, slurm, devices, ranks, when):
    about = dict(environment=slurm(devices), slurm=True, trainer=dict(default_root_dir=str(tmp_path)))
    running = peer(devices, **about, **when)
    for rank in running.ranks:
        rank.wait_for("validating" if "slow_validation" in when else "training")
    for rank in ranks:
        running.ranks[rank].kill(signal.SIGUSR1)
    assert eventually((tmp_path / "called").exists, timeout=5), running.ranks[0].text
    time.sleep(0.5)  # they train on until Slurm ends the job
    for rank in running.ranks:
        rank.kill(TERM)
    running.results()
    assert (tmp_path / "called").read_text() == "requeue 17\n"
    assert sorted(path.name for path in tmp_path.glob("*.ckpt")) == ["hpc_ckpt_1.ckpt", "inside-preempted.ckpt"]
    saved = torch.load(tmp_path / "hpc_ckpt_1.ckpt", weights_only=False)
    batches = saved["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]
    assert batches["ready"] == batches["completed"], "no batch was under way"


def test_one_of_three_ranks_is_named(busy):
    running = busy("computing", devices=3)
    began = time.time()
    running.ranks[2].kill(KILL)
    ends_with(running, 2, f"rank 2 (process {running.ranks[2].pid}) has died", began, code=-KILL)


@pytest.mark.long
@pytest.mark.parametrize("turn", range(20))
@pytest.mark.parametrize("rank", [0, 1])
def test_ends_again_and_again(busy, peer, tmp_path, rank, turn):
    running = busy("computing")
    began = time.time()
    running.ranks[rank].kill(KILL)
    ends_with(running, rank, f"rank {rank} (process", began, code=-KILL)
    running = busy("computing")
    running.ranks[rank].kill(TERM)
    running.results()
    running = peer(2, fail_at=[rank, 5])
    ends_with(running, None, "ValueError: this batch cannot be read", time.time() + 60)
    assert peer(2).results()
