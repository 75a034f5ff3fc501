"""3 peers train over lines of 100 and 20 Mbit/s, one more comes and one is killed, open and with a hub: share of the time computed, when the newcomer is in

Each machine has a line of its own in a network namespace (benchmarks/c/bench_wan.c, as root): 25 ms one way, a queue of 100 ms. A batch sleeps 0.25 s, an
epoch of three lasts 6 s; 12.4 million parameters under AdamW, averaged with 8 bits, everything delayed and offloaded, as the page of
settings recommends it. That is a model of 124 million with epochs of a minute, divided by ten. A download of the state alone takes 12 s at 100 Mbit/s, and a minute at 20.

The ratio is `computed_share` of the two that stay: 1 is training without a network. `joiner_together_s`: from the newcomer's start to its first epoch with
others, or all the time that it had; `joiner_common_epochs` says which. `averaged_share`: of all samples that were made and are not on their way.
HOME_LINES chooses lines (100 20), HOME_SETUPS setups (open hub), HOME_MODES modes (delayed local): local is the same with local steps and 4 bits, and plain SGD.
"""

import itertools
import json
import os
import sys
import tempfile

from benchmarks import package
from benchmarks.frame import column
from benchmarks.home_scene import HUB, START_S, Scene
from benchmarks.programs import C_PROGRAMS, ROOT, build_c
from benchmarks.programs import run as run_program
from benchmarks.rows.wan import congestion

GOALS = {"open_100": 0.92, "hub_100": 0.92, "local_open_20": 0.95, "local_hub_20": 0.95}
ROUNDS = 1
LINES, SETUPS = os.environ.get("HOME_LINES", "100 20").split(), os.environ.get("HOME_SETUPS", "open hub").split()
MODES = os.environ.get("HOME_MODES", "delayed local").split()
RTT_MS, QUEUE_S = 50, 0.1


def turn(setup, mbit, **differs):
    """One scene, of two minutes.

    Args:
        setup: open or hub.
        mbit: Speed of each line, both ways.
        **differs: Fields of Scene with other values.
    """
    played = Scene(**differs)
    machines = HUB + (setup == "hub")
    env = {"PYTHONPATH": package.path(os.environ.get("PYTHONPATH", "")), "WAN_QUEUE_KB": str(int(QUEUE_S * mbit * 125))}
    with tempfile.TemporaryDirectory() as folder:
        line = [str(C_PROGRAMS / "bench_wan"), str(machines), str(mbit), str(RTT_MS), "0", congestion()]
        scene = [sys.executable, str(ROOT / "benchmarks" / "home_scene.py"), folder, str(int(setup == "hub")), json.dumps(differs)]
        return run_program([*line, *scene], START_S + played.alone_s + played.with_s + played.after_s + 60, env)


def measure(run):
    build_c()
    contestants = {}
    for mode, mbit, setup in itertools.product(MODES, LINES, SETUPS):
        name = "local_" * (mode == "local") + f"{setup}_{mbit}"
        contestants[name] = lambda mode=mode, mbit=mbit, setup=setup: turn(setup, int(mbit), mode=mode)
    samples = run.interleave(contestants, warm_up=())
    for name, ones in samples.items():
        run.ratio(name, column(ones, "computed_share"), [1.0] * len(ones))
    run.figures_of(samples)
