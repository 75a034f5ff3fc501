"""A small call while bulk fills a line of 20 Mbit/s and 50 ms: against the line's queue of 100 ms and three round trips

Two peers in network namespaces, joined by a relay (benchmarks/c/wan.h), as root: a heavy stream brings megabytes (down), sends them (up) or both, and each 50 ms
an echo is asked for. The time of the echo's 95th percentile counts. WAN_CONGESTION as in the row wan. `..._line`: the share of the line that the bulk reached.
"""

from benchmarks.frame import column
from benchmarks.programs import C_PROGRAMS, build_c, run as run_program
from benchmarks.rows.wan import congestion

MBIT, RTT_MS, QUEUE_MS, WAYS = 20, 50, 100, ("down", "up", "both")
GOALS = {way: 1.0 for way in WAYS}
ROUNDS = 3


def turn(way):
    line = ["2", str(MBIT), str(RTT_MS), "0", congestion(), str(C_PROGRAMS / "bench_control"), way, "8"]
    return run_program([str(C_PROGRAMS / "bench_wan"), *line], 120, {"WAN_MBIT": str(MBIT), "WAN_QUEUE_KB": str(MBIT * QUEUE_MS // 8)})


def measure(run):
    build_c()
    samples = run.interleave({way: (lambda way=way: turn(way)) for way in WAYS}, warm_up=[])
    for way in WAYS:
        times = column(samples[way], "p95_ms")
        run.ratio(way, [QUEUE_MS + 3.0 * RTT_MS] * len(times), times)
    run.figures_of(samples)
