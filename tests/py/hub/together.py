"""Trainers that start at one moment, in processes and with models of their own, judged by what they recorded.

    python tests/py/hub/together.py --clients 2 --hub --seconds 30 --runs 12
"""

import argparse
import contextlib
import itertools
import json
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[2] / "python"), str(HERE.parent)]

from forking import TORCH
from hubs import Hub, Process
from support import Replays

from hivemind_c.doctor import records

TRAINER = """
import hashlib, json, os, sys, time
import torch
import hivemind_c as hivemind
from optim_support import backward, flat, network

options = json.loads(sys.argv[1])
dht = hivemind.DHT(options["peers"], start=True, client_mode=options["client"], **options["node"])
model = network(options["seed"])
optimizer = hivemind.Optimizer(
    dht=dht, run_id="test", target_batch_size=options["target"], batch_size_per_step=16,
    optimizer=torch.optim.Adam(model.parameters(), lr=0.01), matchmaking_time=5, averaging_timeout=30,
)
print("READY", *dht.get_visible_maddrs(), flush=True)
sys.stdin.readline()  # all begin at one moment
time.sleep(options["delay"])
number, epoch = 1000 * options["seed"], 0
while not os.path.exists(options["over"]):
    backward(model, number, 16)
    optimizer.step()
    optimizer.zero_grad()
    number += 1
    if optimizer.local_epoch != epoch:
        epoch = optimizer.local_epoch
        replica = hashlib.sha256(flat(model).numpy().tobytes()).hexdigest()[:8]
        samples = {**optimizer.ledger.samples.figures(), "stepped": 16 * (number - 1000 * options["seed"])}
        mark = optimizer.state_averager.lineage.mark
        optimizer.record("replica", epoch=epoch, replica=replica, mark=mark.hex(), samples=samples)
    time.sleep(options["pause"])
print("END", flush=True)
sys.stdin.readline()  # the others have their last rounds
"""
PAUSE = 0.05  #: seconds between two batches of 16


def told(process, word, seconds):
    """The words behind the first one of a line."""
    find = lambda p: next((line.split() for line in list(p.out) if line.startswith(word)), None)  # noqa: E731
    return process.wait_for(find, seconds)[1:]


MOST_S = 90.0  #: beyond its seconds, of a run on a machine that is busy


def run(folder, opens=0, clients=0, hub=False, seconds=12.0, epoch_s=1.0, delays=(), pauses=(), least=0):
    """Starts the trainers, open ones first, and returns what they and the hub recorded and logged.

    Args:
        seconds: For which they train, and longer until they have as many common epochs as they need.
        least: Common epochs that they need.
        delays: Seconds by which each trainer begins late.
        pauses: Seconds between two batches of each trainer.
    """
    n, folder = opens + clients, pathlib.Path(folder)
    over = folder / "over"
    delays, pauses = (*delays, *[0.0] * n)[:n], (*pauses, *[PAUSE] * n)[:n]
    target = round(16 * epoch_s * sum(1 / (pause + 0.002) for pause in pauses))
    environment = {"HIVEMIND_RECORD": str(folder), "INITIAL_PEERS": ""}
    with contextlib.ExitStack() as stack:

        def started(process):
            stack.callback(process.kill)
            return process

        hubs = [started(Hub(folder, environment=environment))] if hub else []
        peers = [one.address for one in hubs]
        trainers = []
        for seed in range(n):
            options = dict(client=seed >= opens, seed=seed, target=target, delay=delays[seed], pause=pauses[seed])
            options.update(peers=peers, over=str(over), node={})
            trainers.append(started(Process(TRAINER, json.dumps(options), environment=environment, imports=TORCH)))
            if not peers:
                peers = told(trainers[0], "READY", 60.0)
        for one in trainers:
            told(one, "READY", 60.0)
        for one in trainers:
            one.process.stdin.write("\n")
            one.process.stdin.flush()
        time.sleep(seconds)
        most = time.monotonic() + MOST_S
        while len(Verdict(records.read(str(folder))).common) < least and time.monotonic() < most:
            time.sleep(1.0)
        over.touch()
        for one in trainers:
            told(one, "END", 60.0)
        logs = [line for one in [*hubs, *trainers] for line in one.log]
    Replays(folder).check()
    return records.read(str(folder)), logs


def lines_of(lines, what):
    return [line for line in lines if line["what"] == what and line["role"] != "hub"]


class Verdict:
    """The replicas of the peers, by the records of a run.

    Args:
        lines: Lines of records.read().
    """

    def __init__(self, lines):
        replicas = {}
        for line in lines_of(lines, "replica"):
            replicas.setdefault(line["epoch"], {})[line["peer"]] = line["replica"]
        n = len({line["peer"] for line in lines_of(lines, "join")})
        #: epochs in which all peers were
        self.common = sorted(epoch for epoch, each in replicas.items() if len(each) == n)
        #: those in which their replicas differ, counted from 1
        self.apart = [i for i, epoch in enumerate(self.common, 1) if len(set(replicas[epoch].values())) > 1]
        self.failed_loads = len(lines_of(lines, "load_failed"))
        self.doubts = len(lines_of(lines, "doubt"))
        #: epochs that a peer ended alone while it counted another one
        self.alone_with_others = [line for line in lines_of(lines, "end") if line["alone"] and line["peers"] > 1]
        self.alone = len([line for line in lines_of(lines, "end") if line["alone"]])
        self.left_out = len(lines_of(lines, "left_out"))
        self.changes = self._changes(lines_of(lines, "gradients"))

    @staticmethod
    def _changes(rounds):
        """Rounds after the first common one whose members had several replicas."""
        several = {line["epoch"] for line in rounds if len(set(line["members"].values())) > 1}
        common = [line["epoch"] for line in rounds if len(line["members"]) > 1]
        return sorted(epoch for epoch in several if epoch > min(common))

    def __str__(self):
        return (
            f"{len(self.common)} common epochs, apart in {self.apart or 'none'}, {self.failed_loads} loads failed, "
            f"{self.doubts} doubts, {self.left_out} left out, {self.alone} alone, changes {self.changes or 'none'}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("open", "clients"):
        parser.add_argument(f"--{name}", type=int, default=0, help="trainers of this kind")
    parser.add_argument("--hub", action="store_true")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--epoch", type=float, default=1.0, help="seconds of an epoch")
    parser.add_argument("--delays", type=float, nargs="+", default=())
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keep", help="folder for the records")
    options = parser.parse_args()
    for number in itertools.islice(itertools.count(1), options.runs):
        folder = pathlib.Path(options.keep or tempfile.mkdtemp(), f"{time.time_ns()}")
        folder.mkdir(parents=True)
        arguments = (options.open, options.clients, options.hub, options.seconds, options.epoch, options.delays)
        lines, logs = run(folder, *arguments)
        (folder / "logs.txt").write_text("\n".join(logs))
        warnings = sum(" INFO " not in line for line in logs)
        print(f"run {number}: {Verdict(lines)}, {warnings} lines of warnings, {folder}", flush=True)


if __name__ == "__main__":
    main()
