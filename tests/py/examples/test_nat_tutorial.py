"""The tutorial of two notebooks and a hub, as it says: in homes behind NAT, and on a machine that they can dial."""

import pathlib
import re
import sys

import pytest
from street import Street, latest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/tutorial/two-notebooks-and-a-hub.md"

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

MACHINES = """
net.public("rented")
net.home("colab")
net.home("kaggle")
"""


class Notebooks(Street):
    """A rented machine and two homes."""

    def __init__(self, folder):
        super().__init__(folder, PAGE, MACHINES, KAGGLE_KERNEL_RUN_TYPE="Interactive")
        (folder / "notebook.py").write_text(NOTEBOOK)

    def open_notebook(self, name, line):
        (cell,) = re.findall(r"<!-- cell -->\n\n```text\n(.*)\n```", PAGE.read_text())
        notebook = ROOT / "examples/quickstart.ipynb"
        (self.folder / f"{name}.log").unlink(missing_ok=True)
        self.type(name, f"{sys.executable} ../notebook.py {notebook} '{cell}' '{line}'")


@pytest.fixture
def street(tmp_path):
    one = Notebooks(tmp_path)
    yield one
    one.process.kill()
    one.process.wait()


def epochs(text):
    return [int(epoch) for epoch in re.findall(r"global_epoch=(\d+)", text)]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_notebooks_behind_nats_train_through_a_hub(street):
    (command,) = re.findall(r"(?m)^\$ (hivemind-hub .*)$", PAGE.read_text())
    street.type("rented", command)
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
    kept = [int(epoch) for epoch in re.findall(r"keeping the state of swarm epoch (\d+)", street.text("rented"))]
    assert kept and any((street.folder / "rented/states").iterdir())
    street.open_notebook("colab", line)
    street.wait_for("colab", lambda text: latest(text, "global_epoch") > 0)
    first = next(epoch for epoch in epochs(street.text("colab")) if epoch > 0)
    assert first >= kept[-1], "it continues from the state of the hub"
    street.shows("colab", "the next notebook")
