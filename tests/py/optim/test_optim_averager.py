"""TrainingAverager: a program steps its own optimizer, and averages with others now and then."""

import threading

import pytest
import torch

import hivemind_c as hivemind
from optim_support import OPTIMIZERS, backward, flat, network
from support import eventually
from test_optim_manual_steps import both


class Loop:
    def __init__(self, dht, seed=0, optimizer="sgd", **options):
        self.model = network(seed)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.averager = hivemind.TrainingAverager(
            self.optimizer, dht=dht, prefix="averaged", start=True, min_matchmaking_time=30.0,
            **{"average_parameters": True, "average_gradients": False, **options}
        )  # fmt: skip

    def batch(self, number):
        backward(self.model, number, 32)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def average(self, **options):
        return self.averager.step(timeout=60.0, **options)


@pytest.fixture
def make(dhts):
    made = []

    def start(index, **options):
        made.append(Loop(dhts[index], seed=index, **options))
        return made[-1]

    yield start
    for one in made:
        one.averager.shutdown()


def gradients(loop):
    return [p.grad for p in loop.model.parameters()]


def test_parameters_and_gradients_become_the_mean(make):
    loops = [make(i, average_gradients=True) for i in range(2)]
    backward(loops[0].model, 0, 32)  # the other one has no gradients yet: zeros
    mean, half = (flat(loops[0].model) + flat(loops[1].model)) / 2, [grad / 2 for grad in gradients(loops[0])]
    told = both(*(lambda loop=loop: loop.average(gather=loop.averager.peer_id) for loop in loops))
    assert all(told[0][peer] == peer for peer in (loop.averager.peer_id for loop in loops))
    for loop in loops:
        assert loop.averager.local_step == 1
        torch.testing.assert_close(flat(loop.model), mean)
        torch.testing.assert_close(gradients(loop), half)


def test_gradients_alone_and_with_weights(make):
    loops = [make(i, average_parameters=False, average_gradients=True) for i in range(2)]
    before = [flat(loop.model) for loop in loops]
    for loop, number in zip(loops, (0, 1)):
        backward(loop.model, number, 32)
    first, second = (torch.cat([grad.flatten() for grad in gradients(loop)]) for loop in loops)
    both(*(lambda loop=loop, weight=weight: loop.average(weight=weight) for loop, weight in zip(loops, (1.0, 3.0))))
    for loop, was in zip(loops, before):
        assert torch.equal(flat(loop.model), was)
        torch.testing.assert_close(torch.cat([grad.flatten() for grad in gradients(loop)]), (first + 3 * second) / 4)


def test_changes_during_an_averaging_stay(make):
    loops, locks = [make(i) for i in range(2)], [threading.Lock() for _ in range(2)]
    before = [flat(loop.model) for loop in loops]
    first = loops[0].average(wait=False, data_lock=locks[0])
    assert eventually(lambda: loops[0].averager.loaded)
    with locks[0]:
        loops[0].batch(0)
        moved = flat(loops[0].model) - before[0]
    assert moved.abs().max() > 1e-3 and not first.done()
    loops[1].average(data_lock=locks[1])
    assert len(first.result(60)) == 2
    mean = (before[0] + before[1]) / 2
    torch.testing.assert_close(flat(loops[0].model), mean + moved, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(flat(loops[1].model), mean, rtol=1e-4, atol=1e-6)


def test_gradients_set_to_none_meanwhile_get_the_difference(make):
    loops = [make(i, average_parameters=False, average_gradients=True) for i in range(2)]
    backward(loops[1].model, 0, 32)
    half = [grad / 2 for grad in gradients(loops[1])]
    first = loops[0].average(wait=False)
    assert loops[0].averager.averaging_in_progress and not first.cancel()
    assert eventually(lambda: loops[0].averager.loaded)
    loops[0].optimizer.zero_grad()
    loops[1].average()
    assert len(first.result(60)) == 2 and not loops[0].averager.averaging_in_progress
    torch.testing.assert_close(gradients(loops[0]), half)


def test_frozen_parameter_gets_no_gradient(make):
    loops = [make(i, average_gradients=True) for i in range(2)]
    frozen = loops[0].model[0].weight.requires_grad_(False)
    for loop in loops:
        backward(loop.model, 0, 32)
    both(*(loop.average for loop in loops))
    assert frozen.grad is None and loops[0].model[2].weight.grad is not None


def test_counts_are_levelled_and_joiners_keep_their_options(make):
    """Step counts become equal in an averaging. A joiner keeps its own learning rate."""
    loops = [make(i) for i in range(2)]
    loops[0].averager.local_epoch = 5
    for loop, rate in zip(loops, (0.1, 0.2)):
        loop.optimizer.param_groups[0]["lr"] = rate
    told = both(*(loop.average for loop in loops))
    assert [loop.averager.local_step for loop in loops] == [6, 6] and set(told[0].values()) == {None}
    late = make(2)
    late.optimizer.param_groups[0]["lr"] = 0.3
    assert eventually(lambda: late.averager.load_state_from_peers(timeout=10))
    assert late.averager.local_step == 6 and late.optimizer.param_groups[0]["lr"] == 0.3
    with pytest.raises(ValueError, match="remove it"):
        make(3, sync_epoch_when_averaging=True)


def test_lone_peer_keeps_its_own_parameters(make, caplog):
    loop = make(0)
    before = flat(loop.model)
    assert loop.averager.step(timeout=0.5) is None
    assert loop.averager.step(timeout=0.5, wait=False).result(60) is None
    assert torch.equal(flat(loop.model), before) and loop.averager.local_step == 0
    assert sum("averaging failed" in line for line in caplog.messages) == 2
    with pytest.raises(ValueError, match="timeout"):
        loop.averager.step(timeout=-1)


STATISTICS = "exp_avg", "exp_avg_sq"


def statistics(loop):
    return [torch.cat([state[name].flatten() for state in loop.optimizer.state.values()]) for name in STATISTICS]


def all_close(some, others):
    return all(torch.allclose(one, other, rtol=1e-4, atol=1e-8) for one, other in zip(some, others))


@pytest.mark.parametrize("gradients", [False, True])
def test_optimizer_statistics_are_averaged_and_offered(make, gradients):
    options = dict(optimizer="adamw", average_opt_statistics=STATISTICS, average_gradients=gradients)
    loops = [make(i, **options) for i in range(2)]
    for number, loop in enumerate(loops):
        loop.batch(number)
    first, second = map(statistics, loops)
    mean = [(one + other) / 2 for one, other in zip(first, second)]
    assert not all_close(first, second)
    both(*(loop.average for loop in loops))
    average = flat(loops[0].model)
    assert all(all_close(statistics(loop), mean) for loop in loops)
    for loop in loops:
        loop.batch(2)  # which joiners need not have
    late = make(2, **options)
    assert eventually(lambda: late.averager.load_state_from_peers(timeout=10))
    assert late.averager.local_step == 1
    torch.testing.assert_close(flat(late.model), average)
    late.batch(2)
    assert all("exp_avg" in state for state in late.optimizer.state.values()) and len(late.optimizer.state) == 4


def test_nothing_to_average_is_an_error(make):
    with pytest.raises(ValueError, match="average_parameters=True"):
        make(0, average_parameters=False)
