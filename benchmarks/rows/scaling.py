"""One, two and four peers on lines of 20, 100 and 1,000 Mbit/s: samples a second, and loss by time, exact, delayed and with local steps

Each peer has a line of its own in a network namespace (benchmarks/c/bench_wan.c, as root): 25 ms one way, a queue of 100 ms. A transformer of 0.3 million
parameters learns the bytes of Python's library; 12 million parameters without a gradient travel with it. A batch lasts 0.25 s, an epoch 24 batches of each
peer: a model of 124 million with epochs of a minute, divided by ten. Exact sends 16 bits, the others 8.

A ratio is the samples a second of all peers against as many machines without a network, over whole epochs: 1 is perfect. `..._loss_30_s`: of held-out bytes
after the latest epoch that has ended 30 s after the first batch. One peer needs no line, so it is measured on the first one alone.
SCALING_LINES (20 100 1000), SCALING_PEERS (1 2 4) and SCALING_MODES (exact delayed local) choose. It takes 15 minutes; benchmarks/plots/scaling.py prints and
draws the outcome.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import local_peers
from benchmarks.frame import column
from benchmarks.plots import scaling as chart
from benchmarks.programs import C_PROGRAMS, ROOT, build_c
from benchmarks.programs import run as run_program
from benchmarks.rows.wan import congestion

GOALS = {}
ROUNDS = 1
BATCH, BATCH_S, BATCHES, BALLAST, PORT = 2, 0.25, 24, 12_000_000, 31600
MEASURE_S, QUICK_S = (16, 30), (8, 0)  # of whole epochs, and from the first batch, at least
MOST_S, START_S = 60, 60  # at most; until all have ended an epoch
LOSS_S = 15, 30  # seconds after the first batch
RTT_MS, QUEUE_S = 50, 0.1


def words_of(name, default):
    return os.environ.get(name, default).split()


def outcome_of(events, seconds, from_first):
    """Returns the figures of whole epochs, or None: they have not ended yet.

    Args:
        events: Of each trainer, in their order.
        seconds: That they take at least.
        from_first: Seconds from the first batch to their end, at least.
    """
    first = [e for e in events[0] if e["what"] in ("batch", "epoch")]
    ends = [[e["t"] for e in one if e["what"] == "epoch"] for one in events]
    if not all(ends):
        return None
    begin = next((t for t in ends[0] if t >= max(one[0] for one in ends)), None)
    end = begin and next((t for t in ends[0] if t >= max(begin + seconds, first[0]["t"] + from_first)), None)
    if not end:
        return None
    batches = sum(begin < e["t"] <= end for one in events for e in one if e["what"] in ("batch", "epoch"))
    outcome = {"samples_per_s": batches * BATCH / (end - begin), "epochs": sum(begin < t <= end for t in ends[0])}
    for after in LOSS_S:
        losses = [e["loss"] for e in first if e["what"] == "epoch" and e["t"] <= first[0]["t"] + after]
        if losses:
            outcome[f"loss_{after}_s"] = losses[-1]
    return outcome


def machine(folder, mode, peers, seconds):
    """This machine's trainer; machine 0 waits until all train, and prints the figures.

    Args:
        folder: Path of the folder that all share.
        mode: Of the trainers.
        peers: Number of machines.
        seconds: How long is measured, as outcome_of has it.
    """
    number = int(os.environ["WAN_PEER"])
    options = dict(mode=mode, target=peers * BATCHES * BATCH, batch=BATCH, batch_s=BATCH_S, ballast=BALLAST, seed=number, port=PORT)
    if number:
        options["initial"] = [f"/ip4/10.77.0.1/tcp/{PORT}"]
        time.sleep(2)
    words, env = local_peers.command(folder / f"events{number}", options)
    program = subprocess.Popen(words, env=env, cwd=ROOT, stdin=subprocess.PIPE)
    over = folder / "over"
    try:
        if number:
            while not over.exists() and program.poll() is None:
                time.sleep(0.2)
            return
        until = time.monotonic() + START_S
        while time.monotonic() < until and program.poll() is None:
            if all(any(e["what"] == "epoch" for e in local_peers.read(folder / f"events{i}")) for i in range(peers)):
                break
            time.sleep(0.2)
        until = time.monotonic() + MOST_S
        while time.monotonic() < until and program.poll() is None:
            outcome = outcome_of([local_peers.read(folder / f"events{i}") for i in range(peers)], *seconds)
            if outcome is not None:
                print(json.dumps(outcome), flush=True)
                return
            time.sleep(0.2)
        sys.exit("the first trainer has ended" if program.poll() is not None else f"epochs did not end within {MOST_S} s")
    finally:
        over.touch()
        program.kill()
        program.wait()


def turn(mode, peers, mbit, seconds):
    """One scene.

    Args:
        mode: Of the trainers.
        peers: How many.
        mbit: Of each line.
        seconds: How long is measured, as outcome_of has it.
    """
    with tempfile.TemporaryDirectory() as folder:
        line = [str(C_PROGRAMS / "bench_wan"), str(peers), str(mbit), str(RTT_MS), "0", congestion()]
        here = [sys.executable, "-m", "benchmarks.rows.scaling", folder, mode, str(peers), *map(str, seconds)]
        env = {"PYTHONPATH": str(ROOT), "WAN_QUEUE_KB": str(int(QUEUE_S * mbit * 125))}
        return run_program([*line, *here], START_S + MOST_S + 120, env)


def measure(run):
    build_c()
    lines, numbers, modes = ("100", "2", "exact delayed local") if run.is_quick else ("20 100 1000", "1 2 4", "exact delayed local")
    contestants = {
        f"{mode}_{mbit}_{peers}": (lambda mode=mode, mbit=mbit, peers=peers: turn(mode, int(peers), int(mbit), QUICK_S if run.is_quick else MEASURE_S))
        for mbit in words_of("SCALING_LINES", lines)
        for peers in words_of("SCALING_PEERS", numbers)
        for mode in words_of("SCALING_MODES", modes)
        if peers != "1" or mbit == words_of("SCALING_LINES", lines)[0]
    }
    samples = run.interleave(contestants, warm_up=())
    for name, ones in samples.items():
        perfect = int(name.split("_")[2]) * BATCH / BATCH_S
        run.ratio(name, column(ones, "samples_per_s"), [perfect] * len(ones))
        for measure_of in sorted(set.intersection(*(set(one) for one in ones))):
            run.figure(f"{name}_{measure_of}", column(ones, measure_of))
    medians = {"ratios": run.ratios, "figures": run.figures}
    run.say(chart.table(chart.turns_of({part: {name: of.median for name, of in found.items()} for part, found in medians.items()})))


if __name__ == "__main__":
    machine(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), [float(word) for word in sys.argv[4:]])
