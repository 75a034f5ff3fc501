"""One peer, alone: the Optimizer is the optimizer that it wraps, to the bit."""

import copy
import itertools
import logging
import math
import os
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import hivemind_c as hivemind
from hivemind_c._record import EVENTS, VARIABLE
from optim_support import CLASSES, FEATURES, OPTIMIZERS, SCHEDULERS, backward, batch, flat, loss_of, make, network, settle, train, train_plainly
from support import HERE, PATIENCE

RUNS = itertools.count()


@pytest.fixture(scope="module")
def dht():
    with hivemind.DHT(host_maddrs=[HERE], start=True) as one:
        yield one


@pytest.fixture
def optimizer(dht):
    """optimizer(model, ...) makes one, in a run of its own; all are shut down when the test ends."""
    made = []

    def start(model, **options):
        made.append(make(dht, model, **{"run_id": f"run {next(RUNS)}", **options}))
        return made[-1]

    yield start
    for one in made:
        one.shutdown()


def plain(name, scheduler="none", model=None, **how):
    model = model or network()
    inner = OPTIMIZERS[name](model.parameters())
    return train_plainly(model, inner, SCHEDULERS[scheduler] and SCHEDULERS[scheduler](inner), **how)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("scheduler", [name for name in SCHEDULERS if name != "plateau"])
def test_a_lone_peer_is_bit_identical_to_plain_torch(optimizer, name, scheduler):
    model = network()
    train(model, optimizer(model, optimizer=name, scheduler=scheduler))
    assert torch.equal(flat(model), flat(plain(name, scheduler)))


WAYS = {
    "as a factory": dict(as_factory=True),
    "reusing buffers": dict(reuse_grad_buffers=True),
    "offloaded": dict(offload_optimizer=True),
    "offloaded, reusing buffers": dict(offload_optimizer=True, reuse_grad_buffers=True),
    "local updates": dict(use_local_updates=True),
    "local updates, offloaded": dict(use_local_updates=True, offload_optimizer=True),
    "state averaged at once": dict(delay_state_averaging=False),
    "every third epoch": dict(average_state_every=3),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_lone_peer_equals_plain_torch_with_undelayed_options(optimizer, way, name):
    model = network()
    train(model, optimizer(model, optimizer=name, scheduler="cosine", **WAYS[way]))
    assert torch.equal(flat(model), flat(plain(name, "cosine")))


@pytest.mark.parametrize("size", [16, 13])
def test_a_batch_of_any_size_is_exact(optimizer, size):
    model = network()
    train(model, optimizer(model, target_batch_size=size, batch_size_per_step=size), size=size)
    assert torch.equal(flat(model), flat(plain("sgd", size=size)))


def tied():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh(), nn.Linear(FEATURES, FEATURES), nn.Tanh(), nn.Linear(FEATURES, CLASSES))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize("way", WAYS)
def test_tied_weights_are_trained_as_plain_torch_trains_them(optimizer, way):
    model = tied()
    train(model, optimizer(model, optimizer="adamw", **WAYS[way]))
    assert model[2].weight is model[0].weight and torch.equal(flat(model), flat(plain("adamw", model=tied())))


def test_float64_stays_float64(optimizer):
    for options in ({}, {"offload_optimizer": True}):
        model, other = network(dtype=torch.float64), network(dtype=torch.float64)
        train(model, optimizer(model, **options))
        assert torch.equal(flat(model), flat(plain("sgd", model=other)))


FREEZING = {"plainly": {}, "offloaded": dict(offload_optimizer=True), "delayed": dict(offload_optimizer=True, delay_grad_averaging=True)}


@pytest.mark.parametrize("way", FREEZING)
def test_frozen_and_thawed_layers_step_as_in_plain_torch(optimizer, way):
    model, expected = network(), network()
    swarm, inner = optimizer(model, optimizer="adamw", **FREEZING[way]), OPTIMIZERS["adamw"](expected.parameters())
    for number, frozen in enumerate((None, 0, 0, 2, None)):
        for net in (model, expected):
            for i, layer in enumerate(net):
                layer.requires_grad_(i != frozen)
        train(model, swarm, steps=1, first=number)  # with every delay settled
        train_plainly(expected, inner, epochs=1, first=number)
        inner.zero_grad()
    assert torch.equal(flat(model), flat(expected))


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("used", [([0], [1], [1], [1]), ([1], [0, 1], [], [1]), ([0], [1, 0], [1], [0])], ids=str)
def test_unused_parameters_are_not_stepped_in_that_epoch(optimizer, used, offload):
    """Two batches in an epoch; each uses the parameters named, and in the second of the second epoch both of them."""
    mine, plain = ([nn.Parameter(torch.ones(3)) for _ in range(2)] for _ in range(2))
    model = nn.ParameterList(mine)
    swarm, inner = optimizer(model, optimizer="adamw", batch_size_per_step=16, offload_optimizer=offload), OPTIMIZERS["adamw"](plain)
    for epoch, names in enumerate(used):
        inner.zero_grad()
        for part in range(2):
            which = [0, 1] if (epoch, part) == (1, 1) else names
            for params in (mine, plain):
                if which:
                    (sum(params[i].sum() for i in which) / (2 if params is plain else 1)).backward()
            swarm.step()
            swarm.zero_grad()
        inner.step()
        assert swarm.local_epoch == epoch + 1
    assert torch.equal(torch.stack(mine), torch.stack(plain))


@pytest.mark.parametrize("offload", [False, True])
def test_layer_frozen_from_the_start_stays_so_with_a_warning(optimizer, caplog, offload):
    """The warning says what to do if the layer is thawed later."""
    model = network()
    model[0].requires_grad_(False)
    swarm = optimizer(model, optimizer="adamw", offload_optimizer=offload)
    train(model, swarm, steps=1)
    model[0].requires_grad_(True)
    before = [p.detach().clone() for p in model.parameters()]
    with caplog.at_level("WARNING", "hivemind_c.optim"):
        train(model, swarm, steps=2, first=1)
    assert [torch.equal(p, old) for p, old in zip(model.parameters(), before)] == [True, True, False, False]
    said = [line for line in caplog.messages if "did not require gradients when the Optimizer was made" in line]
    assert len(said) == 1 and "freeze some afterwards" in said[0]


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("offload", [False, True])
def test_an_epoch_of_several_batches_is_one_large_batch(optimizer, reuse, offload):
    model, expected = network(), network()
    swarm = optimizer(model, batch_size_per_step=8, reuse_grad_buffers=reuse, offload_optimizer=offload)
    inner = OPTIMIZERS["sgd"](expected.parameters())
    for epoch in range(6):
        inputs, targets = batch(epoch, 32)
        for part in range(0, 32, 8):
            loss_of(model, inputs[part : part + 8], targets[part : part + 8]).backward()
            swarm.step()
            if not reuse:
                swarm.zero_grad()
        inner.zero_grad()
        loss_of(expected, inputs, targets).backward()
        inner.step()
        assert swarm.local_epoch == epoch + 1
    torch.testing.assert_close(flat(model), flat(expected), rtol=1e-5, atol=1e-6)


def test_batches_weigh_as_many_samples_as_they_have(optimizer):
    model, expected = network(), network()
    swarm = optimizer(model, batch_size_per_step=None)
    inputs, targets = batch(0, 32)
    for start, end in ((0, 5), (5, 25), (25, 32)):
        loss_of(model, inputs[start:end], targets[start:end]).backward()
        swarm.step(batch_size=end - start)
        swarm.zero_grad()
    inner = OPTIMIZERS["sgd"](expected.parameters())
    loss_of(expected, inputs, targets).backward()
    inner.step()
    torch.testing.assert_close(flat(model), flat(expected), rtol=1e-5, atol=1e-6)


def test_the_first_batch_tells_nothing_of_a_peers_speed(optimizer):
    model = network()
    one = optimizer(model, target_batch_size=10**6)
    backward(model, 0, 32)
    one.step()
    assert one.local_progress.samples_accumulated == 32 and one.local_progress.samples_per_second == 0
    for number in (1, 2):
        time.sleep(0.1)
        backward(model, number, 32)
        one.step()
        assert 0 < one.local_progress.samples_per_second < 32 / 0.1


class Counted:
    """Counts how often an object is asked for anything."""

    def __init__(self, core):
        self.core, self.asked = core, []

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(self.core, name)


# Each is a crossing between Python and C; the swarm's figures are read for the log alone, now and then.
def test_counted_batch_asks_the_machine_twice(optimizer):
    model = network()
    one = optimizer(model, target_batch_size=10**6)
    train(model, one, steps=2)
    one.driver.machine, one.tracker._progress = Counted(one.driver.machine), Counted(one.tracker.core)
    train(model, one, steps=1)
    assert one.driver.machine.asked == ["counts_batches", "batch"] and not one.tracker._progress.asked
    one.driver.machine, one.tracker._progress = one.driver.machine.core, one.tracker._progress.core


# The machine measures it: from where the program could train on to its next batch.
def test_time_of_a_step_is_not_in_the_speed(optimizer):
    model = network()
    before = set(Path(os.environ[VARIABLE]).glob(f"*{EVENTS}"))
    one = optimizer(model, performance_ema_alpha=0.5)
    (record,) = set(Path(os.environ[VARIABLE]).glob(f"*{EVENTS}")) - before
    real = one.opt.step
    one.opt.step = lambda *_: (time.sleep(1), real())
    train(model, one, steps=3)
    assert one.local_progress.samples_per_second > 2 * 32 / 1
    assert "alpha=0x3fe" in record.read_text() and "took_us=" in record.read_text()


def test_the_model_changes_only_at_the_end_of_an_epoch(optimizer):
    model = network()
    swarm = optimizer(model, batch_size_per_step=8)
    before = flat(model)
    for number in range(3):
        backward(model, number, 8)
        swarm.step()
        swarm.zero_grad()
        assert torch.equal(flat(model), before) and swarm.local_epoch == 0
    backward(model, 3, 8)
    swarm.step()
    assert not torch.equal(flat(model), before) and swarm.local_epoch == 1
    assert swarm.local_samples == 0


@pytest.mark.parametrize("delay", [dict(delay_optimizer_step=True), dict(delay_grad_averaging=True)])
def test_defect_14_delayed_step_and_scheduler_are_only_later(optimizer, delay):
    """With batches whose gradients do not depend on the parameters, late is the only difference."""
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    swarm = optimizer(model, offload_optimizer=True, scheduler="cosine", **delay)
    expected = torch.zeros_like(model.weight).requires_grad_()
    inner = OPTIMIZERS["sgd"]([expected])
    scheduler = SCHEDULERS["cosine"](inner)
    for number in range(5):
        inputs = torch.arange(4.0) + number
        model(inputs).sum().backward()
        swarm.step()
        swarm.zero_grad()
        expected.grad = inputs[None].clone()
        inner.step()
        scheduler.step()
    assert swarm.local_epoch == 5
    settle(swarm)
    assert torch.equal(model.weight, expected)


def test_parameters_without_gradients_are_left_alone(optimizer):
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.used, self.unused, self.frozen = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 2)
            self.frozen.requires_grad_(False)

        def forward(self, inputs):
            return self.used(inputs) + self.frozen(inputs)

    for options in ({}, {"offload_optimizer": True}):
        model, expected = Partly(), Partly()
        swarm, inner = optimizer(model, optimizer="adamw", **options), OPTIMIZERS["adamw"](expected.parameters())
        for number in range(4):
            for net, opt in ((model, swarm), (expected, inner)):
                net(torch.full((32, 4), number + 1.0)).square().mean().backward()
                opt.step()
                opt.zero_grad()
        assert torch.equal(flat(model), flat(expected))


def test_half_precision_keeps_a_full_copy_when_offloaded(optimizer):
    model, expected = network(dtype=torch.bfloat16), network(dtype=torch.bfloat16).float()
    swarm = optimizer(model, optimizer="adamw", offload_optimizer=True)
    assert all(p.dtype is torch.float32 for group in swarm.opt.param_groups for p in group["params"])
    inner = OPTIMIZERS["adamw"](expected.parameters())
    twin = network(dtype=torch.bfloat16)
    for number in range(8):
        backward(model, number, 32)
        swarm.step()
        swarm.zero_grad()
        twin.zero_grad()
        backward(twin, number, 32)
        for p, t in zip(expected.parameters(), twin.parameters()):
            p.grad = t.grad.float()
        inner.step()
        with torch.no_grad():
            for p, t in zip(expected.parameters(), twin.parameters()):
                t.copy_(p)
    assert torch.equal(flat(model), flat(twin))
    for p, main in zip(expected.parameters(), swarm.opt.param_groups[0]["params"]):
        assert torch.equal(p, main)


def test_half_precision_works_in_place_too(optimizer):
    model = network(dtype=torch.bfloat16)
    train(model, optimizer(model))
    assert torch.equal(flat(model), flat(plain("sgd", model=network(dtype=torch.bfloat16))))


def test_a_closure_makes_the_gradients_and_its_loss_comes_back(optimizer):
    model = network()
    swarm = optimizer(model)

    def closure():
        swarm.zero_grad()
        loss = loss_of(model, *batch(0, 32))
        loss.backward()
        return loss

    first = swarm.step(closure)
    assert first.item() > 0 and swarm.local_epoch == 1
    assert swarm.step(closure).item() < first.item()


def test_the_gradients_of_a_step_are_still_there_after_it(optimizer):
    model = network()
    swarm = optimizer(model, batch_size_per_step=16)
    for number in range(2):
        backward(model, number, 16)
        grads = [p.grad.clone() for p in model.parameters()]
        swarm.step()
        assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), grads))
        swarm.zero_grad()
        assert all(p.grad is None for p in model.parameters())
    backward(model, 0, 16)
    swarm.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())


def test_reused_buffers_are_added_up_without_a_copy(optimizer):
    model = network()
    swarm = optimizer(model, batch_size_per_step=16, reuse_grad_buffers=True)
    places = [p.grad.data_ptr() for p in model.parameters()]
    for number in range(6):
        backward(model, number, 16)
        swarm.step()
        assert [p.grad.data_ptr() for p in model.parameters()] == places
    assert [t.data_ptr() for t in swarm.grad_averager.averaged_grads] == places
    assert swarm.local_epoch == 3


def test_reused_buffers_must_not_be_zeroed(optimizer):
    model = network()
    swarm = optimizer(model, reuse_grad_buffers=True)
    with pytest.raises(ValueError, match="do not call zero_grad"):
        swarm.zero_grad()
    backward(model, 0, 32)
    swarm.step()
    model.zero_grad()
    backward(model, 1, 32)
    with pytest.raises(ValueError, match="do not call zero_grad"):
        swarm.step()


def step_expecting(swarm, model, number, size):
    swarm.expect_batch(size)
    backward(model, number, size)
    swarm.step(batch_size=size)


def step_afterwards(swarm, model, number, size):
    backward(model, number, size)
    swarm.step(batch_size=size)


def step_with_a_closure(swarm, model, number, size):
    swarm.step(lambda: backward(model, number, size), batch_size=size)


@pytest.mark.parametrize("step", [step_expecting, step_afterwards, step_with_a_closure])
@pytest.mark.parametrize("per_step", [None, 16])
def test_reused_buffers_weigh_batches_by_their_size(optimizer, step, per_step):
    """A short last batch counts for what it is, whenever its size becomes known."""
    models = network(), network()
    options = dict(batch_size_per_step=per_step, target_batch_size=44)
    reusing, plain = (optimizer(model, reuse_grad_buffers=reuse, **options) for model, reuse in zip(models, (True, False)))
    for number, size in enumerate([16, 16, 4, 8, 8, 28, 16, 24, 4, 16]):
        step(reusing, models[0], number, size)
        backward(models[1], number, size)
        plain.step(batch_size=size)
        plain.zero_grad()
    assert reusing.local_epoch == plain.local_epoch == 3
    for one, other in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(one, other)


def test_reused_buffers_keep_nothing_while_sizes_are_known(optimizer, caplog):
    """The first batch whose size comes unexpectedly weighs as much as the others, and a warning says so; from then on what comes is kept."""
    model = network()
    swarm = optimizer(model, batch_size_per_step=16, reuse_grad_buffers=True, target_batch_size=1000)
    kept = swarm.grad_averager._reused._fresh
    for number in range(2):
        backward(model, number, 16)
        assert kept == swarm.grad_averager._reused._fresh == {}
        swarm.step()
    for number in range(2):
        backward(model, number, 4)
        swarm.step(batch_size=4)
        assert swarm.grad_averager._weights == [3, 3.25][number]
    assert sum("call expect_batch() before" in record.message for record in caplog.records) == 1


def test_the_averaged_gradient_is_clipped_by_norm(optimizer):
    for options in ({}, {"offload_optimizer": True}, {"reuse_grad_buffers": True}):
        model, expected = network(), network()
        swarm = optimizer(model, batch_size_per_step=16, max_grad_norm=0.05, **options)
        inner = OPTIMIZERS["sgd"](expected.parameters())
        for epoch in range(4):
            inner.zero_grad()
            for part in range(2):
                backward(model, 2 * epoch + part, 16)
                swarm.step()
                if not swarm.reuse_grad_buffers:
                    swarm.zero_grad()
                (loss_of(expected, *batch(2 * epoch + part, 16)) / 2).backward()
            nn.utils.clip_grad_norm_(expected.parameters(), 0.05)
            inner.step()
        torch.testing.assert_close(flat(model), flat(expected), rtol=1e-5, atol=1e-6)


def test_a_hook_sees_the_averaged_gradients_before_the_step(optimizer):
    seen = []
    model = network()
    swarm = optimizer(model, batch_size_per_step=16, averaged_grad_hook=lambda params: seen.append(torch.cat([p.grad.flatten() for p in params])))
    expected = []
    for number in range(2):
        backward(model, number, 16)
        expected.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        swarm.step()
        swarm.zero_grad()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], (expected[0] + expected[1]) / 2)


@pytest.mark.parametrize("delay_optimizer_step", [False, True])
def test_local_updates_clip_each_batch_and_show_it_to_the_hook(optimizer, delay_optimizer_step):
    """Each batch's gradient is clipped by its norm."""
    seen = []
    model, before = network(), flat(network())
    swarm = optimizer(
        model, target_batch_size=1000, as_factory=True, offload_optimizer=True, use_local_updates=True, delay_optimizer_step=delay_optimizer_step,
        max_grad_norm=0.01, averaged_grad_hook=lambda params: seen.append(sum(p.grad.square().sum() for p in params).sqrt().item()),
    )
    swarm.opt.param_groups[0].update(lr=1.0, momentum=0.0, weight_decay=0.0)
    train(model, swarm, steps=3)
    assert seen == pytest.approx([0.01] * 3, rel=1e-3)
    assert (flat(model) - before).norm() < 0.0301


def test_a_plateau_is_seen_in_the_metric_of_the_epoch(optimizer):
    model = network()
    inner = OPTIMIZERS["sgd"](model.parameters())
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(inner, factor=0.5, patience=0, threshold=0)
    swarm = hivemind.Optimizer(
        dht=optimizer(network()).dht, run_id="plateau", target_batch_size=32, batch_size_per_step=16, optimizer=inner, scheduler=scheduler
    )
    for metrics, rate in (((4.0, 2.0), 0.1), ((2.0, 2.0), 0.1), ((1.0, 5.0), 0.05), ((torch.tensor(1.0), 1), 0.05), ((3, 3), 0.025)):
        for number, metric in enumerate(metrics):
            backward(model, number, 16)
            swarm.report_metric(metric)
            swarm.step()
            swarm.zero_grad()
        assert inner.param_groups[0]["lr"] == rate
    swarm.shutdown()


def test_torch_takes_it_for_an_optimizer(optimizer):
    model = network()
    swarm = optimizer(model, offload_optimizer=True)
    assert isinstance(swarm, torch.optim.Optimizer)
    calls = []
    swarm.register_step_post_hook(lambda *_: calls.append(1))
    train(model, swarm, steps=3)
    assert len(calls) == 3
    assert [p for group in swarm.param_groups for p in group["params"]] == list(model.parameters())
    swarm.param_groups[0]["lr"] = 0.125
    assert swarm.opt.param_groups[0]["lr"] == 0.125
    with pytest.raises(ValueError, match="all groups"):
        swarm.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    assert "epoch 3" in repr(swarm)


def test_profiler_and_hooks_see_steps_as_of_torchs_optimizer(optimizer):
    model = network()
    swarm = optimizer(model)
    before = []
    hook = swarm.register_step_pre_hook(lambda *_: before.append(1))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        train(model, swarm, steps=2)
    hook.remove()
    train(model, swarm, steps=2)
    assert len(before) == 2
    assert sum(event.count for event in profiler.key_averages() if event.key == "Optimizer.step#Optimizer.step") == 2


# ---- checkpoints ----


@pytest.mark.parametrize("options", [{}, {"reuse_grad_buffers": True}, {"offload_optimizer": True}, {"offload_optimizer": True, "delay_optimizer_step": True}])
@pytest.mark.parametrize("model_first", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_defect_05_a_checkpoint_restores_exactly(optimizer, tmp_path, options, model_first, dtype):
    def run(model, swarm, first, steps):
        for number in range(first, first + steps):
            train(model, swarm, steps=1, first=number)  # with every delay settled: then both runs read the same parameters

    model = network(dtype=dtype)
    swarm = optimizer(model, optimizer="adamw", scheduler="cosine", **options)
    run(model, swarm, 0, 5)
    torch.save({"model": model.state_dict(), "optimizer": swarm.state_dict()}, tmp_path / "checkpoint")
    run(model, swarm, 5, 5)

    saved = torch.load(tmp_path / "checkpoint", weights_only=True)
    other = network(seed=1, dtype=dtype)
    again = optimizer(other, optimizer="adamw", scheduler="cosine", **options)
    run(other, again, 20, 2)
    if model_first:
        other.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    if not model_first:
        other.load_state_dict(saved["model"])
    assert again.local_epoch == 5
    assert torch.equal(flat(other), torch.cat([value.flatten() for value in saved["model"].values()]))
    run(other, again, 5, 5)
    assert again.local_epoch == swarm.local_epoch == 10
    assert torch.equal(flat(other), flat(model))
    assert again.opt.param_groups[0]["lr"] == swarm.opt.param_groups[0]["lr"]


def test_defect_05_the_callers_dictionary_is_not_changed(optimizer):
    model = network()
    swarm = optimizer(model, optimizer="adamw", scheduler="cosine", offload_optimizer=True)
    train(model, swarm)
    saved = swarm.state_dict()
    before = copy.deepcopy(saved)
    swarm.load_state_dict(saved)
    train(model, swarm)
    same = lambda a, b: (  # noqa: E731
        torch.equal(a, b) if isinstance(a, torch.Tensor)
        else a.keys() == b.keys() and all(same(a[k], b[k]) for k in a) if isinstance(a, dict)
        else len(a) == len(b) and all(map(same, a, b)) if isinstance(a, (list, tuple))
        else a == b
    )
    assert same({k: v for k, v in saved.items() if k != "state"}, {k: v for k, v in before.items() if k != "state"})
    swarm.load_state_dict(before)
    kept = copy.deepcopy(before)
    train(model, swarm)
    assert same(before, kept)


def test_a_model_loaded_by_itself_is_trained_on(optimizer):
    model, wanted = network(), network(seed=7)
    swarm = optimizer(model, optimizer="sgd", offload_optimizer=True)
    train(model, swarm, steps=3)
    model.load_state_dict(wanted.state_dict())
    backward(model, 0, 32)
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    before = flat(model)
    swarm.step()
    assert (flat(model) - before).abs().max() < 1
    assert torch.equal(before, flat(wanted)) and gradient.any()


def test_checkpoints_are_exchangeable_with_plain_torch(optimizer):
    model = network()
    inner = OPTIMIZERS["adamw"](model.parameters())
    train_plainly(model, inner, epochs=4)
    other = network(seed=5)
    swarm = optimizer(other, optimizer="adamw", offload_optimizer=True)
    other.load_state_dict(model.state_dict())
    swarm.load_state_dict(inner.state_dict())
    train(other, swarm, steps=4, first=4)
    train_plainly(model, inner, epochs=4, first=4)
    assert torch.equal(flat(other), flat(model))
    third = network(seed=6)
    third.load_state_dict(other.state_dict())
    plain_again = OPTIMIZERS["adamw"](third.parameters())
    plain_again.load_state_dict(copy.deepcopy(swarm.state_dict()))
    train_plainly(third, plain_again, epochs=2, first=8)
    train(other, swarm, steps=2, first=8)
    assert torch.equal(flat(third), flat(other))


# ---- what goes wrong in the background ----


def test_wait_for_a_delayed_step_takes_no_processor(optimizer):
    model = network()
    before = set(Path(os.environ[VARIABLE]).glob(f"*{EVENTS}"))
    swarm = optimizer(model, offload_optimizer=True, delay_optimizer_step=True)
    (record,) = set(Path(os.environ[VARIABLE]).glob(f"*{EVENTS}")) - before
    real = swarm.opt.step

    def step(*_):
        time.sleep(0.5)
        real()

    swarm.opt.step = step
    train(model, swarm, steps=2)
    looks = record.read_text().count("\non TIME ")
    assert looks < 15, "the thread that trains looks again and again"


def test_defect_10_delayed_error_is_raised_by_the_next_call(optimizer):
    model = network()
    swarm = optimizer(model, offload_optimizer=True, delay_optimizer_step=True)
    train(model, swarm, steps=2)
    before = flat(model)

    def fail(*_):
        raise RuntimeError("out of cheese")

    real, swarm.opt.step = swarm.opt.step, fail
    backward(model, 0, 32)
    swarm.step()
    swarm.state_averager.background.settle()
    with pytest.raises(RuntimeError, match="out of cheese"):
        swarm.step()
    assert swarm.local_epoch == 2, "an epoch whose step failed has not happened"
    assert torch.equal(flat(model), before)
    swarm.opt.step = real
    swarm.zero_grad()
    train(model, swarm, steps=1)
    assert swarm.local_epoch == 3 and not torch.equal(flat(model), before)


# The optimizer had stepped when the scheduler failed: the model got that step with the next epoch's only.
def test_step_before_an_error_reaches_the_model(optimizer):
    model = network()
    swarm = optimizer(model, offload_optimizer=True, scheduler="cosine")
    scheduler = swarm.state_averager.scheduler
    real, scheduler.step = scheduler.step, lambda *_: [].pop()
    backward(model, 0, 32)
    with pytest.raises(IndexError):
        swarm.step()
    scheduler.step = real
    assert swarm.local_epoch == 1, "an epoch with a step has happened"
    assert not swarm.local_samples
    swarm.zero_grad()
    backward(model, 1, 8)
    swarm.step(batch_size=8)
    assert torch.equal(flat(model), flat(plain("sgd", epochs=1))) and swarm.local_samples == 8


@pytest.mark.parametrize("delay", [dict(delay_optimizer_step=True), dict(delay_grad_averaging=True), dict(use_local_updates=True, delay_optimizer_step=True)])
def test_shutdown_finishes_a_delayed_step(optimizer, delay):
    model = network()
    swarm = optimizer(model, offload_optimizer=True, shutdown_timeout=PATIENCE, **delay)
    real = swarm.opt.step
    swarm.opt.step = lambda: (time.sleep(0.3), real())
    backward(model, 0, 32)
    swarm.step()
    swarm.shutdown()
    assert torch.equal(flat(model), flat(plain("sgd", epochs=1)))
    swarm.shutdown()


def test_shutdown_logs_an_error_of_the_last_delayed_step(optimizer, caplog):
    model = network()
    swarm = optimizer(model, offload_optimizer=True, delay_optimizer_step=True)
    swarm.opt.step = lambda: [].pop()
    backward(model, 0, 32)
    swarm.step()
    swarm.shutdown()
    assert ["IndexError: pop from empty list" in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [True]


def test_a_last_delayed_step_that_takes_too_long_is_told_of(optimizer, caplog):
    model = network()
    swarm = optimizer(model, offload_optimizer=True, delay_optimizer_step=True, shutdown_timeout=0.1)
    go_on = threading.Event()
    swarm.opt.step = go_on.wait
    backward(model, 0, 32)
    swarm.step()
    swarm.shutdown()
    go_on.set()
    assert [record.args for record in caplog.records if record.levelno == logging.WARNING] == [(0.1,)]


# ---- half precision ----


@pytest.mark.parametrize("reuse", [False, True])
def test_a_scaled_loss_changes_nothing_else(optimizer, reuse):
    model = network()
    swarm = optimizer(model, batch_size_per_step=16, reuse_grad_buffers=reuse)
    scaler = hivemind.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    expected = network()
    other = optimizer(expected, batch_size_per_step=16, reuse_grad_buffers=reuse)
    for number in range(12):
        scaler.scale(loss_of(model, *batch(number, 16))).backward()
        scaler.step(swarm)
        scaler.update()
        backward(expected, number, 16)
        other.step()
        if not reuse:
            swarm.zero_grad()
            other.zero_grad()
    assert scaler.get_scale() == 1024 * 2**4
    assert swarm.local_epoch == 6
    torch.testing.assert_close(flat(model), flat(expected), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("reuse", [False, True])
def test_an_overflow_costs_its_own_batch_alone(optimizer, reuse):
    model, expected = network(), network()
    swarm = optimizer(model, batch_size_per_step=16, reuse_grad_buffers=reuse)
    scaler = hivemind.GradScaler("cpu", init_scale=1024.0)
    for number, overflow in ((0, False), (9, True), (1, False), (2, False)):
        scaler.scale(loss_of(model, *batch(number, 16))).backward()
        if overflow:
            next(model.parameters()).grad[0, 0] = math.inf
        scaler.step(swarm)
        scaler.update()
        if not reuse:
            swarm.zero_grad()
    assert scaler.get_scale() == 512
    assert swarm.local_epoch == 1
    used = (1, 2) if reuse else (0, 1)  # what was summed up in the same buffer is lost with it
    inner = OPTIMIZERS["sgd"](expected.parameters())
    for number in used:
        (loss_of(expected, *batch(number, 16)) / 2).backward()
    inner.step()
    assert swarm.local_samples == (0 if reuse else 16)
    torch.testing.assert_close(flat(model), flat(expected), rtol=1e-5, atol=1e-6)


def test_gradients_may_be_unscaled_by_hand(optimizer):
    """A scaler that is disabled does nothing."""
    model, expected = network(), network()
    swarm = optimizer(model)
    scaler = hivemind.GradScaler("cpu", init_scale=256.0)
    scaler.scale(loss_of(model, *batch(0, 32))).backward()
    scaler.unscale_(swarm)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(swarm)
    scaler.update()
    inner = OPTIMIZERS["sgd"](expected.parameters())
    loss_of(expected, *batch(0, 32)).backward()
    nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
    inner.step()
    torch.testing.assert_close(flat(model), flat(expected), rtol=1e-6, atol=1e-7)
    off = hivemind.GradScaler(enabled=False)
    swarm.zero_grad()
    off.scale(loss_of(model, *batch(1, 32))).backward()
    off.step(swarm)
    off.update()
    assert swarm.local_epoch == 2


def test_a_scaler_that_knows_no_swarm_is_refused(optimizer):
    model = network()
    swarm = optimizer(model)
    backward(model, 0, 32)
    with pytest.raises(TypeError, match="hivemind_c.GradScaler"):
        swarm.step(grad_scaler=torch.amp.GradScaler("cpu"))


def test_the_scaler_steps_torchs_optimizers_as_torchs_own(dht):
    model, expected = network(), network()
    for net, scaler in ((model, hivemind.GradScaler(512.0)), (expected, torch.amp.GradScaler("cpu", 512.0))):
        inner = OPTIMIZERS["sgd"](net.parameters())
        scaler.scale(loss_of(net, *batch(0, 32))).backward()
        scaler.step(inner)
        scaler.update()
    assert torch.equal(flat(model), flat(expected))
