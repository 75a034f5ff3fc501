"""4 peers average 8 MB over lines of 40 Mbit/s and 50 ms, one of them with 4 Mbit/s: the first round against a later one

Peers in network namespaces, joined by a relay (benchmarks/c/wan.h), as root; Python averagers, whole steps. The first round gives everybody an even span; it shows which line is
slow (core/round/gauge.h), and from then on that peer owns little or nothing. Even spans cost 1.5 times its own values, so `gain` is 1.5 at most.
"""

import json
import sys

from benchmarks import package
from benchmarks.frame import column
from benchmarks.programs import C_PROGRAMS, build_c, run as run_program
from benchmarks.rows.wan import congestion

PEERS, MB, LINES, TIMES = 4, 8, "40/4", 3
GOALS = {"gain": 1.3}
ROUNDS = 1

PEER = """
import json, os, sys, time
import torch
import hivemind_c
from hivemind_c.dht import DHT

config, rank = json.loads(sys.argv[1]), int(os.environ["WAN_PEER"])
torch.set_num_threads(1)
first = "/ip4/10.77.0.1/tcp/7700"
dht = DHT([] if rank == 0 else [first], start=True, host_maddrs=["/ip4/%s/tcp/%d" % (os.environ["WAN_ADDRESS"], 7700 + rank)], ensure_bootstrap_success=False)
tensor = torch.full((config["mb"] * 250_000,), float(rank))
averager = hivemind_c.DecentralizedAverager([tensor], dht, start=True, prefix="bench", min_matchmaking_time=60)
took = []
for number in range(config["times"]):
    control = averager.step(wait=False, expected=config["peers"], timeout=200)
    took.append(control.details()[6])
if rank == 0:
    print(json.dumps({"first_s": took[0], "last_s": took[-1]}), flush=True)
time.sleep(2)
averager.shutdown()
dht.shutdown()
"""


def turn():
    line = [str(PEERS), LINES, "50", "0", congestion(), sys.executable, "-W", "ignore", "-c", PEER, json.dumps({"peers": PEERS, "mb": MB, "times": TIMES})]
    return run_program([str(C_PROGRAMS / "bench_wan"), *line], 400, {"PYTHONPATH": package.path()})


def measure(run):
    build_c()
    samples = run.interleave({"ours": turn})
    run.ratio("gain", column(samples["ours"], "first_s"), column(samples["ours"], "last_s"))
    run.figures_of(samples)
