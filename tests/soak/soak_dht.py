"""A DHT of real processes, busy for minutes: memory, files and threads must stay flat. `python tests/soak/soak_dht.py --minutes 5`

One process stores and gets all the time and one serves all the time; of the others one is killed and started anew, as who it was, every few seconds.
The two that stay are looked at: the last third of the time must not hold more than the second third. Prints one JSON line; exits with 1 if something
grew.
"""

from __future__ import annotations

import argparse
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
import sys
from hivemind_c import DHT
dht = DHT(sys.argv[2:], start=True, identity_path=sys.argv[1])
print(*dht.get_visible_maddrs(), flush=True)
sys.stdin.read()
dht.shutdown()
"""
#: what may come on top of the middle of the run: allocators breathe, and so does gRPC's pool of threads
SLACK = {"memory_kib": 8192, "files": 6, "threads": 8}


class Guest:
    def __init__(self, key: pathlib.Path, *peers: str):
        self.key = key
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.process = subprocess.Popen([sys.executable, "-c", NODE, key, *peers], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, **pipes)
        self.addresses = self.process.stdout.readline().split()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def look_at(pid: int) -> dict:
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"memory_kib": int(status["VmRSS"].split()[0]), "files": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"])}


def work(dht: DHT, ended: threading.Event, counts: dict) -> None:
    """Keys come round again, so that what is kept does not grow by itself."""
    for i in itertools.count():
        if ended.is_set():
            return
        stores = [dht.store(f"key {(i * 32 + k) % 2000}", k, get_dht_time() + 60 + k, subkey=k % 4, return_future=True) for k in range(32)]
        counts["stored"] += sum(bool(store.result()) for store in stores)
        gets = [dht.get(f"key {(i * 32 + k) % 2000}", latest=k % 8 == 0, return_future=True) for k in range(32)]
        counts["got"] += sum(get.result() is not None for get in gets)
        counts["operations"] += 64
        ended.wait(0.02)


def worst(samples: list, begin: float, end: float) -> dict:
    some = samples[int(len(samples) * begin) : max(int(len(samples) * end), int(len(samples) * begin) + 1)]
    return {name: max(sample[name] for sample in some) for name in SLACK}


def soak(minutes: float, guests: int, every_s: float, keys: pathlib.Path) -> dict:
    with DHT(start=True) as here:
        stays = Guest(keys / "stays", *here.get_visible_maddrs())
        others = [Guest(keys / str(i), *here.get_visible_maddrs()) for i in range(guests)]
        pids, ended, counts = {"asks": os.getpid(), "serves": stays.process.pid}, threading.Event(), dict.fromkeys(("operations", "stored", "got", "killed"), 0)
        samples: dict = {name: [] for name in pids}
        worker = threading.Thread(target=work, args=(here, ended, counts))
        worker.start()
        try:
            until = time.monotonic() + minutes * 60
            for i in itertools.count():
                others[i % guests].kill()
                others[i % guests] = Guest(others[i % guests].key, *stays.addresses)
                counts["killed"] += 1
                for name, pid in pids.items():
                    samples[name].append(look_at(pid))
                if time.monotonic() > until:
                    break
                time.sleep(every_s)
        finally:
            ended.set()
            worker.join()
            for guest in (stays, *others):
                guest.kill()
    outcome: dict = {"minutes": minutes, **counts, "grew": []}
    for name in pids:
        middle, last = worst(samples[name], 1 / 3, 2 / 3), worst(samples[name], 2 / 3, 1)
        outcome[name] = {what: [samples[name][0][what], middle[what], last[what]] for what in SLACK}
        outcome["grew"] += [f"{what} of the one that {name}" for what in SLACK if last[what] > middle[what] + SLACK[what]]
    return outcome


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
