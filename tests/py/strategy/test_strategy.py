"""HivemindStrategy in one process: its options, each at least once, and the defects that it is not to have."""

import csv
import functools
import inspect
import logging
import time
from pathlib import Path

import pytest
import torch
from trainers import BATCH, NAMESPACES, SAMPLES, data, fit, lightning, same, small

import hivemind_c
from hivemind_c import DHT, Float16Compression
from hivemind_c._lightning import bootstrap
from hivemind_c._lightning.patches import SET_HERE
from hivemind_c.optim import Optimizer
from hivemind_c.optim.power_sgd_averager import PowerSGDGradientAverager
from hivemind_c.strategy import CollaborativeStrategy, HivemindStrategy, SwarmProgressBar

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = "/ip4/127.0.0.1/tcp/0"
STEP = torch.optim.lr_scheduler.StepLR


def alone(target=BATCH, **options):
    return HivemindStrategy(target, host_maddrs=HERE, **options)


def misconfigured(pl=None):
    return (pl or lightning()).utilities.exceptions.MisconfigurationException


class Watch(lightning().Callback):
    """Notes something after each batch."""

    def __init__(self, look):
        self.look, self.seen = look, []

    def on_train_batch_end(self, trainer, *args):
        self.seen.append(self.look(trainer))


class Count(Watch):
    def __init__(self):
        super().__init__(lambda trainer: trainer.strategy.global_progress.samples_accumulated)


# ---- both Lightnings, and the default strategy's bits ----


@pytest.mark.parametrize("name", NAMESPACES)
def test_lone_peer_has_the_default_strategys_weights(name):
    """They are equal bit for bit."""
    pl = lightning(name)
    plain, _ = fit(pl=pl)
    hive, made = fit(alone(), pl=pl)
    assert same(plain, hive)
    assert isinstance(made.strategy, pl.strategies.Strategy) and made.strategy.global_epoch == 2 * SAMPLES // BATCH


@pytest.mark.parametrize("name", NAMESPACES)
def test_the_registry_knows_it_by_name(name):
    pl = lightning(name)
    _, made = fit("hivemind", pl=pl)
    assert isinstance(made.strategy, HivemindStrategy) and made.strategy.global_progress.target_batch_size == 4096


def test_the_top_of_the_package_has_it_and_its_older_name():
    assert hivemind_c.HivemindStrategy is HivemindStrategy and hivemind_c.CollaborativeStrategy is CollaborativeStrategy
    assert issubclass(CollaborativeStrategy, HivemindStrategy)
    plain, _ = fit()
    assert same(plain, fit(CollaborativeStrategy(BATCH, host_maddrs=HERE))[0])


def test_a_large_batch_is_gathered_as_one_machine_would():
    big, _ = fit(loader=data(batch=SAMPLES, shuffle=False), max_epochs=4)
    gathered, made = fit(alone(SAMPLES), loader=data(shuffle=False), max_epochs=4)
    assert made.strategy.global_epoch == 4
    for p, q in zip(big.parameters(), gathered.parameters()):
        torch.testing.assert_close(p, q)


# ---- batch sizes ----


def test_each_batch_is_counted_by_its_size_even_a_short_one():
    """The last batch is shorter than the others."""
    count = Count()
    fit(alone(10_000), loader=data(samples=40), max_epochs=1, callbacks=[count])
    assert count.seen == [16, 32, 40]


class Nested:
    """A batch in which no tensor can be seen."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __getitem__(self, index):
        if index > 1:
            raise TypeError("not a sequence")
        return (self.x, self.y)[index]


def nested(samples):
    return Nested(*(torch.stack(part) for part in zip(*samples)))


def test_batch_of_unknown_size_is_an_error_with_a_remedy():
    with pytest.raises(misconfigured(), match=r"how many samples are in a batch.*Nested.*HivemindStrategy\(batch_size=\.\.\.\)"):
        fit(alone(), loader=data(collate_fn=nested))


def test_a_batch_size_given_is_believed():
    count = Count()
    module = small()
    module.log = lambda *args, **kwargs: None  # Lightning's own log wants to count as well
    fit(alone(10_000, batch_size=5), module, loader=data(collate_fn=nested), max_epochs=1, callbacks=[count])
    assert count.seen == [5, 10, 15, 20]


def test_a_step_without_a_loss_counts_for_nothing():
    module, count = small(), Count()
    step = module.training_step
    module.training_step = lambda batch, batch_idx: None if batch_idx == 1 else step(batch, batch_idx)
    fit(alone(10_000), module, max_epochs=1, callbacks=[count])
    assert count.seen == [16, 16, 32, 48]


# ---- what is refused, and what to write instead ----


def test_negative_bootstrap_timeout_is_refused():
    with pytest.raises(ValueError, match="bootstrap_timeout must be from 0 to 86400 seconds, not -1"):
        HivemindStrategy(32, host_maddrs=HERE, bootstrap_timeout=-1)


def test_accumulate_grad_batches_is_refused_with_a_remedy():
    with pytest.raises(misconfigured(), match="choose target_batch_size instead"):
        fit(alone(), accumulate_grad_batches=2)
    with pytest.raises(misconfigured(), match="choose target_batch_size instead"):
        fit(alone(), callbacks=[lightning().callbacks.GradientAccumulationScheduler({1: 2})])


def test_manual_optimization_is_refused_with_a_remedy():
    module = small()
    module.automatic_optimization = False
    with pytest.raises(misconfigured(), match="manual optimization.*hivemind_c.Optimizer"):
        fit(alone(), module)


@pytest.mark.parametrize("made", [lambda self: None, lambda self: [torch.optim.SGD(self.net[i].parameters(), lr=0.1) for i in (0, 2)]])
def test_any_number_of_optimizers_but_one_is_refused(made):
    module = small()
    module.automatic_optimization = True
    type(module).configure_optimizers = made
    with pytest.raises((misconfigured(), RuntimeError), match="one optimizer|multiple optimizers"):
        fit(alone(), module)


def test_a_trainer_cannot_be_auxiliary():
    with pytest.raises(misconfigured(), match=r"an auxiliary peer trains nothing.*hivemind_c.Optimizer\(auxiliary=True\)"):
        alone(auxiliary=True)
    assert same(fit()[0], fit(alone(auxiliary=False))[0])


def test_an_unknown_option_is_an_error_that_names_the_nearest():
    with pytest.raises(TypeError, match="no option 'grad_compresion'; did you mean 'grad_compression'"):
        alone(grad_compresion=Float16Compression())
    with pytest.raises(ValueError, match="checkpoints is one of 'own', 'elected', not 'all'"):
        alone(checkpoints="all")


def test_contradictory_options_are_errors_when_fit_begins():
    with pytest.raises(ValueError, match="offload_optimizer=True"):
        fit(alone(delay_optimizer_step=True, offload_optimizer=False))
    _, made = fit(alone())
    assert made.strategy.optimizer is None  # and nothing is left of the one that failed


# ---- every option reaches the optimizer ----

OPTIONS = {
    "delay_state_averaging": True,
    "average_state_every": 3,
    "when_alone": "stop",
    "use_local_updates": True,
    "verbose": True,
    "matchmaking_time": 1.5,
    "averaging_timeout": 20.0,
    "allreduce_timeout": 10.0,
    "next_chunk_timeout": 2.0,
    "load_state_timeout": 30.0,
    "log_memory": 1 << 20,
    "upload_mbit": 1000.0,
    "grad_compression": Float16Compression(),
    "state_averaging_compression": Float16Compression(),
    "load_state_compression": Float16Compression(),
    "average_opt_statistics": ("momentum_buffer",),
    "max_grad_norm": 0.5,
    "shutdown_timeout": 1.0,
    "performance_ema_alpha": 0.2,
    "averager_opts": {"bandwidth": 1e6},
    "tracker_opts": {"min_refresh_period": 0.1},
    "grad_averager_factory": functools.partial(PowerSGDGradientAverager, averager_rank=2),
    "extra_tensors": (torch.zeros(3),),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_optimizer_gets_the_option(name, monkeypatch):
    import hivemind_c.strategy as module

    given = {}

    class Spy(module.Optimizer):
        __signature__ = inspect.signature(module.Optimizer)

        def __init__(self, **options):
            given.update(options)
            super().__init__(**options)

    monkeypatch.setattr(module, "Optimizer", Spy)
    _, made = fit(alone(**{name: OPTIONS[name]}))
    assert given[name] == OPTIONS[name] and given["run_id"] == "lightning_run" and made.strategy.global_epoch > 0


def test_client_mode_reaches_the_dht_and_the_optimizer():
    with DHT(start=True) as first:
        seen = Watch(lambda trainer: (trainer.strategy.dht.client_mode, trainer.strategy.optimizer.client_mode))
        fit(HivemindStrategy(BATCH, client_mode=True, initial_peers=first.get_visible_maddrs()), callbacks=[seen], max_steps=1)
        assert seen.seen == [(True, True)]


def test_the_dht_gets_its_options(monkeypatch, tmp_path, caplog):
    given = {}

    class Spy(bootstrap.DHT):
        def __init__(self, *peers, **options):
            given.update(options)
            super().__init__(*peers, **options)

    monkeypatch.setattr(bootstrap, "DHT", Spy)
    options = dict(host_maddrs=HERE, announce_maddrs="/ip4/192.0.2.9/tcp/31337", identity_path=tmp_path / "key", wait_timeout=7.0, open_port=False, use_ipfs=True, use_auto_relay=True)
    names = []
    for _ in range(2):
        with HivemindStrategy(BATCH, use_relay=True, **options).dht as dht:
            names.append(dht.peer_id)
            assert dht.get_visible_maddrs() == [f"/ip4/192.0.2.9/tcp/31337/p2p/{dht.peer_id}"]
    assert options.items() <= given.items() and len(set(names)) == 1, "the key, and with it the address, stays"
    assert "use_ipfs" in caplog.text and "use_relay" in caplog.text


def test_each_option_is_in_one_of_these_tests():
    import inspect
    import pathlib

    tests = "".join(path.read_text() for path in pathlib.Path(__file__).parent.glob("test_strategy*.py"))
    options = set(inspect.signature(HivemindStrategy.__init__).parameters) | set(inspect.signature(hivemind_c.Optimizer.__init__).parameters)
    passed_on = options - SET_HERE - {"self", "optimizer_kwargs", "target_batch_size"} | {"dht", "run_id"}
    assert len(passed_on) > 40 and not [option for option in sorted(passed_on) if f"{option}=" not in tests and f'"{option}":' not in tests]


def test_config_mismatch_reaches_the_optimizer():
    watch = Watch(lambda trainer: trainer.strategy.optimizer.config_mismatch)
    fit(alone(config_mismatch="warn"), max_epochs=1, callbacks=[watch])
    assert watch.seen[0] == "warn"
    with pytest.raises(ValueError, match="config_mismatch"):
        fit(alone(config_mismatch="ignore"), max_steps=1)


def test_a_dht_of_the_users_own_is_used_and_left_running():
    with DHT(start=True) as dht:
        fit(HivemindStrategy(BATCH, dht=dht), max_steps=1)
        assert dht.is_alive()


@pytest.mark.parametrize("options", [dict(offload_optimizer=True), dict(delay_optimizer_step=True), dict(delay_grad_averaging=True)], ids=lambda o: next(iter(o)))
def test_offload_and_delays_keep_the_optimizers_settings(options):
    plain, _ = fit(module=small(optimizer=lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.3)), max_epochs=4)
    watch = Watch(lambda trainer: dict(trainer.strategy.optimizer.opt.param_groups[0]))
    module, made = fit(alone(**options), small(optimizer=lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.3)), max_epochs=4, callbacks=[watch])
    assert (watch.seen[0]["lr"], watch.seen[0]["weight_decay"]) == (0.02, 0.3)
    assert made.strategy.global_epoch >= 15
    if "offload_optimizer" in options:
        assert same(plain, module)


@pytest.mark.parametrize("options", [dict(delay_optimizer_step=True), dict(delay_grad_averaging=True)], ids=lambda o: next(iter(o)))
def test_the_last_delayed_step_is_in_the_module_when_fit_returns(options, monkeypatch):
    real = Optimizer.clip_gradients

    def late(self):
        time.sleep(0.5)  # as averaging takes: fit is over by then
        real(self)

    monkeypatch.setattr(Optimizer, "clip_gradients", late)
    plain, _ = fit(max_steps=1, enable_checkpointing=False)
    assert same(plain, fit(alone(**options), max_steps=1, enable_checkpointing=False)[0])


def test_error_in_the_last_delayed_step_is_logged(caplog):
    module = small()
    module.configure_gradient_clipping = lambda *args, **kwargs: [].pop()
    fit(alone(delay_optimizer_step=True), module, max_steps=1, enable_checkpointing=False)
    assert "IndexError: pop from empty list" in caplog.text


# ---- schedulers (defect 14) ----


def rates(strategy, module, **options):
    watch = Watch(lambda trainer: trainer.optimizers[0].param_groups[0]["lr"])
    _, made = fit(strategy, module, callbacks=[watch], **options)
    return [round(rate, 6) for rate in watch.seen]


def test_14_scheduler_fn_counts_without_any_delay():
    assert rates(alone(2 * BATCH, scheduler_fn=lambda o: STEP(o, 1, 0.5)), small(), max_epochs=1) == [0.1, 0.05, 0.05, 0.025]


def test_14_configured_scheduler_follows_global_epochs():
    assert rates(alone(2 * BATCH), small(scheduler=lambda o: STEP(o, 1, 0.5)), max_epochs=1) == [0.1, 0.05, 0.05, 0.025]
    per_step = small(scheduler=lambda o: {"scheduler": STEP(o, 1, 0.5), "interval": "step"})
    assert rates(alone(2 * BATCH), per_step, max_epochs=1) == [0.1, 0.05, 0.05, 0.025]


def test_14_per_step_scheduler_gives_the_default_weights():
    def module():
        return small(scheduler=lambda o: {"scheduler": STEP(o, 3, 0.5), "interval": "step"})

    assert same(fit(module=module())[0], fit(alone(), module())[0])


@pytest.mark.parametrize("options", [dict(offload_optimizer=True), dict(delay_optimizer_step=True), dict(delay_grad_averaging=True)], ids=lambda o: next(iter(o)))
def test_14_delays_and_offload_want_scheduler_fn_and_it_counts(options):
    with pytest.raises(misconfigured(), match=r"scheduler_fn=lambda optimizer: torch.optim.lr_scheduler.StepLR"):
        fit(alone(**options), small(scheduler=lambda o: STEP(o, 1, 0.5)))
    watch = Watch(lambda trainer: trainer.strategy.optimizer.opt.param_groups[0]["lr"])
    fit(alone(2 * BATCH, scheduler_fn=lambda o: STEP(o, 1, 0.5), **options), callbacks=[watch])
    assert watch.seen[-1] < 0.05


def test_two_schedulers_are_chained_and_two_sources_are_refused():
    module = small()
    type(module).configure_optimizers = lambda self: ([o := torch.optim.SGD(self.parameters(), lr=0.1)], [STEP(o, 1, 0.5), STEP(o, 1, 0.1)])
    assert rates(alone(2 * BATCH), module, max_epochs=1) == [0.1, 0.005, 0.005, 0.00025]
    with pytest.raises(misconfigured(), match="two schedulers"):
        fit(alone(scheduler_fn=lambda o: STEP(o, 1)), small(scheduler=lambda o: STEP(o, 1)))


def test_reduce_on_plateau_looks_at_the_monitored_metric():
    plateau = functools.partial(torch.optim.lr_scheduler.ReduceLROnPlateau, factor=0.5, patience=0, threshold=1e9, threshold_mode="abs")
    module = small(scheduler=lambda o: {"scheduler": plateau(o), "monitor": "loss", "interval": "step"})
    assert rates(alone(), module, max_epochs=2)[-1] < 0.1


# ---- gradients ----


@pytest.mark.parametrize("clip", [dict(gradient_clip_val=0.1), dict(gradient_clip_val=0.01, gradient_clip_algorithm="value")], ids=["norm", "value"])
def test_lightnings_clipping_clips_the_averaged_gradient(clip):
    assert same(fit(**clip)[0], fit(alone(), **clip)[0])
    big, _ = fit(loader=data(batch=SAMPLES, shuffle=False), **clip)
    gathered, _ = fit(alone(SAMPLES), loader=data(shuffle=False), **clip)
    for p, q in zip(big.parameters(), gathered.parameters()):
        torch.testing.assert_close(p, q)


def test_a_modules_own_clipping_sees_the_averaged_gradient_only():
    module, calls = small(), []
    module.configure_gradient_clipping = lambda optimizer, gradient_clip_val, gradient_clip_algorithm: calls.append(type(optimizer))
    fit(alone(2 * BATCH), module, max_epochs=1)
    assert calls == [torch.optim.SGD] * 2


def test_reuse_grad_buffers_disables_zero_grad_during_fit():
    module = small()
    before = module.optimizer_zero_grad
    watch = Watch(lambda trainer: trainer.lightning_module.optimizer_zero_grad == before)
    _, made = fit(alone(2 * BATCH, reuse_grad_buffers=True), module, callbacks=[watch])
    assert not any(watch.seen) and module.optimizer_zero_grad == before
    for p, q in zip(module.parameters(), fit(alone(2 * BATCH))[0].parameters()):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("target", [40, 100])
def test_reuse_grad_buffers_weighs_the_short_last_batch(target, caplog):
    """100 samples in batches of 16 end with one of 4, as DataLoader's defaults have it."""
    reusing, plain = (fit(alone(target, reuse_grad_buffers=reuse), loader=data(samples=100))[0] for reuse in (True, False))
    for p, q in zip(reusing.parameters(), plain.parameters()):
        torch.testing.assert_close(p, q)
    assert "expect_batch" not in caplog.text


def test_reuse_grad_buffers_warns_of_an_own_zero_grad(caplog):
    module = small()
    type(module).optimizer_zero_grad = lambda self, epoch, batch_idx, optimizer: optimizer.zero_grad()
    with caplog.at_level(logging.WARNING, "hivemind_c.strategy"):
        fit(alone(reuse_grad_buffers=True), module)
    assert "the module's own optimizer_zero_grad is not called" in caplog.text
    caplog.clear()
    fit(alone(reuse_grad_buffers=True))
    assert "optimizer_zero_grad" not in caplog.text


# ---- precision (defect 13) ----


def half(device="cpu", **options):
    return lightning().plugins.precision.MixedPrecision("16-mixed", device, torch.amp.GradScaler(device, init_scale=1024.0, **options))


@pytest.mark.parametrize("reuse", [False, True])
def test_13_16_mixed_uses_the_swarms_grad_scaler(reuse):
    plain, _ = fit(plugins=[half()])
    watch = Watch(lambda trainer: type(trainer.precision_plugin.scaler))
    plugin = half()
    before = plugin.scaler
    hive, _ = fit(alone(reuse_grad_buffers=reuse), plugins=[plugin], callbacks=[watch])
    assert set(watch.seen) == {hivemind_c.GradScaler} and plugin.scaler is before
    if not reuse:
        assert same(plain, hive)
    for p, q in zip(plain.parameters(), hive.parameters()):
        torch.testing.assert_close(p, q)


def test_13_an_overflow_skips_that_batch_alone():
    count, module = Count(), small()
    step = module.training_step
    module.training_step = lambda batch, batch_idx: step(batch, batch_idx) * (float("inf") if batch_idx == 1 else 1.0)
    fit(alone(10_000), module, plugins=[half()], max_epochs=1, callbacks=[count])
    assert count.seen == [16, 16, 32, 48]


def test_13_bf16_mixed_trains_as_the_default_does():
    assert same(fit(precision="bf16-mixed")[0], fit(alone(), precision="bf16-mixed")[0])


@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_13_either_device_trains_as_the_default_does(accelerator, precision):
    if accelerator == "gpu" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    seen = Watch(lambda trainer: (next(trainer.model.parameters()).device.type, type(getattr(trainer.precision_plugin, "scaler", None)).__name__))
    plain, _ = fit(accelerator=accelerator, precision=precision)
    hive, _ = fit(alone(), accelerator=accelerator, precision=precision, callbacks=[seen])
    half_precision = accelerator == "gpu" and precision == "16-mixed"  # on the CPU Lightning takes bfloat16 for it
    assert set(seen.seen) == {("cuda" if accelerator == "gpu" else "cpu", "GradScaler" if half_precision else "NoneType")}
    for p, q in zip(plain.parameters(), hive.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


# ---- what is seen ----


def test_the_swarms_figures_are_logged_as_metrics():
    _, made = fit(alone(), max_epochs=6)
    metrics = made.callback_metrics
    assert metrics["num_peers"] == 1 and metrics["global_epoch"] > 0 and "swarm_samples_per_second" in metrics


@pytest.mark.parametrize("name", NAMESPACES)
def test_records_reach_loggers_and_the_program(name, tmp_path):
    records, pl = [], lightning(name)
    logger = pl.loggers.CSVLogger(tmp_path)
    strategy = alone(2 * BATCH, on_epoch=records.append)
    fit(strategy, pl=pl, logger=logger, max_epochs=3)
    logger.save()
    rows = list(csv.DictReader((Path(logger.log_dir) / "metrics.csv").open()))
    logged = [row for row in rows if row["hivemind/epoch"]]
    assert len(records) == len(logged) == 3 * SAMPLES // BATCH // 2 and strategy.last_epoch == records[-1]
    for record, row in zip(records, logged):
        for number, value in record.numbers().items():
            assert value is None or abs(float(row[f"hivemind/{number}"]) - value) < 1e-4 * max(1, abs(value)), number
        assert record.outcome == "alone" and record.samples == 2 * BATCH and record.loss > 0


@pytest.mark.parametrize("name", NAMESPACES)
def test_the_progress_bar_shows_the_swarm(name, capsys):
    pl = lightning(name)
    fit(alone(10_000), pl=pl, callbacks=[SwarmProgressBar()], enable_progress_bar=True, max_epochs=1)
    shown = "".join(capsys.readouterr())
    assert "swarm=64/10000 samples" in shown and "peers=1" in shown and "eta=" in shown


def test_the_progress_bar_counts_up_to_the_target_and_no_further():
    from hivemind_c._lightning.swarm import gathered

    shown = [gathered(samples, 4096) for samples in (0, 4095, 4096, 8041)]
    assert shown == [f"{samples}/4096 samples" for samples in (0, 4095, 4096, 4096)]


def test_progress_bar_shows_a_load_and_repeated_steps(capsys):
    class Loads(lightning().Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            progress = trainer.strategy.optimizer.ledger.load_progress
            for second in range(3):
                progress._clock = lambda: float(second)
                progress.look(1, second << 20, 4 << 20, 1)
            shown.append("".join(capsys.readouterr()))
            progress.repeat(3, 7, 1 << 20, 4 << 20)
            shown.append("".join(capsys.readouterr()))
            progress.end()

    shown = []
    fit(alone(10_000), callbacks=[SwarmProgressBar(), Loads()], enable_progress_bar=True, max_epochs=1)
    assert "loads=50% at 8.39 Mbit/s, 2 s left" in "".join(shown)
    assert "repeats=swarm epoch 3 of 7, 25% of its average" in "".join(shown)
    last = "".join(capsys.readouterr()).rsplit("\r", 1)[-1]
    assert "loads=" not in last and "repeats=" not in last


def test_the_progress_bar_works_without_the_strategy(capsys):
    fit(callbacks=[SwarmProgressBar()], enable_progress_bar=True, max_epochs=1)
    assert "swarm=" not in "".join(capsys.readouterr())


def test_learning_rates_are_logged_under_the_optimizers_own_name():
    monitor = lightning().callbacks.LearningRateMonitor()
    logger = lightning().loggers.CSVLogger
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        fit(alone(), small(scheduler=lambda o: {"scheduler": STEP(o, 2, 0.5), "interval": "step"}), callbacks=[monitor], logger=logger(folder))
    assert list(monitor.lrs) == ["lr-SGD"] and monitor.lrs["lr-SGD"][-1] < 0.1
