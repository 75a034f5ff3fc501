"""examples/albert on its tiny config, from text to trained model: a monitor, two trainers, one of them killed and back; offline."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import urllib.request

import nbformat
import pytest
from nbclient import NotebookClient

from support import HERE, eventually, module_of

ALBERT = pathlib.Path(__file__).resolve().parents[3] / "examples" / "albert"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
OPTIONS = (
    "--config tiny --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --target_batch_size 256 --swarm_epochs 4000 --swarm_warmup 2 --learning_rate 0.01 --matchmaking_time 5 "
    "--averaging_timeout 20 --host_maddrs /ip4/127.0.0.1/tcp/0 --report_to none --disable_tqdm true"
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

    def until(self, pattern, fits=lambda match: True, timeout=240):
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


@pytest.mark.long
def test_two_trainers_one_killed_and_back_and_the_loss_falls(talk, data, tmp_path):
    monitor = talk("-m", "hivemind_c.cli.monitor", "--run_id", "albert", "--host_maddrs", "/ip4/127.0.0.1/tcp/0", "--web", "0", XDG_STATE_HOME=str(tmp_path))
    peers = monitor.until(r"INITIAL_PEERS=(\S+)")[1]
    web = monitor.until(r"WEB=(\S+)")[1]

    def trainer(name, *more):
        return talk(ALBERT / "trainer.py", *OPTIONS, "--folder", data, "--output_dir", tmp_path / name, "--identity_path", tmp_path / f"{name}.key", *more, INITIAL_PEERS=peers, HIVEMIND_NAME=name)

    stays, goes = trainer("stays"), trainer("goes")
    first = float(stays.until(r"epoch \d+: \d peers, loss ([0-9.]+)")[1])  # whoever is there first begins alone
    for one in (stays, goes):
        one.until(r"epoch \d+: 2 peers")
        one.until(r"Averaged tensors successfully with 2 peers")
    goes.process.kill()
    goes.process.wait()
    back = trainer("goes", "--max_steps", "600")  # time to be one of two again, whatever round the other was in
    joined = int(back.until(r"epoch ([1-9]\d*): 2 peers")[1])
    assert any("loaded the swarm's state" in line or f"epoch {joined}" in line for line in back.heard)
    back.until(r"train_loss")
    assert back.process.wait(120) == 0
    stays.until(r"epoch \d+: \d peers, loss ([0-9.]+)", lambda match: float(match[1]) < first - 0.5)

    def seen():
        with urllib.request.urlopen(web + "api/history", timeout=20) as answer:
            return [point[4] for point in json.load(answer) if point[4] is not None]

    assert eventually(lambda: (losses := seen()) and losses[-1] < losses[0] - 0.3), seen()
    stays.process.send_signal(signal.SIGTERM)
    assert stays.process.wait(120) == 143

    from transformers import AlbertForMaskedLM, AutoTokenizer

    model, tokenizer = AlbertForMaskedLM.from_pretrained(tmp_path / "goes"), AutoTokenizer.from_pretrained(tmp_path / "goes")
    answer = model(**tokenizer("the cat sees the [MASK] in the garden .", return_tensors="pt")).logits
    assert answer.shape[-1] == len(tokenizer)


@pytest.fixture(scope="module")
def trainer():
    sys.path.insert(0, str(ALBERT))  # as for a program that lies there
    spec = importlib.util.spec_from_file_location("albert_trainer", ALBERT / "trainer.py")
    module = sys.modules["albert_trainer"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.torch.set_num_threads(1)
    yield module
    del sys.modules["albert_trainer"]
    sys.path.remove(str(ALBERT))


@pytest.fixture(scope="module")
def prepare():
    return module_of(ALBERT / "prepare.py")


# ---- what cannot be downloaded here: that it is asked for as it is called, and has the shape that is meant ----

LARGE = dict(
    hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, embedding_size=128, hidden_act="gelu_new", hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0, max_position_embeddings=512,
)  # fmt: skip


def readme_flags():
    """Of the command that trains the large model."""
    (line,) = re.findall(r"INITIAL_PEERS=\.\.\. python trainer\.py ((?:.|\\\n)*?)\n```", (ALBERT / "README.md").read_text())
    return line.replace("\\\n", " ").split()


def parsed(trainer, *flags):
    return trainer.HfArgumentParser((trainer.Swarm, trainer.TrainingArguments)).parse_args_into_dataclasses(list(flags))


def test_defaults_are_albert_large_and_every_flag_is_accepted(trainer, dht, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(trainer.AlbertConfig, "from_pretrained", lambda name, **more: asked.append(name) or trainer.AlbertConfig(**LARGE, **more))
    flags = readme_flags()
    flags[flags.index("--output_dir") + 1] = str(tmp_path)
    swarm, args = parsed(trainer, *flags, "--use_cpu", "--adam_beta2", "0.95", "--weight_decay", "0.02", "--max_grad_norm", "0.5", "--warmup_steps", "7")
    assert asked == [] and args.bf16 and (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (4, 8)
    with trainer.torch.device("meta"):
        model = trainer.make_model(swarm, range(30_000))
    assert asked == ["albert/albert-large-v2"] and sum(p.numel() for p in model.parameters()) == 16_795_824  # 17,683,968 as published, with a head in the pooler's place
    assert model(trainer.torch.zeros(2, 512, dtype=trainer.torch.long, device="meta")).logits.shape == (2, 512, 30_000)
    optimizer = trainer.make_optimizer(swarm, args, trainer.torch.nn.Linear(2, 2), dht())
    group = optimizer.param_groups[0]
    assert (optimizer.batch_size_per_step, optimizer.target_batch_size, optimizer.max_grad_norm) == (4 * 8, 4096, 0.5)
    assert (group["initial_lr"], group["betas"], group["weight_decay"], group["lr"]) == (0.00176, (0.9, 0.95), 0.02, 0.0), "in warmup"
    optimizer.shutdown()


def test_the_large_text_is_asked_for_by_its_name(prepare, data, tmp_path, monkeypatch):
    asked = []
    texts = {"text": ["", " = The cat = \n", "the cat sees a red ball near the sea .\n"] * 90}
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=lambda *names, split: asked.append((*names, split)) or texts))
    from transformers import AutoTokenizer

    known = AutoTokenizer.from_pretrained(data)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda name: asked.append(name) or known)
    monkeypatch.setattr(sys, "argv", ["prepare.py", "--folder", str(tmp_path / "data")])
    prepare.main()
    assert asked == [("Salesforce/wikitext", "wikitext-103-v1", "train"), "albert/albert-large-v2"]
    rows = prepare.np.load(tmp_path / "data" / "tokens.npy")
    assert rows.shape[1] == 512 and len(rows) > 1 and (rows[:, 0] == known.cls_token_id).all() and (rows[:, -1] == known.sep_token_id).all()
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SystemExit, match="pip install datasets"):
        prepare.wikitext()


def test_several_gpus_in_one_trainer_are_counted(trainer, data, tmp_path, monkeypatch, capsys):
    class TwoGpus(trainer.torch.nn.DataParallel):
        """Its work with two GPUs, on the CPU: half of the batch to each, and the loss of each in a row."""

        def forward(self, **batch):
            halves = [self.module(**{name: rows.chunk(2)[i] for name, rows in batch.items()}) for i in range(2)]
            return type(halves[0])(loss=trainer.torch.stack([half.loss for half in halves]), logits=trainer.torch.cat([half.logits for half in halves]))

    made = []
    make = trainer.make_optimizer
    monkeypatch.setattr(trainer, "make_optimizer", lambda *about: made.append(make(*about)) or made[0])
    monkeypatch.setattr(trainer.torch.nn, "DataParallel", TwoGpus)
    monkeypatch.setattr(trainer.TrainingArguments, "n_gpu", property(lambda self: 2))
    monkeypatch.setattr(trainer.signal, "signal", lambda *about: None)
    monkeypatch.setattr(sys, "argv", ["trainer.py", *OPTIONS, "--folder", str(data), "--output_dir", str(tmp_path), "--use_cpu", "--max_steps", "3", "--initial_peers", ""])
    monkeypatch.delenv("INITIAL_PEERS", raising=False)
    trainer.main()
    assert made[0].batch_size_per_step == 8 * 2 * 2 and made[0].local_samples == 3 * 8 * 2 * 2
    assert re.search(r"epoch 0: 1 peers, loss [3-9]\.\d+", capsys.readouterr().out), "the mean of both"


def test_half_precision_without_a_swarms_scaler_is_refused(trainer, data, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["trainer.py", *OPTIONS, "--folder", str(data), "--output_dir", str(tmp_path), "--fp16", "--use_cpu"])
    with pytest.raises(SystemExit, match="--bf16"):
        trainer.main()


@pytest.mark.parametrize("hook", [[], ["-m", "hivemind_c.as_hivemind"]], ids=["plain", "hook"])
def test_the_command_line_of_the_peers_example_runs(data, dht, tmp_path, hook):
    """Names of files, flags and several addresses as they stand in hivemind's README, on the tiny config."""
    first = dht()
    peers = [*first.get_visible_maddrs(), dht(first.get_visible_maddrs()).get_visible_maddrs()[0]]
    old = f"--experiment_prefix albert-old --seed 42 --logging_first_step --logging_steps 100 --output_dir {tmp_path} --overwrite_output_dir --logging_dir ./logs".split()
    more = f"--dataset_path {data} --config_path tiny --averaging_expiration 3 --batch_size_lead 8 --bandwidth 1e6 --statistics_expiration 600 --total_steps 2 --warmup_steps 1".split()
    small = "--use_cpu --target_batch_size 16 --dht_listen_on /ip4/127.0.0.1/tcp/0 --report_to none".split()
    command = [sys.executable, *hook, ALBERT / "run_trainer.py", *old, "--initial_peers", *peers, *more, *small]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "Collaboration accumulated" in done.stderr  # the peers' "sanity check" is seen without any setting
    assert "swarm epochs: 100%" in done.stderr and "1099511627776" not in done.stderr  # 2^40 batches, of which nobody asked
    assert "epoch 1: 1 peers, loss" in done.stdout and "no effect of --statistics_expiration" in done.stderr and "no effect of --logging_dir" in done.stderr


def test_old_flags_become_those_of_today(trainer):
    from old_flags import DEFAULTS, translated

    words = translated("--experiment_prefix=x --initial_peers A B --host_maddrs C --warmup_steps 7 --use_ipfs --learning_rate 0.1 --logging_first_step".split())
    assert words == "--run_id x --initial_peers A,B --host_maddrs C --swarm_warmup 7 --learning_rate 0.1 --logging_first_step".split()
    swarm, args = parsed(trainer, *words)
    assert swarm.run_id == "x" and swarm.initial_peers == "A,B" and args.logging_first_step
    assert DEFAULTS.keys() <= {field.name for field in dataclasses.fields(trainer.TrainingArguments)}


@pytest.mark.parametrize("name", ["trainer.py", "run_trainer.py"])
def test_missing_data_is_told_before_anything_else(tmp_path, name):
    done = subprocess.run([sys.executable, ALBERT / name, "--output_dir", tmp_path, "--folder", tmp_path / "no"], capture_output=True, text=True, env=ENV, timeout=200)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(f"{tmp_path}/no has no tokens.npy, which prepare.py makes: run `python prepare.py --folder")
    assert "INITIAL_PEERS" not in done.stdout


def test_old_programs_of_the_example_are_those_of_today(tmp_path):
    for name, words in ("tokenize_wikitext103.py", "--tiny"), ("run_training_monitor.py", "--experiment_prefix"):
        done = subprocess.run([sys.executable, ALBERT / name, "--help"], capture_output=True, text=True, env={**ENV, "COLUMNS": "200"}, timeout=100)
        assert done.returncode == 0 and words in done.stdout, done.stderr


def test_the_notebook_and_the_readme_give_options_that_there_are(trainer):
    notebook = nbformat.read(ALBERT / "join.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    known = {f"--{field.name}" for kind in (trainer.Swarm, trainer.TrainingArguments) for field in dataclasses.fields(kind)}
    commands = re.findall(r"python trainer\.py ((?:.|\\\n)*)", source + "\n" + (ALBERT / "README.md").read_text())
    options = set(re.findall(r"--[a-z0-9_]+", " ".join(commands)))
    assert len(commands) == 3 and len(options) > 10 and options <= known, options - known
    assert "python prepare.py --folder data" in source


def test_notebook_joins_by_a_pasted_address(talk, data, tmp_path, monkeypatch):
    stays = talk(ALBERT / "trainer.py", *OPTIONS, "--folder", data, "--output_dir", tmp_path / "stays", INITIAL_PEERS="")
    peers = stays.until(r"INITIAL_PEERS=(\S+)")[1]
    stays.until(r"epoch 1: ")
    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    (tools / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tools / "python").chmod(0o755)
    shutil.copytree(ALBERT, work)
    shutil.copytree(data, work / "data")
    for name, value in {**ENV, "PATH": f"{tools}:{os.environ['PATH']}", "IPYTHONDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ALBERT / "join.ipynb", as_version=4)
    form = notebook.cells[1]
    more = f"--config tiny --swarm_epochs 4000 --swarm_warmup 2 --learning_rate 0.01 --matchmaking_time 10 --averaging_timeout 40 --disable_tqdm true --max_steps 160 --host_maddrs {HERE}"
    for field, value in (("INITIAL_PEERS", f'"{peers}"'), ("TARGET_BATCH_SIZE", "256"), ("MORE", f'"{more}"')):
        form.source, there = re.subn(rf"(?m)^{field} = \S+  #@param", f"{field} = {value}  #@param", form.source)
        assert there == 1, f"{field} is a field of the form"
    NotebookClient(notebook, timeout=800, kernel_name="python3", resources={"metadata": {"path": str(work)}}).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert re.search(r"epoch [1-9]\d*: 2 peers", said), said
    assert (work / "out" / "model.safetensors").exists()
