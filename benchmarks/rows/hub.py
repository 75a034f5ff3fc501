"""4 trainers average 16 MB over lines of 100 Mbit/s: all open, two of them behind NAT, all behind NAT with a hub

Machines are network namespaces (examples/demo/internet.py) with NAT by nft and lines by tc; Optimizer with TLS, and
hivemind-hub as it is. As root, or where users may make namespaces. The ratio is the arithmetic of bytes against a round:
the seconds in which the busiest line carries its float32, without headers. The first two rounds do not count.
`first_step_s`: from the start of the DHT to the first step of all four, with torch imported before.
"""

import os
import sys

from benchmarks import package
from benchmarks.frame import column
from benchmarks.hub_scene import HOMES, LIMIT_S, MB, MBIT, PEERS
from benchmarks.programs import ROOT, run as run_program

GOALS = {"open": 1 / 1.2, "half": 1 / 1.2, "hub": 1 / 1.2}
ROUNDS = 1


def line_s(setup):
    """Seconds of the busiest line, one way: an owner's or the hub's.

    Args:
        setup: A key of HOMES.
    """
    owners = 1 if setup == "hub" else PEERS - HOMES[setup]
    span = MB / owners
    others = PEERS if setup == "hub" else PEERS - 1
    own = 0 if setup == "hub" else MB - span  # an owner also sends its values to the other owners
    return (others * span + own) * 8 / MBIT


def turn(setup):
    env = {"PYTHONPATH": package.path(os.environ.get("PYTHONPATH", ""))}
    return run_program([sys.executable, str(ROOT / "benchmarks" / "hub_scene.py"), setup], LIMIT_S + 5, env)


def measure(run):
    samples = run.interleave({setup: (lambda setup=setup: turn(setup)) for setup in HOMES}, warm_up=())
    for setup in HOMES:
        times = column(samples[setup], "round_s")
        run.ratio(setup, [line_s(setup)] * len(times), times)
        run.figure(f"{setup}_line_s", [line_s(setup)])
    run.figures_of(samples)
