"""examples/albert on its tiny config, from text to trained model: a monitor, two trainers, one of them killed and back; offline."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import nbformat
import pytest

from support import eventually

ALBERT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "albert"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
OPTIONS = (
    "--config tiny --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --target_batch_size 256 --swarm_epochs 400 --swarm_warmup 2 --learning_rate 0.01 --matchmaking_time 2 "
    "--averaging_timeout 8 --host_maddrs /ip4/127.0.0.1/tcp/0 --report_to none --disable_tqdm true"
).split()  # fmt: skip


class Talker:
    """A program whose lines are heard."""

    def __init__(self, *command, **environment):
        command = [sys.executable, "-u", *map(str, command)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**ENV, **environment})
        self.lines, self.heard = queue.Queue(), []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def until(self, pattern, fits=lambda match: True, timeout=120):
        """The match in the next line that has one that fits."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                break
            if line is None:
                break
            self.heard.append(line)
            if (match := re.search(pattern, line)) and fits(match):
                return match
        raise AssertionError(f"{pattern} did not come:\n" + "\n".join(self.heard[-40:]))


@pytest.fixture
def talk():
    started = []

    def start(*command, **environment):
        started.append(Talker(*command, **environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("albert") / "data"
    done = subprocess.run([sys.executable, ALBERT / "prepare.py", "--tiny", "--folder", folder], capture_output=True, text=True, env=ENV, timeout=200)
    assert done.returncode == 0 and re.match(r"\d{4} blocks of 32 tokens", done.stdout), done.stderr
    return folder


def test_two_trainers_one_killed_and_back_and_the_loss_falls(talk, data, tmp_path):
    monitor = talk("-m", "hivemind_c.cli.monitor", "--run_id", "albert", "--host_maddrs", "/ip4/127.0.0.1/tcp/0", "--web", "0", XDG_STATE_HOME=str(tmp_path))
    peers = monitor.until(r"INITIAL_PEERS=(\S+)")[1]
    web = monitor.until(r"WEB=(\S+)")[1]

    def trainer(name, *more):
        return talk(ALBERT / "trainer.py", *OPTIONS, "--folder", data, "--output_dir", tmp_path / name, "--identity_path", tmp_path / f"{name}.key", *more, INITIAL_PEERS=peers, HIVEMIND_NAME=name)

    stays, goes = trainer("stays"), trainer("goes")
    first = float(stays.until(r"epoch 0: \d peers, loss ([0-9.]+)")[1])
    for one in (stays, goes):
        one.until(r"epoch \d+: 2 peers")
    goes.process.kill()
    goes.process.wait()
    back = trainer("goes", "--max_steps", "24")
    joined = int(back.until(r"epoch ([1-9]\d*): 2 peers")[1])
    assert any("loaded the swarm's state" in line or f"epoch {joined}" in line for line in back.heard)
    back.until(r"train_loss")
    assert back.process.wait(60) == 0
    stays.until(r"epoch \d+: \d peers, loss ([0-9.]+)", lambda match: float(match[1]) < first - 0.5)

    def seen():
        with urllib.request.urlopen(web + "api/history", timeout=20) as answer:
            return [point[4] for point in json.load(answer) if point[4] is not None]

    assert eventually(lambda: seen()[-1] < seen()[0] - 0.3, 30), seen()
    stays.process.send_signal(signal.SIGTERM)
    assert stays.process.wait(60) == 143

    from transformers import AlbertForMaskedLM, AutoTokenizer

    model, tokenizer = AlbertForMaskedLM.from_pretrained(tmp_path / "goes"), AutoTokenizer.from_pretrained(tmp_path / "goes")
    answer = model(**tokenizer("the cat sees the [MASK] in the garden .", return_tensors="pt")).logits
    assert answer.shape[-1] == len(tokenizer)


@pytest.fixture(scope="module")
def trainer():
    spec = importlib.util.spec_from_file_location("albert_trainer", ALBERT / "trainer.py")
    module = sys.modules["albert_trainer"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["albert_trainer"]


def test_half_precision_without_a_swarms_scaler_is_refused(trainer, data, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["trainer.py", *OPTIONS, "--folder", str(data), "--output_dir", str(tmp_path), "--fp16", "--use_cpu"])
    with pytest.raises(SystemExit, match="--bf16"):
        trainer.main()


def test_the_notebook_and_the_readme_give_options_that_there_are(trainer):
    notebook = nbformat.read(ALBERT / "join.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    known = {f"--{field.name}" for kind in (trainer.Swarm, trainer.TrainingArguments) for field in dataclasses.fields(kind)}
    commands = re.findall(r"python trainer\.py ((?:.|\\\n)*)", source + "\n" + (ALBERT / "README.md").read_text())
    options = set(re.findall(r"--[a-z0-9_]+", " ".join(commands)))
    assert len(commands) == 3 and len(options) > 10 and options <= known, options - known
    assert "python prepare.py --folder data" in source
