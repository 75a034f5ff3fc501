"""The log: peers keep the averages of the latest swarm epochs, and another one takes them from there."""

import itertools
import logging
import time

import _hivemind_c
import pytest
import torch

import hivemind_c as hivemind
from hivemind_c.optim.grad_averager import GradientAverager
from optim_support import Peer, flat, meet, network, settle, together
from support import PATIENCE, eventually

RUNS = itertools.count()
MARK = b"0123456789abcdef"
SHORTEST_S = 0.1  #: of a swarm epoch whose average is kept (core/state/step_log.h)


@pytest.fixture
def peers(dhts):
    """peers(n, **options) makes some of one run, whose averaged gradients are in peer.seen, by epoch."""
    made = []

    def make(n, **options):
        run = f"log-{next(RUNS)}"
        for i in range(n):
            seen = []
            made.append(
                Peer(
                    i,
                    dhts[i],
                    network(),
                    run_id=run,
                    averaged_grad_hook=lambda parameters, seen=seen: seen.append([p.grad.clone() for p in parameters]),
                    **options,
                )
            )
            made[-1].seen = seen
        return made

    yield make
    for peer in made:
        peer.optimizer.shutdown()


def offered(peer):
    """(entries on offer, epoch of the oldest, bytes of all)"""
    return peer.optimizer.driver.hands.log.core.offered()


def train(peers, epochs, pause=6 * SHORTEST_S):
    meet(peers)
    together(*(lambda peer=peer: peer.train(epochs, pause) for peer in peers))
    for peer in peers:
        settle(peer.optimizer)


def digests(dht, run, epoch):
    """The digests that peers announce as the entry of an epoch (core/state/ballot.h)."""
    key = f"{run}_state_averager.log.{epoch % 64}.state".encode()
    records = dht.core.dht_get(key, True).result()
    return [bytes(record[1])[9:41] for record in records]


@pytest.mark.parametrize(
    "compression", [hivemind.NoCompression(), hivemind.Float16Compression(), hivemind.Uniform8BitQuantization()]
)
def test_absent_peer_decodes_the_average_that_others_kept(peers, dhts, compression):
    two = peers(2, grad_compression=compression, log_memory=1 << 20)
    train(two, 3)
    run = two[0].optimizer.run_id
    assert [offered(peer)[:2] for peer in two] == [(3, 0)] * 2
    log = _hivemind_c.StepLog(dhts[2].core, f"{run}_state_averager", 0)
    absent = GradientAverager(
        network().parameters(), dht=dhts[2], prefix=f"{run}-absent", compression=compression, start=True
    )
    try:
        log.want(0, 3, 3, 1 << 20)
        assert eventually(lambda: log.look(2)[0] == "THERE")
        for epoch in range(3):
            standing, before, stamps = log.look(epoch)
            assert standing == "THERE" and len(before) == 16 and len(stamps) == 1 and all(stamps)
            absent.repeat(log, epoch)
            for peer in two:
                assert all(map(torch.equal, absent.averaged_grads, peer.seen[epoch]))
        assert log.look(1)[1] != log.look(0)[1] and log.changes == 3
        found = digests(dhts[2], run, 2)
        assert len(found) == 2 and len(set(found)) == 1
        log.refuse(1)
        assert log.look(0)[0] == "THERE" and log.look(1)[0] == "COMES"
        with pytest.raises(hivemind.HivemindError, match="is not there"):
            absent.repeat(log, 1)
    finally:
        log.close()
        absent.shutdown()


def test_log_follows_the_mark_of_the_replica(peers):
    """The next entry begins where the one before leads to; a step alone, or another average, ends the log."""
    two = peers(2, log_memory=1 << 20)
    train(two, 2)
    assert [offered(peer)[:2] for peer in two] == [(2, 0)] * 2
    two[0].optimizer.state_averager.lineage.averaged(7)
    two[0].optimizer.driver.hands.log.follow()
    assert offered(two[0])[0] == 0
    two[0].optimizer.shutdown()
    two[1].train(two[1].optimizer.local_epoch + 1)  # alone
    settle(two[1].optimizer)
    assert offered(two[1])[0] == 0


def test_log_holds_one_average_by_default_and_none_with_0(peers):
    two = peers(2)
    train(two, 3)
    for peer in two:
        n, first, size = offered(peer)
        assert (n, first) == (1, 2) and size == peer.optimizer.grad_averager.core.kept_size()


def test_log_memory_is_checked_and_explained(dhts, caplog):
    for wrong, error in [(-1, ValueError), ("1 GB", TypeError), (True, TypeError), (1.5, TypeError)]:
        with pytest.raises(error, match="log_memory"):
            Peer(0, dhts[0], network(), log_memory=wrong)
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        peer = Peer(0, dhts[0], network(), run_id=f"log-{next(RUNS)}", log_memory=100)
    peer.optimizer.shutdown()
    assert "log_memory=100 is less than an average" in caplog.text
    caplog.clear()
    peer = Peer(0, dhts[0], network(), run_id=f"log-{next(RUNS)}", log_memory=0)
    assert not peer.optimizer.grad_averager.keeps_averages and "log_memory" not in caplog.text
    peer.optimizer.shutdown()


def test_averages_of_short_epochs_are_not_kept(peers):
    two = peers(2, log_memory=1 << 20)
    log, ends = two[0].optimizer.driver.hands.log, []
    inner = log.add

    def add(epoch, stamps):
        inner(epoch, stamps)
        n = offered(two[0])[0]  # once the node has taken it, too
        ends.append((time.monotonic(), n))

    log.add = add
    # the core measures at a round's end: after the end before it, and before this program hears of it
    for goal in range(10, 200, 10):
        train(two, goal, pause=0.0)
        short = [n for (since, _), _, (over, n) in zip(ends, ends[1:], ends[2:]) if over - since < SHORTEST_S]
        if len(short) >= 3:  # a busy machine makes few
            break
    assert short and not any(short)


def test_peer_without_a_repeatable_average_keeps_no_log(dhts):
    for options in (
        dict(use_local_updates=True),
        dict(grad_averager_factory=hivemind.PowerSGDGradientAverager.get_factory(averager_rank=1)),
    ):
        peer = Peer(0, dhts[0], network(), run_id=f"log-{next(RUNS)}", **options)
        assert peer.optimizer.driver.hands.log.core is None
        peer.optimizer.shutdown()


# ---- the core's log ----


@pytest.fixture
def averager(dhts):
    made = hivemind.DecentralizedAverager([torch.ones(100)], dhts[0], prefix=f"log-{next(RUNS)}", start=True)
    yield made
    made.shutdown()


def test_core_log_refuses_arguments_that_are_none(dhts, averager):
    log = _hivemind_c.StepLog(dhts[0].core, "run", 1000)
    with pytest.raises(ValueError, match="16 bytes"):
        log.add(averager.core, 1, b"short", (1,))
    for stamps in ((), range(17)):
        with pytest.raises(ValueError, match="stamps"):
            log.add(averager.core, 1, MARK, stamps)
    for stamps in ((-1,), (1 << 64,), ("one",)):
        with pytest.raises((OverflowError, TypeError)):
            log.add(averager.core, 1, MARK, stamps)
    with pytest.raises(TypeError, match="Averager"):
        log.add("averager", 1, MARK, (1,))
    with pytest.raises(hivemind.HivemindError, match="did not keep") as caught:
        log.add(averager.core, 1, MARK, (1,))
    assert caught.value.status == "NOT_FOUND"
    for wrong in ((-1, 2, 2, 3), (1, 2, 2, "3"), (1, 2, 3)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            log.want(*wrong)
    assert log.look(5) == ("NOT_WANTED", None, None) and log.progress() == (0, 0) and log.offered() == (0, 0, 0)
    log.refuse(3)
    log.end()
    log.close()
    log.close()
    with pytest.raises(hivemind.HivemindError, match="closed"):
        log.look(1)
    with pytest.raises(hivemind.HivemindValueError, match="key"):
        _hivemind_c.StepLog(dhts[0].core, "k" * 600, 1000)


def test_core_log_may_outlive_its_node(dht):
    one = dht()
    log = _hivemind_c.StepLog(one.core, "run", 1000)
    log.want(0, 5, 5, 1000)
    one.shutdown()
    with pytest.raises(hivemind.HivemindError):
        log.look(0)
    log.close()


def test_lost_entry_is_told_in_time(dhts):
    log = _hivemind_c.StepLog(dhts[0].core, f"log-{next(RUNS)}", 1000)
    begun = time.monotonic()
    log.want(7, 9, 9, 1000)
    assert log.look(7)[0] == "COMES"
    assert eventually(lambda: log.look(7)[0] == "LOST")
    assert 4 < time.monotonic() - begun < PATIENCE and log.changes == 1
    log.close()
