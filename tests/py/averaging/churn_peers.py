"""A swarm of real processes that average while a part of them is killed in each round and started anew."""

import hashlib
import multiprocessing
import os
import random
import signal
import threading
import time

from support import files, resident, threads

FORKS = multiprocessing.get_context("forkserver")  # imports once: a peer starts in milliseconds
FORKS.set_forkserver_preload(["churn_peers", "numpy", "hivemind_c"])


def kill_when_half_is_averaged(tensor, value, over):
    while not over.is_set() and (tensor[:: 1 << 10] != value).mean() < 0.5:
        time.sleep(0.0005)
    os.kill(os.getpid(), signal.SIGKILL)


def live(pipe, number, initial_peers, values):
    import numpy
    from hivemind_c import DHT, DecentralizedAverager

    tensor = numpy.zeros(values, dtype=numpy.float32)
    dht = DHT(initial_peers, start=True, wait_timeout=30, startup_timeout=90)
    averager = DecentralizedAverager(
        [tensor], dht, start=True, prefix="churn", min_matchmaking_time=60, part_size_bytes=1 << 15
    )
    pipe.send("ready")
    while True:
        order = pipe.recv()
        if order is None:
            break
        if order == "look":
            pipe.send(traces())
            continue
        tensor.fill(number)
        over = threading.Event()
        if order["die"]:
            threading.Thread(target=kill_when_half_is_averaged, args=(tensor, number, over), daemon=True).start()
        start = time.monotonic()
        control = averager.step(wait=False, timeout=order["timeout"], expected=order["expected"])
        error = control.exception()
        over.set()
        pipe.send(
            {
                "error": None if error is None else f"{error.status}: {error}",
                "took": time.monotonic() - start,
                "members": 0 if error else len(control.result()),
                "digest": hashlib.sha256(tensor).hexdigest(),
                "low": float(tensor.min()),
                "high": float(tensor.max()),
            }
        )
    averager.shutdown()
    dht.shutdown()


def traces():
    """This process's share of the machine."""
    return {"threads": threads(), "files": files(), "mb": resident() / 1e6}


class Peer:
    def __init__(self, number, initial_peers, values):
        self.pipe, theirs = FORKS.Pipe()
        self.number = number
        self.process = FORKS.Process(target=live, args=(theirs, number, initial_peers, values), daemon=True)
        self.process.start()
        theirs.close()

    def ready(self, timeout):
        assert self.pipe.poll(timeout) and self.pipe.recv() == "ready", f"peer {self.number} does not start"

    def heard(self, timeout):
        """The report of its step; None: it was killed."""
        try:
            assert self.pipe.poll(timeout), f"peer {self.number} hangs"
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            return None

    def look(self):
        self.pipe.send("look")
        return self.heard(60)

    def end(self):
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()
        self.pipe.close()


def churn(first, n, rounds, part=0.3, values=400_000, timeout=90, seed=1, say=lambda text: None):
    """n peers beside the DHT node `first` average `rounds` times; in each, part of them (never peer 0) are killed when
    half of it is over, and started anew
    afterwards. Yields what the others said of each round, by number, and a way to look at what peer 0 has of the
    machine."""
    rng = random.Random(seed)
    known = first.get_visible_maddrs()
    peers = [Peer(i, known, values) for i in range(n)]
    try:
        for one in peers:
            one.ready(90)
        for number in range(rounds):
            doomed = set(rng.sample(range(1, n), max(1, int(n * part))))
            for one in peers:
                one.pipe.send({"die": one.number in doomed, "timeout": timeout, "expected": n})
            said = {one.number: one.heard(timeout + 90) for one in peers}
            for i in doomed:
                peers[i].end()
                peers[i] = Peer(i, known, values)
            for i in doomed:
                peers[i].ready(90)
            left = {i: one for i, one in said.items() if i not in doomed}
            say(
                f"round {number + 1}: {max(one['took'] for one in left.values()):.2f} s, "
                + ", ".join(sorted({one["error"] or f"{one['members']} members" for one in left.values()}))
            )
            yield left, peers[0].look
        for one in peers:
            one.pipe.send(None)
        for one in peers:
            one.process.join(90)
            assert one.process.exitcode == 0, f"peer {one.number} ended with {one.process.exitcode}"
    finally:
        for one in peers:
            one.end()
