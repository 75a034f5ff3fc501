"""bulk bytes per second against bare gRPC core and raw TCP

All are C programs on loopback, each end in a process of its own: benchmarks/c/bench_stream.c. Raw TCP is said, not aimed at.
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
    run.ratio("tls", rate["ours_tls"], rate["bare_tls"])
    run.ratio("plain", rate["ours_plain"], rate["bare_plain"])
    run.ratio("plain_to_tcp", rate["ours_plain"], rate["tcp"])
    run.ratio("tls_to_tcp", rate["ours_tls"], rate["tcp"])
    run.figures_of(samples)
