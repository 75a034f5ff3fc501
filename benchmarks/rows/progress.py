"""what knowing the swarm's progress costs at 16 to 4,096 peers, simulated: bytes, error, age

The swarm program's room `progress-cost` (tests/sim/swarm/swarm_progress.c): contributors at speeds of their own, an epoch of 20 s, links of 20 to 40 ms.
Bytes are all that a peer sends in a second, 64 of headers with each message among them. Errors are looked at from 5 s after an epoch began. The
ratios are the goal's numbers to those measured; there is no other side, and one seed gives the same figures again.
"""

import subprocess

from benchmarks.frame import BenchmarkError
from benchmarks.programs import CSRC, last_json

GOALS = {"bytes_4096": 1.0, "error_4096": 1.0, "age_4096": 1.0}
ROUNDS = 1
LIMITS = {"bytes": ("bytes_per_s_each", 2048.0), "error": ("error_p99_of_target", 0.01), "age": ("age_p99_s", 3.0)}
SIZES = {16: 1.0, 64: 1.0, 256: 1.0, 1024: 0.83, 4096: 0.83}  # peers: virtual minutes, 25 s of which warm up, and one end of an epoch at least


def swarm(peers, minutes):
    command = [str(CSRC / "build" / "swarm"), "progress-cost", "--seeds", "1-1", "--nodes", str(peers), "--minutes", str(minutes)]
    try:
        return last_json(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=3600).stdout)["figures"]
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise BenchmarkError(f"`{' '.join(command)}`: {error}") from None


def measure(run):
    built = subprocess.run(["make", "-s", "-C", str(CSRC), "swarm"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if built.returncode != 0:
        raise BenchmarkError(f"`make -C csrc swarm` failed: {built.stdout.strip()[-400:]}")
    for peers, minutes in SIZES.items():
        run.say(f"{run.name}: {peers} peers")
        figures = swarm(peers, minutes)
        for name, (measure, limit) in LIMITS.items():
            run.ratio(f"{name}_{peers}", [limit], [figures[measure]])
        for name, value in figures.items():
            run.figure(f"{name}_{peers}", [value])
