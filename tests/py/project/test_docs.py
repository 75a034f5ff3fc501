"""The examples on the pages are run: Python as it stands, commands as a person types them. Examples that cannot run here stand in docs/explanation/how-it-is-tested.md, each with the reason."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from support import HERE, eventually
from test_book import ENV, PAGES, ROOT, blocks

NAMES = {page.relative_to(ROOT).as_posix(): page for page in PAGES}
LANGUAGES = {"python", "bash", "console", "json", "text"}
PORT = re.compile(r"/ip4/0\.0\.0\.0/tcp/\d+|0\.0\.0\.0:\d+")

# ---- Python ----

TRAINING = """
import torch
model = torch.nn.Linear(4, 2)
data = [{"x": torch.randn(4), "labels": torch.tensor(i % 2)} for i in range(64)]
loader = torch.utils.data.DataLoader([(one["x"], one["labels"]) for one in data], batch_size=8)
loss_function = loss_of = torch.nn.functional.cross_entropy
"""
ANOTHER = """
import hivemind_c
another = hivemind_c.DHT(start=True)
peers = another.get_visible_maddrs()
"""
SMALL = """
import lightning as L
class Small(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, labels=None, **more):
        shown = self.layer(x)
        return shown if labels is None else {"loss": torch.nn.functional.cross_entropy(shown, labels), "logits": shown}
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
    def on_train_epoch_end(self):
        self.trainer.should_stop = True
"""

#: page: (what a reader has already, what must be so after its blocks have run one after the other)
PYTHON = {
    "README.md": ("", "assert isinstance(trainer.strategy, HivemindStrategy)"),
    "docs/reference/averager.md": (
        ANOTHER + "import torch\nother_dht, weights, bias = another, torch.zeros(3), torch.zeros(1)\n"
        "partner = hivemind_c.DecentralizedAverager([torch.ones(3), torch.ones(1)], another, prefix='run1', start=True)\n"
        "control = partner.step(gather={'loss': 0.5}, weight=32, timeout=60, wait=False)",
        "assert sorted(said['loss'] for said in gathered.values()) == [0.3, 0.5] and torch.equal(weights, torch.full((3,), 0.5)) and control.result()\n"
        "assert newest == state.epoch == 3 and torch.equal(state.tensors[0], weights) and state.metadata == {'lr': 0.1}",
    ),
    "docs/reference/compression.md": (
        "import numpy, torch\nfrom hivemind_c import *\nfrom hivemind_c.compression import *\ngradient = torch.randn(64)",
        "assert 1_000_000 <= len(data) < 1_010_000 and tensor.shape == (1000, 1000)\nassert (deserialize_torch_tensor(sent) - gradient).abs().max() < 1\n"
        "assert Signs().encode(torch.tensor([1.0] + 7 * [-1.0]), None) == b'\\x80'",
    ),
    "docs/reference/dht.md": (
        ANOTHER + "import numpy\nfrom hivemind_c import Node as _\n"
        "there, numpy_array = _(), numpy.arange(5.0)\nADDRESS = there.addresses[0]",
        "assert value == 21.5 and expiration > get_dht_time()\n"
        "assert dht.get('progress').value[validator.local_public_key].value == 17\n"
        "sender, parcel = there.receive(timeout=60)\nassert bytes(parcel) == numpy_array.tobytes()\nthere.shutdown()",
    ),
    "docs/howto/migrate-from-hivemind.md": ("", "assert optimizer.local_epoch == 5 and Optimizer is hivemind.Optimizer"),
    "docs/howto/monitor.md": (
        TRAINING + "import os\nos.mkdir('checkpoints')\nstate = dict(run_id='my_run', epoch=1200, metadata={'parameters': 2}, tensors=[torch.ones(2, 4), torch.ones(2), torch.ones(9)])\n"
        "torch.save(state, 'checkpoints/my_run-1200.pt')",
        "assert epoch == 1200 and all((p == 1).all() for p in model.parameters())",
    ),
    "docs/reference/optimizer.md": (TRAINING + ANOTHER + "batches = loader", "assert optimizer.local_samples == 8 * 32 and len(dht.get_visible_maddrs()) == 1"),
    "docs/reference/options.md": ("", "assert strategy._target == 4096 and optimizer.local_epoch == 0"),
    "docs/reference/epoch-record.md": ("", "from types import SimpleNamespace as Made\non_epoch(Made(epoch=1, outcome='alone', wall_s=1.0, numbers=dict))"),
    "docs/reference/strategy.md": (
        TRAINING + SMALL + "model = Small()",
        "from types import SimpleNamespace as Made\nstub = Made(strategy=Made(global_epoch=10_000), should_stop=False)\nStopAt().on_train_batch_end(stub)\nassert stub.should_stop",
    ),
    "docs/howto/bring-data.md": (
        "import os, pathlib\nos.mkdir('data')\nfor n in range(7):\n    pathlib.Path(f'data/{n}.txt').write_text(f'{n}\\n')",
        "read = lambda given, workers=0: sorted(int(x) for batch in torch.utils.data.DataLoader(given, batch_size=2, num_workers=workers) for x in batch)\n"
        "assert read(everything) == read(everything, 3) == read(mine) == list(range(7)) and len(part) == len(whole) == 64 * len(loader)\n"
        "assert sorted(sum((read(Lines(glob.glob('data/*.txt'), n, 3), 2) for n in range(3)), [])) == list(range(7))\n"
        "from hivemind_c._lightning.patches import change_seeds\norders = set()\nfor name in 'amberamber', 'blueblue':\n    random.seed(0)\n    change_seeds(name)\n    orders.add(tuple(int(x) for batch in stream for x in batch))\nassert len(orders) == 2",
    ),
    "docs/howto/checkpoints.md": (
        TRAINING + SMALL + "model = Small()\nclass Short(L.Trainer):\n    def __init__(self, **options):\n        super().__init__(**{**options, 'max_epochs': 1}, log_every_n_steps=1)\nL.Trainer = Short\nloader = torch.utils.data.DataLoader([(torch.randn(4), torch.tensor(0))] * 800, batch_size=8)",
        "saved = torch.load('checkpoints/last.ckpt')\nassert saved['optimizer_states'][0]['hivemind_c']['local_epoch'] == 0 and saved['global_step'] == 100\n"
        "assert torch.equal(saved['state_dict']['layer.weight'], model.layer.weight) and torch.equal(Small.load_from_checkpoint('checkpoints/last.ckpt').layer.weight, model.layer.weight)",
    ),
    "docs/howto/plain-loop.md": (TRAINING + ANOTHER, "assert optimizer.local_samples == 64 and len(dht.get_visible_maddrs()) >= 1"),
    "docs/howto/huggingface.md": (
        TRAINING + SMALL + "import hivemind_c, transformers\nfrom hivemind_c import Optimizer\nfrom transformers import TrainingArguments\nmodel, dht = Small(), hivemind_c.DHT(start=True)",
        "trainer.args.max_steps, trainer.args.remove_unused_columns = 3, False\ntrainer.train()\nassert optimizer.local_samples == 24 and trainer.state.global_step == 3",
    ),
    "docs/howto/several-gpus.md": (
        "import lightning\nlightning.Trainer.fit = lambda *given: None  # tests/py/inside runs it",
        "assert isinstance(trainer.strategy, lightning.pytorch.strategies.DDPStrategy) and trainer.world_size == 2",
    ),
    "docs/howto/choose-settings.md": ("", "assert strategy._target == TARGET and strategy._optimizer_options['averaging_timeout'] > 30"),
    "docs/reference/python-api.md": (
        "",
        "assert colour == 'amber' and share == 0.5 and len(members) == 1 and optimizer.local_epoch == state.local_epoch == 1\nassert back.shape == (100,) and len(sizes) == 9 and sizes['NoCompression'] == 40032 == max(sizes.values()) and sizes['Linear4BitQuantization'] == min(sizes.values())\nassert type(low_rank).__name__ == 'PowerSGDGradientAverager' and strategy is trainer.strategy",
    ),
    "docs/tutorial/two-pcs-and-a-rented-gpu.md": (
        "import os\nimport lightning as L\nos.environ['PUBLIC_ADDRESS'] = '127.0.0.1'\nclass Short(L.Trainer):\n    def __init__(self, **options):\n        super().__init__(**options, max_steps=40)\nL.Trainer = Short",
        "assert trainer.global_step == 40 and place['announce_maddrs'] == '/ip4/127.0.0.1/tcp/31337'",
    ),
    "docs/howto/questions.md": ("", "assert strategy._target == 4096"),
    "docs/howto/vpn.md": ("", "assert strategy._target == 4096"),
    "docs/tutorial/own-model.md": (
        "import lightning as L\nclass Short(L.Trainer):\n    def __init__(self, **options):\n        super().__init__(**options, max_steps=40)\nL.Trainer = Short",
        "assert trainer.global_step == 0 and trainer.strategy.optimizer is None or trainer.strategy.global_epoch == 0",
    ),
    "docs/howto/private-swarm.md": (
        "import os, socket, threading, urllib.request\nfrom hivemind_c import _invitation\nfrom hivemind_c.cli.invite import main\n_invitation.new_key('swarm.key')\nos.environ.update(ADA_PASSWORD='pass', INITIAL_PEERS='here')",
        "threading.Thread(target=server.serve_forever, daemon=True).start()\nask = lambda word: urllib.request.urlopen(urllib.request.Request('http://127.0.0.1:8765', headers={'Authorization': word}))\n"
        "basic = lambda word: 'Basic ' + base64.b64encode(word).decode()\nfirst = ask(basic(b'ada:pass')).read()\nassert first.startswith(b'INVITE=hvi1') and ask(basic(b'ada:pass')).read() == first\n"
        "def refused(word):\n    try:\n        ask(word)\n    except urllib.error.HTTPError as error:\n        return error.code\n"
        "assert [refused(word) for word in (basic(b'ada:other'), basic(b'eve:pass'), basic(b'eve:no such login'), 'Basic ada:pass', 'Basic =', basic(b'\\xff'), '')] == [401] * 7\n"
        "before = threading.active_count()\nidle = [socket.create_connection(('127.0.0.1', 8765)) for _ in range(100)]\nimport time\ntime.sleep(1)\nassert threading.active_count() <= before + 32\n[one.close() for one in idle]\ntime.sleep(1)\n"
        "os.environ['INITIAL_PEERS'] = ''\nassert main(['swarm.key', '--deny', 'ada']) == 1 and refused(basic(b'ada:pass')) == 403",
    ),
    "docs/howto/unreliable-machines.md": ("", "assert optimizer.run_id == 'spot'"),
    "benchmarks/README.md": (
        "import sys\nsys.path.insert(0, ROOT)",
        "from benchmarks.frame import Run, as_table\nbuild_c = lambda: None\nc_program = lambda program, side: {'gb_per_s': 12.0 if side == 'ours' else 2.0}\n"
        "run = Run('x', ROUNDS)\nmeasure(run)\nassert 'goal >= 5: met' in as_table(run, GOALS)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, page in NAMES.items() if blocks(page)])
def test_python_of_each_page_runs(name, tmp_path):
    assert name in PYTHON, f"{name} shows Python: say in PYTHON what a reader has before it, and what must be so after it"
    before, after = PYTHON[name]
    shown = "\n".join(blocks(NAMES[name]))
    shown = PORT.sub(HERE, shown).replace('"/ip4/192.0.2.7/tcp/31337/p2p/12D3Koo..."', "ADDRESS")
    program = f"ROOT = {str(ROOT)!r}\n{before}\n{shown}\n{after}\nprint('to the end')\nimport os, sys\nsys.stdout.flush()\nos._exit(0)  # who reads on may shut down what runs\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280, cwd=tmp_path, env=ENV)
    assert done.stdout.endswith("to the end\n"), done.stderr


def test_each_prepared_page_has_python_blocks():
    assert all(blocks(NAMES[name]) for name in PYTHON)


def test_every_block_names_its_language():
    for name, page in NAMES.items():
        opened = re.findall(r"(?m)^```(.*)$", page.read_text())[::2]
        assert set(opened) <= LANGUAGES, f"{name}: {set(opened) - LANGUAGES}"
        for block in blocks(page, "json"):
            json.loads(block)


# ---- commands ----


def commands():
    """(page, command) of all blocks, each on one line and without its comment."""
    for name, page in NAMES.items():
        lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
        lines += [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]
        for line in lines:
            if line := " ".join(re.sub(r"\s+# .*", "", line).split()):
                yield name, line


def elsewhere():
    """{command: why it is not run as it stands, or which test runs what it starts}, as docs/explanation/how-it-is-tested.md tells."""
    text = (ROOT / "docs/explanation/how-it-is-tested.md").read_text()
    return dict(re.findall(r"^\| `(.+?)` \| (.+?) \|$", text[text.index("<!-- commands -->") :].split("\n\n")[1], re.M))


@pytest.fixture
def shell(tmp_path):
    """shell(line) starts it where the programs of an installed hivemind_c are on the PATH; in a copy of examples/ and benchmarks/."""
    tools, running = tmp_path / "bin", []
    tools.mkdir()
    for name, words in {"python": "", **{f"hivemind-{one}": f"-m hivemind_c.cli.{one}" for one in ("dht", "doctor", "hub", "invite", "monitor")}}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        (tools / name).chmod(0o755)
    env = {**ENV, "PATH": f"{tools}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "INITIAL_PEERS": ""}

    def start(line, folder="."):
        if not (tmp_path / "work").exists():
            for part in ("examples", "benchmarks"):
                shutil.copytree(ROOT / part, tmp_path / "work" / part)
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=tmp_path / "work" / folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )  # fmt: skip
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stopped(process):
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def ended(process, codes=(0,)):
    out, err = process.communicate(timeout=280)
    assert process.returncode in codes, err
    return out


def run_dht(shell):
    process = shell("hivemind-dht --host_maddrs 127.0.0.1:0 --identity_path root.key")
    assert process.stdout.readline().startswith("--initial_peers /ip4/127.0.0.1/tcp/")
    stopped(process)


def run_monitor(shell, run_id="my_run"):
    process = shell(f"hivemind-monitor --run_id {run_id} --web 0 --host_maddrs /ip4/127.0.0.1/tcp/0")
    assert [process.stdout.readline().split("=")[0] for _ in range(2)] == ["INITIAL_PEERS", "WEB"]
    stopped(process)


def run_hub(shell):
    process = shell("hivemind-hub --run_id my_run --checkpoints states --web 0 --host 127.0.0.1 --port 0")
    told = [process.stdout.readline().split("=")[0] for _ in range(3)]
    assert told == ["INITIAL_PEERS", "%env INITIAL_PEERS", "WEB"]
    stopped(process)


def run_doctor(shell):
    there = shell("hivemind-dht --host_maddrs 127.0.0.1:0")
    address = there.stdout.readline().split()[1]
    told = ended(shell(f"hivemind-doctor --timeout 60 --initial_peers {address} --run_id my_run"), (0, 1))
    assert "✓ versions " in told and f"✓ initial peer    {address} answers within" in told and "'my_run'" in told
    stopped(there)


def run_records(shell):
    export, shown, replayed = [line for page, line in commands() if page == "docs/howto/troubleshoot.md" and "ecord" in line]
    say = "from hivemind_c._record import Recorder; Recorder('12D3KooWabcdef', 'my_run', 'client')('load', epoch=1)"
    ended(shell(f'{export.replace("export", "env")} python -c "{say}"'))
    told = ended(shell(shown)).splitlines()
    assert told == ["  seconds  client abcdef", "    0.000  load epoch=1"]
    assert "no records in" in shell("hivemind-doctor --records examples").communicate(timeout=60)[1]
    assert "no events in" in shell(replayed).communicate(timeout=60)[1]  # of no optimizer


def run_private_swarm(shell):
    """The commands of the page in their order, with what the ones before have printed, and each line that the page shows."""
    new, hub, invite, doctor, listed, deny, allow, renew = [command for page, command in commands() if page == "docs/howto/private-swarm.md"]
    shown = {command: lines for block in blocks(NAMES["docs/howto/private-swarm.md"], "console") for command, *lines in [block[2:].splitlines()]}
    assert ended(shell(new)).splitlines() == shown[new]
    there = shell(f"{hub} --host 127.0.0.1 --port 0")
    address = there.stdout.readline().removeprefix("INITIAL_PEERS=").strip()
    assert there.stdout.readline() == f"%env INITIAL_PEERS={address}\n"
    line, note = ended(shell(invite)).splitlines()
    number = note.split()[1]
    day = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
    assert re.fullmatch(rf"# inv-[0-9a-f]{{16}} lab-3 ends {day}", note)
    assert ended(shell(invite)).splitlines() == [line, note]

    def as_printed(command):
        command = command.replace("INVITE=hvi1BAUG...", line)
        return re.sub(r"INITIAL_PEERS=\S+", f"INITIAL_PEERS={address}", f"env {command}")

    def as_shown(command):
        return [line.replace("inv-3f9a0c1b2d4e5f60", number) for line in shown[command]]

    assert "answers within" in ended(shell(as_printed(doctor)), (0, 1))
    told = ended(shell(listed))
    assert re.fullmatch(rf"{number} lab-3 ends {day}, issued {day} by \S+@\S+\n", told) and len(shown[listed]) == 1
    assert ended(shell(as_printed(deny))).splitlines() == as_shown(deny)
    assert "has denied this peer" in ended(shell(as_printed(doctor)), (1,))
    assert ended(shell(listed)).endswith(", denied\n")
    assert ended(shell(as_printed(allow))).splitlines() == as_shown(allow)
    assert "answers within" in ended(shell(as_printed(doctor)), (0, 1))
    tried = "import hivemind_c, logging, time\nlogging.basicConfig(level=20)\nwith hivemind_c.Node(invite='lab-3.invite', client_mode=True):\n    print(1, flush=True), time.sleep(250)"
    with_file = shell(f"sh -c {shlex.quote(f'echo {line} > lab-3.invite; chmod 600 lab-3.invite; exec python -c {shlex.quote(tried)}')}")
    assert with_file.stdout.readline() == "1\n"
    renewed, again = ended(shell(renew)).splitlines()
    ended(shell(f"sh -c 'echo {renewed} > lab-3.invite'"))
    while "the invitation of this peer is renewed: it ends " not in (logged := with_file.stderr.readline()):
        assert logged
    assert renewed != line and again.startswith(f"# {number} lab-3 ends ") and again != note
    line = renewed
    assert "answers within" in ended(shell(as_printed(doctor)), (0, 1))
    stopped(there)


def run_tiny_albert(shell):
    made, trained = [command for page, command in commands() if page == "examples/albert/README.md" and "tiny" in command]
    assert "blocks of 32 tokens" in ended(shell(made, "examples/albert"))
    out = ended(shell(trained + " --host_maddrs /ip4/127.0.0.1/tcp/0", "examples/albert"))
    losses = [float(loss) for loss in re.findall(r"epoch \d+: 1 peers, loss ([0-9.]+)", out)]
    assert "epoch 50:" in out and losses[-1] < losses[0] - 0.5


#: how a command is run; those of one program are run by one function
RUN = {
    **{command: run_private_swarm for page, command in commands() if page == "docs/howto/private-swarm.md"},
    "hivemind-dht --host_maddrs 0.0.0.0:31337 --identity_path root.key": run_dht,
    "hivemind-hub --run_id my_run --checkpoints states --web 8080": run_hub,
    "hivemind-monitor --run_id my_run --web 8080": run_monitor,
    "hivemind-monitor --run_id albert --web 8080": lambda shell: run_monitor(shell, "albert"),
    "hivemind-doctor --initial_peers /ip4/203.0.113.7/tcp/31337/p2p/12D3KooW... --run_id my_run": run_doctor,
    "export HIVEMIND_RECORD=records": run_records,
    "hivemind-doctor --records records": run_records,
    "hivemind-doctor --replay records": run_records,
    "python prepare.py --tiny --folder data": run_tiny_albert,
    "python trainer.py --folder data --config tiny --output_dir out --per_device_train_batch_size 8 --target_batch_size 64 --swarm_epochs 50 --swarm_warmup 2 --learning_rate 0.01": run_tiny_albert,
    "python -m benchmarks --list": lambda shell: ended(shell("python -m benchmarks --list")).index("monitor"),
    'python -c "from hivemind_c import cuda; print(cuda.why_not())"': lambda shell: ended(shell('python -c "from hivemind_c import cuda; print(cuda.why_not())"')).strip() or pytest.fail("no word"),
}  # fmt: skip


@pytest.mark.parametrize("how", dict.fromkeys(RUN.values()), ids=lambda how: next(line for line in RUN if RUN[line] is how).split(" -")[0])
def test_commands_of_each_page_run(shell, how):
    how(shell)


def test_hub_of_the_two_pcs_prints_an_invitation(shell):
    """The row of the page for three machines without an open port."""
    page = NAMES["docs/tutorial/two-pcs-and-a-rented-gpu.md"].read_text()
    (hub,) = re.findall(r"`(hivemind-hub [^`]+)`\. Its first line begins with `INVITE=`", page)
    ended(shell("hivemind-invite --new swarm.key"))
    process = shell(f"{hub} --host 127.0.0.1 --port 0")
    assert process.stdout.readline().startswith("INVITE=hvi1")
    stopped(process)


def test_every_command_is_run_or_it_is_told_why_not():
    shown, told = {command for _, command in commands()}, elsewhere()
    assert shown == set(RUN) | set(told) and not set(RUN) & set(told), (shown - set(RUN) - set(told), set(RUN) | set(told) - shown)
    for command, reason in told.items():
        for path, test in re.findall(r"`(test_\w+\.py)::(\w+)`", reason):
            named = list((ROOT / "tests/py").rglob(path))
            assert named and f"def {test}(" in named[0].read_text(), f"{command}: {path}::{test} is gone"
        assert "`test_" in reason or reason.startswith(("needs ", "installs", "runs ")), f"{command}: {reason}"
