"""Trainers on scikit-learn's digits, without and with kill -9: what it costs, and whether all stay equal to the bit."""

import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

import hivemind_c as hivemind

LATER = 3  # epochs: a trainer that stepped by itself in the last one has the others' parameters before these are over
TRAINER = pathlib.Path(__file__).with_name("trainer.py")


class Trainer:
    """A slot in which a trainer runs, is killed, and runs again with the same identity."""

    def __init__(self, slot, peers, folder, options):
        self.slot, self.lives, self.lines = slot, 0, []
        self._command = [sys.executable, "-u", str(TRAINER), "--stay", "--initial_peers", *peers, "--identity_path", os.path.join(folder, f"{slot}.key"), *options]
        self.start()

    def start(self):
        self.lives += 1
        self.process = subprocess.Popen(
            [*self._command, "--seed", str(1000 * self.slot + self.lives)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.life = []
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout, self.life), daemon=True)
        self._errors = collections.deque(maxlen=40)
        threading.Thread(target=lambda errors=self.process.stderr, kept=self._errors: kept.extend(errors), daemon=True).start()
        self._reader.start()

    def _read(self, stream, life):
        for line in stream:
            life.append(json.loads(line))
            self.lines.append(life[-1])

    @property
    def epoch(self):
        return self.life[-1]["epoch"] if self.life else 0

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def done(self, epochs):
        """Whether it has made its last epoch. It trains on until it is let go, so the one killed last finds a swarm."""
        code = self.process.poll()
        if code is not None:
            raise SystemExit(f"trainer {self.slot} ended with {code}:\n{''.join(self._errors)}")
        return self.epoch >= epochs

    def let_go(self):
        self.process.stdin.close()
        self.process.wait(60)


def are_equal(slots, epochs):
    """Whether there is an epoch, the last one or later, that all have ended with the same parameters."""
    ends = [{line["epoch"]: line["digest"] for line in list(slot.life) if line["epoch"] >= epochs} for slot in slots]
    return any(len({end[epoch] for end in ends}) == 1 for epoch in set.intersection(*map(set, ends)))


def run(trainers, epochs, kill, seed, options, timeout):
    """One training. Figures, and for each epoch how many different parameters there were among how many peers."""
    chance, killed, begin = random.Random(seed), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True) as dht:
        slots = [Trainer(slot, dht.get_visible_maddrs(), folder, ["--epochs", str(epochs), *options]) for slot in range(trainers)]
        try:
            seen = 0
            while not all([slot.done(epochs) for slot in slots]) or (
                not are_equal(slots, epochs) and min(slot.epoch for slot in slots) <= epochs + LATER
            ):
                if time.monotonic() - begin > timeout:
                    told = "\n".join(f"trainer {slot.slot} at {slot.epoch}: {''.join(list(slot._errors)[-5:])}" for slot in slots)
                    raise SystemExit(f"not done after {timeout} s:\n{told}")
                newest = max(slot.epoch for slot in slots)
                if newest > seen and newest < epochs - 1:
                    seen = newest
                    for slot in slots:
                        training = sum(other.process.poll() is None and bool(other.life) for other in slots)
                        if slot.process.poll() is None and slot.life and chance.random() < kill and training > 1:  # somebody survives
                            slot.kill()
                            slot.start()
                            killed += 1
                time.sleep(0.05)
            for slot in slots:
                slot.let_go()
        finally:
            for slot in slots:
                if slot.process.poll() is None:
                    slot.process.kill()
                slot.process.wait()
                slot._reader.join()
    told = collections.defaultdict(list)
    for slot in slots:
        for line in slot.lines:
            told[line["epoch"]].append(line)
    last = told[epochs]
    return dict(
        seconds=round(time.monotonic() - begin, 1),
        killed=killed,
        loss=sum(line["loss"] for line in last) / len(last),
        finished=sum(slot.epoch >= epochs for slot in slots),
        epochs_in_which_all_were_equal=sum(len({line["digest"] for line in lines if not line["joined"]}) <= 1 for lines in told.values()),
        equal_at_the_end=are_equal(slots, epochs),
        epochs=len(told),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainers", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--kill", type=float, default=0.3, help="how likely each is killed in each epoch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target_batch_size", type=int, default=4096)
    parser.add_argument("--pause", type=float, default=0.2)
    parser.add_argument("--timeout", type=float, default=900)
    args = parser.parse_args()
    options = ["--target_batch_size", str(args.target_batch_size), "--pause", str(args.pause)]
    clean = run(args.trainers, args.epochs, 0.0, args.seed, options, args.timeout)
    print(json.dumps(dict(clean=clean)), flush=True)
    harsh = run(args.trainers, args.epochs, args.kill, args.seed, options, args.timeout)
    print(json.dumps(dict(killed=harsh, loss_ratio=harsh["loss"] / clean["loss"])), flush=True)


if __name__ == "__main__":
    main()
