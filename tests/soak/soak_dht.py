"""A DHT of real processes, busy for minutes: memory, files and threads must stay flat. `python tests/soak/soak_dht.py
--minutes 5`

One process stores and gets all the time and one serves all the time; of the others one is killed and started anew, as
who it was, every few seconds.
The two that stay are looked at: the last third of the time must not hold more than the second third. Memory is looked
at three ways, since a process
may take more for reasons that are nobody's leak: what the node itself holds by its own count, what all of the process
has allocated and not freed, and
what the system says it takes, where unused room between allocations counts, too. Prints one JSON line, with the
verdict; exits with 1 if something grew.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from hivemind_c import DHT, get_dht_time

NODE = """
import json, sys
from hivemind_c import DHT
from soak_dht import look_at
dht = DHT(sys.argv[2:], start=True, identity_path=sys.argv[1])
print(*dht.get_visible_maddrs(), flush=True)
for line in sys.stdin:
    print(json.dumps(look_at(dht)), flush=True)
dht.shutdown()
"""
#: what may come on top of the middle of the run: allocators breathe, and so does gRPC's pool of threads
SLACK = {"node_kib": 512, "allocated_kib": 4096, "memory_kib": 8192, "files": 6, "threads": 8}


class Guest:
    def __init__(self, key: pathlib.Path, *peers: str):
        self.key = key
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE, key, *peers],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            **pipes,
        )
        self.addresses = self.process.stdout.readline().split()

    def look(self) -> dict:
        self.process.stdin.write("look\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Heap(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks mapped usmblks fsmblks in_use free keepcost".split()
    ]


def allocated() -> int:
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Heap
    heap = mallinfo2()
    return heap.in_use + heap.mapped


def look_at(dht: DHT) -> dict:
    """This process, in which the node is."""
    status = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    return {
        "node_kib": dht.state()["memory"] // 1024,
        "allocated_kib": allocated() // 1024,
        "memory_kib": int(status["VmRSS"].split()[0]),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
    }


def work(dht: DHT, ended: threading.Event, resting: threading.Lock, counts: dict) -> None:
    """Keys come round again, so that what is kept does not grow by itself. While somebody else holds `resting`, nothing
    is under way."""
    for i in itertools.count():
        if ended.is_set():
            return
        with resting:
            stores = [
                dht.store(f"key {(i * 32 + k) % 2000}", k, get_dht_time() + 60 + k, subkey=k % 4, return_future=True)
                for k in range(32)
            ]
            counts["stored"] += sum(bool(store.result()) for store in stores)
            gets = [dht.get(f"key {(i * 32 + k) % 2000}", latest=k % 8 == 0, return_future=True) for k in range(32)]
            counts["got"] += sum(get.result() is not None for get in gets)
            counts["operations"] += 64
        ended.wait(0.02)


def worst(samples: list, begin: float, end: float) -> dict:
    some = samples[int(len(samples) * begin) : max(int(len(samples) * end), int(len(samples) * begin) + 1)]
    return {name: max(sample[name] for sample in some) for name in SLACK}


def soak(minutes: float, guests: int, every_s: float, keys: pathlib.Path, killed_least: int = 3) -> dict:
    with DHT(start=True) as here:
        stays = Guest(keys / "stays", *here.get_visible_maddrs())
        others = [Guest(keys / str(i), *here.get_visible_maddrs()) for i in range(guests)]
        ended, resting, counts = (
            threading.Event(),
            threading.Lock(),
            dict.fromkeys(("operations", "stored", "got", "killed"), 0),
        )
        looks = {"asks": lambda: look_at(here), "serves": stays.look}
        samples: dict = {name: [] for name in looks}
        worker = threading.Thread(target=work, args=(here, ended, resting, counts))
        worker.start()
        try:
            until = time.monotonic() + minutes * 60
            for i in itertools.count():
                others[i % guests].kill()
                others[i % guests] = Guest(others[i % guests].key, *stays.addresses)
                counts["killed"] += 1
                with resting:  # 64 operations at once are megabytes: what they take while they last is not what is kept
                    for name, look in looks.items():
                        samples[name].append(look())
                if time.monotonic() > until and counts["killed"] >= killed_least:
                    break
                time.sleep(every_s)
        finally:
            ended.set()
            worker.join()
            for guest in (stays, *others):
                guest.kill()
    outcome: dict = {"minutes": minutes, **counts, "grew": []}
    for name in looks:
        first, middle, last = (worst(samples[name], part / 3, (part + 1) / 3) for part in range(3))
        outcome[name] = {what: [samples[name][0][what], first[what], middle[what], last[what]] for what in SLACK}
        outcome["grew"] += [
            f"{what} of the one that {name}" for what in SLACK if last[what] > middle[what] + SLACK[what]
        ]
        outcome[name]["verdict"] = verdict(first, middle, last)
    return outcome


def verdict(first: dict, middle: dict, last: dict) -> str:
    """The holders of the memory that came on top in the last third."""
    node, allocated, system = (last[what] - middle[what] for what in ("node_kib", "allocated_kib", "memory_kib"))
    if max(node, allocated) > 512 and allocated >= middle["allocated_kib"] - first["allocated_kib"]:
        return (
            f"what is allocated grows and does not slow down: {allocated} KiB in the last third, {max(node, 0)} of "
            f"them the node's"
        )
    if system > 512:
        return (
            f"what is allocated does not go on growing ({allocated} KiB in the last third, {node} the node's); "
            f"{system} KiB more are the allocator's room"
        )
    return "nothing grows"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--minutes", type=float, default=5)
    options.add_argument("--guests", type=int, default=4)
    options.add_argument("--every", type=float, default=5, metavar="SECONDS")
    chosen = options.parse_args()
    logging.getLogger("hivemind_c").setLevel(logging.ERROR)  # that peers are lost is no news here
    with tempfile.TemporaryDirectory() as keys:
        outcome = soak(chosen.minutes, chosen.guests, chosen.every, pathlib.Path(keys))
    print(json.dumps(outcome))
    return 1 if outcome["grew"] or outcome["got"] < outcome["operations"] * 0.4 else 0


if __name__ == "__main__":
    sys.exit(main())
