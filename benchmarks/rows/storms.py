"""Two peers make local steps for ten minutes, with a fault each 4 s: share of the survivors' samples that are averaged, and loss at equal samples

Real processes on loopback (benchmarks/local_trainer.py), 0.3 million parameters, epochs of 6 s for two. A fault is, by a seeded generator, kill -9 and a new
start with the same identity, or a stop of 1 to 3 s, at one of the two; a place is hit again only when its trainer has ended an epoch. The other contestant is
the same calm. `survivors_averaged`: of the samples of lives that were not killed, those that are averaged or in steps that are kept, without those of the
epoch that runs. `lost_state`: epochs that began anew from 0. `loss`: the calm loss against the stormy one when both swarms have averaged as many samples.
"""

import random
import tempfile
import time

from benchmarks.frame import column
from benchmarks.local_peers import Trainer, read

GOALS = {"survivors_averaged": 0.99, "loss": 0.98}
ROUNDS = 1
SECONDS, FAULT_S, QUICK_SECONDS, QUICK_FAULT_S = 600, 4, 45, 10
OPTIONS = {"target": 480, "batch": 2, "batch_s": 0.05}  # 120 batches of each peer


def faults(peers, seconds, every, chance):
    """Makes faults for so long. Returns how many.

    Args:
        peers: The trainers.
        seconds: How long.
        every: Seconds between two faults.
        chance: The random generator.
    """
    end, made = time.monotonic() + seconds, 0
    while time.monotonic() + every < end:
        time.sleep(every)
        ready = [peer for peer in peers if peer.events("epoch")]
        if not ready:
            continue
        victim = chance.choice(ready)
        if chance.random() < 0.5 and len(ready) == len(peers):  # one survives
            victim.kill()
            survivor = next(peer for peer in peers if peer is not victim)
            victim.start(initial=survivor.first("listens")["at"])  # the first peer began without an address
        else:
            victim.stop(chance.uniform(1, 3))
        made += 1
    time.sleep(max(0.0, end - time.monotonic()))
    return made


def scene(seconds, every, seed):
    """One training.

    Args:
        seconds: How long, from the first common epochs on.
        every: Seconds between two faults. None: there are none.
        seed: Of the faults.
    """
    with tempfile.TemporaryDirectory() as folder:
        peers = [Trainer(folder, 0, **OPTIONS)]
        try:
            at = peers[0].first("listens")["at"]
            peers.append(Trainer(folder, 1, initial=at, **OPTIONS))
            for peer in peers:
                peer.first("epoch")
            begin = time.time()
            if every is None:
                made = 0
                time.sleep(seconds)
            else:
                made = faults(peers, seconds, every, random.Random(seed))
            for peer in peers:
                peer.end()
            return figures(peers, begin, made)
        finally:
            for peer in peers:
                peer.kill()


def figures(peers, begin, made):
    """The figures of a scene.

    Args:
        peers: The trainers, which have ended.
        begin: Time from which epochs count.
        made: Number of faults.
    """
    ends = [event for peer in peers for event in peer.events("ends")]
    done = sum(event["averaged"] + event["kept"] for event in ends)
    lives = [read(path) for peer in peers for path in sorted(peer.folder.glob(f"events{peer.number}.*"))]
    epochs = sorted((event for life in lives for event in life if event["what"] == "epoch"), key=lambda event: event["t"])
    newest, wiped = 0, 0
    for event in epochs:
        wiped += newest > 3 and event["n"] <= 1
        newest = max(newest, event["n"])
    reached = {event["n"]: event["loss"] for event in epochs}
    return {
        "survivors_averaged": done / max(1, done + sum(event["lost"] for event in ends)),
        "faults": made,
        "lost_state": wiped,
        "epochs": newest,
        "last_loss": epochs[-1]["loss"],
        **{f"loss_{epoch}": loss for epoch, loss in reached.items()},
    }


def measure(run):
    seconds, every = (QUICK_SECONDS, QUICK_FAULT_S) if run.is_quick else (SECONDS, FAULT_S)
    contestants = {
        "calm": lambda: scene(seconds, None, 0),
        "stormy": lambda: scene(seconds, every, run.round),
    }
    samples = run.interleave(contestants, warm_up=())
    stormy = samples["stormy"]
    run.ratio("survivors_averaged", column(stormy, "survivors_averaged"), [1.0] * len(stormy))
    pairs = [(calm, storm) for calm, storm in zip(samples["calm"], stormy)]
    common = [max(calm.keys() & storm.keys() - {"last_loss"}, key=epoch_of) for calm, storm in pairs]
    run.ratio("loss", *([one[name] for one, name in zip(side, common)] for side in (samples["calm"], stormy)))
    for name in ("survivors_averaged", "faults", "lost_state", "epochs", "last_loss"):
        for who, ones in samples.items():
            run.figure(f"{who}_{name}", column(ones, name))


def epoch_of(name):
    """The epoch in the name of a loss; epochs have the same samples on both sides."""
    word = name.partition("loss_")[2]
    return int(word) if word.isdigit() else -1
