"""The scene of attacks: a peer, its friend, and strangers with many keys in several networks.

On loopback the networks are 127.0.1.0/24 and so on. As root they may be namespaces instead: the peer at 192.0.2.1, the
friend at 198.18.100.7, strangers at 198.18.1.7, 198.18.2.7 and so on, because limits of networks hold for public ones.
The strangers are csrc/build/rel/attacker (tests/siege/attacker.c).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Dict, Iterator, List, Optional

from benchmarks import package
from benchmarks.frame import BenchmarkError
from benchmarks.programs import CSRC, ROOT, last_json

ATTACKER = CSRC / "build" / "rel" / "attacker"

#: Processor time of the strangers in a second: they are elsewhere in truth, and take none from the peer.
CORES = float(os.environ.get("SIEGE_CORES", 0.5))
#: A peer that reads orders line by line, and answers each with a JSON object. It may call its first peer ten
#: times a second.
PEER = """
import json, os, sys, threading, time
import torch
import hivemind_c

config = json.loads(sys.argv[1])
torch.set_num_threads(1)
start = time.perf_counter()
dht = hivemind_c.DHT(config["initial"], host_maddrs=[config["listen"]], start=True, wait_timeout=10, startup_timeout=60)
met_s = time.perf_counter() - start
node = dht._node
averager = hivemind_c.DecentralizedAverager(
    [torch.ones(config["mb"] << 18)], dht, start=True, prefix="siege", min_matchmaking_time=30
) if config["mb"] else None
calls, lost, worst = 0, [], 0.0

def call_all_along():
    global calls, worst
    peer = node.wait_for_peers(1, 60)[0].peer_id
    while True:
        begun = time.perf_counter()
        try:
            node.echo(peer, b"are you there?", timeout=10)
        except hivemind_c.HivemindError as error:
            lost.append(str(error))
        calls, worst = calls + 1, max(worst, time.perf_counter() - begun)
        time.sleep(0.1)

if config["calls"]:
    threading.Thread(target=call_all_along, daemon=True).start()
print(json.dumps({"where": str(dht.get_visible_maddrs()[0]), "met_s": met_s}), flush=True)
for line in sys.stdin:
    answer = {}
    if line.strip() == "round":
        begun = time.perf_counter()
        averager.step(wait=False, expected=2, timeout=60).details()
        answer = {"s": time.perf_counter() - begun}
    elif line.strip() == "calls":
        answer = {"calls": calls, "lost": list(lost), "worst_s": worst}
        calls, worst = 0, 0.0
        lost.clear()
    elif line.strip() == "files":
        answer = {"files": len(os.listdir("/proc/self/fd"))}
    print(json.dumps(answer), flush=True)
os._exit(0)
"""


class Networks:
    """Where the processes of a scene run, and their addresses."""

    def __init__(self, count: int, inside: Optional[str] = None, outside: Optional[str] = None):
        self.inside, self.outside = inside, outside
        public = inside is not None
        self.node = f"/ip4/{'192.0.2.1' if public else '127.0.0.1'}/tcp/0"
        self.friend = f"/ip4/{'198.18.100.7' if public else '127.0.0.1'}/tcp/0"
        self.strangers = [f"198.18.{i + 1}.7" if public else f"127.0.{i + 1}.1" for i in range(count)]

    @staticmethod
    def within(name: Optional[str]) -> List[str]:
        return ["ip", "netns", "exec", name] if name else []


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def public_networks(count: int) -> Iterator[Networks]:
    """Two namespaces with a cable between them; they are removed at the end."""
    if os.geteuid() != 0:
        raise BenchmarkError("network namespaces need root: run this as root")
    names = [f"hvsiege{side}{os.getpid()}" for side in "io"]
    made = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        networks = Networks(count, *names)
        _ip("link", "add", "hvi", "netns", names[0], "type", "veth", "peer", "name", "hvo", "netns", names[1])
        for name, device in zip(names, ("hvi", "hvo")):
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", device, "up")
        _ip("-n", names[0], "addr", "add", "192.0.2.1/24", "dev", "hvi")
        _ip("-n", names[0], "route", "add", "198.18.0.0/15", "dev", "hvi")
        for address in ("198.18.100.7", *networks.strangers):
            _ip("-n", names[1], "addr", "add", f"{address}/32", "dev", "hvo")
        _ip("-n", names[1], "route", "add", "192.0.2.0/24", "dev", "hvo", "src", "198.18.100.7")
        yield networks
    finally:
        for name in made:
            _ip("netns", "del", name)


class Peer:
    """A process with a peer in it."""

    def __init__(self, within: List[str], listen: str, initial: str = "", mb: int = 0, calls: bool = False):
        config = {"listen": listen, "initial": [initial] if initial else [], "mb": mb, "calls": calls}
        self.process = subprocess.Popen(
            [*within, sys.executable, "-W", "ignore", "-c", PEER, json.dumps(config)],
            env={**os.environ, "PYTHONPATH": package.path(), "HIVEMIND_LOGLEVEL": "ERROR"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        said = self._read()
        self.where, self.met_s = said["where"], said["met_s"]

    def _read(self) -> Dict:
        line = self.process.stdout.readline()
        if not line:
            raise BenchmarkError(f"a peer ended with {self.process.wait()}")
        return json.loads(line)

    def begin(self, order: str) -> None:
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def ask(self, order: str) -> Dict:
        self.begin(order)
        return self._read()

    end_of = _read

    def resident_mb(self) -> float:
        with open(f"/proc/{self.process.pid}/statm") as told:
            return int(told.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_s(self) -> float:
        with open(f"/proc/{self.process.pid}/stat") as told:
            return sum(map(int, told.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


def build() -> None:
    """Builds the attacker; quick when it is there."""
    done = subprocess.run(
        ["make", "-s", "-C", str(CSRC), "attacker"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise BenchmarkError(f"`make -C csrc attacker` failed: {done.stdout.strip()[-400:]}")


class Scene:
    """A peer and its friend, which is alive before any stranger comes."""

    def __init__(self, networks: Networks, mb: int = 0):
        self.networks = networks
        self.node = Peer(networks.within(networks.inside), networks.node, mb=mb)
        self.friend = Peer(networks.within(networks.outside), networks.friend, self.node.where, mb, calls=True)
        self.calm_mb = self.node.resident_mb()

    def strangers(
        self, seconds: float, keys: int, rate: float, seed: int, attacks: str = "", to: str = ""
    ) -> subprocess.Popen:
        """Begins to attack the node, or another address."""
        words = [
            "--to",
            to or self.node.where.split("/p2p/")[0],
            "--from",
            ",".join(self.networks.strangers),
            "--keys",
            str(keys),
        ]
        words += ["--seconds", f"{seconds:g}", "--rate", f"{rate:g}", "--seed", str(seed), "--cores", str(CORES)] + (
            ["--attacks", attacks] if attacks else []
        )
        return subprocess.Popen(
            [*Networks.within(self.networks.outside), str(ATTACKER), *words], stdout=subprocess.PIPE, text=True
        )

    def round_s(self) -> float:
        """The time of one round of both."""
        self.node.begin("round")
        both = [self.friend.ask("round")["s"], self.node.end_of()["s"]]
        return max(both)

    def newcomer_s(self) -> float:
        """The time until a new peer has met the node."""
        newcomer = Peer(Networks.within(self.networks.outside), self.networks.friend, self.node.where)
        newcomer.close()
        return newcomer.met_s

    def close(self) -> None:
        self.friend.close()
        self.node.close()


def outcome(attack: subprocess.Popen) -> Dict[str, float]:
    """Waits for the strangers' end: what they did."""
    said, _ = attack.communicate(timeout=120)
    if attack.returncode != 0:
        raise BenchmarkError(f"the strangers ended with {attack.returncode}")
    return last_json(said)


class Watch:
    """The highest memory of a peer, looked at ten times a second."""

    def __init__(self, peer: Peer):
        self.peer, self.most_mb, self._ends = peer, peer.resident_mb(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ends.wait(0.1):
            self.most_mb = max(self.most_mb, self.peer.resident_mb())

    def close(self) -> float:
        self._ends.set()
        self._thread.join()
        return self.most_mb


def besiege(
    scene: Scene,
    seconds: float,
    keys: int,
    rate: float,
    seed: int,
    newcomers: int = 1,
    rounds: bool = False,
    attacks: str = "",
) -> Dict[str, float]:
    """Attacks the node for so long, while the friend calls it, newcomers meet it, and rounds run: what came of it."""
    scene.friend.ask("calls")
    watch, cpu, begun = Watch(scene.node), scene.node.cpu_s(), time.monotonic()
    attack = scene.strangers(seconds, keys, rate, seed, attacks)
    met: List[float] = []
    took: List[float] = []
    try:
        while attack.poll() is None:
            passed = time.monotonic() - begun
            if len(met) < newcomers and passed > seconds * (len(met) + 1) / (newcomers + 1):
                met.append(scene.newcomer_s())
            elif rounds and passed < seconds - 2:
                took.append(scene.round_s())
            time.sleep(0.2)
        said = outcome(attack)
    finally:
        if attack.poll() is None:
            attack.kill()
            attack.wait()
    most_mb = watch.close()
    calls = scene.friend.ask("calls")
    for why in calls["lost"]:
        print(f"siege: a call of the friend was lost: {why}", file=sys.stderr)
    return {
        "growth_mb": most_mb - scene.calm_mb,
        "calls": calls["calls"],
        "lost_calls": len(calls["lost"]),
        "worst_call_s": calls["worst_s"],
        "newcomer_s": max(met) if met else float("nan"),
        "node_cores": (scene.node.cpu_s() - cpu) / (time.monotonic() - begun),
        "round_s": sorted(took)[len(took) // 2] if took else float("nan"),
        "rounds": len(took),
        "sent_mb": said["sent"] / 1e6,
        "connections": said["connected"],
    }
