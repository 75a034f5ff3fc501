"""Ranks of peers for tests: forked processes, what they said, and how they ended."""

import json
import os
import signal
import sys
import time

from forking import LIGHTNING, Forked
from support import PATIENCE, free_port

ON = os.environ.get("RANKS_ON", "cpu")  # "cuda": the ranks are on GPUs (make gpu PART=inside)
ALONE = {"INITIAL_PEERS": "", "OMP_NUM_THREADS": "1", **({"CUDA_VISIBLE_DEVICES": ""} if ON == "cpu" else {})}
PROGRAM = "import json, sys; import rank_programs; rank_programs.train(**json.loads(sys.argv[1]))"
MODULES = *LIGHTNING, "rank_programs"


class Rank:
    """One process.

    Args:
        arguments: Of rank_programs.train.
        environment: Variables beside those of the tests.
        out: File that receives its words.
    """

    def __init__(self, arguments, environment, out):
        about = {**os.environ, **ALONE, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
        self._out = out
        self._process = Forked(PROGRAM, [json.dumps(arguments)], about, MODULES, out)

    @property
    def pid(self):
        return self._process.pid

    @property
    def text(self):
        return self._out.read_text() if self._out.exists() else ""

    @property
    def code(self):
        return self._process.poll()

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
        self._process.send_signal(signum)


class Peer:
    """The ranks of one Trainer, as if torchrun or Lightning had started them."""

    def __init__(self, folder, devices=2, environment=None, **arguments):
        about = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        about.update(WORLD_SIZE=str(devices), NODE_RANK="0")
        self.ranks = []
        for rank in range(devices):
            around = {**about, "LOCAL_RANK": str(rank)} if devices > 1 else {}
            out = folder / f"rank-{rank}.txt"
            self.ranks.append(Rank({**arguments, "devices": devices}, {**around, **(environment or {})}, out))

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
            rank.kill()
