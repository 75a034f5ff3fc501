"""Delayed modes over lines of 100 Mbit/s and 50 ms, communication 0.8 of computing at most: samples per second of two peers against plain PyTorch

Peers in network namespaces (benchmarks/c/bench_wan.c, as root), an MLP of 1.3 million parameters whose gradient is averaged as float32. A batch of 32 computes for 25 ms on a device
that leaves the processor alone: it is a pause. An epoch is 50 batches of each. plain: the same without a network, a step of the optimizer in an epoch. waited_share is what averaging
took of computing, measured where nothing is delayed.

Each delayed mode has its line. Two wait for nothing, and stand against plain: grad, delay_grad_averaging; local, use_local_updates with delay_state_averaging, whose plain also steps each
batch. Two wait for gradients, and hide what comes after them: step, delay_optimizer_step, and state, delay_state_averaging. They average the state, as large as a gradient, at each
epoch's end, and stand against `now`, which delays nothing and averages no state: what they hide is to cost nothing. step_of_plain, state_of_plain and now are reported.
"""

import os
import sys
import tempfile

from benchmarks import package
from benchmarks.frame import column
from benchmarks.programs import C_PROGRAMS, build_c, our_python
from benchmarks.programs import run as run_program

GOALS = {"grad": 0.95, "local": 0.95, "step": 0.95, "state": 0.95}
ROUNDS = 3
BATCHES, BATCH_S, EPOCHS = 50, 0.025, 8

PROGRAM = f"""
import json, os, pathlib, sys, time, torch
torch.set_num_threads(1)
way, folder = sys.argv[1], pathlib.Path(sys.argv[2])
peer, size = int(os.environ.get("WAN_PEER", 0)), 32
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
made = [torch.randn_like(p) for p in model.parameters()]

def batch():
    for p, grad in zip(model.parameters(), made):
        p.grad = grad
    time.sleep({BATCH_S})

if way.startswith("plain"):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    begin = time.perf_counter()
    for _ in range({EPOCHS}):
        for _ in range({BATCHES}):
            batch()
            if way == "plain_each":
                optimizer.step()
        optimizer.step()
    print(json.dumps(dict(samples_per_s=2 * {EPOCHS} * {BATCHES} * size / (time.perf_counter() - begin))))
    raise SystemExit

import hivemind_c
first = folder / "first"
while peer and not first.exists():
    time.sleep(0.05)
dht = hivemind_c.DHT(first.read_text().split() if peer else None, host_maddrs=["/ip4/%s/tcp/0" % os.environ["WAN_ADDRESS"]], start=True)
if peer == 0:
    (folder / "new").write_text(" ".join(str(a) for a in dht.get_visible_maddrs()))
    (folder / "new").rename(first)
make = lambda params: torch.optim.SGD(params, lr=1e-4)
never = 10**6
delays = dict(
    grad=dict(delay_grad_averaging=True, average_state_every=never),
    local=dict(use_local_updates=True, delay_state_averaging=True, offload_optimizer=False),
    step=dict(delay_optimizer_step=True),
    state=dict(delay_state_averaging=True),
    now=dict(delay_state_averaging=False, average_state_every=never),
)[way]
optimizer = hivemind_c.Optimizer(
    dht=dht, run_id="overlap", target_batch_size=2 * size * {BATCHES}, batch_size_per_step=size, optimizer=make, params=model.parameters(), matchmaking_time=3.0,
    averaging_timeout=30.0, tracker_opts=dict(min_refresh_period=0.1, default_refresh_period=0.2, max_refresh_period=1.0), **delays)
optimizer.tracker.report_local_progress(0, 0)
while optimizer.tracker.global_progress.num_peers < 2:
    optimizer.tracker.fetch_global_progress()
    time.sleep(0.05)

def epoch():
    last = optimizer.local_epoch
    while optimizer.local_epoch == last:
        batch()
        optimizer.step()

for _ in range(3):
    epoch()
begin, from_epoch = time.perf_counter(), optimizer.local_epoch
for _ in range({EPOCHS}):
    epoch()
seconds, epochs = time.perf_counter() - begin, optimizer.local_epoch - from_epoch
failed = optimizer.reporter._failures
(folder / ("done%d" % peer)).touch()
until = time.monotonic() + 60
while not (folder / ("done%d" % (1 - peer))).exists() and time.monotonic() < until:
    batch()
    optimizer.step()
if peer == 0:
    print(json.dumps(dict(samples_per_s=epochs * optimizer.target_batch_size / seconds, rounds_failed=failed)), flush=True)
os._exit(0)
"""


def turn(way):
    if way.startswith("plain"):
        return our_python(PROGRAM, way, "-")
    path = package.path(os.environ.get("PYTHONPATH", ""))
    with tempfile.TemporaryDirectory() as folder:
        line = [str(C_PROGRAMS / "bench_wan"), "2", "100", "50", "0", "bbr"]
        return run_program([*line, sys.executable, "-W", "ignore", "-c", PROGRAM, way, folder], 180, {"PYTHONPATH": path})


def measure(run):
    build_c()
    ways = ("grad", "plain", "local", "plain_each", "step", "now", "state")
    samples = run.interleave({way: lambda way=way: turn(way) for way in ways})
    rates = {way: column(samples[way], "samples_per_s") for way in ways}
    for way, name, against in (
        ("grad", "grad", "plain"),
        ("local", "local", "plain_each"),
        ("step", "step", "now"),
        ("state", "state", "now"),
        ("step", "step_of_plain", "plain"),
        ("state", "state_of_plain", "plain"),
        ("now", "now", "plain"),
    ):
        run.ratio(name, rates[way], rates[against])
    run.figure("waited_share", [plain / now - 1 for plain, now in zip(rates["plain"], rates["now"])])
    run.figures_of(samples)
