"""DiLoCoOptimizer: a program of OpenDiLoCo's arguments is the same training as the Optimizer with local steps."""

import functools
import inspect
import itertools
import logging

import pytest
import torch

import hivemind_c as hivemind
from optim_support import QUICK, anchor_of, backward, batch, flat, loss_of, network, together
from support import eventually

RUNS = itertools.count()
INNER = functools.partial(torch.optim.AdamW, lr=1e-2)
OUTER = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
BATCH, STEPS = 16, 4
#: the arguments that OpenDiLoCo's programs name
THEIRS = (
    "dht run_id batch_size num_inner_steps outer_optimizer inner_optimizer params scheduler averager_opts "
    "grad_compression tracker_opts all_reduce_strategy timeout_waiting_for_peers matchmaking_time"
).split()


@pytest.fixture
def diloco(dhts):
    """diloco(index, model, ...) makes one; all are shut down when the test ends."""
    made = []

    def start(index, model, **options):
        given = dict(batch_size=BATCH, num_inner_steps=STEPS, outer_optimizer=OUTER, inner_optimizer=INNER, **QUICK)
        given = {**given, "run_id": f"diloco {next(RUNS)}", **options}
        if not isinstance(given["inner_optimizer"], torch.optim.Optimizer):
            given["params"] = model.parameters()
        made.append(hivemind.DiLoCoOptimizer(dht=dhts[index], **given))
        return made[-1]

    yield start
    for one in made:
        one.shutdown()


def test_arguments_of_opendiloco_are_there():
    shown = inspect.signature(hivemind.DiLoCoOptimizer).parameters
    assert set(THEIRS) <= set(shown)
    assert not {"optimizer", "use_local_updates", "local_steps", "batch_size_per_step"} & set(shown)
    assert list(inspect.signature(hivemind.DiLoCoOptimizer.step).parameters) == "self closure batch_size scaler".split()


def test_lone_peer_trains_as_the_optimizer_with_local_steps(diloco, dhts):
    one, other = network(), network()
    theirs = diloco(0, one)
    ours = hivemind.Optimizer(
        dht=dhts[1], run_id="ours", target_batch_size=BATCH * STEPS, batch_size_per_step=BATCH,
        optimizer=INNER(other.parameters()), use_local_updates=True, outer_optimizer=OUTER, **QUICK,
    )  # fmt: skip
    try:
        for number in range(3 * STEPS):
            for model, optimizer in ((one, theirs), (other, ours)):
                backward(model, number, BATCH)
                optimizer.step()
                optimizer.zero_grad()
        assert theirs.local_epoch == ours.local_epoch == 3
        assert torch.equal(flat(one), flat(other))
        assert isinstance(theirs.inner_optimizer, torch.optim.AdamW)
    finally:
        ours.shutdown()


def test_two_peers_count_the_steps_of_both(diloco):
    """Each of the expected peers makes num_inner_steps batches or so, and anchors are equal to the bit."""
    models = [network(), network()]
    peers = [diloco(i, models[i], run_id="both", expected_peers=2, when_alone="wait") for i in (0, 1)]
    assert all(peer.target_batch_size == 2 * STEPS * BATCH for peer in peers)
    for peer in peers:
        peer.find_swarm()
    assert eventually(lambda: all(peer.tracker.global_progress.num_peers == 2 for peer in peers))
    anchors = [{}, {}]

    def trains(i):
        number = 1000 * i
        while peers[i].local_epoch < 3:
            epoch = peers[i].local_epoch
            backward(models[i], number, BATCH)
            peers[i].step()
            peers[i].zero_grad()
            number += 1
            if peers[i].local_epoch != epoch:
                anchors[i][peers[i].local_epoch] = anchor_of(peers[i])

    together(*(functools.partial(trains, i) for i in (0, 1)))
    common = anchors[0].keys() & anchors[1].keys()
    assert 3 in common and all(torch.equal(anchors[0][epoch], anchors[1][epoch]) for epoch in common)


def test_target_may_be_given(diloco):
    assert diloco(0, network(), target_batch_size=1000).target_batch_size == 1000


def test_scheduler_counts_inner_steps(diloco):
    model = network()
    halves = functools.partial(torch.optim.lr_scheduler.StepLR, step_size=STEPS, gamma=0.5)
    optimizer = diloco(0, model, scheduler=halves)
    for number in range(2 * STEPS):
        backward(model, number, BATCH)
        optimizer.step()
        optimizer.zero_grad()
    assert optimizer.inner_optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 / 4)
    saved = optimizer.state_dict()
    again = diloco(1, network(), scheduler=halves)
    again.load_state_dict(saved)
    assert again.state_averager.scheduler.state_dict()["last_epoch"] == 2 * STEPS


def test_scheduler_with_a_metric_is_refused(diloco):
    with pytest.raises(ValueError, match="ReduceLROnPlateau would follow each peer's own metric"):
        diloco(0, network(), scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau)


SCALERS = {
    "torch's": lambda: torch.amp.GradScaler("cpu", init_scale=64.0),
    "hivemind_c's": lambda: hivemind.GradScaler("cpu", init_scale=64.0),
    "torch's, off": lambda: torch.amp.GradScaler("cpu", enabled=False),
}


@pytest.mark.parametrize("unscales", ["nothing", "inner_optimizer", "optimizer"])
@pytest.mark.parametrize("scaler", SCALERS)
def test_scaled_steps_are_those_without_a_scale(diloco, scaler, unscales):
    plain, model = network(), network()
    one, other = diloco(0, plain), diloco(1, model)
    scaler = SCALERS[scaler]()
    for number in range(STEPS):
        backward(plain, number, BATCH)
        one.step()
        one.zero_grad()
        scaler.scale(loss_of(model, *batch(number, BATCH))).backward()
        if unscales != "nothing":
            scaler.unscale_(other.inner_optimizer if unscales == "inner_optimizer" else other)
        other.step(scaler=scaler)
        scaler.update()
        other.zero_grad()
    assert other.local_epoch == 1 and torch.equal(flat(plain), flat(model))


def test_batch_that_overflows_counts_for_nothing(diloco):
    model = network()
    optimizer, scaler = diloco(0, model), torch.amp.GradScaler("cpu", init_scale=64.0)
    before = flat(model)
    scaler.scale(loss_of(model, *batch(0, BATCH))).backward()
    next(model.parameters()).grad[0] = torch.inf
    optimizer.step(scaler=scaler)
    scaler.update()
    assert torch.equal(flat(model), before) and optimizer.local_samples == 0 and scaler.get_scale() == 32.0


def test_closure_and_batch_size_are_taken(diloco):
    model = network()
    optimizer = diloco(0, model)
    loss = optimizer.step(lambda: backward(model, 0, 8), batch_size=8)
    assert torch.is_tensor(loss) and optimizer.local_samples == 8


def test_options_without_effect_are_said(diloco, caplog):
    with caplog.at_level(logging.INFO, "hivemind_c.optim"):
        diloco(
            0, network(), all_reduce_strategy="WAIT_FOR_ALL", timeout_waiting_for_peers=60.0,
            state_averaging_compression=hivemind.Float16Compression(), grad_compression=hivemind.Float16Compression(),
        )  # fmt: skip
    said = [message for message in caplog.messages if "no effect of" in message]
    assert len(said) == 3 and "no effect of state_averaging_compression, because anchors are equal" in said[-1]


@pytest.mark.parametrize("given", [dict(num_inner_steps=0), dict(batch_size=None), dict(expected_peers=0.5)])
def test_numbers_out_of_range_are_refused(diloco, given):
    with pytest.raises((TypeError, ValueError), match=next(iter(given))):
        diloco(0, network(), **given)


def test_scaler_of_another_kind_is_refused(diloco):
    optimizer = diloco(0, network())
    with pytest.raises(TypeError, match="scaler must be a GradScaler"):
        optimizer.step(scaler=object())
