"""Helpers of the Python tests besides fixtures."""

import fcntl
import html
import importlib.util
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import forking
import pytest

from hivemind_c._record import EVENTS
from hivemind_c.doctor.replays import replay, words

HERE = "/ip4/127.0.0.1/tcp/0"
#: seconds to wait for an event that comes at once on an idle machine: so long a wait means that something is wrong
PATIENCE = 90.0
PATIENT = dict(wait_timeout=30, startup_timeout=PATIENCE)  #: the same for a DHT


def module_of(path):
    """A program of this repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def has_ip6():
    """In many a container there is no ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def free_port():
    """One that nobody listens at now, and that the system gives nobody by itself: who binds it in a while finds it
    free."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as told:
        below = int(told.read().split()[0])
    while True:
        port = random.SystemRandom().randrange(max(1024, below // 2), max(2048, below))
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            pass  # taken


class Replays:
    """The replays of the records in a folder.

    Args:
        folder: The folder, which may be there later.
    """

    def __init__(self, folder):
        self._folder, self._seen = Path(folder), {}

    def check(self):
        """Replays what was recorded since the last call: each decision is the recorded one. Returns the replays."""
        sizes = {path: path.stat().st_size for path in self._folder.rglob(f"*{EVENTS}")}
        found = [replay(path) for path, size in sizes.items() if self._seen.get(path) != size]
        self._seen = sizes
        differing = [words(one) for one in found if not one.is_alike]
        assert not differing, "\n".join(differing)
        return found


class Program:
    """A Python program in a process of its own; what it prints is read line by line.

    imports: See forking.start().
    """

    def __init__(self, source, *arguments, imports=None):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = forking.start(textwrap.dedent(source), list(map(str, arguments)), environment, imports)

    @property
    def pid(self):
        return self.process.pid

    def line(self):
        return self.process.stdout.readline().strip()

    def say(self, text=""):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def finish(self, timeout=2 * PATIENCE):
        """Its exit code, what else it printed, and its errors."""
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler tells where it hangs
            self.process.wait()
            pytest.fail(
                f"it did not end within {timeout} s:\n{self.process.stdout.read()}\n{self.process.stderr.read()}"
            )
        return code, self.process.stdout.read(), self.process.stderr.read()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        self.process.wait()


def makes(target):
    """Makes a target of csrc. Of several test processes, one at a time: another would load what is half written.

    Args:
        target: Its name.
    """
    csrc = Path(__file__).resolve().parents[2] / "csrc"
    (csrc / "build").mkdir(exist_ok=True)
    with (csrc / "build/makes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", csrc, target], check=True, timeout=300)


def eventually(condition, timeout=PATIENCE):
    """Whether the condition came true in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def at_best(bound, attempt, tries=10):
    """Holds a bound of time on a machine that may be busy: one of some attempts must take less. Code that is too slow
    by itself breaks the bound each time."""
    took = []
    while len(took) < tries:
        took.append(attempt())
        if took[-1] < bound:
            return
    pytest.fail(f"{tries} times not within {bound} s: {[round(one, 2) for one in took]}")


GRPC_POOLS = "grpc_", "event_engine", "default-exec", "resolver-exec", "timer_manager"


def play_alone(world, *arguments, timeout):
    """Runs a program in a network of its own, which any user may have; the value of the JSON in its last line."""
    alone = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
    scene = subprocess.run(
        [*alone, sys.executable, "-c", textwrap.dedent(world), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert scene.returncode == 0, f"{scene.stdout}\n{scene.stderr}"
    return json.loads(scene.stdout.strip().splitlines()[-1])


def threads():
    """How many threads this process has, without those of gRPC's pools, which come and go as gRPC likes."""
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as comm:
                names.append(comm.read())
        except FileNotFoundError:
            pass  # it has just ended
    return sum(not name.startswith(GRPC_POOLS) for name in names)


def files():
    return len(os.listdir("/proc/self/fd"))


def resident():
    """Bytes of memory this process has."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def text_of(page, element):
    return html.unescape(re.search(rf'id="{element}"[^>]*>([^<]*)<', page)[1])
