"""Machines of a tutorial in network namespaces: what is typed in their terminals, and what these show."""

import os
import pathlib
import re
import signal
import subprocess
import sys

from support import eventually
from test_tutorials import promised

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATIENCE = 300  #: seconds for what takes a second or ten on an idle machine

#: the namespaces live as long as this program; it runs what it reads, a line for each
STREET = """
import os, subprocess, sys
import internet

internet.enter()
net = internet.Internet(20)
MACHINES
running = {}
print("ready", flush=True)
for line in sys.stdin:
    name, word, command = line.rstrip("\\n").split(" ", 2)
    if word == "run":
        out = open(f"{name}.log", "a")
        os.makedirs(name, exist_ok=True)
        words = [*net.inside(name), "bash", "-c", "exec env " + command]
        running[name] = subprocess.Popen(words, stdout=out, stderr=out, cwd=name)
    elif word == "end":
        running[name].wait(float(command))
    else:
        running[name].send_signal(int(command))
        running[name].wait()
    print("done", flush=True)
"""


class Street:
    """Machines with one program at a time; each has a folder of its own.

    Args:
        folder: Of the test.
        page: The tutorial.
        machines: Lines of Python that make the machines of `net`.
        env: Of all programs.
    """

    def __init__(self, folder, page, machines, **env):
        self.folder, self.page, tools = folder, page, folder / "bin"
        tools.mkdir()
        modules = {f"hivemind-{name}": f" -m hivemind_c.cli.{name}" for name in ("hub", "invite")}
        modules["python"] = ""
        for name, words in modules.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
            (tools / name).chmod(0o755)
        (folder / "street.py").write_text(STREET.replace("MACHINES", machines))
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "examples/demo"), *sys.path]),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder),
            "IPYTHONDIR": str(folder / "ipython"),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "INITIAL_PEERS": "",
            **env,
        }
        self.process = subprocess.Popen(
            [sys.executable, "street.py"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()

    def order(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", self.process.stderr.read()

    def type(self, name, command):
        """Runs a command in the terminal of a machine."""
        self.order(f"{name} run {command}")

    def ends(self, name):
        """The program of a machine ends by itself."""
        self.order(f"{name} end {PATIENCE}")

    def interrupt(self, name):
        """Ctrl-C."""
        self.order(f"{name} signal {int(signal.SIGINT)}")

    def text(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace").replace("\r", "\n")

    def wait_for(self, name, found):
        assert eventually(lambda: found(self.text(name)), PATIENCE), self.text(name)[-3000:]

    def shows(self, name, who):
        """A machine shows the lines that the page promises after <!-- output of WHO -->."""
        for pattern in promised(self.page, f"output of {who}"):
            self.wait_for(name, lambda text, pattern=pattern: re.search(pattern, text))


def latest(text, figure):
    return int((re.findall(rf"{figure}=(\d+)", text) or ["-1"])[-1])
