"""What a newcomer runs first: the README's program, its notebook, the demo."""

import os
import pathlib
import re
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
README = (ROOT / "README.md").read_text()


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=280, env=ENV, **options)


def test_the_quickstart_learns_and_invites(tmp_path):
    done = run(sys.executable, ROOT / "examples/quickstart.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^INITIAL_PEERS=\S+ .*{ROOT}/examples/quickstart.py$", done.stdout, re.M)
    assert float(re.search(r"accuracy\D*([0-9.]+)", done.stdout)[1]) > 0.95
    assert not list(tmp_path.iterdir())


def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, ENV[name])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "a notebook is kept without its outputs"
    NotebookClient(notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    text = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert re.search(r"^%env INITIAL_PEERS=/\S+$", text, re.M)
    shown = " ".join(output["data"].get("text/plain", "") for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output)
    assert float(re.search(r"'accuracy': ([0-9.]+)", shown)[1]) > 0.9


def test_the_notebook_is_the_quickstart():
    program = (ROOT / "examples/quickstart.py").read_text()
    for cell in nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and "find_spec" not in cell.source:
            lines = [line.strip() for line in cell.source.replace("max_epochs=10", "max_epochs=20").split("\n") if line.strip()]
            assert all(line in program for line in lines), cell.source


def test_the_demo_tells_of_three_trainers_one_late_and_one_killed():
    done = run(sys.executable, ROOT / "examples/demo/demo.py")
    assert done.returncode == 0, done.stdout
    assert "equal to the bit" in done.stdout and "one more" in done.stdout and "one less" in done.stdout


def test_the_readme_names_what_is_there():
    for target in re.findall(r"^make (\S+)", README, re.M) + re.findall(r"`make (\S+?)`", README):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), f"make {target}"
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path
    (line,) = re.findall(r"^trainer = (L\.Trainer\(strategy=.*\))$", README, re.M)
    import lightning as L

    from hivemind_c import HivemindStrategy

    assert isinstance(eval(line, {"L": L, "HivemindStrategy": HivemindStrategy}).strategy, HivemindStrategy)


@pytest.mark.parametrize("path", ["docs/STRATEGY.md"])
def test_the_guide_names_every_option(path):
    import inspect

    from hivemind_c import HivemindStrategy, Optimizer

    text = (ROOT / path).read_text()
    own = set(inspect.signature(HivemindStrategy.__init__).parameters) - {"self", "optimizer_kwargs"}
    assert not [name for name in own if f"`{name}`" not in text]
    named = set(re.findall(r"`([a-z_]+)`", text[text.index("| all others |") : text.index("`CollaborativeStrategy`")]))
    assert named - {"hivemind_c"} <= set(inspect.signature(Optimizer).parameters)
