"""Options that do not fit together, or that nobody knows, are refused when the Optimizer is made, with what to write instead."""

import functools
import logging

import pytest
import torch

import hivemind_c as hivemind
from optim_support import OPTIMIZERS, backward, make, network
from support import HERE


@pytest.fixture(scope="module")
def dht():
    with hivemind.DHT(host_maddrs=[HERE], start=True) as one:
        yield one


SGD = OPTIMIZERS["sgd"]
STEP = torch.optim.lr_scheduler.StepLR

REFUSED = {
    "a delay without offload": (dict(delay_optimizer_step=True), ValueError, "offload_optimizer=True"),
    "late gradients without offload": (dict(delay_grad_averaging=True), ValueError, "offload_optimizer=True"),
    "gradients later than their step": (dict(delay_grad_averaging=True, delay_optimizer_step=False, offload_optimizer=True), ValueError, "remove delay_optimizer_step"),
    "local updates and late gradients": (dict(delay_grad_averaging=True, use_local_updates=True, offload_optimizer=True), ValueError, "remove delay_grad_averaging"),
    "local updates and reused buffers": (dict(use_local_updates=True, reuse_grad_buffers=True), ValueError, "remove reuse_grad_buffers"),
    "local updates and a gradient averager": (
        dict(use_local_updates=True, grad_averager_factory=hivemind.GradientAverager), ValueError, "remove grad_averager_factory",
    ),
    "local updates and a plateau": (dict(use_local_updates=True, scheduler="plateau"), ValueError, "remove use_local_updates, or use a scheduler"),
    "local updates and a plateau of a function": (
        dict(use_local_updates=True, scheduler="plateau", as_factory=True), ValueError, "remove use_local_updates, or use a scheduler",
    ),
    "local updates of an auxiliary": (dict(use_local_updates=True, auxiliary=True, batch_size_per_step=None), ValueError, "remove auxiliary or"),
    "an auxiliary with a batch": (dict(auxiliary=True), ValueError, "remove batch_size_per_step"),
    "an auxiliary client": (dict(auxiliary=True, client_mode=True, batch_size_per_step=None), ValueError, "others must reach it"),
    "a run with a dot": (dict(run_id="a.b"), ValueError, 'must not contain "."'),
    "a run without a name": (dict(run_id=""), TypeError, "run_id must be the name"),
    "no target": (dict(target_batch_size=0), ValueError, "target_batch_size must be 1 or more"),
    "half a sample": (dict(target_batch_size=0.5), TypeError, "a number of samples"),
    "a target as a text": (dict(target_batch_size="32"), TypeError, "a number of samples"),
    "a batch of nothing": (dict(batch_size_per_step=0), ValueError, "batch_size_per_step must be 1 or more"),
    "no time": (dict(averaging_timeout=0), ValueError, "averaging_timeout must be more than 0"),
    "no time for a group": (dict(matchmaking_time=0), ValueError, "^matchmaking_time must be more than 0 seconds, not 0$"),
    "less than no time at the end": (dict(shutdown_timeout=-1), ValueError, "shutdown_timeout must be from 0 to 86400 seconds"),
    "no time after matchmaking": (dict(averaging_timeout=5, matchmaking_time=10), ValueError, "leaves no time for averaging"),
    "time as a text": (dict(matchmaking_time="5"), TypeError, "a number of seconds"),
    "no chunk's time": (dict(next_chunk_timeout=-1), ValueError, "next_chunk_timeout must be more"),
    "no epoch between averages": (dict(average_state_every=0), ValueError, "average_state_every must be a number of swarm epochs"),
    "a norm of nothing": (dict(max_grad_norm=0), ValueError, "max_grad_norm"),
    "a compression's class": (dict(grad_compression=hivemind.Float16Compression), TypeError, r"write Float16Compression\(\)"),
    "a compression as a text": (dict(state_averaging_compression="fp16"), TypeError, "state_averaging_compression must be a compression"),
    "what cannot make an averager": (dict(grad_averager_factory=3), TypeError, "functools.partial"),
    "statistics that nobody keeps": (dict(average_opt_statistics=("exp_avg",)), ValueError, "does not remember 'exp_avg'"),
    "extra tensors of whole numbers": (dict(extra_tensors=[torch.zeros(2, dtype=torch.int64)]), ValueError, "floating-point"),
    "averager_opts that are none": (dict(averager_opts=["bandwidth"]), TypeError, "averager_opts must be a dict"),
    "an averager option of ours": (dict(averager_opts={"prefix": "x"}), ValueError, "set by the Optimizer's own options"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_option_is_refused(dht, case):
    options, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        make(dht, network(), **options).shutdown()


def test_defect_07_unknown_option_is_named_with_the_nearest(dht):
    with pytest.raises(TypeError, match="bandwith"):
        make(dht, network(), bandwith=1)
    with pytest.raises(TypeError, match="there is no option 'no_such_thing'"):
        make(dht, network(), averager_opts={"no_such_thing": 1})
    with pytest.raises(TypeError, match="there is no option 'max_refresh'.*did you mean 'max_refresh_period'"):
        make(dht, network(), tracker_opts={"max_refresh": 1})


def test_unsuitable_optimizers_and_schedulers_are_refused(dht):
    base = dict(dht=dht, run_id="r", target_batch_size=32, batch_size_per_step=32)
    model = network()
    inner = SGD(model.parameters())
    for options, kind, words in (
        (dict(optimizer=SGD), ValueError, "give params=model.parameters"),
        (dict(optimizer=inner, params=model.parameters()), ValueError, "remove params"),
        (dict(optimizer=inner, offload_optimizer=True), ValueError, r"torch\.optim\.SGD\(params"),
        (dict(optimizer="sgd", params=model.parameters()), TypeError, "one of torch's"),
        (dict(optimizer=lambda params: 3, params=model.parameters()), TypeError, "must return one of torch's"),
        (dict(optimizer=lambda params: SGD(network().parameters()), params=model.parameters()), ValueError, "must use all parameters that it receives"),
        (dict(optimizer=SGD, params=[]), ValueError, "params is empty"),
        (dict(optimizer=SGD, params=torch.zeros(1)), TypeError, "a list of parameters"),
        (dict(optimizer=SGD, params=["w"]), TypeError, "where parameters are expected"),
        (dict(optimizer=inner, scheduler=STEP(SGD(network().parameters()), 1)), ValueError, "another optimizer.*lambda optimizer: .*StepLR"),
        (dict(optimizer=SGD, params=model.parameters(), scheduler=STEP(inner, 1)), ValueError, "because offload_optimizer makes its own"),
        (dict(optimizer=inner, scheduler="cosine"), TypeError, "scheduler must be one of torch's"),
        (dict(optimizer=inner, scheduler=lambda optimizer: 3), TypeError, "must return one of torch's"),
    ):
        with pytest.raises(kind, match=words):
            hivemind.Optimizer(**base, **options).shutdown()


def test_batches_must_say_how_large_they_are(dht):
    optimizer = make(dht, network(), batch_size_per_step=None)
    with pytest.raises(ValueError, match="the number of samples"):
        optimizer.step()
    for wrong in (0, -3):
        with pytest.raises(ValueError, match="1 or more"):
            optimizer.step(batch_size=wrong)
    for wrong in (1.5, "8", True):
        with pytest.raises((TypeError, ValueError), match="batch_size"):
            optimizer.step(batch_size=wrong)
    optimizer.shutdown()
    helper = make(dht, network(), auxiliary=True, batch_size_per_step=None)
    with pytest.raises(ValueError, match="auxiliary"):
        helper.step(batch_size=1)
    with pytest.raises(ValueError, match="auxiliary"):
        helper.step(lambda: None)
    helper.step()
    helper.shutdown()


def test_defect_02_client_mode_reaches_all_parts(dht):
    with hivemind.DHT(dht.get_visible_maddrs(), client_mode=True, start=True) as behind:
        for options in ({}, {"client_mode": True}):
            optimizer = make(behind, network(), **options)
            assert optimizer.client_mode and optimizer.tracker.client_mode
            assert optimizer.grad_averager.client_mode and optimizer.state_averager.client_mode
            optimizer.shutdown()
        with pytest.raises(ValueError, match="client_mode=False"):
            make(behind, network(), client_mode=False)
    with pytest.raises(ValueError, match="client_mode=True differs from the DHT's client_mode=False"):
        make(dht, network(), client_mode=True)


def test_parameters_may_be_named_or_in_groups(dht):
    for params in (
        lambda model: model.parameters(),
        lambda model: list(model.named_parameters()),
        lambda model: [{"params": model[0].parameters(), "lr": 0.5}, {"params": list(model[2].parameters())}],
    ):
        model = network()
        optimizer = make(dht, network(), as_factory=True)
        optimizer.shutdown()
        swarm = hivemind.Optimizer(dht=dht, run_id="r", target_batch_size=8, batch_size_per_step=8, optimizer=SGD, params=params(model))
        assert [p for group in swarm.param_groups for p in group["params"]] == list(model.parameters())
        swarm.shutdown()
    assert swarm.param_groups[0]["lr"] == 0.5 and swarm.param_groups[1]["lr"] == 0.1


def test_own_gradient_averager_gets_its_options(dht):
    class Mine(hivemind.GradientAverager):
        def __init__(self, *args, flavour, **kwargs):
            self.flavour = flavour
            super().__init__(*args, **kwargs)

    optimizer = make(dht, network(), grad_averager_factory=functools.partial(Mine, flavour="sour"))
    assert optimizer.grad_averager.flavour == "sour"
    optimizer.shutdown()
    optimizer = make(dht, network(), grad_averager_factory=Mine.get_factory(flavour="sweet"))
    assert optimizer.grad_averager.flavour == "sweet"
    optimizer.shutdown()


def test_older_name_is_the_same_optimizer(dht):
    assert issubclass(hivemind.CollaborativeOptimizer, hivemind.Optimizer)


# ---- as hivemind has it ----


def test_options_have_hivemind_meaning(dht):
    local = make(dht, network(), as_factory=True, offload_optimizer=None, use_local_updates=True)
    assert not local.offload_optimizer and local.use_local_updates
    local.shutdown()
    late = make(dht, network(), as_factory=True, offload_optimizer=None, use_local_updates=True, delay_optimizer_step=True)
    assert late.offload_optimizer and late.delay_optimizer_step and late.delay_state_averaging and not late.delay_grad_averaging and late.average_state_every == 1
    late.shutdown()
    given = dict(matchmaking_time=None, averaging_timeout=None, load_state_timeout=None)
    optimizer = make(dht, network(), averager_opts={"reuse_tensors": True, "sync_epoch_when_averaging": True, "status_loglevel": 10, "bandwidth": 1e6}, **given)
    assert (optimizer.matchmaking_time, optimizer.averaging_timeout, optimizer.load_state_timeout) == (15, 60, 600) and optimizer.status_loglevel == logging.DEBUG
    state, gradients = optimizer.state_averager, optimizer.grad_averager
    assert state.reuse_tensors and state.sync_epoch_when_averaging and state.status_loglevel == 10 and state.bandwidth == gradients.bandwidth == 1e6
    assert state.next_chunk_timeout == gradients.next_chunk_timeout == 15  # matchmaking_time
    assert optimizer.scheduled_grads is None and optimizer.scheduled_state is None and not state.pending_updates and optimizer.tracker.training_progress_key == "test_progress"
    assert optimizer.tracker.min_refresh_period == 0.5 and optimizer.tracker.performance_ema.samples_per_second >= 0
    optimizer.shutdown()


@pytest.mark.parametrize(
    "given, stall",
    [
        (dict(matchmaking_time=1), 5),
        (dict(matchmaking_time=20), 20),
        (dict(matchmaking_time=20, allreduce_timeout=12), 12),
        (dict(matchmaking_time=20, next_chunk_timeout=3), 3),
        (dict(matchmaking_time=20, averager_opts={"sender_timeout": 7}), 7),
    ],
)
def test_a_stalled_member_is_waited_for_as_long_as_a_group(dht, given, stall):
    optimizer = make(dht, network(), **given)
    assert optimizer.grad_averager.next_chunk_timeout == stall
    optimizer.shutdown()


def test_the_older_optimizer_takes_the_arguments_of_its_time(dht, caplog):
    model = network()
    optimizer = hivemind.CollaborativeOptimizer(
        SGD(model.parameters()), dht=dht, prefix="older", target_batch_size=32, batch_size_per_step=32, averaging_expiration=3, averaging_timeout=30,
        bandwidth=1e6, target_group_size=4, batch_size_lead=8, min_refresh_period=0.2, compression=hivemind.Float16Compression(), step_tolerance=1, verbose=True,
        accumulate_grads_on=torch.device("cpu"), client_mode=False,
    )  # fmt: skip
    assert isinstance(optimizer, hivemind.Optimizer) and optimizer.run_id == "older" and optimizer.matchmaking_time == 3 and optimizer.averaging_timeout == 30
    assert optimizer.grad_averager.bandwidth == 1e6 and optimizer.state_averager.matchmaking_kwargs["target_group_size"] == 4
    assert optimizer.tracker.min_refresh_period == 0.2 and "no effect of step_tolerance" in caplog.text
    backward(model, 0, 32)
    optimizer.step()
    assert optimizer.local_epoch == 1
    optimizer.shutdown()
    for number, kind in ((hivemind.CompressionType.FLOAT16, hivemind.Float16Compression), (None, hivemind.NoCompression)):
        older = hivemind.CollaborativeOptimizer(
            SGD(network().parameters()),
            dht=dht,
            prefix=f"older_{number}",
            target_batch_size=32,
            compression_type=number,
        )
        assert type(older.grad_averager.allreduce_kwargs["compression"].rest) is kind
        older.shutdown()
    with pytest.raises(TypeError, match="no option 'averaging_expirati'; did you mean 'averaging_expiration'"):
        hivemind.CollaborativeOptimizer(SGD(network().parameters()), dht=dht, averaging_expirati=3)
