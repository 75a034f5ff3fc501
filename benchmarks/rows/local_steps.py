"""Local steps on the product's kernels against DiLoCo in plain PyTorch: loss after 2 million tokens of two workers, in float32, 8 and 4 bits

A transformer of 0.3 million parameters on the bytes of Python's library (benchmarks/byte_model.py), 40 outer steps of SGD with a rate of 0.7 and Nesterov
momentum of 0.5, two workers in one process (benchmarks/diloco.py). The other side is the same recipe in torch, in float32, with the same first parameters and
batches: a seed for each round. Ours encodes differences and their average by the product's codec, and steps the anchor by its kernel. A ratio is the plain
loss against ours: 1 is the same. `exact_of_plain` is what local steps cost: the loss of the exact mode, all rows in each step, against plain.
In `late` one worker of plain misses each third round, and its difference counts in the next one by its batches; in `late_once` with the weight of one epoch;
in `late_lost` never. `once_of_late` and `lost_of_late` are their losses against it: over 1, batches are to count.
The ratios `overlap_quarter`, `_half` and `_whole` are of plain whose rounds last that part of an epoch, beside batches.
"""

import sys

from benchmarks import package
from benchmarks.frame import column
from benchmarks.programs import ROOT
from benchmarks.programs import run as run_program

GOALS = {"float32": 0.99, "bits8": 0.99, "bits4": 0.99}
ROUNDS = 3
OVERLAPS = "overlap_quarter", "overlap_half", "overlap_whole"
WAYS = "exact", "plain", "late", "late_once", "late_lost", *OVERLAPS, *GOALS
STEPS, OUTER, TIMEOUT_S = 1960, 40, 1800  # 1,024 tokens in a step of both
QUICK_STEPS, QUICK_OUTER = 20, 4


def turn(way, seed, is_quick):
    """One training.

    Args:
        way: How it trains.
        seed: Of first parameters and batches.
        is_quick: A few steps.
    """
    steps, outer = (QUICK_STEPS, QUICK_OUTER) if is_quick else (STEPS, OUTER)
    env = {"PYTHONPATH": package.path(str(ROOT))}
    words = [sys.executable, "-W", "ignore", "-m", "benchmarks.diloco", way, str(seed), str(steps), str(outer)]
    return run_program(words, TIMEOUT_S, env)


def measure(run):
    contestants = {way: (lambda way=way: turn(way, run.round + 1, run.is_quick)) for way in WAYS}
    samples = run.interleave(contestants, warm_up=())
    plain = column(samples["plain"], "loss")
    for way in (*GOALS, *OVERLAPS):
        run.ratio(way, plain, column(samples[way], "loss"))
    run.ratio("exact_of_plain", column(samples["exact"], "loss"), plain)
    late = column(samples["late"], "loss")
    for what in ("once", "lost"):
        run.ratio(f"{what}_of_late", column(samples[f"late_{what}"], "loss"), late)
    run.figures_of(samples)
