"""Answers of docs/howto/questions.md about Lightning's features."""

import csv
import importlib

import torch

from hivemind_c import HivemindStrategy
from support import HERE
from trainers import BATCH, data, fit, lightning, same, small, trainer


def alone(target=2 * BATCH, **options):
    return HivemindStrategy(target, host_maddrs=HERE, **options)


class Stream(torch.utils.data.IterableDataset):
    """Batches without a length; the generator is torch's, whose seed the strategy changes at peers that join."""

    def __iter__(self):
        for _ in range(12):
            x = torch.randn(BATCH, 8)
            yield x, (x.sum(1) > 0).long()


def test_iterable_data_without_a_length_train():
    loader = torch.utils.data.DataLoader(Stream(), batch_size=None)
    _, made = fit(alone(), loader=loader, max_epochs=1)
    assert made.strategy.global_epoch == 6


def test_validation_runs_by_this_peers_batches():
    seen = []

    class Watch(lightning().Callback):
        def on_validation_end(self, trainer, *args):
            if not trainer.sanity_checking:
                seen.append((trainer.global_step, trainer.strategy.global_epoch))

    made = trainer(alone(), val_check_interval=2, callbacks=[Watch()])
    made.fit(small(), data(), data())
    assert seen == [(2, 1), (4, 2), (6, 3), (8, 4)]


def test_bf16_parameters_train_and_stay_bf16():
    module, made = fit(alone(), precision="bf16-true")
    assert {p.dtype for p in module.parameters()} == {torch.bfloat16} and made.strategy.global_epoch == 4


def test_bf16_parameters_end_as_with_the_default_strategy():
    assert same(fit(precision="bf16-true")[0], fit(alone(BATCH), precision="bf16-true")[0])


def test_loggers_get_metrics_of_the_module_and_of_the_swarm(tmp_path):
    csv_logger = importlib.import_module("lightning.pytorch.loggers").CSVLogger
    loggers = [csv_logger(tmp_path, name=name) for name in ("one", "two")]
    fit(alone(), logger=loggers, max_epochs=3)
    for name in "one", "two":
        (path,) = (tmp_path / name).rglob("metrics.csv")
        columns = set(next(csv.reader(path.open())))
        assert {"loss", "num_peers", "global_epoch", "hivemind/wall_s"} <= columns
