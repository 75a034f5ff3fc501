"""A GradientAverager by itself, without an Optimizer: a sum in each round, its average, and a new sum."""

import functools
import itertools
import logging

import pytest
import torch
from torch import nn

import hivemind_c as hivemind
from support import HERE, PATIENCE

RUNS = itertools.count()
SHAPE = 8, 6


@pytest.fixture(scope="module")
def dht():
    with hivemind.DHT(host_maddrs=[HERE], start=True) as one:
        yield one


@pytest.fixture
def averager(dht):
    """averager(parameters, ...) makes one that is content with itself; all are shut down when the test ends."""
    made = []

    def start(parameters, make=hivemind.GradientAverager, **options):
        options = dict(start=True, min_group_size=1, min_matchmaking_time=0.1, **options)
        made.append(make(parameters, dht=dht, prefix=f"gradients {next(RUNS)}", **options))
        return made[-1]

    yield start
    for one in made:
        one.shutdown()


def give(parameters, value, reuse=False):
    """The work of a backward: without reuse, of a program that sets gradients to None."""
    for p in parameters:
        if reuse:
            p.grad += value
        else:
            p.grad = torch.full_like(p, value)


POWER_SGD = functools.partial(hivemind.PowerSGDGradientAverager, averager_rank=6, min_compression_ratio=0.0)
WAYS = {
    "in place": {},
    "in a copy": dict(in_place=False),
    "where it is told to": dict(averaged_grads=[torch.zeros(SHAPE)]),
    "PowerSGD": dict(make=POWER_SGD),
    "reused": dict(reuse_grad_buffers=True),
    "reused, in a copy": dict(reuse_grad_buffers=True, in_place=False),
    "reused, PowerSGD": dict(reuse_grad_buffers=True, make=POWER_SGD),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_round_averages_its_own_gradients_alone(averager, caplog, way):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one, reuse = averager(parameters, **WAYS[way]), WAYS[way].get("reuse_grad_buffers", False)
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        for number in (1.0, 2.0, 3.0, 4.0):
            for part in (-0.5, 0.5):
                give(parameters, number + part, reuse)
                one.accumulate_grads_(4)
            one.step(timeout=30)
            assert one.local_samples_accumulated == one.local_times_accumulated == 0
            with one.use_averaged_gradients():
                torch.testing.assert_close(parameters[0].grad, torch.full(SHAPE, number), rtol=1e-4, atol=1e-5)
    assert not caplog.messages


@pytest.mark.parametrize("way", WAYS)
def test_mean_that_nobody_averaged_becomes_the_sums_again(averager, way):
    """A mean that was prepared and given back, between batches of several sizes, changes no later mean."""
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one, reuse = averager(parameters, **WAYS[way]), WAYS[way].get("reuse_grad_buffers", False)
    for size, value in ((4, 1.0), (12, 5.0), (16, 2.0)):
        one.expect_batch(size)
        give(parameters, value * (size / 4 if reuse else 1) * 8, reuse)  # as a backward with these hooks leaves it
        one.accumulate_grads_(size)
        one.scale = 8.0
        counts = one.counts
        one.load_accumulators_into_averager_()
        one.unload_accumulators_()
        assert one.counts == counts
    one.load_accumulators_into_averager_()
    assert one.local_samples_accumulated == 32
    torch.testing.assert_close(one.averaged_grads[0], torch.full(SHAPE, 3.0))


def test_power_sgd_repeats_a_round_that_was_empty(averager):
    """Nobody came and this peer has no gradient: the epoch continues, and its round is made again."""
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one = averager(parameters, make=hivemind.PowerSGDGradientAverager, averager_rank=1)
    for weight, value in ((0.0, 0.0), (0.0, 0.0), (4.0, 3.0)):
        give(parameters, value)
        one.accumulate_grads_(4)
        one.load_accumulators_into_averager_()
        one.average_loaded(weight, control=one.schedule_step(epoch=5, timeout=30))
        one.reset_accumulated_grads_()
    with one.use_averaged_gradients():
        torch.testing.assert_close(parameters[0].grad, torch.full(SHAPE, 3.0), rtol=1e-4, atol=1e-5)


def test_peers_are_weighted_by_samples_since_the_last_step(dhts):
    parameters = [[nn.Parameter(torch.zeros(SHAPE))] for _ in range(2)]
    options = dict(prefix=f"gradients {next(RUNS)}", start=True, min_matchmaking_time=5.0)
    peers = [hivemind.GradientAverager(own, dht=dht, **options) for own, dht in zip(parameters, dhts)]
    try:
        for number in (1.0, 2.0):
            for index, (own, peer) in enumerate(zip(parameters, peers)):
                give(own, number + index)
                peer.accumulate_grads_(4 if index else 12)
            under_way = [peer.step(timeout=60, wait=False) for peer in peers]
            for control in under_way:
                control.result(60)
            for own, peer in zip(parameters, peers):
                with peer.use_averaged_gradients():
                    assert torch.equal(own[0].grad, torch.full(SHAPE, number + 0.25))
    finally:
        for peer in peers:
            peer.shutdown()


def test_parameter_without_a_gradient_has_no_earlier_average(averager):
    parameters = [nn.Parameter(torch.zeros(SHAPE)) for _ in range(2)]
    one = averager(parameters)
    for given in (parameters, parameters[:1]):
        give(given, 1.0)
        one.accumulate_grads_(4)
        one.step(timeout=30)
        with one.use_averaged_gradients():
            assert all(torch.equal(p.grad, torch.full(SHAPE, float(any(p is g for g in given)))) for p in parameters)
        for p in parameters:
            p.grad = None


def test_reused_averages_must_be_used_before_a_backward(averager):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one = averager(parameters, reuse_grad_buffers=True)
    give(parameters, 1.0, reuse=True)
    one.accumulate_grads_(4)
    one.step(timeout=30)
    assert torch.equal(parameters[0].grad, torch.full(SHAPE, 1.0))  # a program may step with it as it lies there
    give(parameters, 2.0, reuse=True)
    with pytest.raises(ValueError, match="notify_used_averaged_gradients"):
        one.accumulate_grads_(4)
    one.notify_used_averaged_gradients()
    give(parameters, 2.0, reuse=True)
    one.accumulate_grads_(4)
    one.step(timeout=30)
    assert torch.equal(one.averaged_grads[0], torch.full(SHAPE, 2.0))


@pytest.mark.parametrize("warn", [True, False])
def test_warning_names_unused_averages_and_continued_sums(averager, caplog, warn):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one = averager(parameters, warn=warn, in_place=False)

    def round_of(**options):
        give(parameters, 1.0)
        one.accumulate_grads_(4)
        one.step(timeout=30, **options)

    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        round_of()
        one.notify_used_averaged_gradients()
        round_of(reset_accumulators=False)
        one.notify_used_averaged_gradients()
        one.reset_accumulated_grads_()
        round_of()
        assert not caplog.messages
        round_of(reset_accumulators=False)
        round_of()
        round_of()
    assert ["were not used" in line for line in caplog.messages] == ([True, False] if warn else [])
    assert ["were averaged already" in line for line in caplog.messages] == ([False, True] if warn else [])


REFUSED = {
    "scheduled for too late": (
        lambda one: dict(scheduled_time=hivemind.get_dht_time() + 50, timeout=5),
        "the step ends after 5 s",
    ),
    "a control, and options": (
        lambda one: dict(control=one.schedule_step(timeout=PATIENCE), gather=1),
        "gather: give this to schedule_step",
    ),
    "what cannot be gathered": (lambda one: dict(gather=object()), "gather"),
    "too much to be gathered": (lambda one: dict(gather=bytes(1 << 20)), "limit"),
    "a weight that is none": (lambda one: dict(weight=float("nan")), "weight"),
    "an unknown option": (lambda one: dict(gather_this=1), "gather_this"),
}


@pytest.mark.parametrize("way", ["in place", "in a copy", "reused", "reused, in a copy", "PowerSGD"])
@pytest.mark.parametrize("why", REFUSED)
def test_a_step_that_is_refused_leaves_the_sums(averager, way, why):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one, reuse = averager(parameters, **WAYS[way]), WAYS[way].get("reuse_grad_buffers", False)
    give(parameters, 2.0, reuse)
    one.accumulate_grads_(4)
    options, words = REFUSED[why]
    options = options(one)
    with pytest.raises(Exception, match=words):
        one.step(**options)
    assert one.local_samples_accumulated == 4
    if "control" in options:
        options["control"].cancel()
        options["control"].exception(PATIENCE)
    give(parameters, 4.0, reuse)
    if reuse:
        parameters[0].grad.sub_(2.0)  # 2, and then 2 more
    one.accumulate_grads_(4)
    one.step(timeout=30)
    with one.use_averaged_gradients():
        torch.testing.assert_close(parameters[0].grad, torch.full(SHAPE, 2.0 if reuse else 3.0), rtol=1e-4, atol=1e-5)


def test_powersgd_that_is_not_to_wait_leaves_the_sums(averager):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one = averager(parameters, **WAYS["PowerSGD"])
    give(parameters, 2.0)
    one.accumulate_grads_(4)
    with pytest.raises(ValueError, match="remove wait=False"):
        one.step(wait=False, timeout=30)
    assert one.local_samples_accumulated == 4
    one.step(timeout=30)


def test_step_before_the_start_leaves_the_sums(dht):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one = hivemind.GradientAverager(parameters, dht=dht, prefix=f"gradients {next(RUNS)}", start=False)
    give(parameters, 2.0)
    one.accumulate_grads_(4)
    with pytest.raises(hivemind.HivemindError, match="has not been started"):
        one.step(timeout=30)
    assert one.local_samples_accumulated == 4


@pytest.mark.parametrize("way", ["in place", "in a copy", "reused", "reused, in a copy"])
def test_a_second_step_during_the_first_touches_nothing(averager, way):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one, reuse = averager(parameters, **WAYS[way]), WAYS[way].get("reuse_grad_buffers", False)
    give(parameters, 2.0, reuse)
    one.accumulate_grads_(4)
    first = one.step(wait=False, timeout=PATIENCE, scheduled_time=hivemind.get_dht_time() + 30)
    for wait in (True, False):
        with pytest.raises(hivemind.HivemindError, match="under way") as refused:
            one.step(wait=wait, timeout=30)
        assert refused.value.status == "BUSY"
    assert torch.equal(one.averaged_grads[0], torch.full(SHAPE, 2.0)) and not first.done()
    first.cancel()


@pytest.mark.parametrize("way", ["in place", "PowerSGD"])
def test_failure_before_the_round_keeps_nobody_waiting(averager, monkeypatch, way):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one = averager(parameters, **WAYS[way])
    control = one.schedule_step(timeout=PATIENCE)
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(one, "load_accumulators_into_averager_", lambda: 1 / 0)
        one.step(control=control)
    assert isinstance(control.exception(PATIENCE), hivemind.HivemindCancelledError)
    one.step(timeout=30)


def test_a_control_is_good_for_one_step_of_its_averager(averager):
    parameters = [[nn.Parameter(torch.zeros(SHAPE))] for _ in range(2)]
    one, other = (averager(own) for own in parameters)
    used = one.schedule_step(timeout=30)
    give(parameters[0], 1.0)
    one.accumulate_grads_(4)
    one.step(control=used)
    one.notify_used_averaged_gradients()
    foreign = other.schedule_step(timeout=30)
    give(parameters[0], 2.0)
    one.accumulate_grads_(4)
    for control, words in (
        (used, "was already used.*make a new one with schedule_step\\(\\)"),
        (foreign, "belongs to another averager"),
    ):
        with pytest.raises(ValueError, match=words):
            one.step(control=control)
        with pytest.raises(ValueError, match=words):
            one.average_loaded(4, control=control)
    assert one.local_samples_accumulated == 4 and not foreign.done() and not foreign.triggered
    one.step(timeout=30)
    assert torch.equal(one.averaged_grads[0], torch.full(SHAPE, 2.0))


def test_a_step_that_has_found_nobody_leaves_this_peers_own_mean(averager):
    parameters = [nn.Parameter(torch.zeros(SHAPE))]
    one = averager(parameters)
    late = one.schedule_step(timeout=0.2)
    late.exception(PATIENCE)
    give(parameters, 2.0)
    one.accumulate_grads_(4)
    with pytest.raises(hivemind.HivemindTimeoutError):
        one.step(control=late)
    assert one.local_samples_accumulated == 0
    with one.use_averaged_gradients():
        assert torch.equal(parameters[0].grad, torch.full(SHAPE, 2.0))
