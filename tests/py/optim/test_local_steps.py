"""Local steps with an outer optimizer: anchors that are equal to the bit, and samples that each count once."""

import copy
import functools
import itertools
import math
import time

import _hivemind_c
import numpy as np
import pytest
import torch
from torch import nn

import hivemind_c as hivemind
from hivemind_c.optim.anchor import AnchoredParameters
from hivemind_c.optim.anchored_state import HELD, SNAPSHOT
from optim_support import (
    FEATURES,
    QUICK,
    Peer,
    anchor_of,
    backward,
    batch,
    finds_no_group,
    flat,
    loss_of,
    meet,
    network,
    together,
    train_until,
)

RUNS = itertools.count()
NESTEROV = functools.partial(torch.optim.SGD, lr=0.7, momentum=0.5, nesterov=True)
SIZE = 16


def adamw(params):
    return torch.optim.AdamW(params, lr=0.01)


def options(n=1, **more):
    return {
        "run_id": f"local steps {next(RUNS)}",
        "target_batch_size": 2 * SIZE * n,
        "batch_size_per_step": SIZE,
        "use_local_updates": True,
        "outer_optimizer": NESTEROV,
        "grad_compression": hivemind.NoCompression(),  # references are computed in float32
        **QUICK,
        **more,
    }


class LocalPeer(Peer):
    """A Peer of local steps, whose options are all given."""

    def __init__(self, index, dht, model, **options):
        self.begin(index, dht, model, hivemind.Optimizer(dht=dht, **options))


def momentum_of(optimizer):
    outer = optimizer.state_averager.optimizer
    return torch.cat([outer.state[p]["momentum_buffer"].flatten() for p in outer.param_groups[0]["params"]])


@pytest.fixture
def swarm(dhts):
    """swarm(n, ...) makes n peers of one run, with two batches each in an epoch; all end with the test."""
    made = []

    def start(n, inner=adamw, first=0, seed=0, **more):
        more = options(n, **more)
        for i in range(first, first + n):
            model = network(seed)
            made.append(LocalPeer(i, dhts[i], model, optimizer=inner(model.parameters()), **more))
        return made[-n:]

    yield start
    for peer in made:
        peer.optimizer.shutdown()


# ---- the outer step ----


def rounded_apart(anchor, momentum, difference, rate, mu, nesterov, begins):
    """By torch's operations, of which each rounds once."""
    rate, mu = (torch.tensor(value, dtype=torch.float32) for value in (rate, mu))
    if mu == 0:
        return anchor - difference * rate, momentum
    momentum = difference.clone() if begins else momentum * mu + difference
    return anchor - (difference + momentum * mu if nesterov else momentum) * rate, momentum


RULES = [(1.0, 0.0, False), (0.7, 0.5, True), (0.7, 0.9, False), (0.3, 0.9, True)]


@pytest.mark.parametrize("rate, mu, nesterov", RULES)
def test_outer_step_equals_numpy_and_torch_to_the_bit(rate, mu, nesterov):
    generator = torch.Generator().manual_seed(73)
    shape = 1001, 7
    anchor, momentum = torch.randn(shape, generator=generator), torch.full(shape, math.nan)
    expected, remembered = anchor.clone(), momentum.clone()
    by_numpy, numpys = anchor.numpy().copy(), None
    for step in range(4):
        difference = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-9, 9, shape, generator=generator)
        begins = step == 0
        _hivemind_c.outer_step(((anchor, momentum if mu else None, difference, begins),), rate, mu, nesterov)
        expected, remembered = rounded_apart(expected, remembered, difference, rate, mu, nesterov, begins)
        d, r, m = difference.numpy(), np.float32(rate), np.float32(mu)
        numpys = d.copy() if begins or not mu else numpys * m + d
        by_numpy = by_numpy - (d + numpys * m if nesterov else numpys) * r
        assert torch.equal(anchor, expected)
        assert np.array_equal(anchor.numpy(), by_numpy)
        if mu:
            assert torch.equal(momentum, remembered)


def test_outer_step_that_is_not_finite_changes_nothing():
    anchors, momenta = [torch.ones(5), torch.ones(3)], [torch.ones(5), torch.ones(3)]
    differences = [torch.ones(5), torch.tensor([1.0, math.nan, 1.0])]
    with pytest.raises(ValueError, match="parameter 1 would not be finite"):
        _hivemind_c.outer_step(tuple(zip(anchors, momenta, differences, [False, False])), 0.7, 0.5, True)
    assert all(torch.equal(t, torch.ones_like(t)) for t in (*anchors, *momenta))


@pytest.mark.parametrize(
    "wrong",
    [
        ((torch.ones(3), None, torch.ones(3), True),),
        ((torch.ones(3), torch.ones(2), torch.ones(3), True),),
        ((torch.ones(3), torch.ones(3), torch.ones(4), True),),
        ((torch.ones(3).double(), torch.ones(3), torch.ones(3), True),),
    ],
)
def test_outer_step_refuses_tensors_that_do_not_fit(wrong):
    with pytest.raises(ValueError):
        _hivemind_c.outer_step(wrong, 0.7, 0.5, True)


def test_outer_step_refuses_rules_out_of_range():
    for rule in [(math.nan, 0.0, False), (0.7, -1.0, False), (0.7, math.inf, False), (0.7, 0.0, True)]:
        with pytest.raises(ValueError):
            _hivemind_c.outer_step((), *rule)


# ---- what is averaged with whom ----


class Reference:
    """The anchor as plain torch makes it of the batches that peers have used."""

    def __init__(self, peers, rate=0.7, mu=0.5, nesterov=True, inner=adamw):
        self.rule = rate, mu, nesterov
        self.models = [network() for _ in peers]
        self.inner = [inner(model.parameters()) for model in self.models]
        self.anchor, self.momentum, self.begins = flat(self.models[0]), None, True

    def train(self, which, numbers):
        for number in numbers:
            self.inner[which].zero_grad()
            backward(self.models[which], number, SIZE)
            self.inner[which].step()

    def end(self, weights):
        """The outer step with these peers' differences, which become part of the anchor."""
        total = sum(weights.values())
        difference = sum((self.anchor - flat(self.models[i])) * (w / total) for i, w in weights.items())
        self.anchor, self.momentum = rounded_apart(self.anchor, self.momentum, difference, *self.rule, self.begins)
        self.begins = False
        for which in weights:
            torch.nn.utils.vector_to_parameters(self.anchor.clone(), self.models[which].parameters())


def assert_as_reference(peers, epochs, reference):
    for epoch in range(epochs):
        for i, peer in enumerate(peers):
            reference.train(i, peer.used.get(epoch, ()))
        most = peers[0].optimizer.target_batch_size  # that a difference weighs
        used = {i: SIZE * len(peer.used[epoch]) for i, peer in enumerate(peers) if peer.used.get(epoch)}
        reference.end({i: min(samples, most) for i, samples in used.items()})
        for peer in peers:
            if len(peers) == 1:
                assert torch.equal(peer.after[epoch], reference.anchor)
            torch.testing.assert_close(peer.after[epoch], reference.anchor, rtol=1e-4, atol=2e-6)


def assert_equal_anchors(peers, epochs):
    for epoch in range(epochs):
        for peer in peers[1:]:
            assert torch.equal(peer.after[epoch], peers[0].after[epoch]), (peer.index, epoch)


def assert_all_counted(peers):
    for peer in peers:
        places = peer.optimizer.ledger.samples.figures()
        assert places["lost"] == places["in_flight"] == 0, places
        assert places["produced"] == SIZE * peer.batches == places["averaged"] + places["kept"] + places["sums"], places


def test_lone_peer_steps_with_its_own_difference(swarm):
    (peer,) = swarm(1)
    peer.train(4)
    assert_as_reference([peer], 4, Reference([peer]))
    assert torch.equal(flat(peer.model), peer.after[3])
    assert_all_counted([peer])


@pytest.mark.parametrize("n", [2, 3])
def test_peers_have_equal_anchors_after_each_epoch(swarm, n):
    peers = swarm(n)
    meet(peers)
    together(*(lambda peer=peer: peer.train(4) for peer in peers))
    assert_equal_anchors(peers, 4)
    assert_as_reference(peers, 4, Reference(peers))
    assert len({peer.optimizer.state_averager.lineage.mark for peer in peers}) == 1
    assert torch.equal(momentum_of(peers[0].optimizer), momentum_of(peers[1].optimizer))
    assert_all_counted(peers)


def test_rate_one_and_one_step_is_exact_averaging(swarm):
    """One batch of SGD at each peer, then the mean of what it changed, is SGD with the mean gradient."""

    def sgd(params):
        return torch.optim.SGD(params, lr=0.1)

    peers = swarm(2, sgd, target_batch_size=2 * SIZE, outer_optimizer=functools.partial(torch.optim.SGD, lr=1.0))
    meet(peers)
    together(*(lambda peer=peer: peer.train(4) for peer in peers))
    assert_equal_anchors(peers, 4)
    model = network()
    inner = sgd(model.parameters())
    for epoch in range(4):
        used = [peer.used.get(epoch, []) for peer in peers]
        if max(map(len, used)) > 1:
            break  # a peer was quicker than the count, and has made two steps
        inner.zero_grad()
        numbers = sum(used, [])
        for number in numbers:
            (loss_of(model, *batch(number, SIZE)) / len(numbers)).backward()
        inner.step()
        torch.testing.assert_close(peers[0].after[epoch], flat(model), rtol=1e-4, atol=2e-6)


def fails_while(peers, condition):
    """While it is so, no peer finds a group; returns the searches of each."""
    searches = [0] * len(peers)

    def fails(i):
        searches[i] += condition()
        return condition()

    for i, peer in enumerate(peers):
        finds_no_group(peer.optimizer.grad_averager, when=functools.partial(fails, i))
    return searches


def test_failed_round_makes_no_step_and_its_samples_count_later(swarm):
    peers = swarm(2)
    is_broken = [True]
    searches = fails_while(peers, lambda: is_broken[0])
    meet(peers)
    marks = [peer.optimizer.state_averager.lineage.mark for peer in peers]

    def trains_in_vain(i):
        while searches[i] < 3:
            peers[i].batch()

    together(*(functools.partial(trains_in_vain, i) for i in range(2)))
    for peer, mark in zip(peers, marks):
        optimizer = peer.optimizer
        assert (optimizer.local_epoch, optimizer.state_averager.lineage.mark) == (0, mark)
        assert torch.equal(anchor_of(optimizer), flat(network()))
        assert optimizer.ledger.samples.sums == SIZE * peer.batches > 0
    carried, records = [SIZE * peer.batches for peer in peers], ([], [])
    for peer, own in zip(peers, records):
        peer.optimizer.on_epoch = own.append
    is_broken[0] = False
    together(*(lambda peer=peer: peer.train(2) for peer in peers))
    assert_equal_anchors(peers, 2)
    assert_as_reference(peers, 2, Reference(peers))
    assert_all_counted(peers)
    for samples, (first, *_) in zip(carried, records):
        assert first.outcome == "averaged" and samples <= first.carried_samples <= first.samples


def test_peer_steps_alone_once_the_other_has_left(swarm):
    peers = swarm(2, matchmaking_time=1.0, averaging_timeout=10.0)
    meet(peers)
    together(*(lambda peer=peer: peer.train(1) for peer in peers))
    last, gone = peers
    gone.optimizer.shutdown()  # says goodbye, so it is not counted any more
    last.train(3)
    assert len(last.after) == 3
    assert_all_counted([last])


# ---- progress that an average lacks ----


def test_values_that_missed_an_average_stay_ahead_of_the_anchor():
    """Progress of 1 in each value; the average lacks the second parameter's last and the third one's first values."""
    model = [torch.nn.Parameter(torch.zeros(shape)) for shape in [(2, 3), (4,), (3,)]]
    parameters = AnchoredParameters(model)
    with torch.no_grad():
        for p in model:
            p.add_(1)
    parameters.keep_progress(model, [(8, 3)])  # 6 values, then 4, then 3
    with torch.no_grad():
        for main in parameters.main:
            main.fill_(10)  # the outer step
    parameters.push()
    expected = [torch.full((2, 3), 10.0), torch.tensor([10.0, 10, 11, 11]), torch.tensor([11.0, 10, 10])]
    assert all(torch.equal(p, e) for p, e in zip(model, expected))
    parameters.push()  # once only
    assert all(torch.equal(p, torch.full_like(p, 10)) for p in model)


def test_average_without_a_peer_leaves_its_progress(swarm):
    """The second peer's values reach no average in the first epoch, as if they had come too late."""
    peers = swarm(2)
    meet(peers)
    left = peers[1].optimizer
    whole = left.grad_averager.take_averages
    values = sum(p.numel() for p in left.anchor)

    class Missed:
        """A control of which nothing was averaged."""

        missed = [(0, values + 2)]

        def __init__(self, control):
            self._control = control

        def __getattr__(self, name):
            return getattr(self._control, name)

        def details(self, timeout=None):
            members, *rest = self._control.details(timeout)
            return tuple((*m[:5], 0.0 if m[1] else m[5]) for m in members), *rest

    def misses(*args, **kwargs):
        result = whole(*args, **kwargs)
        if left.local_epoch == 0:
            left.grad_averager.rounds = [Missed(one) for one in left.grad_averager.rounds]
        return result

    left.grad_averager.take_averages = misses
    together(*(lambda peer=peer: peer.train(1) for peer in peers))
    mine = SIZE * len(peers[1].used[0])
    assert left.ledger.samples.sums == left.last_epoch.carried_samples == mine
    reference = Reference(peers)
    for i, peer in enumerate(peers):
        reference.train(i, peer.used[0])
    progress = flat(reference.models[1]) - reference.anchor
    torch.testing.assert_close(flat(peers[1].model) - anchor_of(left), progress, rtol=1e-4, atol=2e-6)
    assert torch.equal(anchor_of(left), anchor_of(peers[0].optimizer))


# ---- joiners and checkpoints ----


def test_joiner_loads_anchor_and_momentum(swarm, dhts):
    peers = swarm(2)
    meet(peers)
    together(*(lambda peer=peer: peer.train(2) for peer in peers))
    (joiner,) = swarm(1, first=2, seed=5, run_id=peers[0].optimizer.run_id, target_batch_size=4 * SIZE)
    everyone = [*peers, joiner]
    train_until(everyone, lambda: min(len(peer.after) for peer in everyone) >= 2 and joiner.optimizer.local_epoch >= 5)
    common = set.intersection(*(set(peer.after) for peer in everyone))
    equal = [e for e in common if all(torch.equal(peer.after[e], peers[0].after[e]) for peer in everyone)]
    assert max(common) in equal
    assert joiner.optimizer.state_averager.inner.state  # its own


@pytest.mark.parametrize("order", ["model first", "model last", "model left out"])
def test_checkpoint_between_outer_steps_resumes_to_the_bit(swarm, dhts, order):
    (peer,) = swarm(1)
    peer.train(2)
    peer.batch()  # one of two
    saved = copy.deepcopy((peer.model.state_dict(), peer.optimizer.state_dict()))
    first = peer.batches
    for _ in range(5):
        peer.batch()
    expected = anchor_of(peer.optimizer), flat(peer.model), momentum_of(peer.optimizer), peer.optimizer.local_epoch
    peer.optimizer.shutdown()
    (again,) = swarm(1, seed=9)
    again.enter()
    if order == "model first":
        again.model.load_state_dict(saved[0])
    again.optimizer.load_state_dict(saved[1])
    if order == "model last":
        again.model.load_state_dict(saved[0])
    assert (again.optimizer.local_epoch, again.optimizer.local_samples) == (2, SIZE)
    for i in range(5):
        again.batch(first + i)
    result = anchor_of(again.optimizer), flat(again.model), momentum_of(again.optimizer), again.optimizer.local_epoch
    assert all(torch.equal(a, b) for a, b in zip(result[:3], expected[:3]))
    assert result[3] == expected[3]


# ---- buffers ----


def normed(seed=0, width=8):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 3))


@pytest.fixture
def normed_swarm(dhts):
    """As swarm, of models with a batch norm, whose running statistics are averaged."""
    made = []

    def start(n, first=0, width=8, **more):
        more = options(n, **more)
        for i in range(first, first + n):
            model = normed(i if first else 0, width)
            made.append(LocalPeer(i, dhts[i], model, optimizer=adamw(model.parameters()), buffers=model, **more))
        return made[-n:]

    yield start
    for peer in made:
        peer.optimizer.shutdown()


def statistics_of(peer):
    return torch.cat([peer.model[1].running_mean, peer.model[1].running_var])


def test_float_buffers_are_averaged_as_values(normed_swarm):
    """Outer momentum would make a variance negative. Each peer takes its statistics before its epoch's end."""
    peers = normed_swarm(2, outer_optimizer=functools.partial(NESTEROV, lr=2.0, momentum=0.9))
    meet(peers)
    before, after, target = {}, {}, peers[0].optimizer.target_batch_size
    for peer in peers:
        load, apply = peer.optimizer.state_averager.buffers.load, peer.optimizer.state_averager.buffers.apply

        def noted(peer=peer, load=load):
            before[peer.index] = statistics_of(peer).clone()
            load()

        def applied(peer=peer, apply=apply):
            apply()
            after.setdefault(peer.index, statistics_of(peer).clone())

        peer.optimizer.state_averager.buffers.load, peer.optimizer.state_averager.buffers.apply = noted, applied
    together(*(lambda peer=peer: peer.train(1) for peer in peers))
    assert torch.equal(after[0], after[1])
    used = [min(SIZE * len(peer.used[0]), target) for peer in peers]  # that a difference weighs
    mean = sum(before[i] * n for i, n in enumerate(used)) / sum(used)
    torch.testing.assert_close(after[0], mean, rtol=1e-5, atol=1e-6)
    together(*(lambda peer=peer: peer.train(6) for peer in peers))
    assert_equal_anchors(peers, 6)
    assert all((peer.model[1].running_var > 0).all() for peer in peers)


def test_lone_peer_with_buffers_steps_its_anchor(normed_swarm):
    """Its buffers are the swarm's, so no sample of theirs is to be averaged; they are finite all the same."""
    (peer,) = normed_swarm(1)
    peer.train(3)
    assert_all_counted([peer])
    assert not torch.equal(peer.after[2], flat(normed()))


def test_joiner_has_the_buffers_of_the_last_average(normed_swarm):
    peers = normed_swarm(2)
    meet(peers)
    averaged, loaded = {}, []
    buffers, first = peers[0].optimizer.state_averager.buffers, peers[0].optimizer
    apply = buffers.apply

    def applied():
        apply()
        averaged[first.local_epoch + 1] = statistics_of(peers[0]).clone()

    buffers.apply = applied
    together(*(lambda peer=peer: peer.train(2) for peer in peers))
    (joiner,) = normed_swarm(1, first=2, run_id=first.run_id, target_batch_size=4 * SIZE)
    state = joiner.optimizer.state_averager
    take = state.set_current_state

    def takes(metadata, tensors):
        take(metadata, tensors)
        loaded.append((metadata["epoch"], statistics_of(joiner).clone()))

    state.set_current_state = takes
    everyone = [*peers, joiner]
    train_until(everyone, lambda: min(len(peer.after) for peer in everyone) >= 2 and joiner.optimizer.local_epoch >= 5)
    for epoch, statistics in loaded:
        assert torch.equal(statistics, averaged[epoch])
    assert loaded


def test_buffer_that_is_not_finite_costs_the_difference(normed_swarm):
    peers = normed_swarm(2)
    meet(peers)

    def poisons():
        with torch.no_grad():
            peers[1].model[1].running_var.fill_(math.nan)
        peers[1].train(1)

    together(lambda: peers[0].train(1), poisons)
    assert_equal_anchors(peers, 1)
    assert peers[1].optimizer.ledger.samples.figures()["lost_by"]["NOT_FINITE"] > 0
    assert torch.equal(statistics_of(peers[0]), statistics_of(peers[1]))
    assert torch.isfinite(statistics_of(peers[1])).all()


# ---- the model as the anchor ----


def test_model_is_the_anchor_within_use_anchor_alone(swarm):
    (peer,) = swarm(1)
    peer.train(1)
    peer.batch()
    local, anchor = flat(peer.model).clone(), anchor_of(peer.optimizer)
    assert not torch.equal(local, anchor)
    with peer.optimizer.use_anchor():
        assert torch.equal(flat(peer.model), anchor)
        with peer.optimizer.use_anchor():  # a callback within a validation
            saved = copy.deepcopy(peer.optimizer.state_dict())
        assert torch.equal(flat(peer.model), anchor)
    assert torch.equal(flat(peer.model), local)
    assert torch.equal(torch.cat([p.flatten() for p in saved["hivemind_c"]["local"]]), local)
    peer.batch()
    assert peer.optimizer.local_epoch == 2
    peer.batch()
    anchor = anchor_of(peer.optimizer)
    peer.optimizer.keep_anchor()
    assert torch.equal(flat(peer.model), anchor)


def test_optimizer_without_an_anchor_shows_its_model(swarm):
    (peer,) = swarm(1, outer_optimizer=None)
    before = flat(peer.model).clone()
    with peer.optimizer.use_anchor():
        assert torch.equal(flat(peer.model), before)
    peer.optimizer.keep_anchor()
    assert torch.equal(flat(peer.model), before)


# ---- one option for all ----


def test_local_steps_are_the_outer_optimizer_of_the_defaults(swarm):
    (one,), (other,) = swarm(1), swarm(1, first=1, use_local_updates=False, outer_optimizer=None, local_steps=True)
    assert other.optimizer.use_local_updates and other.optimizer.setups.own == one.optimizer.setups.own


def test_memory_of_local_steps_is_said(swarm, caplog):
    """The log line says what the state and the averager hold once both have stepped."""
    caplog.set_level("INFO", "hivemind_c.optim")
    (peer,) = swarm(1)
    peer.train(1)
    state, averager = peer.optimizer.state_averager, peer.optimizer.grad_averager
    values = sum(p.numel() for p in state.parameters.main)
    momenta = [s["momentum_buffer"] for s in state.optimizer.state.values()]
    held = [*state.parameters.main, *averager.averaged_grads, *momenta]
    _, snapshot, _ = state.get_current_state()
    for tensors, bytes_each in ((held, HELD), (snapshot, SNAPSHOT)):
        assert sum(t.numel() * t.element_size() for t in tensors) == values * bytes_each
    assert f"take {values * HELD / 1e6:.3g} MB of main memory, batches" in caplog.text


def test_local_steps_refuse_another_outer_optimizer(swarm):
    with pytest.raises(ValueError, match="local_steps cannot be combined with outer_optimizer"):
        swarm(1, local_steps=True)


# ---- bad values, other optimizers, and what is refused ----


def test_difference_that_is_not_finite_is_dropped(swarm):
    peers = swarm(2)
    meet(peers)
    wrong = peers[1]

    def poisons():
        with torch.no_grad():
            next(wrong.model.parameters()).fill_(math.nan)
        wrong.train(1)

    together(lambda: peers[0].train(1), poisons)
    assert_equal_anchors(peers, 1)
    assert torch.isfinite(peers[0].after[0]).all()
    assert wrong.optimizer.ledger.samples.figures()["lost_by"]["NOT_FINITE"] > 0
    together(*(lambda peer=peer: peer.train(3) for peer in peers))
    assert_equal_anchors(peers, 3)
    assert torch.isfinite(flat(wrong.model)).all()


def test_other_outer_optimizer_steps_in_torch_with_a_warning(swarm, caplog):
    peers = swarm(2, outer_optimizer=functools.partial(torch.optim.Adam, lr=0.01))
    assert "steps in torch" in caplog.text
    meet(peers)
    together(*(lambda peer=peer: peer.train(3) for peer in peers))
    assert_equal_anchors(peers, 3)
    assert not torch.equal(peers[0].after[2], flat(network()))


def test_scheduler_belongs_to_the_inner_optimizer(swarm):
    (peer,) = swarm(1, scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    peer.train(2)
    assert peer.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 / 4)
    assert peer.optimizer.state_averager.optimizer.param_groups[0]["lr"] == 0.7


def test_peers_with_other_outer_rates_refuse_to_train_together(swarm):
    (one,) = swarm(1)
    one.enter()
    (other,) = swarm(1, first=1, run_id=one.optimizer.run_id, outer_optimizer=functools.partial(NESTEROV, lr=0.6))
    with pytest.raises(hivemind.ConfigMismatchError, match="outer_optimizer"):
        other.wait_for(2)


REFUSED = {
    "without local updates": (dict(use_local_updates=False), "use_local_updates=True"),
    "an object": (dict(outer_optimizer=torch.optim.SGD([torch.zeros(1)], lr=1.0)), "must be a function"),
    "a delayed step": (dict(delay_optimizer_step=True), "delay_optimizer_step"),
    "offload": (dict(offload_optimizer=True), "offload_optimizer"),
    "delayed gradients": (dict(delay_grad_averaging=True), "delay"),
    "groups": (dict(averager_opts=dict(target_group_size=2)), "target_group_size"),
    "PowerSGD": (dict(grad_averager_factory=hivemind.PowerSGDGradientAverager), "grad_averager_factory"),
    "a plateau": (
        dict(scheduler=lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)),
        "ReduceLROnPlateau",
    ),
    "lossy averages": (dict(state_averaging_compression=hivemind.Float16Compression()), "state_averaging_compression"),
    "lossy states": (dict(load_state_compression=hivemind.Float16Compression()), "load_state_compression"),
    "statistics": (dict(average_opt_statistics=("exp_avg",)), "average_opt_statistics"),
    "extra tensors": (dict(extra_tensors=[torch.zeros(2)]), "extra_tensors"),
    "rare averages": (dict(average_state_every=2), "average_state_every"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_option_that_does_not_fit_is_refused_with_a_remedy(swarm, case):
    given, text = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=text):
        swarm(1, **given)


def test_parameters_of_another_dtype_are_refused(dhts):
    model = network(dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="autocast"):
        hivemind.Optimizer(dht=dhts[0], optimizer=adamw(model.parameters()), **options())


def test_optimizer_without_an_outer_one_has_no_anchor(swarm):
    (peer,) = swarm(1, outer_optimizer=None)
    with pytest.raises(ValueError, match="outer_optimizer"):
        peer.optimizer.anchor


# ---- processes ----

TRAINER = """
    import functools, hashlib, sys, time, torch
    import hivemind_c as hivemind
    torch.set_num_threads(1)
    index, peers = int(sys.argv[1]), sys.argv[2:]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    dht = hivemind.DHT(peers, host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
    optimizer = hivemind.Optimizer(dht=dht, run_id="anchors", target_batch_size=64, batch_size_per_step=8,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), use_local_updates=True,
        outer_optimizer=functools.partial(torch.optim.SGD, lr=0.7, momentum=0.5, nesterov=True),
        matchmaking_time=10.0, averaging_timeout=60.0,
        tracker_opts=dict(min_refresh_period=0.1, default_refresh_period=0.1, max_refresh_period=0.5))
    print(dht.get_visible_maddrs()[0], flush=True)
    optimizer.find_swarm()
    while optimizer.tracker.global_progress.num_peers < 2:
        optimizer.tracker.fetch_global_progress()
        time.sleep(0.05)
    torch.manual_seed(100 + index)
    epoch = 0
    while epoch < 6:
        inputs = torch.randn(8, 8)
        (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if optimizer.local_epoch > epoch:
            epoch = optimizer.local_epoch
            digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in optimizer.anchor)).hexdigest()
            print(epoch, digest, flush=True)
        time.sleep(0.01)
    print("done", flush=True)
    sys.stdin.readline()
    optimizer.shutdown()
"""


def test_two_processes_have_equal_anchors_after_each_epoch(program):
    one = program(TRAINER, "0")
    two = program(TRAINER, "1", one.line())
    two.line()
    anchors = []
    for running in (one, two):
        lines = []
        while (line := running.line()) != "done":
            lines.append(line)
        anchors.append(lines)
    assert anchors[0] == anchors[1] and len(anchors[0]) == 6
