"""Local steps whose differences travel beside the batches."""

import contextlib
import functools
import threading
import time

import pytest
import torch

import hivemind_c as hivemind
from optim_support import anchor_of, flat, meet, network, together
from test_local_steps import SIZE, adamw, swarm  # noqa: F401

ROUND = 1.2  #: seconds that a difference travels
PAUSE = 0.1  #: seconds of a batch
BATCHES = 10  #: of one peer in an epoch
LONG = dict(target_batch_size=2 * BATCHES * SIZE, matchmaking_time=2.0)


def rounds_take(peer, seconds):
    """The peer's rounds begin so much later than they are needed."""
    averager = peer.optimizer.grad_averager
    begin = averager.average_loaded

    def begins(weight, options):
        with contextlib.suppress(hivemind.HivemindError):  # the peer may have ended
            begin(weight, **options)

    def later(weight, **options):
        timer = threading.Timer(seconds, begins, (weight, options))
        timer.daemon = True
        timer.start()
        return options["control"]

    averager.average_loaded = later


def overlapping(swarm, n=2, seconds=ROUND, **more):  # noqa: F811
    peers = swarm(n, **{**LONG, **more})
    for peer in peers:
        rounds_take(peer, seconds)
    meet(peers)
    return peers


def states_of_steps(peer):
    """Returns a list that gets the state in which each step() returns, and how long it took."""
    machine, seen, step = peer.optimizer.driver.machine, [], peer.optimizer.step

    def watched(*args, **kwargs):
        begun = time.monotonic()
        result = step(*args, **kwargs)
        seen.append((machine.state, time.monotonic() - begun))
        return result

    peer.optimizer.step = watched
    return seen


def runs_of(seen, state):
    """The lengths of the runs of this state."""
    runs, before = [], None
    for now, _ in seen:
        if now == state:
            runs[-1:] = [runs[-1] + 1] if before == state else [*runs[-1:], 1]
        before = now
    return runs


def trains_until_it_travels(peers):
    """Until the difference of each peer travels, beside a batch of the first one."""

    def trains(peer):
        while peer.optimizer.driver.machine.state != "ENDING":
            peer.batch()
            time.sleep(PAUSE)

    together(*(functools.partial(trains, peer) for peer in peers))
    peers[0].batch()
    assert peers[0].optimizer.driver.machine.state == "ENDING"


def test_batches_go_on_while_the_difference_travels(swarm):  # noqa: F811
    """Anchors are equal, each sample counts once, and what was made beside the round is ahead of the new anchor."""
    peers = overlapping(swarm)
    seen = [states_of_steps(peer) for peer in peers]
    together(*(lambda peer=peer: peer.train(4, PAUSE) for peer in peers))
    for peer, steps in zip(peers, seen):
        beside = runs_of(steps, "ENDING")
        assert len(beside) >= 3, steps
        samples = peer.optimizer.ledger.samples.figures()
        assert samples["lost"] == samples["kept"] == 0, samples
        assert samples["produced"] == SIZE * peer.batches
        assert samples["averaged"] == samples["produced"] - samples["sums"] - samples["in_flight"]
        assert not torch.equal(flat(peer.model), anchor_of(peer.optimizer))
        assert peer.optimizer.driver.machine.moves_wrong == 0
    for epoch in range(4):
        assert torch.equal(peers[0].after[epoch], peers[1].after[epoch]), epoch


def test_epochs_last_as_long_as_their_rounds(swarm):  # noqa: F811
    """From the third one on nothing is waited for, though the target is met long before a round is over."""
    peers = overlapping(swarm, target_batch_size=2 * 4 * SIZE)
    together(*(lambda peer=peer: peer.train(3, PAUSE) for peer in peers))
    seen = [states_of_steps(peer) for peer in peers]
    together(*(lambda peer=peer: peer.train(6, PAUSE) for peer in peers))
    for peer, steps in zip(peers, seen):
        blocked = sum(took for _, took in steps) / (sum(took for _, took in steps) + PAUSE * len(steps))
        assert blocked < 0.35, (blocked, steps)
        assert peer.optimizer.ledger.samples.figures()["lost"] == 0


def test_without_overlap_each_round_is_waited_for(swarm):  # noqa: F811
    peers = swarm(2, **LONG, overlap=False)
    meet(peers)
    seen = [states_of_steps(peer) for peer in peers]
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in peers))
    for peer, steps in zip(peers, seen):
        assert "ENDING" not in {state for state, _ in steps}
        assert torch.equal(flat(peer.model), anchor_of(peer.optimizer))


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan"), "half", None])
def test_wrong_overlap_is_refused(dhts, wrong):
    with pytest.raises((TypeError, ValueError), match="overlap"):
        hivemind.Optimizer(
            dht=dhts[0], run_id="overlap", target_batch_size=8, optimizer=adamw(network().parameters()), overlap=wrong
        )


def test_checkpoint_has_a_difference_that_travels(swarm):  # noqa: F811
    """It is restored as if the round had failed: the anchor of before, and all progress and samples since."""
    peers = overlapping(swarm)
    together(*(lambda peer=peer: peer.train(1, PAUSE) for peer in peers))
    trains_until_it_travels(peers)
    first = peers[0]
    samples = first.optimizer.ledger.samples
    assert samples.in_flight >= SIZE and samples.sums >= SIZE
    behind, saved, model = samples.in_flight + samples.sums, first.optimizer.state_dict(), flat(first.model)
    anchor = anchor_of(first.optimizer)
    (other,) = swarm(1, first=2, run_id=f"{first.optimizer.run_id} again")
    other.model.load_state_dict(first.model.state_dict())
    other.optimizer.load_state_dict(saved)
    assert other.optimizer.ledger.samples.sums == behind
    assert torch.equal(anchor_of(other.optimizer), anchor) and torch.equal(flat(other.model), model)


def test_checkpoint_is_restored_while_a_difference_travels(swarm):  # noqa: F811
    """The round is void, and nothing of it reaches the restored model."""
    peers = overlapping(swarm)
    saved = peers[0].optimizer.state_dict()
    before = flat(peers[0].model)
    trains_until_it_travels(peers)
    first = peers[0]
    for p, values in zip(first.model.parameters(), before.split([p.numel() for p in first.model.parameters()])):
        with torch.no_grad():
            p.copy_(values.view(p.shape))
    first.optimizer.load_state_dict(saved)
    assert first.optimizer.driver.machine.state != "ENDING"
    assert torch.equal(anchor_of(first.optimizer), before)
    samples = first.optimizer.ledger.samples.figures()
    assert samples["in_flight"] == 0 and samples["lost"] == samples["lost_by"]["RESTORED"] > 0
    time.sleep(1.5 * ROUND)
    first.batch()
    assert first.optimizer.driver.machine.moves_wrong == 0


def test_end_of_a_training_waits_for_its_round(swarm):  # noqa: F811
    """Both models are the same anchor then."""
    peers = overlapping(swarm)
    together(*(lambda peer=peer: peer.train(1, PAUSE) for peer in peers))
    trains_until_it_travels(peers)
    together(*(lambda peer=peer: peer.optimizer.keep_anchor() for peer in peers))
    for peer in peers:
        assert peer.optimizer.local_epoch == 2
        assert torch.equal(flat(peer.model), anchor_of(peers[0].optimizer))


def test_end_while_a_difference_travels_is_quick(swarm):  # noqa: F811
    peers = overlapping(swarm, seconds=30, shutdown_timeout=0.5)
    trains_until_it_travels(peers)
    begun = time.monotonic()
    together(*(lambda peer=peer: peer.optimizer.shutdown() for peer in peers))
    assert time.monotonic() - begun < 5


def test_outer_step_that_fails_at_the_end_is_warned_about(swarm, caplog):  # noqa: F811
    peers = overlapping(swarm)
    trains_until_it_travels(peers)

    def breaks():
        raise RuntimeError("this step fails, says the test")

    peers[0].optimizer.state_averager.step_optimizer = breaks
    together(*(lambda peer=peer: peer.optimizer.shutdown() for peer in peers))
    assert "the last outer step failed" in caplog.text
    assert not peers[0].optimizer.is_alive()


def test_failed_round_beside_batches_loses_nothing(swarm):  # noqa: F811
    """Both go on from where they were, with one epoch's samples more."""
    peers = overlapping(swarm)
    trains_until_it_travels(peers)
    first = peers[0]
    first.optimizer.driver.rounds.controls[0].cancel()
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in peers))
    for peer in peers:
        samples = peer.optimizer.ledger.samples.figures()
        assert samples["lost"] == 0 and samples["produced"] == SIZE * peer.batches, samples
    assert torch.equal(peers[0].after[1], peers[1].after[1])


def test_step_that_fails_beside_a_round_is_raised(swarm):  # noqa: F811
    peers = overlapping(swarm)
    trains_until_it_travels(peers)
    first = peers[0]
    inner, is_broken = first.optimizer.state_averager.inner, [True]
    step = inner.step

    def breaks(*args, **kwargs):
        if is_broken:
            raise RuntimeError("this step fails, says the test")
        return step(*args, **kwargs)

    inner.step = breaks
    with pytest.raises(RuntimeError, match="says the test"):
        first.batch()
    is_broken.clear()
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in peers))
    assert torch.equal(peers[0].after[0], peers[1].after[0]) and torch.equal(peers[0].after[1], peers[1].after[1])
    assert first.optimizer.ledger.samples.figures()["lost"] == 0
