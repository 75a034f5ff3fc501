"""4 peers average 64 MB over lines of 100 Mbit/s and 50 ms: against the same bytes over plain TCP, without loss and with 0.1 and 1 %

Peers in network namespaces, joined by a relay over TUN devices (benchmarks/c/wan.h: a megabyte of queue before each line, loss by a seeded generator).
As root. Both sides under the same congestion control: WAN_CONGESTION (bbr if this kernel has it, else cubic). A peer sends and receives 96 MB at least, so the
line alone takes 7.7 s; `goodput_...` is that over the time. Each turn is the median of five rounds after one that does not count (of two, for plain TCP): the
first ones find the rate at which connections are paced. WAN_LOSSES, WAN_MB choose others.
"""

import os
from pathlib import Path

from benchmarks.frame import column
from benchmarks.programs import build_c, c_program

MBIT, PEERS, MB = 100, 4, int(os.environ.get("WAN_MB", 64))
LOSSES = os.environ.get("WAN_LOSSES", "0 0.1 1").split()
GOALS = {"goodput_0": 0.92, "goodput_0.1": 0.92, "goodput_1": 0.90}
ROUNDS = 3


def congestion():
    have = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return os.environ.get("WAN_CONGESTION") or ("bbr" if "bbr" in have else "cubic")


def turn(loss, rounds, *more):
    line = ["--peers", str(PEERS), "--mb", str(MB), "--rounds", rounds, "--insecure", "--wan", str(MBIT), "--rtt", "50", "--loss", loss, "--congestion", congestion()]
    return c_program("bench_allreduce", *line, *more)


def measure(run):
    build_c()
    run.say(f"wan: congestion control {congestion()}")
    contestants = {f"{who}_{loss}": (lambda loss=loss, more=more: turn(loss, *more)) for loss in LOSSES for who, more in (("ours", ["5"]), ("raw", ["2", "--raw"]))}
    samples = run.interleave(contestants)
    floor_s = MB * 8 * 2 * (PEERS - 1) / PEERS / MBIT
    for loss in LOSSES:
        times = column(samples[f"ours_{loss}"], "median_s")
        run.ratio(f"goodput_{loss}", [floor_s] * len(times), times)
        run.ratio(f"raw_{loss}", column(samples[f"raw_{loss}"], "median_s"), times)
    run.figures_of(samples)
