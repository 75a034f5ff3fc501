"""Answers of docs/howto/questions.md about Lightning's features."""

import csv
import importlib
import os
import pathlib
import re
import subprocess
import sys

import torch

from hivemind_c import HivemindStrategy
from support import HERE, eventually
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


def test_script_of_the_page_turns_a_notice_into_sigterm(tmp_path):
    page = (pathlib.Path(__file__).resolve().parents[3] / "docs/howto/questions.md").read_text()
    (script,) = re.findall(r"(?s)```text\n(#!/bin/sh\n.*?)```", page)
    (tmp_path / "noticed.sh").write_text(script.replace("sleep 5", "sleep 0.2"))
    (tmp_path / "train.py").write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit('told'))\n"
        "open('ready', 'w').close()\ntime.sleep(60)\n"
    )
    env = {**os.environ, "URL": (tmp_path / "notice").as_uri()}
    path = f"{os.path.dirname(sys.executable)}:{env['PATH']}"
    running = subprocess.Popen(
        ["sh", "noticed.sh"], cwd=tmp_path, env={**env, "PATH": path}, stderr=subprocess.PIPE, text=True
    )
    assert eventually((tmp_path / "ready").exists, 60) and running.poll() is None
    (tmp_path / "notice").write_text("in two minutes")
    assert running.communicate(timeout=60)[1].strip().endswith("told") and running.returncode == 1
