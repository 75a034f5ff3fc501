"""A peer that comes late, falls behind, or was restarted takes over the swarm's state, and is equal to the others to
the bit."""

import itertools
import logging
import math
import threading
import time

import pytest
import torch

import hivemind_c as hivemind
from hivemind_c.averaging.state import StateSharing
from hivemind_c.dht import get_dht_time
from hivemind_c.optim.notices import DISCARDED
from hivemind_c.optim.order import Order
from hivemind_c.optim.statistics import describe, restore, statistics_of
from optim_support import (
    backward,
    batch,
    controls_of,
    finds_no_group,
    flat,
    loss_of,
    meet,
    network,
    settle,
    together,
    train_together,
    train_until,
)
from support import PATIENCE, eventually

RUNS = itertools.count()


def a_ghost(dht, run, epoch):
    """Somebody who is counted, and never comes."""
    ghost = hivemind.ProgressTracker(dht, run, 16, start=True)
    ghost.report_local_progress(epoch, 1)
    return ghost


def equal_epochs(peers):
    """The epochs after which all of them have the same model."""
    common = set.intersection(*(set(one.after) for one in peers))
    return [epoch for epoch in common if all(torch.equal(one.after[epoch], peers[0].after[epoch]) for one in peers)]


WAYS = {
    "sgd": dict(optimizer="sgd", scheduler="cosine"),
    "adamw": dict(optimizer="adamw", scheduler="lambda"),
    "offloaded": dict(optimizer="adamw", offload_optimizer=True, scheduler="cosine"),
    "delayed": dict(optimizer="adamw", offload_optimizer=True, delay_grad_averaging=True),
    "compressed": dict(
        optimizer="adamw", delay_state_averaging=False, load_state_compression=hivemind.Float16Compression()
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_defect_06_a_joiner_is_soon_one_of_them(peer, way):
    run = dict(
        run_id=f"join {next(RUNS)}",
        target_batch_size=48,
        average_state_every=1000 if way != "compressed" else 1,
        **WAYS[way],
    )
    old = [peer(0, **run), peer(1, **run)]
    train_together(old, 4)
    late = peer(2, network(seed=9), **run)
    everyone = [*old, late]

    def together_for(epochs):
        done = set(late.after) & set(old[0].after) & set(old[1].after)
        equal = [epoch for epoch in done if all(torch.equal(one.after[epoch], late.after[epoch]) for one in old)]
        return len(equal) >= epochs

    train_until(everyone, lambda: together_for(3))
    assert late.optimizer.local_epoch > 4
    for one in old:  # they stop one by one, and so perhaps an epoch apart
        ahead = one.optimizer.local_epoch - late.optimizer.local_epoch
        schedulers = one.optimizer.state_averager.scheduler, late.optimizer.state_averager.scheduler
        assert schedulers == (None, None) or schedulers[0].last_epoch - schedulers[1].last_epoch == ahead
        assert ahead or one.optimizer.opt.param_groups[0]["lr"] == late.optimizer.opt.param_groups[0]["lr"]


def test_local_updates_give_joiners_the_average(peer):
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=48, use_local_updates=True)
    old = [peer(0, **run), peer(1, **run)]
    train_together(old, 4)
    late = peer(2, network(seed=9), **run)
    train_until([*old, late], lambda: late.optimizer.local_epoch > 6)
    assert (flat(late.model) - flat(old[0].model)).norm() < (flat(network(seed=9)) - flat(old[0].model)).norm()


def test_joiner_between_local_averages_takes_the_swarms_epoch(peer, caplog):
    """No state of an epoch between two averagings is ever on offer."""
    run = dict(
        run_id=f"join {next(RUNS)}",
        target_batch_size=96,
        use_local_updates=True,
        average_state_every=6,
        delay_state_averaging=False,
        scheduler="lambda",
    )
    old, records = [peer(0, **run), peer(1, **run)], []
    train_together(old, 8)
    time.sleep(1.2)  # then they have stalled, and count at one batch in this time
    late = peer(2, network(seed=9), on_epoch=records.append, **run)
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        # the others train on, slowly: their epoch 8 lasts long, however busy the machine is
        assert eventually(lambda: all(map(counts_slowly, old)) and late.optimizer.tracker.global_epoch == 8)
        late.batch()
        assert late.optimizer.local_epoch == 8 == late.optimizer.state_averager.scheduler.last_epoch
        assert torch.equal(flat(late.model), torch.cat([t.flatten() for t in averages_of(old[0])]))
        averaged = lambda: [(r.epoch % 6, r.members) for r in records if r.outcome == "averaged"]  # noqa: E731
        train_until([*old, late], lambda: (5, 3) in averaged())  # in epoch 11, or a later one on a busy machine
    assert {epoch for epoch, _ in averaged()} == {5}
    assert not any("peers claim" in line for line in caplog.messages)


def test_slow_peer_between_local_averages_keeps_its_updates(peer, dhts, caplog):
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=10**6, use_local_updates=True, scheduler="lambda")
    one = peer(0, average_state_every=6, **run)
    meet([one])
    counts_a_little(one)
    before = flat(one.model)
    other = a_ghost(dhts[1], one.optimizer.run_id, 4)
    assert eventually(lambda: one.optimizer.tracker.standing == "behind")
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        counts_a_little(one)
    assert one.optimizer.local_epoch == 4 == one.optimizer.state_averager.scheduler.last_epoch
    assert one.optimizer.local_samples == 0 and one.optimizer.reporter.samples_lost == 0  # they are in the model
    assert not torch.equal(flat(one.model), before) and not caplog.messages
    other.report_local_progress(9, 1)  # it has averaged in epoch 6, and nobody has that state
    assert eventually(lambda: one.optimizer.tracker.standing == "behind")
    doubts = lambda: any("peers claim swarm epoch 9" in line for line in caplog.messages)  # noqa: E731
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        counts_until(one, doubts)
    assert one.optimizer.local_epoch == 4
    other.shutdown()


def counts_slowly(one):
    time.sleep(0.3)
    return counts_a_little(one)


def averages_of(one):
    averager = one.optimizer.state_averager
    return averager.tensors_to_average[: len(averager.parameters.main)]


def test_a_whole_swarm_goes_on_from_its_checkpoints(peer, dhts):
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=32, optimizer="adamw", scheduler="cosine")
    first = [peer(0, **run), peer(1, **run)]
    train_together(first, 4)
    saved = [(one.model.state_dict(), one.optimizer.state_dict()) for one in first]
    for one in first:
        one.optimizer.shutdown()
    run["run_id"] = f"join {next(RUNS)}"
    second = [peer(0, network(seed=3), **run), peer(1, network(seed=4), **run)]
    for one, (model, optimizer) in zip(second, saved):
        one.model.load_state_dict(model)
        one.optimizer.load_state_dict(optimizer)
        assert one.optimizer.local_epoch == 4
    train_together(second, 7)
    assert sorted(second[0].after) == sorted(second[1].after) == [4, 5, 6]
    assert all(torch.equal(second[0].after[epoch], second[1].after[epoch]) for epoch in (4, 5, 6))


def restored(peer):
    """A peer that continues from a checkpoint of epoch 4, with an epoch ahead that is long."""
    first = peer(3, run_id=f"join {next(RUNS)}", target_batch_size=16)
    first.train(4)
    settle(first.optimizer)
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=100000)
    one = peer(0, network(seed=3), **run)
    one.optimizer.load_state_dict(first.optimizer.state_dict())
    one.model.load_state_dict(first.model.state_dict())
    return one, run


def test_checkpoint_reaches_joiners_of_its_first_epoch(peer):
    one, run = restored(peer)
    start = flat(one.model)
    train_until([one], lambda: one.optimizer.driver.machine.offered_epoch == 4)
    joiners = [peer(i, network(seed=8 + i), **run) for i in (1, 2)]
    train_until([one, *joiners], lambda: all(late.optimizer.local_epoch == 4 for late in joiners))
    assert all(torch.equal(flat(late.model), start) for late in [one, *joiners])
    assert one.optimizer.tracker.global_epoch == 4


def test_restored_peer_counts_from_its_first_step(peer):
    one, _ = restored(peer)
    assert not one.optimizer.tracker.figures().reported
    one.batch()
    assert one.optimizer.tracker.figures().reported and one.optimizer.tracker.figures().local_epoch == 4


def test_newcomer_does_not_warn_of_discarded_samples(peer, caplog):
    """A newcomer's own model is not the swarm's, so its first batches count for nothing in a good start, too."""
    notices = peer(0, run_id=f"join {next(RUNS)}").optimizer.driver.notices
    lost = Order("LOST", "REPLACED", 0, DISCARDED, 4, 960, 0.0, 0.0, 0)
    with caplog.at_level(logging.INFO, "hivemind_c.optim"):
        for notices.has_met in (False, True):
            notices.lost(lost, 0)
    told = [record.levelname for record in caplog.records if "discarding 960 samples" in record.getMessage()]
    assert told == ["INFO", "WARNING"]


def test_joiner_without_a_donor_warns_and_changes_nothing(peer, dhts, caplog):
    run = f"join {next(RUNS)}"
    one = peer(0, run_id=run, target_batch_size=16)
    ghost = a_ghost(dhts[1], run, 7)
    assert eventually(lambda: one.optimizer.tracker.global_epoch == 7)
    before = flat(one.model)
    assert not one.optimizer.is_synchronized_with_peers()
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        doubts = "peers claim swarm epoch 7", "continues in swarm epoch 0"
        assert eventually(lambda: any(all(map(line.count, doubts)) for line in caplog.messages) or one.batch())
    assert one.optimizer.local_epoch == 0 and torch.equal(flat(one.model), before)
    assert one.optimizer.is_synchronized_with_peers() and one.optimizer.tracker.global_epoch == 0
    ghost.shutdown()


# ---- a stranger claims an epoch of which nobody has a state ----


@pytest.mark.parametrize("ahead", [1, 10**6])
def test_false_claim_of_an_epoch_stops_neither_run_nor_joiner(peer, dhts, ahead):
    """The liar is there first, and always ahead: alone with it, nothing shows a trainer that it lies."""
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=48)
    liar, ended = a_ghost(dhts[3], run["run_id"], ahead), threading.Event()
    first = peer(0, **run)

    def lie():
        while not ended.wait(0.05):
            liar.report_local_progress(first.optimizer.local_epoch + ahead, 1)

    lies = threading.Thread(target=lie)
    lies.start()
    try:
        assert eventually(lambda: first.optimizer.tracker.global_epoch >= ahead)
        train_until([first], lambda: first.optimizer.local_epoch >= 2)
        second = peer(1, network(seed=9), **run)
        both = [first, second]
        train_until(both, lambda: len(equal_epochs(both)) >= 3, pause=0.1)  # a newcomer has time to load a state
        third = peer(2, network(seed=8), **run)
        train_until([*both, third], lambda: len(equal_epochs([*both, third])) >= 3, pause=0.1)
        assert max(one.optimizer.local_epoch for one in [*both, third]) < 1000
    finally:
        ended.set()
        lies.join()
        liar.shutdown()


def test_samples_count_on_while_a_far_epoch_is_doubted(peer, dhts):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=1000)
    meet([one])
    counts_a_little(one)
    liar = a_ghost(dhts[1], one.optimizer.run_id, 10**6)
    assert eventually(lambda: one.optimizer.tracker.standing == "behind")
    one.optimizer.state_averager.share_state(0)
    assert eventually(lambda: is_on_offer(dhts[2], one, 0))
    samples = 1 + counts_until(one, lambda: one.optimizer.tracker.standing == "in step")
    assert one.optimizer.local_samples == samples > 2 and one.optimizer.reporter.samples_lost == 0
    assert offered_to(dhts[2], one, 0).epoch == 0, "this peer offers its state all the time"
    liar.shutdown()


def test_each_doubt_lasts_longer(peer, dhts, caplog):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=10**6)
    meet([one])
    liar = a_ghost(dhts[1], one.optimizer.run_id, 10**6)

    def doubts():
        return [line.split(" s it does not count")[0].split()[-1] for line in caplog.messages if "peers claim" in line]

    with caplog.at_level(logging.WARNING, "hivemind_c"):
        assert eventually(lambda: counts_a_little(one) and len(doubts()) >= 3)
        assert doubts()[:3] == ["1", "2", "4"] and one.optimizer.reporter.samples_lost == 0
    liar.shutdown()


def test_joiner_refuses_a_state_that_is_nan_or_too_large(peer, dhts, caplog):
    """The joiner's initial peer offers newer states than the trainers, and nothing else."""
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=32, optimizer="adamw")
    old = [peer(1, **run), peer(3, **run)]
    train_together(old, 2)
    old[1].optimizer.state_averager.withdraw_state()
    averager = old[0].optimizer.state_averager
    averager.share_state(2)
    metadata, tensors, _ = averager.get_current_state()
    late = peer(2, network(seed=9), **run)
    most = late.optimizer.state_averager._state_size_max()
    own = sum(tensor.nbytes for tensor in tensors)
    assert own < most < 4 * own, "the limit fits the state, and little more"
    stranger = StateSharing(dhts[0], averager.prefix)
    useless = (
        ("values that are not finite", [torch.full_like(t, math.nan) for t in tensors]),
        ("and the limit is", [*tensors, torch.ones(most)]),
    )
    for epoch, (why, given) in enumerate(useless, 5):
        stranger.offer(epoch, given, metadata)
        with caplog.at_level(logging.WARNING, "hivemind_c"):
            assert late.optimizer.load_state_from_peers(timeout=PATIENCE, epoch_least=1)
            assert eventually(lambda: any(why in line for line in caplog.messages)), caplog.messages
        assert late.optimizer.local_epoch == 2 and torch.equal(flat(late.model), flat(old[0].model))
    stranger.withdraw()


USELESS = {
    "of another model": lambda tensors: [torch.zeros(1)],
    "not finite": lambda tensors: [torch.full_like(tensor, math.nan) for tensor in tensors],
}


def offers_useless_state(dht, averager, useless, epoch):
    """A stranger that offers a state of that epoch which no peer can use."""
    metadata, tensors, _ = averager.get_current_state()
    stranger = StateSharing(dht, averager.prefix)
    stranger.offer(epoch, USELESS[useless](tensors), {**metadata, "epoch": epoch})
    return stranger


@pytest.mark.parametrize("useless", USELESS)
def test_lone_trainer_refuses_a_useless_state_and_trains_on(peer, dhts, useless, caplog):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=48)
    meet([one])
    counts_a_little(one)
    stranger = offers_useless_state(dhts[1], one.optimizer.state_averager, useless, 10**6)
    liar = a_ghost(dhts[1], one.optimizer.run_id, 10**6)
    assert eventually(lambda: one.optimizer.tracker.standing == "behind")
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        train_until([one], lambda: one.optimizer.local_epoch >= 2)
    assert any("refusing the state of swarm epoch 1000000" in line for line in caplog.messages)
    with pytest.raises(hivemind.HivemindError):  # it is not tried again
        one.optimizer.state_averager.look_for_state(3.0, epoch_least=10**6)
    stranger.withdraw()
    liar.shutdown()


def test_joiner_starts_from_its_own_weights_past_a_useless_one(peer, dhts):
    """A hub keeps the state of another model, and nobody trains."""
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=1000)
    hub = offers_useless_state(dhts[1], one.optimizer.state_averager, "of another model", 7)
    before = flat(one.model)
    counts_a_little(one)
    assert one.optimizer.local_epoch == 0 and one.optimizer.local_samples == 1
    assert torch.equal(flat(one.model), before)
    assert not one.optimizer.load_state_from_peers(timeout=PATIENCE)
    hub.withdraw()


# ---- there is somebody who could give it: it is to be had, whatever that one waits for ----

WAITS_LONG = dict(matchmaking_time=PATIENCE, averaging_timeout=2 * PATIENCE, shutdown_timeout=0.1)


def offered_to(dht, one, epoch):
    """The state that a joiner gets if it wants a state of this epoch or later; an error if there is none."""
    return StateSharing(dht, one.optimizer.state_averager.prefix).load(PATIENCE, epoch_least=epoch)


def is_on_offer(dht, one, epoch):
    try:
        return StateSharing(dht, one.optimizer.state_averager.prefix).look(PATIENCE, epoch_least=epoch) >= epoch
    except hivemind.HivemindLookupError:
        return False


def counts_until(one, condition):
    """How many batches of one sample that took."""
    done = itertools.count()
    assert eventually(lambda: condition() or not (counts_a_little(one) and next(done) >= 0))
    return next(done)


def counts_a_little(one):
    backward(one.model, 0, 1)
    one.optimizer.step(batch_size=1)
    one.optimizer.zero_grad()
    return True


@pytest.mark.parametrize("way", ["searches", "has searched", "is a group of one"])
def test_joiner_stays_in_an_epoch_that_nobody_ends(peer, dhts, caplog, way):
    """The swarm seems to have all samples, as it does for a while when its trainers pause; the joiner has none."""
    more = {"averager_opts": {"min_group_size": 1}} if way == "is a group of one" else {}
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=32)
    old = [peer(0, **run), peer(1, **run)]
    train_together(old, 2)
    old[0].optimizer.state_averager.share_state(2)
    late = peer(2, network(seed=9), **run, matchmaking_time=0.5, averaging_timeout=1.0, **more)
    ghost = hivemind.ProgressTracker(dhts[3], run["run_id"], 32, start=True)
    ghost.report_local_progress(2, 1000)
    assert eventually(lambda: late.optimizer.tracker.global_progress.samples_accumulated >= 32)
    is_over = way != "has searched"
    finds_no_group(late.optimizer.grad_averager, lambda: not is_over)
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        late.batch()
    is_over = True
    assert any("stays in this swarm epoch" in line for line in caplog.messages)
    assert late.optimizer.local_epoch == 2 and torch.equal(flat(late.model), flat(old[0].model))
    ghost.shutdown()
    assert eventually(lambda: late.optimizer.tracker.global_progress.samples_accumulated < 32)
    everyone = [*old, late]
    train_until(everyone, lambda: len(equal_epochs(everyone)) >= 3)


def test_lone_stepper_offers_its_state(peer, dhts):
    """Nobody came for its gradients, so it waits for nobody to average its state."""
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16, **WAITS_LONG)
    ghost = a_ghost(dhts[1], one.optimizer.run_id, 0)
    one.wait_for(2)
    finds_no_group(one.optimizer.grad_averager)
    one.train(1)
    counts_a_little(one)
    state = offered_to(dhts[2], one, 1)
    assert state.epoch == 1 and torch.equal(torch.cat([t.flatten() for t in state.tensors[:4]]), flat(one.model))
    ghost.shutdown()


def test_peer_that_waits_trains_on_with_a_restarted_companion(peer):
    """It has a group with the former one, in which the newcomer is not."""
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=320, when_alone="wait")
    one, former = peer(0, **run), peer(1, **run)
    controls = controls_of(one.optimizer.grad_averager)
    train_together([one, former], 2)
    sought = len(controls)
    stop = threading.Event()

    def train_on():
        while not stop.is_set():
            one.batch()
            time.sleep(0.3)

    running = threading.Thread(target=train_on)
    running.start()
    try:
        while len(controls) == sought:  # its samples make a group be sought
            former.batch()
            time.sleep(0.1)
        time.sleep(1)  # the group forms
        former.optimizer.shutdown()
    finally:
        stop.set()
        running.join()
    late = peer(2, **run)
    train_until([one, late], lambda: len(equal_epochs([one, late])) >= 3)


def test_state_is_offered_while_a_dead_peer_delays_averaging(peer, dhts):
    """The peer has averaged gradients with one that died before the state was averaged, and still waits for it."""
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=32, **WAITS_LONG)
    one, dies = peer(0, **run), peer(1, **run)
    finds_no_group(dies.optimizer.state_averager)
    dies.optimizer.grad_averager.reached = dies.optimizer.state_averager.reached = lambda epoch: None
    dies.optimizer.state_averager.allow_state_sharing = False
    controls = controls_of(one.optimizer.state_averager)
    meet([one, dies])
    together(lambda: one.train(1), lambda: dies.train(1))
    after = flat(one.model)
    waits = threading.Thread(target=one.train, args=(2,))
    waits.start()
    try:
        state = offered_to(dhts[2], one, 1)
        assert one.optimizer.state_averager.background.busy, "it still waits for the other"
        assert state.epoch == 1 and torch.equal(torch.cat([t.flatten() for t in state.tensors[:4]]), after)
    finally:
        dies.optimizer.shutdown()
        controls[0].cancel()
        waits.join()


@pytest.mark.parametrize("offload", [False, True])
def test_failed_load_drops_the_sums_and_keeps_all_else(peer, offload):
    one = peer(
        0,
        run_id=f"join {next(RUNS)}",
        target_batch_size=16,
        optimizer="adamw",
        scheduler="cosine",
        offload_optimizer=offload,
    )
    one.train(2)
    settle(one.optimizer)
    one.optimizer.state_averager.withdraw_state()
    before, memory = flat(one.model), one.optimizer.state_dict()
    counts_a_little(one)
    assert one.optimizer.local_samples == 1
    assert one.optimizer.load_state_from_peers(timeout=1) is False
    assert one.optimizer.local_samples == 0 and one.optimizer.reporter.samples_lost == 1, (
        "what was summed up is dropped, and said to be lost"
    )
    after = one.optimizer.state_dict()
    assert torch.equal(flat(one.model), before) and one.optimizer.local_epoch == 2
    assert (
        after["param_groups"] == memory["param_groups"]
        and after["hivemind_c"]["scheduler"] == memory["hivemind_c"]["scheduler"]
    )
    for index, kept in memory["state"].items():
        assert all(
            torch.equal(torch.as_tensor(kept[name]), torch.as_tensor(after["state"][index][name])) for name in kept
        )


def test_lasting_epoch_is_offered_out_of_turn(peer, dhts):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16)
    one.train(3)  # quickly: not each of these can be offered
    for _ in range(14):
        counts_a_little(one)
        time.sleep(0.1)
    assert one.optimizer.local_epoch == 3 and offered_to(dhts[2], one, 3).epoch == 3


# A state of a run does not shrink: a copy and a warning each quarter of a second were of no use.
def test_state_too_large_for_the_core_is_offered_once(peer, dhts, caplog):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16)
    averager, tries = one.optimizer.state_averager, []

    def offer(made, epoch, wait=True, lineage=None):
        tries.append(epoch)
        parts = ((b"", 0, 0, False),) * 20_000  # more than a state may have
        dhts[0].core.state_offer(b"large", epoch, b"", parts, 0.0, 1000).result()

    averager.offer_state = offer
    one.train(1)
    for _ in range(12):
        counts_a_little(one)
        time.sleep(0.1)
    train_until([one], lambda: one.optimizer.local_epoch >= 3)
    assert len(tries) == 1 and not averager.allow_state_sharing
    (line,) = [line for line in caplog.messages if "offer" in line]
    assert "offering no state any more to peers that join: the state has too many parts" in line


def test_state_is_offered_while_the_epochs_end_is_awaited(peer, dhts):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16, average_state_every=1000, **WAITS_LONG)
    one.train(3)
    ghost = a_ghost(dhts[1], one.optimizer.run_id, 3)
    one.wait_for(2)
    before, controls = flat(one.model), controls_of(one.optimizer.grad_averager)
    waits = threading.Thread(target=one.train, args=(4,))
    waits.start()
    try:
        state = offered_to(dhts[2], one, 3)
        assert waits.is_alive() and one.optimizer.local_epoch == 3, "nobody has come yet"
        assert state.epoch == 3 and torch.equal(torch.cat([t.flatten() for t in state.tensors[:4]]), before)
    finally:
        assert eventually(lambda: controls) and controls[-1].cancel()
        waits.join()
        ghost.shutdown()
    assert one.optimizer.local_epoch == 4 and not torch.equal(flat(one.model), before)


def test_peer_that_only_seemed_behind_offers_its_state_again(peer, dhts, caplog):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16)
    one.train(3)
    ghost = a_ghost(dhts[1], one.optimizer.run_id, 4)
    one.wait_for(2)
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        assert eventually(
            lambda: counts_a_little(one) and any("could not load the state" in line for line in caplog.messages)
        )
    ghost.shutdown()
    assert eventually(lambda: counts_a_little(one) and one.optimizer.tracker.global_progress.num_peers == 1)
    for _ in range(10):  # what it had summed up before is lost
        counts_a_little(one)
        time.sleep(0.1)
    assert one.optimizer.local_epoch == 3 and offered_to(dhts[2], one, 3).epoch == 3


def test_peer_left_behind_by_dead_peers_offers_its_state(peer, dhts):
    """As a joiner, whom the last of those who had the epoch's group told so, and died: else the next ones find nobody,
    and begin anew."""
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16)
    one.train(3)
    one.optimizer.state_averager.lineage.is_left()
    before = flat(one.model)
    assert eventually(lambda: counts_a_little(one) and not one.optimizer.driver.machine.is_unusable)
    state = offered_to(dhts[2], one, 3)
    assert one.optimizer.local_epoch == state.epoch == 3 and torch.equal(
        torch.cat([t.flatten() for t in state.tensors[:4]]), before
    )


def test_strangers_state_that_does_not_fit_is_refused(peer):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16, optimizer="adamw", scheduler="cosine")
    one.train(2)
    settle(one.optimizer)
    averager = one.optimizer.state_averager
    metadata, tensors, _ = averager.get_current_state()
    before, kept = flat(one.model), one.optimizer.state_dict()["state"]
    damaged = [
        ({**metadata, "epoch": -1}, tensors),
        ({**metadata, "epoch": "7"}, tensors),
        ({**metadata, "parameters": 3}, tensors),
        ({**metadata, "optimizer": None}, tensors),
        ({**metadata, "optimizer": {"groups": [], "numbers": [], "tensors": []}}, tensors),
        ({**metadata, "optimizer": {**metadata["optimizer"], "numbers": [[99, "step", 1]]}}, tensors),
        ({**metadata, "optimizer": {**metadata["optimizer"], "numbers": [["x"]]}}, tensors),
        ({**metadata, "optimizer": {**metadata["optimizer"], "groups": [7]}}, tensors),
        (metadata, tensors[:-1]),
        (metadata, [tensors[0].t(), *tensors[1:]]),
        (metadata, [torch.full_like(tensors[0], math.nan), *tensors[1:]]),
        (metadata, [*tensors[:-1], torch.full_like(tensors[-1], math.inf)]),
        ([], tensors),
    ]
    for wrong, given in damaged:
        with pytest.raises(ValueError, match="from a peer"):
            averager.set_current_state(wrong, given)
        assert torch.equal(flat(one.model), before)
        now = one.optimizer.state_dict()["state"]
        assert all(torch.equal(now[i]["exp_avg"], kept[i]["exp_avg"]) for i in kept)


def test_a_strangers_numbers_are_taken_only_for_numbers(peer):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=16, optimizer="adamw", scheduler="lambda")
    one.train(2)
    settle(one.optimizer)
    averager = one.optimizer.state_averager
    metadata, tensors, _ = averager.get_current_state()
    group = {
        **metadata["optimizer"]["groups"][0],
        "lr": "large",
        "eps": float("nan"),
        "foreach": [1],
        "unheard": 1,
        "weight_decay": 0.25,
    }
    rates = {**metadata["scheduler"], "last_epoch": "x", "lr_lambdas": ["os.system"], "base_lrs": [0.5, 0.5]}
    averager.set_current_state(
        {**metadata, "optimizer": {**metadata["optimizer"], "groups": [group]}, "scheduler": rates}, tensors
    )
    inside = one.optimizer.opt.param_groups[0]
    assert (
        inside["lr"] != "large" and inside["eps"] == 1e-8 and "unheard" not in inside and inside["weight_decay"] == 0.25
    )
    assert averager.scheduler.last_epoch == 2 and averager.scheduler.base_lrs == [0.01]
    one.train(4)


def test_joiner_keeps_the_settings_of_its_own_device():
    def stepped():
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        backward(model, 0, 16)
        optimizer.step()
        return optimizer

    giver, joiner = stepped(), stepped()
    described = describe(giver)
    giver.param_groups[0]["foreach"] = True
    assert describe(giver) == described, "or no majority would name this state"
    described["groups"][0].update(
        lr=0.2, capturable=True, fused=True, foreach=True, differentiable=True
    )  # as a peer on CUDA may have it
    restore(joiner, described, [statistic.tensor for statistic in statistics_of(giver)])
    group = joiner.param_groups[0]
    assert (group["lr"], group["capturable"], group["fused"], group["foreach"], group["differentiable"]) == (
        0.2,
        False,
        None,
        None,
        False,
    )
    joiner.step()


def test_peer_slower_than_the_swarm_is_warned(peer, caplog):
    run = dict(run_id=f"join {next(RUNS)}", target_batch_size=16)
    one, late = peer(0, **run), peer(1, network(seed=9), **run)
    one.train(3)
    one.optimizer.state_averager.share_state(3)
    state = late.optimizer.state_averager
    fetch = state.fetch_state

    def fetch_slowly(*args):
        loaded = fetch(*args)
        time.sleep(3.0)  # over half of a swarm epoch, which lasts as long as the first peer has stood still
        return loaded

    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        for _ in range(2):
            assert late.optimizer.load_state_from_peers(timeout=PATIENCE)
        assert not caplog.messages
        state.fetch_state = fetch_slowly
        assert late.optimizer.load_state_from_peers(timeout=PATIENCE)
    told = [line for line in caplog.messages if "has not finished a swarm epoch with the others" in line]
    assert told and "target_batch_size" in told[0]


@pytest.mark.parametrize("reuse", [False, True])
def test_grad_scaler_can_be_updated_after_a_skipped_batch(peer, reuse):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=1000, reuse_grad_buffers=reuse, load_state_timeout=0.5)
    scaler = hivemind.GradScaler("cpu", init_scale=256.0)

    def step(number, overflow=False):
        scaler.scale(loss_of(one.model, *batch(number, 16))).backward()
        if overflow:
            next(one.model.parameters()).grad[0, 0] = math.inf
        scaler.step(one.optimizer)
        scaler.update()
        if not reuse:
            one.optimizer.zero_grad()

    step(0)
    for overflow in (False, True):
        one.optimizer.state_averager.lineage.is_left()  # it loads a state, which nobody has
        step(1, overflow)
        assert one.optimizer.local_samples == 0
    assert scaler.get_scale() == 128.0
    assert eventually(lambda: step(2) or one.optimizer.local_samples == 16)


def test_skipped_batches_do_not_stay_in_reused_buffers(peer):
    one = peer(0, run_id=f"join {next(RUNS)}", target_batch_size=1000, reuse_grad_buffers=True)

    def step(number):
        backward(one.model, number, 16)
        one.optimizer.step()

    step(0)
    one.optimizer.state_averager.lineage.is_left()  # it loads a state, which nobody has, and rests
    for number in range(1, 6):
        step(number)
    assert one.optimizer.local_samples == 0 and one.optimizer.reporter.samples_lost == 6 * 16
    while one.optimizer.driver.machine.state == "RESTING":
        step(5)
    step(6)
    expected = network()
    backward(expected, 6, 16)
    assert one.optimizer.local_samples == 16
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(one.model.parameters(), expected.parameters()))
