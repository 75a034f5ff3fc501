"""Scenes of promises that were broken once: where samples go, which replica is averaged, which figures end an epoch."""

import itertools
import logging
import math
import re

import pytest
import torch

from optim_support import Peer, flat, meet, network, train_together
from test_optim_lineage import fails_once, swarm, until_equal  # noqa: F401

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
    assert reporter.samples_kept == 0 and reporter.samples_lost >= lost + kept
    for peer in peers:
        assert accounted(peer) == produced(peer)


def test_wrong_replica_does_not_move_the_others(swarm):
    """One of three has another model: the average of the states is that of the two others, to the bit."""
    peers = swarm(3, models=[network(1), network(1), network(2)], average_state_every=1)
    train_together(peers, 1)
    one, two, other = (flat(peer.model) for peer in peers)
    assert torch.equal(one, two)
    assert torch.equal(one, other)  # its weight was 0, and it took the average
    assert peers[2].optimizer.state_averager.lineage.is_wrong
    until_equal(peers)
    assert not peers[2].optimizer.state_averager.lineage.is_wrong


def test_replica_of_one_model_keeps_its_mark_for_all_epochs(swarm):
    """Two models that begin together: from the second common epoch on there is one mark, of the one that won."""
    peers = swarm(2, models=[network(1), network(2)], average_state_every=1)
    train_together(peers, 1)
    right = [peer for peer in peers if not peer.optimizer.state_averager.lineage.is_wrong]
    assert len(right) == 1
    begun = flat(right[0].model).clone()
    until_equal(peers)
    assert not right[0].optimizer.state_averager.lineage.is_wrong and not torch.equal(begun, flat(right[0].model))
    assert right[0].optimizer.state_averager.offers.loads == 0  # it never took over another one's


def test_epoch_is_not_ended_by_figures_from_before_a_wait(dhts):
    """The other peer's samples make the epoch full, and it leaves while this one waits for its background work."""
    run = dict(run_id=f"promises {next(RUNS)}", target_batch_size=64)
    one, other = (Peer(i, dhts[i], network(), **run) for i in range(2))
    try:
        meet([one, other])
        one.batch()
        background = one.optimizer.state_averager.background
        inner, seen = background.take, []

        def take(wait=False, timeout=None):
            if wait and not seen:  # the epoch looks full: the other peer leaves before it is
                other.optimizer.shutdown()
                while (peers := one.optimizer.tracker.figures().peers) > 1:
                    one.optimizer.tracker.fetch_global_progress()
                seen.append(peers)
            return inner(wait, timeout)

        background.take = take
        other.optimizer.tracker.report_local_progress(0, 48)
        while not seen:
            one.batch()
            assert one.batches < 200
        assert one.optimizer.local_epoch == 0 or one.optimizer.local_samples == 0
        samples = one.optimizer.local_samples
        while one.optimizer.local_epoch == 0:
            one.batch()
        assert samples < 64 and one.batches >= 4  # 64 samples of its own made the epoch
    finally:
        one.optimizer.shutdown()


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
    import hivemind_c as hivemind

    run = dict(run_id=f"promises {next(RUNS)}", target_batch_size=32)
    for local, warned in ((True, 1), (False, 0)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
            codec = hivemind.Float16Compression()
            one = Peer(0, dhts[0], network(), use_local_updates=local, state_averaging_compression=codec, **run)
            one.optimizer.shutdown()
        assert len([line for line in caplog.messages if re.search("Float16Compression rounds", line)]) == warned
