"""simulated events per second; 1,000 nodes for 10 virtual minutes against 60 s

The C program runs one seed on one thread, each node asking 16 others every 5 s: benchmarks/c/bench_sim.c. The ratio is to its processor time.
"""

from benchmarks.frame import column
from benchmarks.programs import build_c, c_program

GOALS = {"within_60_s": 1.0}
ROUNDS = 3
LIMIT_S = 60.0


def measure(run):
    build_c()
    samples = run.interleave({"sim": lambda: c_program("bench_sim", timeout_s=600)})
    seconds = column(samples["sim"], "cpu_s")
    run.ratio("within_60_s", [LIMIT_S] * len(seconds), seconds)
    run.figures_of(samples)
