"""Three nodes on this machine find each other, exchange echoes and bulk data, lose one of them to kill -9, and go on.

Everything told here is told by the nodes themselves, as it happens; the exit code is 0 only if all of it did."""

import json
import os
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time

NAMES = "amber", "blue", "coral"
BULK = 128 << 20
LOST_WITHIN = 1.0  # seconds in which a killed node must be missed
PATIENCE = 15.0  # seconds for any one thing to happen

fancy = sys.stdout.isatty() and "NO_COLOR" not in os.environ
COLORS = dict(zip(NAMES, ("33", "34", "35")), good="32", bad="31", dim="2", bold="1")


def paint(text, color):
    return f"\033[{COLORS[color]}m{text}\033[0m" if fancy else text


def ms(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def gigabytes(size, seconds):
    return f"{size / seconds / 1e9:.2f} GB/s"


class Failure(Exception):
    pass


class Stage:
    """The nodes' processes, and what they tell."""

    def __init__(self, folder):
        self.folder, self.start = folder, time.monotonic()
        self.events, self.waiting = queue.Queue(), []
        self.processes, self.addresses, self.ids, self.names = {}, {}, {}, {}

    def say(self, who, text, at=None):
        at = paint(f"{(at or time.monotonic()) - self.start:6.2f} s", "dim")
        print(f"{at}  {paint(f'{who:<5}', who) if who in NAMES else ' ' * 5}  {text}", flush=True)

    def launch(self, name, *initial_peers):
        command = [sys.executable, pathlib.Path(__file__).with_name("peer.py"), self.folder / name, *initial_peers]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes[name] = process
        threading.Thread(target=self.listen, args=(name, process), daemon=True).start()
        event = self.expect(name, "started")
        self.ids[name], self.addresses[name] = event["peer"], event["address"]
        self.names[event["peer"]] = name
        self.say(name, f"process {process.pid}, peer {event['peer'][:8]}…{event['peer'][-6:]}, listens at {event['address'].split('/p2p/')[0]}")

    def listen(self, name, process):
        for line in process.stdout:
            self.events.put({"who": name, **json.loads(line)})

    def order(self, name, do, peer, **details):
        process = self.processes[name]
        process.stdin.write(json.dumps({"do": do, "peer": self.ids[peer], **details}) + "\n")
        process.stdin.flush()

    def expect(self, who, kind, peer=None):
        """The next event of this kind; others are kept for whoever asks for them."""
        deadline = time.monotonic() + PATIENCE

        def fits(event):
            return event["who"] == who and event["event"] == kind and (peer is None or self.names.get(event["peer"]) == peer)

        while True:
            for event in self.waiting:
                if fits(event):
                    self.waiting.remove(event)
                    return event
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Failure(f"{who} did not tell '{kind}'{f' of {peer}' if peer else ''} within {PATIENCE:g} s") from None
            if event["event"] == "failed" and kind not in ("failed", "lost"):
                raise Failure(f"{event['who']}: {event['why']}")
            self.waiting.append(event)

    def end(self):
        for process in self.processes.values():
            process.stdin.close()
        for process in self.processes.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        return all(process.returncode == 0 for process in self.processes.values())


def others(name):
    return [other for other in NAMES if other != name]


def meet(stage):
    stage.say("", paint("three nodes; the second and third are told only the first one's address", "bold"))
    first, *rest = NAMES
    stage.launch(first)
    begun = time.monotonic()
    for name in rest:
        stage.launch(name, stage.addresses[first])
    meetings = [(stage.expect(name, "found", other)["at"], name, other) for name in NAMES for other in others(name)]
    for at, name, other in sorted(meetings):
        stage.say(name, f"found {paint(other, other)}", at)
    return f"all three know each other, {ms(max(meetings)[0] - begun)} after the second was started"


def talk(stage, times=200):
    stage.say("", paint(f"each sends each {times} echoes", "bold"))
    pairs = [(name, other) for name in NAMES for other in others(name)]
    medians = []
    for name, other in pairs:
        stage.order(name, "echo", other, times=times)
        event = stage.expect(name, "echoed", other)
        medians.append(event["median"])
        stage.say(name, f"{times} echoes from {paint(other, other)}, {ms(event['median'])} there and back")
    return f"{times * len(pairs)} echoes came back right, {ms(sorted(medians)[len(medians) // 2])} in the median"


def carry(stage, name, other):
    """The receipt of one parcel, checked on both sides; returns GB/s as text."""
    sent, came = stage.expect(name, "sent", other), stage.expect(other, "parcel", name)
    if (sent["size"], sent["check"]) != (came["size"], came["check"]):
        raise Failure(f"{other} received other bytes than {name} sent")
    speed = gigabytes(sent["size"], sent["seconds"])
    stage.say(name, f"{sent['size'] >> 20} MiB to {paint(other, other)} in {ms(sent['seconds'])}: {speed}, checksum right")
    return speed


def bulk(stage):
    stage.say("", paint(f"bulk data, {BULK >> 20} MiB a parcel over mutual TLS: one link, then a ring all at once", "bold"))
    ring = list(zip(NAMES, NAMES[1:] + NAMES[:1]))
    stage.order(ring[0][0], "send", ring[0][1], size=BULK)
    alone = carry(stage, *ring[0])
    for name, other in ring:
        stage.order(name, "send", other, size=BULK)
    for name, other in ring:
        carry(stage, name, other)
    return f"{4 * BULK >> 20} MiB arrived whole, {alone} on one link"


def lose(stage):
    stayed, victim = NAMES[:2], NAMES[2]
    stage.say("", paint(f"kill -9 for {victim}, in the middle of a parcel to it", "bold"))
    stage.order(stayed[1], "send", victim, size=4 * BULK)
    stage.expect(stayed[1], "sending", victim)
    time.sleep(0.1)
    killed = time.monotonic()
    stage.processes[victim].kill()
    stage.processes.pop(victim).wait()
    stage.say("", f"{paint(victim, victim)} is killed", killed)
    delays = []
    for name in stayed:
        at = stage.expect(name, "lost", victim)["at"]
        delays.append(at - killed)
        stage.say(name, f"{paint(victim, victim)} is gone, noticed after {ms(delays[-1])}", at)
    stage.say(stayed[1], f"its parcel failed: {stage.expect(stayed[1], 'failed', victim)['why']}")
    if max(delays) > LOST_WITHIN:
        raise Failure(f"it took {max(delays):.2f} s to notice that {victim} was killed")
    return f"{victim} was killed, and missed by both others within {ms(max(delays))}"


def go_on(stage):
    (first, second), victim = NAMES[:2], NAMES[2]
    stage.say("", paint(f"the two go on; {victim} comes back with its key", "bold"))
    stage.order(first, "send", second, size=BULK)
    carry(stage, first, second)
    before = stage.ids[victim]
    stage.launch(victim, stage.addresses[second])
    if stage.ids[victim] != before:
        raise Failure(f"{victim} came back as another peer")
    for name in (first, second):
        stage.say(name, f"found {paint(victim, victim)} again", stage.expect(name, "found", victim)["at"])
    return f"the others went on, and {victim} came back as the same peer"


def main():
    done = []
    with tempfile.TemporaryDirectory(prefix="hivemind_c-demo-") as folder:
        stage = Stage(pathlib.Path(folder))
        wrong = None
        try:
            for act in (meet, talk, bulk, lose, go_on):
                done.append(act(stage))
        except (Failure, BrokenPipeError) as failure:
            wrong = str(failure)
        if not stage.end() and not wrong:
            wrong = "a node did not end as it should"
    print()
    for line in done:
        print(f"  {paint('yes', 'good')}  {line}")
    if wrong:
        print(f"  {paint('no', 'bad')}   {wrong}")
    print(f"\n{time.monotonic() - stage.start:.1f} s in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
