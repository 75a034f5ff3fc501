"""The tutorial of two notebooks and a hub, as it says: in homes behind NAT, and on a machine that they can dial."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from support import eventually
from test_tutorials import promised

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/tutorial/two-notebooks-and-a-hub.md"
PATIENCE = 200  #: seconds for what takes a second or ten on an idle machine

#: IPython runs the cells of a notebook; the cell that the page names has the line
NOTEBOOK = """
import sys
import nbformat
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
path, empty, line = sys.argv[1:]
cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
assert cells.count(empty) == 1, "the page and the notebook differ"
for cell in cells:
    done = shell.run_cell(line if cell == empty else cell)
    if not done.success:
        sys.exit(repr(done.error_in_exec or done.error_before_exec))
"""

#: the machines: the namespaces live as long as this program; it runs what it reads, a line for each
STREET = """
import subprocess, sys
import internet

internet.enter()
net = internet.Internet(20)
net.public("rented")
for name in ("colab", "kaggle"):
    net.home(name)
running = {}
print("ready", flush=True)
for line in sys.stdin:
    name, word, command = line.rstrip("\\n").split(" ", 2)
    if word == "run":
        out = open(f"{name}.log", "w")
        running[name] = subprocess.Popen([*net.inside(name), "bash", "-c", "exec " + command], stdout=out, stderr=out)
    else:
        running[name].send_signal(int(command))
        running[name].wait()
    print("done", flush=True)
"""


class Street:
    """A rented machine and two homes, each with one program at a time."""

    def __init__(self, folder):
        self.folder, tools = folder, folder / "bin"
        tools.mkdir()
        hub = tools / "hivemind-hub"
        hub.write_text(f'#!/bin/sh\nexec {sys.executable} -m hivemind_c.cli.hub "$@"\n')
        hub.chmod(0o755)
        (folder / "street.py").write_text(STREET)
        (folder / "notebook.py").write_text(NOTEBOOK)
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "examples/demo"), *sys.path]),
            "PATH": f"{tools}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder),
            "IPYTHONDIR": str(folder / "ipython"),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "KAGGLE_KERNEL_RUN_TYPE": "Interactive",
            "INITIAL_PEERS": "",
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

    def open_notebook(self, name, line):
        (cell,) = re.findall(r"<!-- cell -->\n\n```text\n(.*)\n```", PAGE.read_text())
        notebook = ROOT / "examples/quickstart.ipynb"
        self.order(f"{name} run {sys.executable} notebook.py {notebook} '{cell}' '{line}'")

    def interrupt(self, name):
        self.order(f"{name} signal {int(signal.SIGINT)}")

    def text(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace").replace("\r", "\n")

    def wait_for(self, name, found):
        assert eventually(lambda: found(self.text(name)), PATIENCE), self.text(name)[-3000:]

    def shows(self, name, who):
        for pattern in promised(PAGE, f"output of {who}"):
            self.wait_for(name, lambda text, pattern=pattern: re.search(pattern, text))


@pytest.fixture
def street(tmp_path):
    one = Street(tmp_path)
    yield one
    one.process.kill()
    one.process.wait()


def epochs(text):
    return [int(epoch) for epoch in re.findall(r"global_epoch=(\d+)", text)]


def latest(text, figure):
    return int((re.findall(rf"{figure}=(\d+)", text) or ["-1"])[-1])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_notebooks_behind_nats_train_through_a_hub(street):
    (command,) = re.findall(r"(?m)^\$ (hivemind-hub .*)$", PAGE.read_text())
    street.order(f"rented run {command}")
    street.shows("rented", "the hub")
    (line,) = re.findall(r"(?m)^%env .*$", street.text("rented"))
    homes = "colab", "kaggle"
    for name in homes:
        street.open_notebook(name, line)
    for name in homes:
        street.wait_for(name, lambda text: latest(text, "peers") == 2 and latest(text, "global_epoch") > 3)
        street.shows(name, "both notebooks")
    street.interrupt("colab")
    street.wait_for("kaggle", lambda text: latest(text, "peers") == 1)
    street.shows("kaggle", "the notebook that is left")
    street.interrupt("kaggle")
    kept = [int(epoch) for epoch in re.findall(r"keeping the state of epoch (\d+)", street.text("rented"))]
    assert kept and any((street.folder / "states").iterdir())
    street.open_notebook("colab", line)
    street.wait_for("colab", lambda text: latest(text, "global_epoch") > 0)
    first = next(epoch for epoch in epochs(street.text("colab")) if epoch > 0)
    assert first >= kept[-1], "it continues from the state of the hub"
    street.shows("colab", "the next notebook")
