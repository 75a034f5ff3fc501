"""Trainers in network namespaces that are killed, stopped and cut off in turn, judged by what they recorded.

    python tests/py/hub/upset.py --peers 3 --seconds 600
"""

import argparse
import contextlib
import itertools
import json
import math
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "python"), str(HERE.parent)]
sys.path.append(str(ROOT / "examples/demo"))

import internet
from hubs import Process
from support import Replays
from together import PAUSE, TRAINER, lines_of, told

from hivemind_c.doctor import records

EVERY = 20.0  #: seconds between two upsets
LASTS = 5.0  #: seconds of a stop or a cut
AWAY = 3.0  #: seconds until a killed trainer starts again
CALM = 15.0  #: seconds after the last upset
BEHIND = 2  #: swarm epochs by which a newcomer may miss what others had when it began


class Machine:
    """A machine of the internet, and the trainer that runs on it.

    Args:
        net: The internet.
        number: Of the machine, from 0.
        common: Options of all trainers.
        environment: Of its processes.
    """

    lives = itertools.count()

    def __init__(self, net, number, common, environment):
        self.name, self.number, self._common, self._environment = f"m{number}", number, common, environment
        self._net, self.address = net, net.public(self.name)
        self.port, self.logs, self.trainer = f"port{net.machines}", [], None

    def start(self, peers):
        """Starts a trainer here, with a model of its own."""
        node = {"host_maddrs": [f"/ip4/{self.address}/tcp/0"]}
        options = {**self._common, "node": node, "peers": peers, "seed": next(self.lives)}
        before = self._net.inside(self.name)
        self.trainer = Process(TRAINER, json.dumps(options), environment=self._environment, before=before)
        self.initial = told(self.trainer, "READY", 60.0)

    def go(self):
        self.trainer.process.stdin.write("\n")
        self.trainer.process.stdin.flush()

    def kill(self):
        if self.trainer is not None:
            self.trainer.kill()
            self.logs += self.trainer.log

    # ---- upsets ----

    def kill_and_start(self, others):
        self.kill()
        time.sleep(AWAY)
        self.start(others[0].initial)
        self.go()

    def stop(self, others):
        self.trainer.process.send_signal(19)  # SIGSTOP
        time.sleep(LASTS)
        self.trainer.process.send_signal(18)  # SIGCONT

    def cut(self, others):
        internet.run("ip", "link", "set", self.port, "down")
        time.sleep(LASTS)
        internet.run("ip", "link", "set", self.port, "up")


UPSETS = Machine.kill_and_start, Machine.stop, Machine.cut


def run(folder, peers, seconds, epoch_s=1.0):
    """Upsets trainers until the time is over; returns what they recorded and logged."""
    folder, net = pathlib.Path(folder), internet.Internet()
    environment = {"HIVEMIND_RECORD": str(folder), "INITIAL_PEERS": "", "OMP_NUM_THREADS": "1"}
    target = round(16 * epoch_s * peers / (PAUSE + 0.002))
    common = dict(client=False, target=target, delay=0.0, pause=PAUSE, over=str(folder / "over"))
    with contextlib.ExitStack() as stack:
        machines = [Machine(net, number, common, environment) for number in range(peers)]
        for one in machines:
            stack.callback(one.kill)
            one.start([] if one is machines[0] else machines[0].initial)
        for one in machines:
            one.go()
        begin = time.monotonic()
        turns = zip(itertools.count(1), itertools.cycle(UPSETS))
        for number, upset in itertools.takewhile(lambda turn: turn[0] * EVERY < seconds - CALM, turns):
            time.sleep(max(0.0, begin + number * EVERY - time.monotonic()))
            again = (number - 1) // math.lcm(len(UPSETS), peers)  # each machine meets each upset
            victim = machines[(number + again) % peers]
            print(f"{number * EVERY:.0f} s: {upset.__name__} of {victim.name}", flush=True)
            upset(victim, [one for one in machines if one is not victim])
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        (folder / "over").touch()
        for one in machines:
            told(one.trainer, "END", 60.0)
    Replays(folder).check()
    return records.read(str(folder)), [line for one in machines for line in one.logs]


class Verdict:
    """The states and samples of a run, by the records.

    Args:
        lines: Lines of records.read().
    """

    def __init__(self, lines):
        self._lines = lines_of(lines, "replica")
        by_mark, self.lives = {}, {}
        for line in self._lines:
            by_mark.setdefault((line["epoch"], line["mark"]), set()).add(line["replica"])
            self.lives.setdefault(line["peer"], []).append(line)
        #: marks under which two replicas are
        self.unequal = sorted(key for key, replicas in by_mark.items() if len(replicas) > 1)
        #: samples that are in no place, or in two
        self.unaccounted = [line for line in self._lines if not self._is_accounted(line["samples"])]
        #: lives that began, or went on, behind what the swarm had
        self.lost_states = [line for line in self._lines if self._lacks(line)]
        self.longest_s = max(
            (later["time"] - line["time"] for life in self.lives.values() for line, later in itertools.pairwise(life)),
            default=0.0,
        )
        end = self._lines[-1]["time"] - CALM
        last_lives = [life for life in self.lives.values() if life[-1]["time"] > end]
        living = [{one["epoch"]: one["replica"] for one in life} for life in last_lives]
        last = max(set.intersection(*map(set, living)), default=None)
        self.living = len(living)
        #: of those that lived at the end, in the last epoch that all of them had
        self.replicas = {one[last] for one in living} if last is not None else set()

    @staticmethod
    def _is_accounted(samples):
        places = sum(samples[place] for place in ("averaged", "kept", "sums", "in_flight", "lost"))
        return samples["holds"] and samples["produced"] == samples["stepped"] == places

    def _lacks(self, line):
        """The others had been more than BEHIND epochs further, some seconds before."""
        before = [one for one in self._lines if one["time"] < line["time"] - LASTS - EVERY / 2]
        return bool(before) and line["epoch"] < max(one["epoch"] for one in before) - BEHIND

    def shares(self):
        """The share of each life's samples that was averaged, between its first and its last epoch, and why others were
        lost."""
        for peer, life in self.lives.items():
            first, last = life[0]["samples"], life[-1]["samples"]
            produced = last["produced"] - first["produced"]
            why = {cause: n for cause, n in last["lost_by"].items() if n}
            if produced:
                share = (last["averaged"] - first["averaged"]) / produced
                told = f"{len(life)} epochs, {share:.3f} of {produced} averaged, kept {last['kept']}, lost {why or 0}"
                yield f"{peer}: {told}"

    def __str__(self):
        return (
            f"{self._lines[-1]['epoch']} epochs, {len(self.lives)} lives, "
            f"unequal under one mark: {self.unequal or 'none'}, unaccounted: {len(self.unaccounted)}, "
            f"states lost: {len(self.lost_states)}, longest epoch {self.longest_s:.1f} s, "
            f"{self.living} at the end with {len(self.replicas)} replica(s)"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--epoch", type=float, default=1.0, help="seconds of an epoch")
    parser.add_argument("--keep", help="folder for the records")
    options = parser.parse_args()
    internet.enter()
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="upset-"))
    folder.mkdir(parents=True, exist_ok=True)
    lines, logs = run(folder, options.peers, options.seconds, options.epoch)
    (folder / "logs.txt").write_text("\n".join(logs))
    found = Verdict(lines)
    print(found, *found.shares(), folder, sep="\n", flush=True)
    return bool(found.unequal or found.unaccounted or found.lost_states or len(found.replicas) != 1)


if __name__ == "__main__":
    sys.exit(main())
