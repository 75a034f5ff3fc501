"""HivemindStrategy and its neighbours in the hands of tools: help(), LightningCLI, Lightning's registry, pickle, copy,
tab completion."""

import copy
import dataclasses
import inspect
import pickle
import pydoc

import pytest
from trainers import BATCH, NAMESPACES, SAMPLES, data, fit, lightning, same, small, trainer

import hivemind_c
from hivemind_c import HivemindStrategy, Optimizer, ProgressTracker, SwarmProgressBar
from support import HERE

pytestmark = pytest.mark.filterwarnings("ignore")
LATER = [name for names in hivemind_c._LATER.values() for name in names]
CLASSES = [
    name
    for name in {*hivemind_c.__all__, *LATER}
    if inspect.isclass(getattr(hivemind_c, name)) and not issubclass(getattr(hivemind_c, name), Exception)
]


# ---- help(), signatures, tab completion ----


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_signature_of_each_class_shows_its_real_arguments(name):
    shown = inspect.signature(getattr(hivemind_c, name)).parameters.values()
    loose = {p.name for p in shown if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    assert not loose


def test_signature_of_the_strategy_has_the_optimizers_options():
    shown = inspect.signature(HivemindStrategy).parameters
    assert list(shown)[:3] == ["target_batch_size", "run_id", "batch_size"]
    assert shown["max_grad_norm"].default is None and shown["grad_compression"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "optimizer" not in shown and "auxiliary" not in shown
    assert list(inspect.signature(hivemind_c.CollaborativeStrategy).parameters) == list(shown)


@pytest.mark.parametrize(
    "thing, options",
    [
        (HivemindStrategy, ["target_batch_size", "max_grad_norm"]),
        (Optimizer, ["matchmaking_time"]),
        (SwarmProgressBar, ["refresh_rate"]),
    ],
)
def test_help_shows_the_options(thing, options):
    text = pydoc.render_doc(thing, renderer=pydoc.plaintext)
    assert "*args" not in text.split("Methods defined here")[0] and all(option in text for option in options)


def test_dir_lists_everything_public_and_loads_nothing(program):
    code, out, err = program(
        """
        import sys, hivemind_c
        shown = set(dir(hivemind_c))
        print(sorted({*hivemind_c.__all__, "HivemindStrategy", "CollaborativeStrategy", "SwarmProgressBar", "strategy",
            "optim", "utils"} - shown))
        print([name for name in ("torch", "lightning", "pytorch_lightning") if name in sys.modules])
        print([name for name in shown if not hasattr(hivemind_c, name)])
        """
    ).finish()
    assert (code, out, err) == (0, "[]\n[]\n[]\n", "")


# ---- Lightning's registry ----

BY_NAME = """
import {0}
import {1}
trainer = {2}.Trainer(strategy="hivemind", accelerator="cpu", logger=False)
print(type(trainer.strategy).__name__, trainer.strategy._optimizer_options["target_batch_size"])
"""
LINE = (
    "strategy='hivemind': the optimizer steps when all peers together have done 4,096 samples. To choose another "
    "number, set HIVEMIND_TARGET_BATCH_SIZE=N"
)


@pytest.mark.parametrize("name", NAMESPACES)
@pytest.mark.parametrize("first", [True, False], ids=["before Lightning", "after Lightning"])
def test_name_works_as_soon_as_the_package_is_imported(program, name, first):
    code, out, err = program(BY_NAME.format(*(["hivemind_c", name] if first else [name, "hivemind_c"]), name)).finish()
    assert (code, out) == (0, "HivemindStrategy 4096\n"), err
    assert err.count(LINE) == 1


def test_name_takes_its_target_from_the_environment(program, monkeypatch):
    monkeypatch.setenv("HIVEMIND_TARGET_BATCH_SIZE", "64")
    code, out, err = program(BY_NAME.format("hivemind_c", "lightning.pytorch", "lightning.pytorch")).finish()
    assert (code, out) == (0, "HivemindStrategy 64\n") and "HIVEMIND_TARGET_BATCH_SIZE" not in err


def test_name_refuses_a_target_that_is_no_number(monkeypatch):
    monkeypatch.setenv("HIVEMIND_TARGET_BATCH_SIZE", "many")
    with pytest.raises(
        ValueError, match="HIVEMIND_TARGET_BATCH_SIZE must be a number of samples, 1 or more, not 'many'"
    ):
        trainer("hivemind")


# ---- LightningCLI ----


@pytest.fixture(scope="module")
def cli():
    """cli(arguments, **options) gives LightningCLI's Trainer for a small module."""
    from lightning.pytorch.cli import LightningCLI

    pl = lightning()

    class Module(type(small())):
        def __init__(self, width: int = 1):
            super().__init__()

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return data()

    quiet = dict(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_epochs=1,
    )

    def run(arguments, **defaults):
        return LightningCLI(
            Module,
            Data,
            args=arguments,
            trainer_defaults={**quiet, **defaults},
            save_config_callback=None,
            run=arguments[:1] == ["fit"],
        ).trainer

    return run


def test_cli_takes_the_strategy_on_the_command_line(cli):
    made = cli(
        [
            "fit",
            "--trainer.strategy=hivemind_c.HivemindStrategy",
            "--trainer.strategy.target_batch_size=64",
            f"--trainer.strategy.host_maddrs={HERE}",
            "--trainer.strategy.max_grad_norm=1.5",
        ]
    )
    assert isinstance(made.strategy, HivemindStrategy) and made.strategy.global_epoch == 1
    assert (
        made.strategy._optimizer_options["target_batch_size"] == 64
        and made.strategy._optimizer_options["max_grad_norm"] == 1.5
    )


CONFIG = """
trainer:
  strategy:
    class_path: hivemind_c.HivemindStrategy
    init_args:
      target_batch_size: 64
      run_id: from_a_file
      initial_peers: [/ip4/192.0.2.7/tcp/31337, /ip4/192.0.2.8/tcp/31337]
      grad_compression: hivemind_c.Float16Compression
"""


def test_cli_takes_the_strategy_from_a_config_file(cli, tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    made = cli(["--config", str(tmp_path / "config.yaml"), "--trainer.strategy.run_id=from_the_line"])
    assert made.strategy._run_id == "from_the_line" and made.strategy._peers == (
        "/ip4/192.0.2.7/tcp/31337",
        "/ip4/192.0.2.8/tcp/31337",
    )
    assert isinstance(made.strategy._optimizer_options["grad_compression"], hivemind_c.Float16Compression)


def test_cli_takes_the_strategy_by_name_and_as_a_default_in_code(cli):
    assert isinstance(cli(["--trainer.strategy=hivemind"]).strategy, HivemindStrategy)
    default = {"class_path": "hivemind_c.HivemindStrategy", "init_args": {"target_batch_size": 32}}
    assert cli(["--trainer.strategy.run_id=x"], strategy=default).strategy._optimizer_options["target_batch_size"] == 32


def test_cli_refuses_an_option_that_is_not_there(cli, capsys):
    with pytest.raises(SystemExit):
        cli(
            [
                "--trainer.strategy=hivemind_c.HivemindStrategy",
                "--trainer.strategy.target_batch_size=64",
                "--trainer.strategy.max_gradnorm=1",
            ]
        )
    assert "max_gradnorm" in capsys.readouterr().err


# ---- pickle, copy, several Trainers ----

COPIES = {"pickle": lambda thing: pickle.loads(pickle.dumps(thing)), "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("how", COPIES)
def test_copy_of_a_strategy_trains_as_the_strategy_would(how):
    strategy = COPIES[how](HivemindStrategy(BATCH, run_id="copied", host_maddrs=HERE, max_grad_norm=0.5))
    assert strategy._run_id == "copied" and strategy._optimizer_options["max_grad_norm"] == 0.5
    plain, _ = fit(gradient_clip_val=0.5)
    assert same(plain, fit(strategy)[0])


@pytest.mark.parametrize("how", COPIES)
def test_copy_of_a_progress_bar_keeps_its_options(how):
    assert COPIES[how](SwarmProgressBar(refresh_rate=7)).refresh_rate == 7


def test_copies_are_settled_by_different_trainers():
    one = HivemindStrategy(BATCH, host_maddrs=HERE)
    other = copy.copy(one)
    trainer(one, precision="bf16-mixed")
    trainer(other)
    assert one.precision_plugin.precision == "bf16-mixed" and other.precision_plugin.precision == "32-true"


class Copy(lightning().Callback):
    def on_train_batch_end(self, trainer, *args):
        self.refused = [str(pytest.raises(TypeError, how, trainer.strategy).value) for how in COPIES.values()]


def test_strategy_that_trains_refuses_to_be_copied():
    callback = Copy()
    _, made = fit(HivemindStrategy(BATCH, host_maddrs=HERE), callbacks=[callback])
    assert all("before fit, or after fit has returned" in refused for refused in callback.refused)
    assert copy.deepcopy(made).strategy.global_epoch == made.strategy.global_epoch


@pytest.mark.parametrize("name", NAMESPACES)
def test_second_trainer_takes_the_strategy_over(name):
    pl = lightning(name)
    strategy = HivemindStrategy(BATCH, host_maddrs=HERE)
    for precision in ("32-true", "bf16-mixed"):
        plain, _ = fit(pl=pl, precision=precision)
        mine, made = fit(strategy, pl=pl, precision=precision)
        assert same(plain, mine) and made.strategy is strategy and made.precision == precision


@pytest.mark.parametrize("name", NAMESPACES)
def test_trainer_has_its_own_devices_with_a_used_strategy(name):
    pl = lightning(name)
    strategy = HivemindStrategy(BATCH, host_maddrs=HERE)
    for count in (2, 1, 3, 2, 1):
        made = trainer(strategy, pl, devices=count)
        assert (made.num_devices, made.world_size, len(made.device_ids)) == (count, count, count)
        assert isinstance(strategy, pl.strategies.DDPStrategy if count > 1 else pl.strategies.SingleDeviceStrategy)
        assert (strategy.launcher is None) == (count == 1)
    assert same(fit(pl=pl)[0], fit(strategy, pl=pl)[0])


# ---- the epoch after fit ----


class Epochs(lightning().Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, *args):
        self.seen.append(trainer.strategy.global_epoch)


def test_global_epoch_does_not_fall_when_fit_returns(monkeypatch):
    """As in a swarm whose other peers have not reported this epoch yet: its epoch lags behind this peer's."""
    real = ProgressTracker.global_progress.fget
    monkeypatch.setattr(
        ProgressTracker,
        "global_progress",
        property(lambda tracker: dataclasses.replace(real(tracker), epoch=real(tracker).epoch - 1)),
    )
    epochs = Epochs()
    _, made = fit(HivemindStrategy(BATCH, host_maddrs=HERE), max_epochs=1, callbacks=[epochs])
    assert made.strategy.global_epoch == epochs.seen[-1] == SAMPLES // BATCH > made.strategy.global_progress.epoch
