"""python -m benchmarks.plots.dht_hops [NODES ...]: runs the simulator's room dht-hops and draws docs/pictures/dht_hops.png

The measurements are in benchmarks/plots/dht_hops.json, a line for each number of nodes; without arguments it is drawn anew from there.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

from benchmarks.programs import CSRC, ROOT, last_json  # noqa: E402

DATA = ROOT / "benchmarks/plots/dht_hops.json"
BITS = 5  #: a hop of an answer with 20 contacts: log2(20) and what the first contact brings


def measure(nodes: int) -> None:
    command = [CSRC / "build" / "swarm", "dht-hops", "--nodes", str(nodes), "--seeds", "1-1"]
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True)
    known = {line["nodes"]: line for line in read()}
    known[nodes] = last_json(done.stdout)
    DATA.write_text("".join(json.dumps(known[n]) + "\n" for n in sorted(known)))


def read() -> list:
    return [json.loads(line) for line in DATA.read_text().splitlines()] if DATA.exists() else []


def draw() -> None:
    lines = read()
    nodes = [line["nodes"] for line in lines]
    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    axes.plot(nodes, [line["figures"]["rounds_sum"] / line["figures"]["gets"] for line in lines], "o-", label="rounds of a get, mean of 1,000")
    axes.plot(nodes, [math.log2(n) / BITS for n in nodes], "--", label=f"log2(N) / {BITS}")
    axes.axhline(3, color="grey", linewidth=1, linestyle=":", label="goal at 4,096")
    axes.set(xscale="log", xlabel="nodes", ylabel="rounds", ylim=(0, 3.5))
    axes.set_xticks(nodes, [f"{n:,}" for n in nodes])
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(ROOT / "docs/pictures/dht_hops.png", dpi=110)


def main() -> None:
    for nodes in sys.argv[1:]:
        measure(int(nodes))
    draw()


if __name__ == "__main__":
    main()
