"""Trainers behind NATs and a hub train one network over slow lines. One trainer is killed; those that are left end equal to the bit.

    python nat.py [HOMES]     4 by default; as root, or where users may make namespaces

Nobody can dial a trainer here: each is at home behind a router of its own, and the hub averages for them.
The exit code is 0 only if all of it happened, 2 if this machine cannot make the namespaces."""

import os
import subprocess
import sys
import threading

import demo
import internet
from demo import NAMES, Failure, Stage, paint

from hivemind_c.doctor import records

MBIT = 20
HOMES = int(sys.argv[1]) if len(sys.argv) > 1 else 4


class Homes(Stage):
    """The hub, and trainers in homes."""

    inviter, options = "the hub", ("--client_mode",)

    def __init__(self):
        super().__init__()
        self.net = internet.Internet(MBIT)
        self.environment = {"HIVEMIND_RECORD": os.environ.get("HIVEMIND_RECORD") or f"{self.folder.name}/records"}
        self.hub, self.hub_log = None, []

    def place(self, name):
        """The words before a trainer's command: its home."""
        return self.net.inside(name)

    def rent(self):
        """Starts the hub on a machine with a public address."""
        address = self.net.public("hub")
        command = [sys.executable, "-m", "hivemind_c.cli.hub", "--run_id", "demo", "--memory", "256M", "--history", "none"]
        command += ["--identity", f"{self.folder.name}/hub.key", "--checkpoints", f"{self.folder.name}/states"]
        words = [*self.net.inside("hub"), *command]
        environment = {**os.environ, **self.environment}
        self.hub = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        threading.Thread(target=self.follow, daemon=True).start()
        self.line = next((line.strip() for line in self.hub.stdout if line.startswith("INITIAL_PEERS=")), None)
        if self.line is None:
            raise Failure(f"the hub ended with exit code {self.hub.wait()}:\n{''.join(self.hub_log)}")
        threading.Thread(target=lambda: list(self.hub.stdout), daemon=True).start()
        self.say("", f"the hub has the address {address}, and a line of {MBIT} Mbit/s")

    def follow(self):
        """Keeps the hub's log."""
        for line in self.hub.stderr:
            self.hub_log.append(line)

    def move_in(self, name):
        """Gives a trainer its home, and starts it."""
        address = self.net.home(name)
        self.say(name, f"is at home behind {address}, where nobody can dial it")
        self.launch(name)

    def judge(self):
        """Fails unless all trainers have had one replica since their second common epoch, and each load found a state."""
        lines = [line for line in records.read(self.environment["HIVEMIND_RECORD"]) if line["role"] != "hub"]
        rounds = [line for line in lines if line["what"] == "gradients" and len(line["members"]) > 1]
        first = min(line["epoch"] for line in rounds)
        for line in rounds:
            if line["epoch"] > first and len(set(line["members"].values())) > 1:
                raise Failure(f"the trainers of epoch {line['epoch']} have several replicas: {line['members']}")
        for line in lines:
            if line["what"] == "load_failed" or line["what"] == "end" and line["alone"] and line["peers"] > 1:
                raise Failure(f"trainer {line['peer']} recorded: {records.cell(line)}")
        loads = sum(line["what"] == "loaded" for line in lines)
        self.say("", f"one replica since swarm epoch {first + 1}; {loads} loads, and each found a state")

    def end(self):
        """Ends the trainers, then the hub."""
        super().end()
        if self.hub is not None and self.hub.poll() is None:
            self.hub.terminate()
            self.hub.wait(30)


def act(stage):
    names = NAMES[:HOMES]
    stage.say("", paint(f"a hub, and {HOMES} trainers behind {HOMES} NATs; the hub's line is all that they have", "bold"))
    stage.rent()
    for name in names:
        stage.move_in(name)
    stage.until("all train together", lambda: all(stage.peers(name) == HOMES for name in names))
    first = max(event["loss"] for event in stage.latest.values())
    met = max(map(stage.epoch, names))
    stage.until("all agree", lambda: len(stage.equal(met + 1, *names)) >= 2)

    stage.say("", paint(f"{names[1]} is killed with -9", "bold"))
    stage.processes.pop(names[1]).kill()
    left = [name for name in names if name != names[1]]
    stage.until("the others have missed it", lambda: all(stage.peers(name) == HOMES - 1 for name in left))
    killed = max(map(stage.epoch, left))
    stage.until("the others go on and agree", lambda: len(stage.equal(killed + 1, *left)) >= 3)
    last = stage.equal(killed + 1, *left)[-1]
    loss = stage.latest[left[0]]["loss"]
    if not loss < first:
        raise Failure(f"the loss did not fall: {first:.3f} at first, {loss:.3f} in the end")
    weights = stage.weights[last][left[0]]
    stage.say("", f"loss {first:.3f} → {loss:.3f}; after swarm epoch {last} the {len(left)} survivors are equal to the bit: {weights}")
    stage.judge()


def main():
    if not 3 <= HOMES <= len(NAMES):
        sys.exit(f"cannot run the demo: there are homes for 3 to {len(NAMES)} trainers; give such a number")
    try:
        internet.enter()
        stage = Homes()
    except internet.NoInternet as error:
        print(error, file=sys.stderr)
        return 2
    return demo.main(stage, act)


if __name__ == "__main__":
    sys.exit(main())
