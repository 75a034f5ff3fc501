"""Whole training with synchronous averaging of gradients on loopback, against plain PyTorch and hivemind: samples per second of two processes

MLP of 1.3 million parameters, batches of 32, one thread each, SGD; a target of 131,072 and of 4,096 samples. Plain PyTorch: two processes that do not talk, each
steps with its half. State is not averaged on either side.
"""

from benchmarks.frame import column
from benchmarks.training import program

GOALS = {"plain_131072": 0.95, "plain_4096": 0.75, "hivemind_131072": 2.5, "hivemind_4096": 8.0}
ROUNDS = 3
SECONDS = {131072: 12.0, 4096: 5.0}


def measure(run):
    for target, seconds in SECONDS.items():
        sides = {
            f"{side}_{target}": lambda side=side, target=target, seconds=seconds: program(side, target, keep=True, seconds=seconds, epochs=True)
            for side in ("ours", "plain", "hivemind")
        }
        samples = run.interleave(sides)
        ours = column(samples[f"ours_{target}"], "samples_per_s")
        for other in ("plain", "hivemind"):
            run.ratio(f"{other}_{target}", ours, column(samples[f"{other}_{target}"], "samples_per_s"))
        run.figures_of(samples)
