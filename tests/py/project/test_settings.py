"""The page of settings: its tables are those of scripts/settings.py, whose bytes are measured here with two peers."""

import inspect
import json
import re
import subprocess
import sys

import pytest
import torch
from epochs import epoch
from support import module_of
from test_book import ENV, ROOT

import hivemind_c
from hivemind_c.compression import CompressionInfo
from hivemind_c.optim.timeout_check import TimeoutCheck

settings = module_of(ROOT / "scripts/settings.py")

#: two peers in one process; prints bytes for a peer and a parameter: all tensors, a snapshot, and sent in an epoch
PROGRAM = """
import gc, json, os, re, subprocess, sys, threading, warnings
import torch, hivemind_c
warnings.simplefilter("ignore")
torch.set_num_threads(1)
HERE, SIDE, EPOCHS = "/ip4/127.0.0.1/tcp/0", 1024, 4

def tensors():
    gc.collect()
    found = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())

def bytes_sent():
    told = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout
    connections = [one for one in re.split(r"\\n(?=\\S)", told) if f"pid={os.getpid()}," in one]
    return sum(int(n) for one in connections for n in re.findall(r"bytes_sent:(\\d+)", one))

def peer(dht, model, options):
    if options.pop("by_function"):
        made = dict(optimizer=lambda params: torch.optim.AdamW(params), params=model.parameters())
    else:
        made = dict(optimizer=torch.optim.AdamW(model.parameters()))
    return hivemind_c.Optimizer(
        dht=dht, run_id="settings", target_batch_size=16, batch_size_per_step=4, matchmaking_time=5,
        averaging_timeout=60, averager_opts=dict(allow_state_sharing=False), shutdown_timeout=60,
        **made, **options)

def measure(options):
    inputs, weight = torch.ones(4, SIDE), torch.eye(SIDE)
    before = tensors()
    models = [torch.nn.Linear(SIDE, SIDE, bias=False) for _ in "12"]
    for model in models:
        model.weight.data.copy_(weight)
    dhts = [hivemind_c.DHT(host_maddrs=[HERE], start=True)]
    dhts.append(hivemind_c.DHT(dhts[0].get_visible_maddrs(), host_maddrs=[HERE], start=True))
    peers = [peer(dht, model, dict(options)) for dht, model in zip(dhts, models)]
    sums, grads = {}, []
    meet = threading.Barrier(2)

    def train(which):
        model, optimizer = models[which], peers[which]

        def batch():
            model(inputs).square().mean().backward()
            optimizer.step()
            if not options.get("reuse_grad_buffers"):
                optimizer.zero_grad()

        batch()  # reports this peer to the other one
        while optimizer.tracker.global_progress.num_peers < 2:
            threading.Event().wait(0.1)
        for epoch in range(EPOCHS + 1):
            if epoch == 1:
                optimizer.state_dict()  # waits for the background
            meet.wait()
            if which == 0 and epoch == 1:
                sums[0] = bytes_sent()
            meet.wait()
            while optimizer.local_epoch == epoch:
                batch()
        optimizer.state_dict()
        if options.get("local_steps"):
            optimizer.state_averager.parameters.keep_base()  # as a batch beside a round does
        model(inputs).square().mean().backward()
        grads.append(model.weight.grad)
        meet.wait()
        if which == 0:
            sums[1] = bytes_sent()
        meet.wait()

    threads = [threading.Thread(target=train, args=(which,)) for which in (0, 1)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    n = 2 * SIDE * SIDE
    _, state, _ = peers[0].state_averager.get_current_state()
    snapshot = sum(tensor.numel() * tensor.element_size() for tensor in state) / SIDE**2
    del state, _
    outcome = dict(total=(tensors() - before) / n, snapshot=snapshot, sent=(sums[1] - sums[0]) / EPOCHS / n)
    for one in peers + dhts:
        one.shutdown()
    return outcome

for options in json.loads(sys.argv[1]):
    print(json.dumps(measure(options)), flush=True)
sys.stdout.flush()
os._exit(0)
"""


def options_of(mode):
    """The arguments of Optimizer that the table shows, and how the optimizer is given."""
    shown = {name: value == "True" for name, value in re.findall(r"`(\w+)=(\w+)`", mode.options)}
    delayed = shown.get("delay_grad_averaging", False)
    return {
        **shown,
        "delay_state_averaging": shown.get("delay_state_averaging", delayed),
        "by_function": bool(shown.get("offload_optimizer") or delayed),
    }


def test_tables_of_the_page_are_computed():
    text = settings.PAGE.read_text()
    assert settings.filled(text) == text, "run make pages"
    assert settings.filled(text.replace("| exact | none", "| inexact | none")) == text
    modes = settings.MODES_PAGE.read_text()
    assert settings.filled(modes, settings.MODE_TABLES) == modes, "run make pages"


@pytest.mark.parametrize("name", settings.WAYS)
def test_peer_that_computes_so_long_computes_nine_tenths(name):
    """A hidden average may take as long as the computing and the rest of the epoch together."""
    way = settings.WAYS[name]
    averaged = settings.on_line(settings.CODECS[way.codec], 1e8, 20)
    state = settings.on_line(settings.CODECS[way.state_codec], 1e8, 20) if way.state_codec else 0
    averaged += state / settings.STATE_EVERY
    seconds = settings.least_s(way, averaged)
    lasts = max(seconds, averaged) if way.hidden else seconds + averaged
    if way.is_local:  # it lasts as long as its average, and half of it is beside that
        assert settings.ways.share(way, seconds, averaged) == settings.ways.share(way, seconds / 9, averaged) == 1
    else:
        assert seconds / lasts == pytest.approx(settings.ways.COMPUTED)
    assert settings.number(seconds) in settings.modes_of_lines()


@pytest.mark.timeout(600)
def test_modes_take_the_bytes_of_the_table():
    modes = settings.MODES
    words = json.dumps([options_of(mode) for mode in modes])
    done = subprocess.run([sys.executable, "-c", PROGRAM, words], capture_output=True, text=True, timeout=580, env=ENV)
    assert done.returncode == 0, done.stderr
    measured = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(measured) == len(modes)
    for mode, seen in zip(modes, measured):
        assert seen["total"] == pytest.approx(mode.gpu + mode.host, rel=0.03), mode.name
        assert seen["snapshot"] == pytest.approx(mode.snapshot, rel=0.01), mode.name
        values = 4 if "local" in mode.name else 2 * 4  # parameters; and gradients
        if mode.name == "local steps":  # a difference
            values = settings.CODECS["Linear8BitQuantization"]
        assert seen["sent"] == pytest.approx(settings.sent(values, members=2), rel=0.05), mode.name


@pytest.mark.parametrize("name", settings.CODECS)
def test_codec_sends_the_bytes_of_the_table(name):
    tensor = torch.randn(2**17)
    codec = getattr(hivemind_c, name, None) or getattr(hivemind_c.compression, name)
    sent = codec().compress(tensor, CompressionInfo.from_tensor(tensor)).buffer
    assert len(sent) / len(tensor) == pytest.approx(settings.CODECS[name], rel=0.01)


def test_each_strategy_warns_of_no_timeout():
    for size, speed, chosen in settings.all_chosen():
        spent = chosen.gradients_s + chosen.state_s
        record = epoch(0, reducing_s=spent, bytes_sent=10**8)
        timeout = int(chosen.options["averaging_timeout"])
        assert TimeoutCheck(timeout, settings.MATCHMAKING).look(record) is None, (size, speed)
        assert chosen.step_s >= spent / 10, (size, speed)


def test_largest_models_are_those_of_the_strategys_defaults():
    defaults = inspect.signature(hivemind_c.HivemindStrategy).parameters
    assert defaults["averaging_timeout"].default == settings.DEFAULT_TIMEOUT
    assert defaults["matchmaking_time"].default == settings.DEFAULT_MATCHMAKING


def test_command_prints_the_strategy_of_the_tables():
    words = "--parameters 1e8 --mbit 100 --batch_s 0.4 --batch 32".split()
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/settings.py", *words], capture_output=True, text=True, env=ENV
    )
    assert done.returncode == 0, done.stderr
    chosen, seen = settings.choose(1e8, 100), {}
    exec("import hivemind_c\n" + done.stdout, seen)
    batches = -(-chosen.step_s // 0.4)
    assert seen["strategy"]._target == 32 * batches
    assert f"averaging_timeout={chosen.options['averaging_timeout']}," in done.stdout
    for figure in (chosen.mode, settings.number(chosen.state_s) + " s", settings.number(chosen.step_s) + " s"):
        assert figure in done.stdout
    short = subprocess.run([sys.executable, ROOT / "scripts/settings.py", "--mbit", "5"], capture_output=True, env=ENV)
    assert short.returncode == 2
