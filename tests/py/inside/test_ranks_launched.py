"""The program of docs/howto/several-gpus.md, word for word, started by Lightning and torchrun; ranks that die."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ranks import ALONE
from support import eventually, free_port

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/howto/several-gpus.md").read_text()
CLI = """
import sys

sys.path.insert(0, {tests!r})
import trainers
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.cli import LightningCLI

CPUAccelerator.auto_device_count = staticmethod(lambda: 2)  # a machine with two
made = LightningCLI(
    type(trainers.small()), trainers.lightning().LightningDataModule, run=False, save_config_callback=None
)
made.trainer.fit(made.model, trainers.data())
strategy = made.trainer.strategy
print(f"rank {{made.trainer.global_rank}} of {{made.trainer.world_size}}: swarm epoch {{strategy.global_epoch}}")
"""
LINES = "rank 0 of 2: swarm epoch 8", "rank 1 of 2: swarm epoch 8"


def blocks(language):
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGE)


COMMANDS = [line for block in blocks("bash") for line in block.splitlines()]


@pytest.fixture
def start(tmp_path):
    """start(command, ...) runs it where the page's program is train.py."""
    started = []
    (program,) = blocks("python")
    (tmp_path / "bin").mkdir()
    for name, words in (("python", ""), ("torchrun", "-m torch.distributed.run")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    about = {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path),
        **ALONE,
    }  # fmt: skip

    def run(command, endless=False, text=program, after=""):
        text = text.replace("max_epochs=2", "max_epochs=-1") if endless else text
        (tmp_path / "train.py").write_text(text + after)
        started.append(
            subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=tmp_path, env={**os.environ, **about}, text=True,
                stdout=open(tmp_path / "out.txt", "w"), stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        )
        started[-1].said = (tmp_path / "out.txt").read_text
        started[-1].folder = tmp_path
        return started[-1]

    yield run
    for process in started:
        process.kill()
        for pid in ranks_of(process):  # torchrun gives them sessions of their own
            os.kill(pid, signal.SIGKILL)
        process.wait()


def ranks_of(process):
    """The processes of the program, rank 0 first."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            here = (path / "cwd").resolve() == process.folder.resolve()
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        runs = any(word.endswith(b"train.py") for word in words) and b"torch.distributed.run" not in words
        if here and runs:
            found.append(int(path.name))
    return sorted(found)


def test_page_has_two_commands():
    assert COMMANDS == ["python train.py", "torchrun --standalone --nproc-per-node 2 train.py"]


@pytest.mark.parametrize("command", COMMANDS)
def test_page_runs_with_each_launcher(start, command):
    running = start(command)
    assert running.wait(240) == 0, running.said()
    assert all(line in running.said() for line in LINES), running.said()
    assert all(line in PAGE for line in LINES)


def test_store_of_the_ranks_listens_on_the_port_of_the_page(start):
    """torch's store takes connections at each interface: the page says so, with the line for the firewall."""
    (port,) = re.findall(r"MASTER_PORT=(\d+) python train.py", PAGE)
    assert f"! -i lo -p tcp --dport {port} -j DROP" in PAGE
    running, chosen = start(f"env MASTER_PORT={free_port()} python train.py", endless=True), None
    chosen = int(re.search(r"MASTER_PORT=(\d+)", " ".join(running.args)).group(1))
    everywhere = f"00000000000000000000000000000000:{chosen:04X}", f"00000000:{chosen:04X}"

    def listening():
        return {line.split()[1] for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").open()}

    assert eventually(lambda: set(everywhere) & listening(), timeout=60), running.said()


@pytest.mark.parametrize("devices", ["2", "auto"])
def test_command_line_takes_the_devices(start, devices):
    options = "--trainer.strategy hivemind_c.HivemindStrategy --trainer.strategy.target_batch_size 32"
    words = f"--trainer.max_epochs 2 --trainer.devices {devices} --trainer.accelerator cpu --trainer.logger false"
    running = start(f"python train.py {options} {words}", text=CLI.format(tests=str(ROOT / "tests/py")))
    assert running.wait(240) == 0, running.said()
    said = running.said()
    assert all(line in said for line in ("rank 0 of 2: swarm epoch 4", "rank 1 of 2: swarm epoch 4")), said


AFTER = """
import os, sys, time
if trainer.global_rank == int(os.environ.get("FIRST_ENDS", "9")):
    sys.exit(0)
print(f"after fit: rank {trainer.global_rank}", flush=True)
if trainer.global_rank == int(os.environ.get("FIRST_FAILS", "9")):
    raise ValueError("after fit")
time.sleep(float(os.environ.get("SLEEP", "600")))
print(f"through: rank {trainer.global_rank}", flush=True)
"""


def test_rank_0_that_dies_after_fit_ends_all(start):
    running = start("python train.py", after=AFTER)
    both = "after fit: rank 0", "after fit: rank 1"
    assert eventually(lambda: all(line in running.said() for line in both), timeout=240), running.said()
    first, second = ranks_of(running)
    os.kill(first, signal.SIGKILL)
    assert eventually(lambda: second not in ranks_of(running), timeout=10), running.said()
    assert f"rank 0 (process {first}) has died; this rank ends with it" in running.said()


def test_error_of_rank_0_after_fit_ends_all(start):
    running = start("env FIRST_FAILS=0 python train.py", after=AFTER)
    assert running.wait(240) != 0, running.said()
    assert eventually(lambda: not ranks_of(running), timeout=10), running.said()


def test_other_rank_ends_by_itself_if_rank_0_has_ended(start):
    running = start("env FIRST_ENDS=0 SLEEP=3 python train.py", after=AFTER)
    assert running.wait(240) == 0, running.said()
    assert eventually(lambda: "through: rank 1" in running.said(), timeout=20), running.said()
    assert "has died" not in running.said()


@pytest.mark.parametrize("command", COMMANDS)
def test_rank_that_dies_is_named_and_ends_all(start, command):
    running = start(command, endless=True)
    assert eventually(lambda: "the first batch has 32 samples" in running.said(), timeout=240), running.said()
    time.sleep(1.0)
    ranks = ranks_of(running)
    assert len(ranks) == 2, running.said()
    began = time.monotonic()
    os.kill(ranks[1], signal.SIGKILL)
    assert running.wait(120) != 0
    assert f"(process {ranks[1]})" in running.said() and "has died" in running.said(), running.said()
    assert time.monotonic() - began < 60 and not ranks_of(running)
