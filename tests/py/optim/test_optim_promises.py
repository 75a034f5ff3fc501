"""Scenes of promises that were broken once: where samples go, which replica is averaged, which figures end an epoch."""

import functools
import itertools
import logging
import math
import re
import threading
import time

import pytest
import torch
from _hivemind_c import HivemindError

import hivemind_c as hivemind
from optim_support import Peer, finds_no_group, flat, meet, network, together, train_together, train_until
from support import eventually
from test_optim_lineage import fails_once, goes_on_alone, swarm, until_equal  # noqa: F401

RUNS = itertools.count()


def produced(peer):
    """Samples of all batches that a peer computed."""
    return 16 * peer.batches


def accounted(peer):
    """Samples that the peer says it has, or has lost."""
    peer.optimizer.state_averager.background.settle()
    figures = peer.optimizer.ledger.samples.figures()
    assert figures["holds"] and figures["in_flight"] == 0 and figures["sums"] == peer.optimizer.local_samples
    return peer.optimizer.reporter.news(10.0).samples + peer.optimizer.reporter.samples_lost


def test_samples_of_a_failed_round_are_counted_then_lost(swarm):
    """One of three steps by itself: its samples are kept, until it takes over the replica of the others."""
    peers = swarm(3)
    fails_once(peers[-1], 2)
    train_together(peers, 3)
    reporter = peers[-1].optimizer.reporter
    kept, lost = reporter.samples_kept, reporter.samples_lost
    assert kept > 0
    until_equal(peers)
    # where the training of this test stops, one may be left in a group of its own: it keeps that step's samples
    train_until(peers, lambda: not reporter.samples_kept and reporter.samples_lost >= lost + kept)
    for peer in peers:
        assert accounted(peer) == produced(peer)


def test_samples_of_a_step_without_a_group_are_kept_then_lost(swarm):
    """One of three looks for no group: no round fails, and its own step counts as one."""
    peers = swarm(3)
    goes_on_alone(peers[-1], 2)
    train_together(peers, 3)
    assert peers[-1].optimizer.reporter.samples_kept > 0
    assert accounted(peers[-1]) == produced(peers[-1])
    until_equal(peers)
    train_until(peers, lambda: not peers[-1].optimizer.reporter.samples_kept)  # another step by itself may come between
    for peer in peers:
        assert accounted(peer) == produced(peer)


@pytest.mark.parametrize("reuse", [False, True])
def test_samples_of_an_overflow_are_lost(dhts, reuse):
    run = dict(run_id=f"promises {next(RUNS)}", target_batch_size=64, reuse_grad_buffers=reuse)
    one = Peer(0, dhts[0], network(), **run)
    try:
        scaler = hivemind.GradScaler("cpu", init_scale=256.0)
        for value in (1.0, math.inf, 1.0):
            scaler.scale(one.model[0].weight.sum() * value).backward()
            scaler.step(one.optimizer)
            scaler.update()
            one.batches += 1
            if not reuse:
                one.optimizer.zero_grad()
        # the sums are in .grad, which the overflow has spoilt
        assert one.optimizer.reporter.samples_lost == (32 if reuse else 16)
        assert accounted(one) == produced(one)
    finally:
        one.optimizer.shutdown()


def is_left_out(peer, epoch):
    """The others make the step of that epoch without it."""
    averager = peer.optimizer.grad_averager
    inner = averager.average_loaded

    def average_loaded(*args, **kwargs):
        if peer.optimizer.local_epoch != epoch + 1:
            return inner(*args, **kwargs)
        kwargs["control"].cancel()
        error = HivemindError("another group has formed, says this test")
        error.status = "EXISTS"
        raise error

    averager.average_loaded = average_loaded


def test_load_that_drops_a_delayed_round_loses_its_samples(swarm):
    """The round is over in the background, and the peer loads a state before a step() has taken its outcome over."""
    records = {}
    keep = dict(on_epoch=lambda record: records.update({record.epoch: record}))
    options = dict(offload_optimizer=True, delay_grad_averaging=True)
    first, second = peers = swarm(2, each=[{}, keep], **options)
    train_together(peers, 2)
    is_left_out(second, 2)
    while not second.optimizer.driver.machine.is_unusable:
        assert second.optimizer.local_epoch <= 3
        first.batch()
        if second.optimizer.local_epoch < 3:  # its last step() has begun the round
            second.batch()
        time.sleep(0.01)
    background = second.optimizer.state_averager.background
    background.settle()
    assert background.waiting
    second.optimizer.load_state_from_peers(timeout=1.0)
    second.optimizer.ledger.deliver()
    assert accounted(second) == produced(second)
    record = records[2]
    assert record.outcome == "left out" and record.samples == 0 and record.lost_samples >= 16
    assert f"{record.lost_samples} samples lost: the others made this step without this peer" in record.why


WAYS = {"at once": {}, "all delayed": dict(offload_optimizer=True, delay_grad_averaging=True)}


@pytest.mark.parametrize("way", WAYS)
def test_monitor_counts_each_sample_once_at_any_moment(swarm, way):
    """Also while an epoch ends, when its samples are in a round, and before the sums of the next one begin."""
    peers, seen = swarm(2, target_batch_size=64, **WAYS[way]), []

    def look(peer, *ignored):
        reporter = peer.optimizer.reporter
        with_lost = reporter.news(10.0).samples + reporter.samples_lost
        seen.append((with_lost, produced(peer)))

    def train(peer):
        while peer.optimizer.local_epoch < 3:
            peer.batch()
            look(peer)
            time.sleep(0.01)

    if way == "at once":  # in the thread that trains, between the round and the end of its epoch
        for peer in peers:
            peer.optimizer.averaged_grad_hook = functools.partial(look, peer)
    meet(peers)
    together(*(functools.partial(train, peer) for peer in peers))
    assert len(seen) > 12 and all(told == made for told, made in seen), seen


def test_wrong_replica_does_not_move_the_others(swarm):
    """One of three has another model: the average of the states is that of the two others, to the bit."""
    peers = swarm(3, models=[network(1), network(1), network(2)], average_state_every=1)
    train_together(peers, 1)
    one, two, other = (flat(peer.model) for peer in peers)
    assert torch.equal(one, two) and not torch.equal(one, other)  # it averages no state, and will load theirs
    assert peers[2].optimizer.state_averager.lineage.is_wrong
    until_equal(peers)
    assert not peers[2].optimizer.state_averager.lineage.is_wrong


def test_replica_of_one_model_keeps_its_mark_for_all_epochs(swarm):
    """Two models that begin together: from the second common epoch on there is one mark, of the one that won."""
    peers = swarm(2, models=[network(1), network(2)], average_state_every=1, target_batch_size=640)
    train_together(peers, 1)
    right = [peer for peer in peers if not peer.optimizer.state_averager.lineage.is_wrong]
    assert len(right) == 1
    begun = flat(right[0].model).clone()
    until_equal(peers)
    assert not right[0].optimizer.state_averager.lineage.is_wrong and not torch.equal(begun, flat(right[0].model))
    assert right[0].optimizer.driver.machine.loads == 0  # it never took over another one's


def test_epoch_is_not_ended_by_figures_from_before_a_wait(dhts):
    """The other peer's samples make the epoch full, and it leaves while this one waits for its background work."""
    late = dict(offload_optimizer=True, delay_optimizer_step=True)
    run = dict(run_id=f"promises {next(RUNS)}", target_batch_size=3200, **late)
    one, other = (Peer(i, dhts[i], network(), **run) for i in range(2))
    state, tracker = one.optimizer.state_averager, one.optimizer.tracker
    seen, over = [], threading.Event()  # a stand-in of a step that waits for ever would keep the program from ending
    inner = state.step_optimizer

    def step_optimizer():
        while not seen and not over.is_set():
            machine = one.optimizer.driver.machine
            if machine.epoch == 1 and machine.state == "ENDING":  # it looks full, and waits for this
                other.optimizer.shutdown()  # before it is
                assert eventually(lambda: tracker.fetch_global_progress() or tracker.figures().peers == 1)
                seen.append(True)
            over.wait(0.005)
        inner()

    def is_known():
        tracker.fetch_global_progress()
        now = tracker.figures()
        return seen or (now.epoch == one.optimizer.local_epoch and now.samples >= 3136)

    try:
        meet([one, other])
        state.step_optimizer = step_optimizer
        finds_no_group(one.optimizer.grad_averager)
        while not seen:
            other.optimizer.tracker.report_local_progress(one.optimizer.local_epoch, 3136)
            assert eventually(is_known)  # so few batches of its own make each of the two epochs look full
            one.batch()
            assert one.optimizer.local_epoch < 2
        assert one.optimizer.local_epoch == 1
        samples = one.optimizer.local_samples
        assert 0 < samples < 3200
        while one.optimizer.local_epoch == 1:
            one.batch()
        assert len(one.used[1]) >= 200  # 3200 samples of its own made the epoch
    finally:
        over.set()
        one.optimizer.shutdown()
        other.optimizer.shutdown()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_value_that_is_not_finite_becomes_the_average(dhts, value):
    """With delayed local updates the difference of an average is added, which leaves such a value as it is."""
    run = dict(run_id=f"promises {next(RUNS)}", target_batch_size=32, use_local_updates=True)
    one = Peer(0, dhts[0], network(), **run)
    try:
        state = one.optimizer.state_averager
        assert state.load_state_into_averager_()
        average = state.tensors_to_average[0].clone()
        with torch.no_grad():
            next(one.model.parameters())[0, 0] = value
        state.apply_averaged_state_()
        assert torch.isfinite(flat(one.model)).all()
        assert torch.equal(next(one.model.parameters()).flatten()[0], average.flatten()[0])
    finally:
        one.optimizer.shutdown()


def test_lossy_parameters_under_local_updates_warn_once(dhts, caplog):
    run = dict(run_id=f"promises {next(RUNS)}", target_batch_size=32)
    for local, warned in ((True, 1), (False, 0)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
            codec = hivemind.Float16Compression()
            one = Peer(0, dhts[0], network(), use_local_updates=local, state_averaging_compression=codec, **run)
            one.optimizer.shutdown()
        assert len([line for line in caplog.messages if re.search("Float16Compression rounds", line)]) == warned
