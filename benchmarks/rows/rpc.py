"""unary calls per second against bare gRPC core, with TLS and without

Both sides are C programs on loopback, client and server in a process each, the same 32 calls of 64 bytes under way: benchmarks/c/bench_rpc.c.
The ratios called _cpu are of processor time for the same calls.
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
    # Every side runs for the same time, so this is in proportion to its processor time for each call.
    cost = {mode: [sample["cpu_s"] / sample["calls_per_s"] for sample in samples[mode]] for mode in MODES}
    for kind in ("tls", "plain"):
        run.ratio(kind, rate[f"ours_{kind}"], rate[f"bare_{kind}"])
    for kind in ("tls", "plain"):
        run.ratio(f"{kind}_cpu", cost[f"bare_{kind}"], cost[f"ours_{kind}"])
    run.figures_of(samples)
