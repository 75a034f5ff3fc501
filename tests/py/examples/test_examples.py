"""The programs that a newcomer runs first: the README's program, its notebook, the demo."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request

import nbformat
import pytest
from nbclient import NotebookClient
from support import eventually, text_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
README = (ROOT / "README.md").read_text()


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=800, env=ENV, **options)


def test_the_quickstart_learns_and_invites(tmp_path):
    done = run(sys.executable, ROOT / "examples/quickstart.py", 20, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^INITIAL_PEERS=\S+ .*{ROOT}/examples/quickstart.py 20$", done.stdout, re.M)
    assert float(re.search(r"accuracy\D*([0-9.]+)", done.stdout)[1]) > 0.95
    assert not list(tmp_path.iterdir())


def commands(after):
    """The lines of the README's next block after these words."""
    return re.search(r"```bash\n(.*?)```", README[README.index(after) :], re.S)[1].splitlines()


def test_readme_command_and_its_printed_line_make_a_swarm(tmp_path):
    """As they are written, in a folder that looks like the checkout after `make build`, which is not made again."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    python = tmp_path / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -u "$@"\n')
    python.chmod(0o755)
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\nexec {shutil.which("make")} -o build "$@"\n')
    make.chmod(0o755)
    for name in ("Makefile", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (command,) = commands("Begin a swarm:")
    environment = {**ENV, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    options = dict(
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = [subprocess.Popen(f"exec {command}", **options)]
    try:
        line = next(text for text in running[0].stdout if text.startswith("INITIAL_PEERS="))
        assert line.endswith(f" {command}\n") and line.removeprefix("INITIAL_PEERS=").startswith("/ip")
        running.append(subprocess.Popen(f"exec env {line}", **options))
        told = ["", ""]
        for which, one in enumerate(
            running
        ):  # their progress bars, until each sees the other; neither is waited for to its end
            for text in one.stdout:
                told[which] += text
                if "peers=2" in text:
                    break
    finally:
        for one in running:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()
    assert all("peers=2" in text for text in told), told
    assert "INITIAL_PEERS=" not in told[1] and "training begins alone" not in told[1]


def test_the_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    for name in ("PYTHONPATH", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, ENV[name])
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "a notebook is kept without its outputs"
    (cell,) = [cell for cell in notebook.cells if "EPOCHS = 500" in cell.source]
    cell.source = cell.source.replace("EPOCHS = 500", "EPOCHS = 10")
    NotebookClient(
        notebook, timeout=800, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    text = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    assert re.search(r"^%env INITIAL_PEERS=/\S+$", text, re.M)
    shown = " ".join(
        output["data"].get("text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    )
    assert float(re.search(r"'accuracy': ([0-9.]+)", shown)[1]) > 0.9


def test_the_notebook_is_the_quickstart():
    program = (ROOT / "examples/quickstart.py").read_text()
    for cell in nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4).cells:
        if cell.cell_type == "code" and "find_spec" not in cell.source and not cell.source.startswith("# paste"):
            lines = [
                line.strip() for line in cell.source.split("\n") if line.strip() and not line.startswith("EPOCHS = ")
            ]
            assert all(line in program for line in lines), cell.source


def test_demo_shows_a_late_and_a_killed_trainer(tmp_path):
    done = run(sys.executable, ROOT / "examples/demo/demo.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert not list(tmp_path.iterdir())
    assert "equal to the bit" in done.stdout and "one more" in done.stdout and "one less" in done.stdout


def test_demo_page_in_a_terminal_stays_until_ctrl_c(browser):
    here, there = os.openpty()
    demo = subprocess.Popen(
        [sys.executable, ROOT / "examples/demo/demo.py"],
        stdout=there,
        stderr=subprocess.STDOUT,
        env={**ENV, "WEB": "0", "NO_COLOR": "1"},
    )
    os.close(there)
    told = []

    def listen():
        with contextlib.suppress(OSError):  # a terminal without a program is an error
            while words := os.read(here, 1 << 16):
                told.append(words.decode())

    listening = threading.Thread(target=listen)
    listening.start()
    try:
        assert (
            eventually(lambda: demo.poll() is not None or "all of it worked" in "".join(told), 700)
            and demo.poll() is None
        ), "".join(told)
        web = re.search(r"shows all of it at (http://localhost:\d+/)", "".join(told))[1]

        def shown():
            page = browser(web)
            return (
                text_of(page, "run") == "demo" and text_of(page, "peers") == "2" and "amber" in page and "coral" in page
            )

        assert eventually(shown, 240), browser(web)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(90) == 130
        with pytest.raises(OSError):
            urllib.request.urlopen(web, timeout=90)
    finally:
        if demo.poll() is None:
            demo.send_signal(signal.SIGINT)  # it ends what it has started
            demo.wait(90)
        listening.join()
        os.close(here)


def test_readme_names_existing_targets_and_files():
    for target in re.findall(r"^make (\S+)", README, re.M) + re.findall(r"`make (\S+?)`", README):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), f"make {target}"
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / path).exists(), path
    (line,) = re.findall(r"^trainer = (L\.Trainer\(strategy=.*\))$", README, re.M)
    import lightning as L

    from hivemind_c import HivemindStrategy

    assert isinstance(eval(line, {"L": L, "HivemindStrategy": HivemindStrategy}).strategy, HivemindStrategy)


def test_the_guide_names_every_option():
    import inspect

    from hivemind_c import HivemindStrategy

    text = (ROOT / "docs/reference/options.md").read_text()
    described = inspect.getdoc(HivemindStrategy).split("Args:\n")[1]
    own = set(re.findall(r"(?m)^ *(\w+): ", described))  # the others are the Optimizer's, which OPTIONS describes
    assert len(own) > 20 and not [name for name in own if f"`{name}`" not in text]
