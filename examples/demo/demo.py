"""Three trainers on this machine train one network together. One joins late, one is killed with -9; those that are left end equal to the bit.

With WEB=1 (or WEB=PORT) in the environment hivemind-monitor shows it in a browser, too, and stays until Ctrl-C.

Everything told here is told by the trainers themselves, as it happens; the exit code is 0 only if all of it did."""

import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

NAMES = "amber", "blue", "coral", "denim", "ebony", "flint"  # this demo has three trainers, and nat.py has more
TRAINER = pathlib.Path(__file__).with_name("trainer.py")
PATIENCE = 240.0  # seconds for any one thing to happen
fancy = sys.stdout.isatty() and "NO_COLOR" not in os.environ
COLORS = dict(zip(NAMES, ("33", "34", "35", "36", "95", "92")), good="32", bad="31", dim="2", bold="1")


def paint(text, color):
    return f"\033[{COLORS[color]}m{text}\033[0m" if fancy else text


class Failure(Exception):
    pass


class Stage:
    """The trainers' processes, and what they tell."""

    inviter, options = "amber", ()

    def __init__(self):
        self.start = time.monotonic()
        self.events, self.processes, self.errors, self.latest, self.weights = queue.Queue(), {}, {}, {}, {}
        self.line = self.monitor = None
        self.folder = tempfile.TemporaryDirectory()
        self.environment = {}  # more variables of each trainer

    def say(self, who, text):
        at = paint(f"{time.monotonic() - self.start:6.2f} s", "dim")
        print(f"{at}  {paint(f'{who:<5}', who) if who in NAMES else ' ' * 5}  {text}", flush=True)

    def launch(self, name):
        """The first is run as it is; the others as the line says that the first has printed."""
        command = [*self.place(name), sys.executable, str(TRAINER), str(NAMES.index(name)), self.folder.name, *self.options]
        errors = self.errors[name] = tempfile.TemporaryFile("w+")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, "INITIAL_PEERS": self.address(), "HIVEMIND_NAME": name, **self.environment})
        self.processes[name] = process
        threading.Thread(target=self.listen, args=(name, process), daemon=True).start()
        self.say(name, f"process {process.pid} starts" + (f", with the line that {self.inviter} printed" if self.line else ""))

    def place(self, name):
        """The words before a trainer's command: here none, since all run on this machine."""
        return ()

    def address(self):
        """The address in the line to paste, or nothing before it was printed."""
        return re.match(r"INITIAL_PEERS=(\S+)", self.line)[1] if self.line else ""

    def show(self, port):
        """The monitor joins as a peer does, by the line that the first has printed."""
        command = [sys.executable, "-m", "hivemind_c.cli.monitor", "--run_id", "demo", "--initial_peers", *self.address().split(",")]
        command += ["--host_maddrs", "/ip4/0.0.0.0/tcp/0", "--history", "none", "--web", port, "--no-live"]
        process = self.monitor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in process.stdout:
            if line.startswith("WEB="):
                self.say("", paint(f"hivemind-monitor shows all of it at {line[4:].strip()}", "bold"))
                return
        raise Failure(f"the monitor ended with exit code {process.wait()}; is port {port} free?")

    def listen(self, name, process):
        for line in process.stdout:
            if line.startswith("INITIAL_PEERS="):
                self.line = line.strip()
            elif line.startswith("{"):
                self.events.put({"who": name, **json.loads(line)})
        self.events.put({"who": name, "event": "ended"})

    def until(self, what, condition):
        """Tells events until the condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Failure(f"{what}: this has not happened within {PATIENCE:g} s") from None
            self.take(event)

    def take(self, event):
        who = event["who"]
        if event["event"] == "ended" and who in self.processes:
            self.errors[who].seek(0)
            raise Failure(f"{who} ended by itself, with exit code {self.processes[who].wait()}:\n{self.errors[who].read()[-2000:]}")
        if event["event"] == "note":
            self.say(who, paint(event["text"].split(" (")[0], "dim"))
        if event["event"] == "started":
            self.say(who, f"trains, as peer {event['peer'][:8]}…{event['peer'][-6:]}")
        if event["event"] == "epoch":
            before = self.latest.get(who, {}).get("peers", 1)
            self.latest[who] = event
            self.weights.setdefault(event["epoch"], {})[who] = event["weights"]
            peers = event["peers"]
            told = f"{peers} peer{'s' if peers > 1 else ' '}"
            bar = "█" * round(12 * min(event["loss"], 2.5))
            change = "  ← one more" if peers > before else "  ← one less" if peers < before else ""
            self.say(who, f"swarm epoch {event['epoch']:>3}  {told}  loss {event['loss']:.3f}  {bar}{paint(change, 'bold')}")
            if len(set(self.weights[event["epoch"]].values())) > 1:
                self.say(who, paint("other weights than the others after this swarm epoch", "bad"))

    def epoch(self, name):
        return self.latest.get(name, {}).get("epoch", 0)

    def peers(self, name):
        return self.latest.get(name, {}).get("peers", 1)

    def equal(self, since, *names):
        """The epochs since then after which these had the same weights, one after the other. On a machine that is busy with much else one of them may come
        too late for a step of the others, and then takes their weights over: what was before that does not count."""
        both = {epoch: {weights[name] for name in names} for epoch, weights in self.weights.items() if epoch > since and set(names) <= set(weights)}
        differ = [epoch for epoch, seen in both.items() if len(seen) > 1]
        return sorted(epoch for epoch in both if epoch > max(differ, default=since))

    def end(self):
        running, self.processes = self.processes, {}
        if self.monitor is not None:
            running["monitor"] = self.monitor
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()


def act(stage):
    stage.say("", paint("two trainers; the second is told only the line that the first prints", "bold"))
    stage.launch("amber")
    stage.until("amber trains", lambda: "amber" in stage.latest and stage.line)
    first = stage.latest["amber"]["loss"]
    if web := os.environ.get("WEB"):
        stage.show("8080" if web == "1" else web)
    stage.launch("blue")
    stage.until("amber and blue train together", lambda: stage.peers("amber") == stage.peers("blue") == 2 and stage.epoch("blue") > 1)
    met = max(map(stage.epoch, ("amber", "blue")))
    stage.until("amber and blue agree", lambda: len(stage.equal(met, "amber", "blue")) >= 2)

    stage.say("", paint("a third joins late", "bold"))
    stage.launch("coral")
    three = NAMES[:3]
    stage.until("all three train together", lambda: all(stage.peers(name) == 3 for name in three))
    joined = max(map(stage.epoch, three))
    stage.until("all three agree", lambda: len(stage.equal(joined + 1, *three)) >= 3)

    stage.say("", paint("blue is killed with -9", "bold"))
    stage.processes.pop("blue").kill()
    left = "amber", "coral"
    stage.until("the others have missed blue", lambda: all(stage.peers(name) == 2 for name in left))
    killed = max(map(stage.epoch, left))
    stage.until("the others go on and agree", lambda: len(stage.equal(killed + 1, *left)) >= 3)
    last = stage.equal(killed + 1, *left)[-1]
    loss = stage.latest["amber"]["loss"]
    if not loss < first:
        raise Failure(f"the loss did not fall: {first:.3f} at first, {loss:.3f} in the end")
    stage.say("", f"loss {first:.3f} → {loss:.3f}; after swarm epoch {last} the survivors' weights are equal to the bit: {stage.weights[last]['amber']}")


def main(stage, act):
    """Runs the act on the stage; returns the exit code.

    Args:
        stage: The processes.
        act: It takes the stage.
    """
    try:
        act(stage)
        stage.say("", paint("all of it worked", "good"))
        if stage.monitor is not None and sys.stdout.isatty():
            stage.say("", paint("training goes on, and the page shows it; Ctrl-C ends it", "dim"))
            while True:
                stage.take(stage.events.get())
        return 0
    except Failure as failure:
        stage.say("", paint(str(failure), "bad"))
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        stage.end()


if __name__ == "__main__":
    sys.exit(main(Stage(), act))
