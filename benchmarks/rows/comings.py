"""one peer stops and another comes: how long those that stay wait, and how soon the newcomer makes a step with them, against hivemind

Real processes on loopback with TLS, batches of 50 ms, epochs of 0.6 s for those that stay alone. One ends politely or by kill -9, and a new one starts at
once. `wait_s`: the longest time without an epoch of those that stay, beyond the time that they need for one by themselves. `back_s`: from the newcomer's
first call of the optimizer to its first step that the others make, too. COMINGS_STAY chooses how many stay (1), COMINGS_TIMES how often in a row one goes
and another comes (1): then both are the worst of them. COMINGS_EPOCH_S is the length of an epoch (0.6), COMINGS_OPTIONS a JSON object of more options of
the optimizer, and COMINGS_LEAVER one of options for the peer that leaves and the one that comes.
"""

import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

from benchmarks import comings_trainer as trainer
from benchmarks import package, peers
from benchmarks.frame import BenchmarkError, column

GOALS = {"polite_wait": 3.0, "killed_wait": 3.0, "polite_back": 3.0, "killed_back": 3.0}
ROUNDS = 3
EPOCH_S = float(os.environ.get("COMINGS_EPOCH_S", "0.6"))
TOGETHER_S, START_S = 0.7, 120.0  # TOGETHER_S: steps of one epoch that are common are so near each other


class Trainer:
    """A process, and what it has said so far."""

    def __init__(self, python, module, target, options, *initial):
        self.events = []
        path = "" if module == "hivemind" else package.path()
        command = [str(python), "-W", "ignore", trainer.__file__, module, str(target), json.dumps(options), *initial]
        self.process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.events.append(json.loads(line))

    def first(self, what, timeout_s=START_S):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for event in list(self.events):
                if event["what"] == what:
                    return event
            time.sleep(0.02)
        raise BenchmarkError(f"a trainer did not say {what!r} within {timeout_s:g} s")

    def epochs(self):
        return [event for event in list(self.events) if event["what"] == "epoch"]


def longest_wait(stayer, since, until):
    times = [event["t"] for event in stayer.epochs()]
    edges = [max([t for t in times if t < since], default=since), *[t for t in times if since <= t < until], until]
    return max(later - sooner for sooner, later in zip(edges, edges[1:]))


def first_common(newcomer, stayers):
    for event in newcomer.epochs():
        same = [other for stayer in stayers for other in stayer.epochs() if other["n"] == event["n"] and abs(other["t"] - event["t"]) < TOGETHER_S]
        if event["n"] == event["before"] + 1 and same:
            return event["t"]
    return None


def replace(running, leaver, how, start, watch_s):
    """One goes and another comes; what that cost."""
    stayers = [one for one in running if one is not leaver]
    gone = time.time()
    leaver.process.send_signal(signal.SIGTERM if how == "polite" else signal.SIGKILL)
    leaver.process.wait(60)
    newcomer = start(stayers[0].first("listens")["at"][0])
    running[running.index(leaver)] = newcomer
    begun = newcomer.first("begins")["t"]
    end = time.monotonic() + watch_s
    while time.monotonic() < end and first_common(newcomer, stayers) is None:
        time.sleep(0.2)
    time.sleep(5)  # what its coming costs shows by then
    common = first_common(newcomer, stayers)
    waits = [longest_wait(one, gone, time.time()) - EPOCH_S for one in stayers]
    return max(0.05, *waits), watch_s if common is None else max(0.05, common - begun)


def story(python, module, how, stay, watch_s, first_leaves=False, times=1, options=None, leaver=None):
    """`times` in a row the first peer, or the last one, is replaced; the newcomer takes its place. leaver: options of these two, beside everybody's."""
    target = round(stay * EPOCH_S / trainer.BATCH_S) * trainer.BATCH
    common = options or {}
    one_of_many = functools.partial(Trainer, python, module, target, common)
    one_that_goes = functools.partial(Trainer, python, module, target, {**common, **(leaver or {})})
    place = 0 if first_leaves else stay
    running = [one_of_many()]
    try:
        at = running[0].first("listens")["at"][0]
        running[0].first("begins")
        running += [(one_that_goes if index == place else one_of_many)(at) for index in range(1, stay + 1)]
        for one in running:
            one.first("begins")
        time.sleep(12 + 2 * stay + 2 * EPOCH_S)
        costs = []
        for _ in range(times):
            costs.append(replace(running, running[place], how, one_that_goes, watch_s))
        waits, backs = zip(*costs)
        return {"wait_s": max(waits), "back_s": max(backs), "usual_wait_s": statistics.median(waits), "usual_back_s": statistics.median(backs)}
    finally:
        for one in running:
            one.process.kill()
            one.process.wait()


def measure(run):
    stay, times = int(os.environ.get("COMINGS_STAY", "1")), int(os.environ.get("COMINGS_TIMES", "1"))
    plan = {name: json.loads(os.environ.get(f"COMINGS_{name.upper()}", "{}")) for name in ("options", "leaver")}
    contestants = {}
    for how in ("polite", "killed"):
        contestants[f"ours_{how}"] = lambda how=how: story(sys.executable, "hivemind_c", how, stay, 60 + 2 * EPOCH_S, times=times, **plan)
        if peers.stands():
            contestants[f"hivemind_{how}"] = lambda how=how: story(peers.PYTHON, "hivemind", how, stay, 90 + 2 * EPOCH_S, times=times, **plan)
    samples = run.interleave(contestants, warm_up=())
    for how in ("polite", "killed") if peers.stands() else ():
        for measure_of in ("wait", "back"):
            theirs, ours = column(samples[f"hivemind_{how}"], f"{measure_of}_s"), column(samples[f"ours_{how}"], f"{measure_of}_s")
            run.ratio(f"{how}_{measure_of}", theirs, ours)
    run.figures_of(samples)
