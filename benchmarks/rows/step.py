"""A peer that does not average now, against plain PyTorch and hivemind: samples per second of two processes, MLP of 1.3 million parameters

Batches of 32, one thread each, CPU. keep: gradients are summed up in .grad (reuse_grad_buffers), against plain PyTorch that does the same. zero: each batch's
gradient is added to a sum elsewhere and .grad is forgotten, against plain PyTorch that only forgets it; that pays for the sum.
"""

from benchmarks.frame import column
from benchmarks.training import program

GOALS = {"keep": 0.98, "zero": 0.98}
ROUNDS = 5
NEVER = 10**9


def measure(run):
    sides = {
        "ours_keep": lambda: program("ours", NEVER, keep=True),
        "plain_keep": lambda: program("plain", NEVER, keep=True),
        "ours_zero": lambda: program("ours", NEVER),
        "plain_zero": lambda: program("plain", NEVER),
        "hivemind_keep": lambda: program("hivemind", NEVER, keep=True),
        "hivemind_zero": lambda: program("hivemind", NEVER),
    }
    samples = run.interleave(sides)
    for way in ("keep", "zero"):
        ours = column(samples[f"ours_{way}"], "samples_per_s")
        run.ratio(way, ours, column(samples[f"plain_{way}"], "samples_per_s"))
        run.ratio(f"{way}_hivemind", ours, column(samples[f"hivemind_{way}"], "samples_per_s"))
    run.figures_of(samples)
