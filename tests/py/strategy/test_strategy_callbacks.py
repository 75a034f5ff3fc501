"""Lightning's callbacks, precision and tuner, and torch's optimizers, with HivemindStrategy: as with Lightning alone,
or refused before training."""

import copy
import logging

import pytest
import torch
from trainers import BATCH, NAMESPACES, SAMPLES, data, fit, lightning, same, small, trainer

from hivemind_c import HivemindStrategy
from support import HERE

pytestmark = pytest.mark.filterwarnings("ignore")
LOGGER = "hivemind_c.strategy"


def alone(target=BATCH, **options):
    return HivemindStrategy(target, host_maddrs=HERE, **options)


def misconfigured(pl=None):
    return (pl or lightning()).utilities.exceptions.MisconfigurationException


def lines(caplog, part, level=logging.INFO):
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == LOGGER and record.levelno >= level and part in record.getMessage()
    ]


@pytest.fixture(autouse=True)
def all_lines(caplog):
    caplog.set_level(logging.INFO, LOGGER)


def close(a, b):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def callback(**hooks):
    return type("Own", (lightning().Callback,), {name: staticmethod(hook) for name, hook in hooks.items()})()


# ---- averages of weights ----


def averages(name):
    """EMAWeightAveraging, which Lightning has since 2.6."""
    return pytest.importorskip(f"{name}.callbacks.weight_averaging").EMAWeightAveraging(decay=0.8)


@pytest.mark.parametrize("name", NAMESPACES)
def test_ema_averages_after_each_global_step(name):
    pl = lightning(name)
    options = dict(loader=data(shuffle=False), pl=pl, max_epochs=3)
    plain, _ = fit(accumulate_grad_batches=2, callbacks=[averages(name)], **options)
    hive, made = fit(alone(2 * BATCH), callbacks=[averages(name)], **options)
    assert made.strategy.global_epoch == 6
    close(plain, hive)
    assert not same(hive, fit(accumulate_grad_batches=2, **options)[0])


def test_ema_counts_on_after_a_checkpoint(tmp_path):
    path, options = tmp_path / "plain.ckpt", dict(loader=data(shuffle=False))
    _, made = fit(callbacks=[averages("lightning.pytorch")], max_epochs=1, **options)
    made.save_checkpoint(path)
    plain, _ = fit(ckpt_path=path, callbacks=[averages("lightning.pytorch")], max_epochs=2, **options)
    hive, _ = fit(alone(), ckpt_path=path, callbacks=[averages("lightning.pytorch")], max_epochs=2, **options)
    close(plain, hive)


@pytest.mark.parametrize("scheduled", [False, True])
def test_swa_gives_the_plain_weights(scheduled, caplog):
    def run(strategy, **options):
        swa = lightning().callbacks.StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=2, annealing_epochs=1)
        module = small(
            scheduler=(lambda o: {"scheduler": torch.optim.lr_scheduler.StepLR(o, 1, 0.9), "interval": "step"})
            if scheduled
            else None
        )
        return fit(strategy, module, loader=data(shuffle=False), callbacks=[swa], max_epochs=4, **options)[0]

    close(run("auto", accumulate_grad_batches=2), run(alone(2 * BATCH)))
    assert len(lines(caplog, "is no longer stepped", logging.WARNING)) == scheduled


# ---- the learning-rate finder ----


def found(strategy, **options):
    module, made = small(), trainer(strategy, max_epochs=10, **options)
    module.lr = 0.1
    finder = (
        __import__("lightning.pytorch.tuner", fromlist=["Tuner"])
        .Tuner(made)
        .lr_find(module, data(shuffle=False), num_training=12, early_stop_threshold=None)
    )
    return finder.results, module


@pytest.mark.parametrize("batches", [1, 2])
def test_rate_finder_agrees_with_plain_lightning(batches, tmp_path):
    plain, _ = found("auto", accumulate_grad_batches=batches, default_root_dir=tmp_path)
    hive, module = found(alone(batches * BATCH), default_root_dir=tmp_path)
    assert len(hive["lr"]) == len(plain["lr"]) and hive["lr"] == pytest.approx(plain["lr"])
    assert hive["loss"] == pytest.approx(plain["loss"], rel=1e-4, nan_ok=True) and same(module, small())


def test_rate_finder_as_a_callback_is_followed_by_training(tmp_path):
    def run(strategy, **options):
        module = small()
        module.lr = 0.1
        finder = lightning().callbacks.LearningRateFinder(num_training_steps=8, early_stop_threshold=None)
        return fit(
            strategy, module, loader=data(shuffle=False), callbacks=[finder], default_root_dir=tmp_path, **options
        )

    plain, _ = run("auto", accumulate_grad_batches=2)
    hive, made = run(alone(2 * BATCH))
    assert made.accumulate_grad_batches == 1 and made.strategy.global_epoch == 4
    close(plain, hive)


def test_rate_finder_with_offload_is_refused():
    with pytest.raises(misconfigured(), match="learning-rate finder.*without the strategy"):
        found(alone(offload_optimizer=True))


# ---- hooks, and the optimizer as the program sees it ----


def norms(strategy, **options):
    seen = []
    hook = callback(
        on_before_optimizer_step=lambda trainer, module, optimizer: seen.append(
            float(sum(p.grad.norm() for p in module.parameters()))
        )
    )
    fit(strategy, loader=data(shuffle=False), callbacks=[hook], **options)
    return seen


def test_before_optimizer_step_sees_the_averaged_gradient():
    assert norms(alone(2 * BATCH)) == pytest.approx(norms("auto", accumulate_grad_batches=2), rel=1e-4)
    assert len(norms(alone(2 * BATCH, offload_optimizer=True))) == 2 * SAMPLES // BATCH  # each batch


class Swings(torch.optim.SGD):
    """An optimizer with a method of its own, and an argument that is not in its defaults."""

    def __init__(self, params, lr, mood):
        super().__init__(params, lr=lr)
        self.mood = mood

    def eval(self):
        self.mood = "calm"
        return self.param_groups[0]["lr"]


def test_before_optimizer_step_may_log():
    module = small()
    module.on_before_optimizer_step = lambda optimizer: module.log(
        "norm", sum(p.grad.norm() for p in module.parameters())
    )
    _, made = fit(alone(2 * BATCH), module, max_epochs=1)
    assert made.callback_metrics["norm"] > 0


@pytest.mark.parametrize("scheduled", [False, True])
def test_rate_monitor_logs_each_rate_once(scheduled, tmp_path):
    def run(strategy):
        monitor = lightning().callbacks.LearningRateMonitor()
        module = small(
            scheduler=(lambda o: {"scheduler": torch.optim.lr_scheduler.StepLR(o, 3), "interval": "step"})
            if scheduled
            else None
        )
        fit(strategy, module, callbacks=[monitor], logger=lightning().loggers.CSVLogger(tmp_path))
        return monitor.lrs

    assert run(alone()) == run("auto")


def test_methods_of_the_optimizer_are_reached():
    seen = []
    look = callback(
        on_train_batch_end=lambda trainer, module, *args: seen.append(
            (trainer.optimizers[0], module.optimizers(), trainer.optimizers[0].mood, module.optimizers().eval())
        )
    )
    module = small(optimizer=lambda p: Swings(p, 0.1, "wild"))
    fit(alone(), module, callbacks=[look], max_epochs=1)
    assert (
        all(isinstance(one, Swings) for pair in seen for one in pair[:2])
        and [one[2:] for one in seen] == [("wild", 0.1)] + [("calm", 0.1)] * 3
    )


def test_hooks_of_the_optimizer_move_along_with_offload():
    calls = []

    def hooked(params):
        made = torch.optim.SGD(params, lr=0.1)
        made.register_step_pre_hook(lambda *args: calls.append("before"))
        made.register_step_post_hook(lambda *args: calls.append("after"))
        return made

    fit(alone(offload_optimizer=True), small(optimizer=hooked))
    assert calls == ["before", "after"] * (2 * SAMPLES // BATCH)


def test_offload_asks_for_the_optimizers_arguments():
    with pytest.raises(misconfigured(), match="Swings does not keep its argument 'mood'.*offload_optimizer=False"):
        fit(alone(offload_optimizer=True), small(optimizer=lambda p: Swings(p, 0.1, "wild")))


def test_replaced_optimizers_are_refused_where_it_is_done():
    replace = callback(
        on_train_start=lambda trainer, module: setattr(
            trainer, "optimizers", [torch.optim.SGD(module.parameters(), lr=0.1)]
        )
    )
    with pytest.raises(misconfigured(), match="trainer.optimizers cannot be replaced.*configure_optimizers"):
        fit(alone(), callbacks=[replace])


class Twice(torch.optim.SGD):
    def step(self, closure=None):
        closure()
        super().step()
        return closure()


def with_parameter(parameter):
    made = small()
    made.register_parameter("odd", torch.nn.Parameter(parameter, requires_grad=parameter.is_complex()))
    return made


def frozen():
    made = small()
    made.requires_grad_(False)
    return made


REFUSED = {
    "LBFGS": (lambda: small(optimizer=torch.optim.LBFGS), "LBFGS computes the loss again.*torch.optim.AdamW"),
    "closure": (
        lambda: small(optimizer=lambda p: Twice(p, lr=0.1)),
        "Twice computes the loss again.*torch.optim.AdamW",
    ),
    "SparseAdam": (
        lambda: small(optimizer=lambda p: torch.optim.SparseAdam(list(p))),
        "SparseAdam steps with sparse gradients only.*torch.optim.Adam",
    ),
    "complex": (lambda: with_parameter(torch.zeros(2, dtype=torch.complex64)), "'odd' is complex64.*two parameters"),
    "integer": (lambda: with_parameter(torch.zeros(2, dtype=torch.int64)), "'odd' is int64.*register_buffer"),
    "frozen": (frozen, "no parameter in the optimizer requires a gradient.*requires_grad_"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("offload", [False, True])
def test_refused_before_training_with_the_remedy(name, offload):
    made, sentence = REFUSED[name]
    module, begun = made(), []
    module.on_train_start = lambda: begun.append(True)
    with pytest.raises(misconfigured(), match=sentence):
        fit(alone(offload_optimizer=offload), module)
    assert not begun and type(module.trainer) is lightning().Trainer


def test_finetuning_is_refused_before_training():
    class Backbone(type(small())):
        def __init__(self):
            super().__init__()
            self.backbone = self.net

    with pytest.raises(misconfigured(), match="BackboneFinetuning.*requires_grad_\\(False\\) in on_train_start"):
        fit(alone(), Backbone(), callbacks=[lightning().callbacks.BackboneFinetuning(unfreeze_backbone_at_epoch=1)])


@pytest.mark.parametrize("options", [dict(), dict(offload_optimizer=True), dict(reuse_grad_buffers=True)], ids=str)
def test_sparse_gradients_are_made_dense_with_one_warning(options, caplog):
    def module(sparse):
        torch.manual_seed(3)

        class Words(lightning().LightningModule):
            def __init__(self):
                super().__init__()
                self.words = torch.nn.Embedding(10, 2, sparse=sparse)

            def training_step(self, batch, batch_idx):
                return self.words(batch[1]).sum() + (self.words(batch[1]) ** 2).mean()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        return Words()

    plain, _ = fit(module=module(sparse=False))
    close(plain, fit(alone(**options), module(sparse=True))[0])
    assert len(lines(caplog, "is sparse and is made dense", logging.WARNING)) == ("reuse_grad_buffers" not in options)


# ---- precision, compile, checkpoint_io ----


@pytest.mark.parametrize("name", NAMESPACES)
def test_scale_of_a_grad_scaler_is_kept(name, tmp_path):
    pl = lightning(name)

    def run(strategy):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        precision = pl.plugins.MixedPrecision("16-mixed", "cpu", scaler)
        _, made = fit(strategy, pl=pl, plugins=[precision])
        made.save_checkpoint(tmp_path / "after.ckpt")
        return scaler.state_dict(), next(
            iter(v for k, v in torch.load(tmp_path / "after.ckpt", weights_only=False).items() if k == "MixedPrecision")
        )

    assert run(alone()) == run("auto") and run("auto")[0]["scale"] == 16384.0


@pytest.mark.parametrize("name", NAMESPACES)
def test_compiled_module_trains(name):
    pl = lightning(name)
    hive = small(pl)
    type(hive).training_step = lambda self, batch, batch_idx: torch.nn.functional.cross_entropy(
        self.net(batch[0]), batch[1]
    )  # dynamo fails in self.log
    _, made = fit(alone(), torch.compile(hive, backend="eager"), pl=pl)
    assert isinstance(made.strategy, pl.strategies.SingleDeviceStrategy) and made.strategy.global_epoch == 8
    close(fit(pl=pl)[0], hive)


def test_checkpoint_io_is_taken_as_by_lightning(tmp_path):
    written = []

    class Noting(lightning().plugins.TorchCheckpointIO):
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            written.append(str(path))
            super().save_checkpoint(checkpoint, path, storage_options)

    strategy = alone(checkpoint_io=Noting())
    for path in (tmp_path / "first.ckpt", tmp_path / "second.ckpt"):
        fit(copy.copy(strategy), max_steps=1)[1].save_checkpoint(path)
    assert written == [str(tmp_path / "first.ckpt"), str(tmp_path / "second.ckpt")]
