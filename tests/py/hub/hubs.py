"""A hub and trainers in processes of their own, for the tests of the hub."""

import json
import os
import signal
import sys
import threading
import time

import forking
from support import PATIENCE

HUB = """
import sys

class Nowhere:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("torch", "numpy", "lightning"):
            raise RuntimeError(f"the hub imports {name}")

sys.meta_path.insert(0, Nowhere())
from hivemind_c.cli.PROGRAM import main

sys.exit(main())
"""

TRAINER = """
import hashlib, json, sys, time
import torch
import hivemind_c as hivemind
from optim_support import QUICK, backward, flat, network

options = json.loads(sys.argv[1])
dht = hivemind.DHT(options["peers"], start=True, client_mode=options["client"])
model = network(options["seed"])
optimizer = hivemind.Optimizer(
    dht=dht, run_id="test", target_batch_size=options["target"], batch_size_per_step=16,
    optimizer=torch.optim.Adam(model.parameters(), lr=0.01), **{**QUICK, **options["more"]},
)
number = options["first"]
if options["peers_least"] > 1:
    optimizer.find_swarm()  # the others count this peer before its first batch
while 1 < options["peers_least"] > optimizer.tracker.global_progress.num_peers:
    optimizer.tracker.fetch_global_progress()
    time.sleep(0.05)
while optimizer.local_epoch < options["epochs"]:
    backward(model, number, 16)
    optimizer.step()
    optimizer.zero_grad()
    number += 1
    time.sleep(options["pause"])
    replica = hashlib.sha256(flat(model).numpy().tobytes()).hexdigest()[:16]
    last = optimizer.last_epoch
    told = {"epoch": optimizer.local_epoch, "replica": replica, "outcome": last and last.outcome}
    print(json.dumps(told), flush=True)
sys.stdin.read()  # the last one still averages for the others
"""


def lines_of(stream, kept):
    for line in stream:
        kept.append(line.rstrip("\n"))


class Process:
    """A process whose lines are collected.

    imports, before: See forking.start().
    """

    def __init__(self, source, *arguments, environment=None, imports=None, before=()):
        self.out, self.log = [], []
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})}
        self.process = forking.start(source, list(map(str, arguments)), environment, imports, before)
        for stream, kept in ((self.process.stdout, self.out), (self.process.stderr, self.log)):
            threading.Thread(target=lines_of, args=(stream, kept), daemon=True).start()

    def wait_for(self, found, seconds=PATIENCE):
        """The result of found(self), once it is true."""
        deadline = time.monotonic() + seconds
        while not (result := found(self)):
            assert time.monotonic() < deadline, "\n".join(self.out[-5:] + self.log[-20:])
            assert self.process.poll() is None or found(self), "\n".join(self.out[-5:] + self.log[-20:])
            time.sleep(0.02)
        return result

    def has_logged(self, text, seconds=PATIENCE):
        return self.wait_for(lambda p: next((line for line in list(p.log) if text in line), None), seconds)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self, number=signal.SIGTERM):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)


class Hub(Process):
    """hivemind-hub of the run "test", in a process that cannot import torch.

    is_full: it has memory for 67 bytes of a run.
    """

    def __init__(self, folder, *options, runs=("test",), port=0, is_full=False, environment=None):
        named = [word for run in runs for word in ("--run_id", run)]
        here = ["--host", "127.0.0.1", "--port", port, "--identity", folder / "hub.key", "--history", "none"]
        small = "from hivemind_c.hub import sizes\n\nsizes.COPIES = 10**6\n" if is_full else ""
        super().__init__(small + HUB.replace("PROGRAM", "hub"), *named, *here, *options, environment=environment)

    @property
    def address(self):
        line = self.wait_for(lambda p: next((line for line in list(p.out) if line.startswith("INITIAL_PEERS=")), None))
        return line.partition("=")[2]


def trainer(peers, **options):
    usual = {"client": False, "seed": 0, "first": 0, "target": 32, "epochs": 10**6}
    usual.update(pause=0.0, peers_least=1, more={})
    return Process(TRAINER, json.dumps({"peers": peers, **usual, **options}), imports=forking.TORCH)


def told(process):
    """The lines of a trainer, one for each of its steps."""
    return [json.loads(line) for line in list(process.out) if line.startswith("{")]


def epoch_of(process):
    return told(process)[-1]["epoch"] if told(process) else -1


def replicas(process):
    """Digests of the parameters at the beginning of each epoch, before a late average of the state is applied."""
    return {step["epoch"]: step["replica"] for step in reversed(told(process))}
