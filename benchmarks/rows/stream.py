"""bulk bytes per second against bare gRPC core and raw TCP

All are C programs on loopback, 1 MiB messages, each end in a process of its own: benchmarks/c/bench_stream.c. Raw TCP is said, not aimed at.
The ratios called _cpu are of processor time for the same bytes.
"""

from benchmarks.frame import column
from benchmarks.programs import build_c, c_program

GOALS = {"tls": 0.9, "plain": 0.9}
ROUNDS = 9
MODES = ("ours_tls", "bare_tls", "ours_plain", "bare_plain", "tcp")


def measure(run):
    build_c()
    samples = run.interleave({mode: (lambda mode=mode: c_program("bench_stream", mode)) for mode in MODES})
    rate = {mode: column(samples[mode], "gb_per_s") for mode in MODES}
    # Every side runs for the same time, so this is in proportion to its processor time for each GB.
    cost = {mode: [sample["cpu_s"] / sample["gb_per_s"] for sample in samples[mode]] for mode in MODES}
    for kind in ("tls", "plain"):
        run.ratio(kind, rate[f"ours_{kind}"], rate[f"bare_{kind}"])
    for kind in ("tls", "plain"):
        run.ratio(f"{kind}_cpu", cost[f"bare_{kind}"], cost[f"ours_{kind}"])
        run.ratio(f"{kind}_to_tcp", rate[f"ours_{kind}"], rate["tcp"])
    run.figures_of(samples)
