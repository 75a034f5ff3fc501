"""Ranks of peers for tests: processes that rank_server.py forks, what they said, and how they ended."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support import PATIENCE, free_port

FOLDER = Path(__file__).parent
ON = os.environ.get("RANKS_ON", "cpu")  # "cuda": the ranks are on GPUs (make gpu PART=inside)
ALONE = {"INITIAL_PEERS": "", "OMP_NUM_THREADS": "1", **({"CUDA_VISIBLE_DEVICES": ""} if ON == "cpu" else {})}


class Server:
    """The process that forks ranks."""

    def __init__(self, folder):
        self.folder, self.codes, self._count = Path(folder), {}, 0
        self.process = subprocess.Popen(
            [sys.executable, str(FOLDER / "rank_server.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **ALONE, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        os.set_blocking(self.process.stdout.fileno(), False)
        self._rest = b""
        self._answers = []
        self._next()  # ready

    def _pump(self):
        try:
            self._rest += os.read(self.process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            pass
        *lines, self._rest = self._rest.split(b"\n")
        for line in map(json.loads, lines):
            if "code" in line:
                self.codes[line["pid"]] = line["code"]
            else:
                self._answers.append(line)

    def _next(self):
        until = time.monotonic() + 120
        while not self._answers:
            assert self.process.poll() is None and time.monotonic() < until, "the server of ranks has ended"
            self._pump()
            time.sleep(0.01)
        return self._answers.pop(0)

    def fork(self, call, arguments, environment):
        self._count += 1
        out = self.folder / f"rank-{self._count}.txt"
        asked = dict(call=call, arguments=arguments, environment=environment, out=str(out))
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        return self._next()["pid"], out

    def code(self, pid):
        self._pump()
        return self.codes.get(pid)

    def shutdown(self):
        self.process.stdin.close()
        self.process.kill()  # it holds nothing
        self.process.wait()


class Rank:
    """One process."""

    def __init__(self, server, pid, out):
        self._server, self.pid, self._out = server, pid, out

    @property
    def text(self):
        return self._out.read_text() if self._out.exists() else ""

    @property
    def code(self):
        return self._server.code(self.pid)

    def said(self, event):
        """The words of the rank on an event, or None."""
        lines = (line for line in self.text.splitlines() if line.startswith("{"))
        return next((one for one in map(json.loads, lines) if one.get("event") == event), None)

    def wait_for(self, event, timeout=PATIENCE):
        until = time.monotonic() + timeout
        while (found := self.said(event)) is None:
            assert self.code is None and time.monotonic() < until, self.text
            time.sleep(0.02)
        return found

    def ended(self, timeout=PATIENCE):
        """The exit code."""
        until = time.monotonic() + timeout
        while (code := self.code) is None:
            assert time.monotonic() < until, f"still there after {timeout} s:\n{self.text}"
            time.sleep(0.02)
        return code

    def kill(self, signum=signal.SIGKILL):
        os.kill(self.pid, signum)


class Peer:
    """The ranks of one Trainer, as if torchrun or Lightning had started them."""

    def __init__(self, server, devices=2, call="train", environment=None, **arguments):
        about = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        about.update(WORLD_SIZE=str(devices), NODE_RANK="0")
        self.ranks = []
        for rank in range(devices):
            around = {**about, "LOCAL_RANK": str(rank)} if devices > 1 else {}
            given = {**arguments, "devices": devices}
            self.ranks.append(Rank(server, *server.fork(call, given, {**around, **(environment or {})})))

    @property
    def maddrs(self):
        return self.ranks[0].wait_for("training")["maddrs"]

    def training(self):
        for rank in self.ranks:
            rank.wait_for("training")
        return self

    def results(self, timeout=PATIENCE):
        """The words of each rank at its end; all have ended with 0."""
        codes = [rank.ended(timeout) for rank in self.ranks]
        assert codes == [0] * len(codes), "\n----\n".join(rank.text for rank in self.ranks)
        return [rank.said("end") for rank in self.ranks]

    def end(self):
        for rank in self.ranks:
            if rank.code is None:
                try:
                    rank.kill(signal.SIGKILL)
                except ProcessLookupError:
                    pass
