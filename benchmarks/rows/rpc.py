"""unary calls per second against bare gRPC core, with TLS and without

Both sides are C programs on loopback, client and server in a process each, the same 32 calls of 64 bytes under way: benchmarks/c/bench_rpc.c.
"""

from benchmarks.frame import column
from benchmarks.programs import build_c, c_program

GOALS = {"tls": 0.8, "plain": 0.8}
ROUNDS = 9
MODES = ("ours_tls", "bare_tls", "ours_plain", "bare_plain")


def measure(run):
    build_c()
    samples = run.interleave({mode: (lambda mode=mode: c_program("bench_rpc", mode)) for mode in MODES})
    rate = {mode: column(samples[mode], "calls_per_s") for mode in MODES}
    run.ratio("tls", rate["ours_tls"], rate["bare_tls"])
    run.ratio("plain", rate["ours_plain"], rate["bare_plain"])
    run.figures_of(samples)
