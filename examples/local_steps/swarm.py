"""Peers that train by local steps, a joiner and a kill: the share of time that they compute, and equal anchors."""

import argparse
import json
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "demo"))
import internet

PORT, START_S, TAIL_S = 31500, 120.0, 60.0


def wait(is_done):
    """Waits until is_done() is true, or START_S at most; its answer."""
    end = time.monotonic() + START_S
    while not is_done() and time.monotonic() < end:
        time.sleep(0.05)
    return is_done()


class Peer:
    """A trainer in a process, and what it has said.

    Args:
        number: Of the peer.
        net: The Internet on which it has a line of its own. None: it is on this machine's loopback.
        initial: Addresses of peers.
        options: Further words of its command line.
    """

    def __init__(self, number, net, initial, options):
        self.number, self.events, self.was_killed = number, [], False
        inside, here = (), "/ip4/127.0.0.1/tcp/0"
        if net is not None:
            here = f"/ip4/{net.public(f'peer{number}')}/tcp/{PORT}"
            inside = net.inside(f"peer{number}")
        words = [*inside, sys.executable, "-W", "ignore", str(HERE / "trainer.py"), "--host_maddrs", here]
        words += ["--seed", str(number), *options] + (["--initial_peers", *initial] if initial else [])
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def of(self, what):
        return [event for event in list(self.events) if event["what"] == what]

    def addresses(self):
        if not wait(lambda: self.of("listens") or self.process.poll() is not None) or not self.of("listens"):
            raise SystemExit(f"peer {self.number} did not start")
        return self.of("listens")[0]["addresses"]

    def common(self):
        return [event for event in self.of("epoch") if event["outcome"] == "averaged" and event["members"] > 1]

    def kill(self):
        self.was_killed = True
        self.process.kill()
        self.process.wait()

    def end(self):
        if not self.was_killed:
            self.process.stdin.close()
            self.process.wait(TAIL_S)
        self._reader.join()


def play(peers, seconds, net, options):
    """Trains: a peer comes after a third of the time, and one is killed after two thirds, if the new one averages."""
    first = Peer(0, net, [], options)
    running = [first]
    try:
        at = first.addresses()
        running += [Peer(number, net, at, options) for number in range(1, peers)]
        wait(lambda: all(peer.common() for peer in running))
        begin = time.time()
        time.sleep(seconds / 3)
        print(f"{time.time() - begin:5.1f} s  peer {peers} joins", flush=True)
        running.append(Peer(peers, net, at, options))
        time.sleep(seconds / 3)
        wait(running[-1].common)
        print(f"{time.time() - begin:5.1f} s  peer 1 is killed", flush=True)
        running[1].kill()
        time.sleep(seconds / 3)
        for peer in running:
            peer.end()
    finally:
        for peer in running:
            if peer.process.poll() is None:
                peer.process.kill()
            peer.process.wait()
    return running, begin


def report(running, begin):
    """Prints the figures. True if anchors were equal, the loss fell, and the joiner averaged with others."""
    print("peer  epochs  with others  computed  samples averaged  lost")
    shares = []
    for peer in running:
        epochs = [event for event in peer.of("epoch") if event["at"] >= begin]
        wall = sum(event["wall_s"] for event in epochs)
        share = sum(event["computed_s"] for event in epochs) / wall if wall else 0.0
        last = peer.of("ends")
        counted = f"{last[0]['averaged']:>16}  {last[0]['lost']:>4}" if last else f"{'killed':>16}"
        print(f"{peer.number:>4}  {len(epochs):>6}  {len(peer.common()):>11}  {share:>8.2f}  {counted}")
        if peer.number not in (1, len(running) - 1):
            shares.append(share)
    anchors = {}
    for peer in running:
        for event in peer.common():
            anchors.setdefault(event["epoch"], set()).add(event["anchor"])
    equal = sum(len(found) == 1 for found in anchors.values())
    told = [event["loss"] for event in running[0].of("epoch")]
    joined = running[-1].common()
    print(f"anchors were equal to the bit after {equal} of {len(anchors)} common epochs")
    print(f"loss {told[0]:.2f} -> {told[-1]:.2f}" if told else "no epoch ended")
    print(f"computed {sum(shares) / len(shares):.2f} of the time")
    return bool(joined) and 0 < equal == len(anchors) and told[-1] < told[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=2, help="that begin; one more joins (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="from when all train (default: %(default)s)")
    parser.add_argument("--mbit", type=int, help="rate of each peer's line, in a network namespace; needs root")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of trainer.py, after all others")
    args = parser.parse_args()
    if args.peers < 2 or args.seconds <= 0:
        parser.error("give 2 peers or more, and some seconds")
    net = None
    if args.mbit:
        try:
            internet.enter()
            net = internet.Internet(args.mbit)
        except internet.NoInternet as error:
            sys.exit(f"--mbit: {error}")
    sys.exit(0 if report(*play(args.peers, args.seconds, net, args.options)) else 1)


if __name__ == "__main__":
    main()
