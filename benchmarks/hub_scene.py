"""Four trainers of the row `hub`, in homes or on machines with public addresses, and a hub if nobody can be dialled.

    hub_scene.py SETUP     open, half or hub; prints a JSON object
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

PEERS, MB, MBIT, EPOCHS = 4, 16, 100, 6
HOMES = {"open": 0, "half": 2, "hub": PEERS}
SIDE = 2000  # of a square of float32 that has 16 MB
PORT = 31337
LIMIT_S = 90  # of a scene, so that three of them end within five minutes


def trainer(is_client, members):
    """One trainer: reads a line with the address of a peer, and says each epoch.

    Args:
        is_client: Nobody can dial it.
        members: Peers of a whole group, with the hub.
    """
    import torch

    import hivemind_c as hivemind

    torch.set_num_threads(1)
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.zeros(SIDE, SIDE))
    plain = torch.optim.SGD([parameter], 0.1)  # the first one imports a compiler
    print(json.dumps({"what": "ready"}), flush=True)
    initial_peers = sys.stdin.readline().split()
    begun = time.monotonic()
    where = dict(client_mode=True) if is_client else dict(host_maddrs=f"/ip4/0.0.0.0/tcp/{PORT}")
    dht = hivemind.DHT(initial_peers, start=True, ensure_bootstrap_success=False, **where)
    told = {"what": "listens", "since_s": time.monotonic() - begun, "at": dht.get_visible_maddrs()}
    print(json.dumps(told), flush=True)
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="bench",
        optimizer=plain,
        target_batch_size=PEERS * 32,
        batch_size_per_step=1,
        average_state_every=1000,
        delay_state_averaging=False,
        matchmaking_time=3,
        averaging_timeout=60,
    )
    print(json.dumps({"what": "made", "since_s": time.monotonic() - begun}), flush=True)
    epoch = 0
    while True:
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if optimizer.local_epoch != epoch:
            epoch, last = optimizer.local_epoch, optimizer.last_epoch
            told = {"what": "epoch", "epoch": epoch, "since_s": time.monotonic() - begun, "said": str(last)}
            told["common"] = last.outcome == "averaged" and last.members == members
            told["round_s"] = last.reducing_s
            print(json.dumps(told), flush=True)


class Process:
    """A process in a machine, and the JSON lines that it has printed."""

    def __init__(self, words):
        self.lines = []
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def events(self, what):
        told = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in told if event["what"] == what]

    def wait_for(self, found, end):
        """Waits until found() is true and returns it, or ends the scene.

        Args:
            found: Function whose result is true in the end.
            end: Time of the monotonic clock at which the scene ends.
        """
        while not (result := found()):
            if time.monotonic() > end or self.process.poll() is not None:
                why = "did not do its part in time" if self.process.poll() is None else "ended"
                sys.exit(f"the scene failed: a process {why}; its last lines: {''.join(self.lines[-3:]) or 'none'}")
            time.sleep(0.02)
        return result


def scene(setup):
    """Runs the trainers until each has made its epochs with the others.

    Args:
        setup: A key of HOMES.
    """
    import internet

    internet.enter()
    end = time.monotonic() + LIMIT_S
    net = internet.Internet(MBIT)
    first, members = "", PEERS + (setup == "hub")
    if setup == "hub":
        net.public("hub")
        words = [*net.inside("hub"), sys.executable, "-m", "hivemind_c.cli.hub", "--run_id", "bench", "--port", PORT]
        words += ["--identity", "/run/hub.key", "--history", "none", "--state_every", 10**6, "--bandwidth", MBIT]
        hub = Process(list(map(str, words)))
        first = hub.wait_for(lambda: [line for line in list(hub.lines) if line.startswith("INITIAL_PEERS=")], end)[0]
        first = first.strip().partition("=")[2]
    trainers = []
    for number in range(PEERS):
        is_client = number >= PEERS - HOMES[setup]
        name = f"peer{number}"
        (net.home if is_client else net.public)(name)
        command = [sys.executable, "-W", "ignore", __file__, "trainer", str(int(is_client)), str(members)]
        trainers.append(Process([*net.inside(name), *command]))
    for one in trainers:
        one.wait_for(lambda one=one: one.events("ready"), end)
    for one in trainers:
        one.process.stdin.write(first + "\n")
        one.process.stdin.flush()
        if not first:
            at = one.wait_for(lambda one=one: one.events("listens"), end)[0]["at"]
            first = next(address for address in at if "/127." not in address)

    def common(one):
        return [event for event in one.events("epoch") if event["common"]]

    for one in trainers:
        one.wait_for(lambda one=one: len(common(one)) >= EPOCHS, end)
    # all wait for a round together, so its slowest member is its time; the first two measure the lines
    rounds = {}
    for one in trainers:
        for event in common(one):
            rounds.setdefault(event["epoch"], []).append(event["round_s"])
    whole = [max(times) for times in rounds.values() if len(times) == PEERS][2:]
    steps = [common(one)[0]["since_s"] for one in trainers]
    if os.environ.get("HUB_VERBOSE"):
        for one in trainers:
            times = [one.events(what)[0]["since_s"] for what in ("listens", "made", "epoch")]
            print(times, common(one)[0]["said"], file=sys.stderr)
        print("".join(event["said"] + "\n" for event in trainers[-1].events("epoch")), file=sys.stderr)
    print(json.dumps({"round_s": statistics.median(whole), "first_step_s": max(steps)}))
    for one in trainers:
        one.process.kill()


if __name__ == "__main__":
    if sys.argv[1] == "trainer":
        trainer(sys.argv[2] == "1", int(sys.argv[3]))
    else:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "demo"))
        scene(sys.argv[1])
