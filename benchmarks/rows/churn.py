"""8 peers average 64 MB, and 2 are killed, or stopped, when half of a round is over: against the same round without

Processes of one machine on loopback, without TLS. "Half" is half of the median of five clean rounds before. A killed process is known at once; a stopped
one costs the time after which silence is a stop (docs/design/round.md: 2 s at least), which `stopped_beyond_s` has in it.
"""

from benchmarks.frame import column
from benchmarks.programs import build_c, c_program

GOALS = {"killed": 1 / 1.2}
ROUNDS = 7


def turn(*more):
    return c_program("bench_allreduce", "--peers", "8", "--mb", "64", "--rounds", "5", "--insecure", "--lose", "2", *more)


def measure(run):
    build_c()
    samples = run.interleave({"killed": lambda: turn(), "stopped": lambda: turn("--stop")})
    run.ratio("killed", column(samples["killed"], "clean_s"), column(samples["killed"], "s"))
    run.figures_of(samples)
    stopped = samples["stopped"]
    run.figure("stopped_beyond_s", [one["s"] - one["clean_s"] for one in stopped])
