"""training with HivemindStrategy against Lightning's default strategy, alone and in a swarm of two

An MLP of 1.3 million parameters on the CPU, batches of 256, one thread for each process. alone: samples/s of one process with the strategy against one without.
two: samples/s of each of two processes in a loopback swarm, against each of two processes without, at the same time. first_step: seconds from a process's
start to its first step when it joins by the printed line, torch's own import excluded (a figure, aimed at: under 10).
"""

import json
import os
import queue
import subprocess
import sys
import threading

from benchmarks import package
from benchmarks.frame import BenchmarkError, column

GOALS = {"alone": 0.97, "two": 0.93}
ROUNDS = 5
SECONDS, BATCH, TARGET = 6.0, 256, 131072

PROGRAM = f"""
import json, logging, os, sys, time, warnings
begun = time.perf_counter()
import torch
torch_s = time.perf_counter() - begun
torch.set_num_threads(1)
import lightning as L
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
strategy = "auto"
if sys.argv[1] == "hive":
    from hivemind_c import HivemindStrategy
    strategy = HivemindStrategy(target_batch_size={TARGET}, run_id="bench", host_maddrs="/ip4/127.0.0.1/tcp/0")

class Network(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        x, y = torch.randn({BATCH}, 784), torch.randint(10, ({BATCH},))
        while True:
            yield x, y

class Clock(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        now = time.perf_counter()
        if batch_idx == 0:
            self.first_s = now - begun - torch_s
            print("ready", flush=True)
            sys.stdin.readline()  # all begin together
            if strategy != "auto" and len(sys.argv) > 2:
                while trainer.strategy.dht.state()["peers"] < 1:
                    time.sleep(0.01)
            self.start, self.after = time.perf_counter(), batch_idx
        elif now - self.start > {SECONDS}:
            trainer.should_stop = True
            self.rate = (batch_idx - self.after) * {BATCH} / (now - self.start)

clock = Clock()
trainer = L.Trainer(strategy=strategy, callbacks=[clock], max_epochs=-1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Network(), torch.utils.data.DataLoader(Data(), batch_size=None))
print(json.dumps({{"samples_per_s": clock.rate, "first_step_s": clock.first_s}}), flush=True)
"""


class Trainer:
    """One process; ready when it has done a step."""

    def __init__(self, kind, peers="", more=()):
        path = package.path(os.environ.get("PYTHONPATH", ""))
        env = {**os.environ, "PYTHONPATH": path, "INITIAL_PEERS": peers, "OMP_NUM_THREADS": "1"}
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, kind, *more], env=env, text=True, **pipes)
        self.lines = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def line(self, start):
        while True:
            try:
                line = self.lines.get(timeout=120)
            except queue.Empty:
                line = ""
            if not line:
                raise BenchmarkError(f"a trainer ended, or hung, before it said {start!r}")
            if line.startswith(start):
                return line

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def outcome(self):
        numbers = json.loads(self.line("{"))
        self.process.wait(60)
        return numbers


def turn(kind, count):
    trainers = []
    try:
        trainers.append(Trainer(kind, more=["together"] * (count > 1)))
        if kind == "hive" and count > 1:
            peers = trainers[0].line("INITIAL_PEERS=").split(" ")[0].split("=", 1)[1]
        for _ in range(1, count):
            trainers.append(Trainer(kind, peers if kind == "hive" else "", ["together"]))
        for trainer in trainers:
            trainer.line("ready")
        for trainer in trainers:
            trainer.go()
        outcomes = [trainer.outcome() for trainer in trainers]
    finally:
        for trainer in trainers:
            trainer.process.kill()
            trainer.process.wait()
    return {"samples_per_s": min(outcome["samples_per_s"] for outcome in outcomes), "first_step_s": outcomes[-1]["first_step_s"]}


def measure(run):
    contestants = {f"{kind}_{name}": lambda kind=kind, count=count: turn(kind, count) for name, count in (("alone", 1), ("two", 2)) for kind in ("hive", "plain")}
    samples = run.interleave(contestants)
    for name in ("alone", "two"):
        run.ratio(name, column(samples[f"hive_{name}"], "samples_per_s"), column(samples[f"plain_{name}"], "samples_per_s"))
    run.figures_of(samples)
