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


def hurried(text):
    """The quickstart with short swarm epochs, so that a busy machine makes many: a 32nd of the target."""
    for name, small in (("target_batch_size=131072", "target_batch_size=4096"), ("spirals(131072)", "spirals(32768)")):
        assert text.count(name) == 1, name
        text = text.replace(name, small)
    return text


def test_the_quickstart_learns_and_invites(tmp_path):
    (tmp_path / "quickstart.py").write_text(hurried((ROOT / "examples/quickstart.py").read_text()))
    done = run(sys.executable, tmp_path / "quickstart.py", 20, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"^INITIAL_PEERS=\S+ .*{tmp_path}/quickstart.py 20$", done.stdout, re.M)
    assert float(re.search(r"accuracy\D*([0-9.]+)", done.stdout)[1]) > 0.95
    assert [path.name for path in tmp_path.iterdir()] == ["quickstart.py"]


BATCHES = """
import sys, time, torch, quickstart
network, batch = quickstart.Network(), int(sys.argv.pop())
network.log = lambda *given, **options: None
points, which = quickstart.spirals(batch).tensors
for turn in range(3):
    began = time.process_time()  # of this process alone: other processes do not slow it down
    for at in range(64):
        network.training_step((points, which), at).backward()
    print((time.process_time() - began) / 64)
"""


# Alone, a Trainer makes 300 to 600 such small batches a second on one core: 512 take 1 to 2 s.
# A step of 16 batches took 0.06 s, so a second peer cost more time than it saved.
def test_step_of_the_quickstart_is_as_long_as_its_pages_say(monkeypatch):
    program = (ROOT / "examples/quickstart.py").read_text()
    target, batch = (int(re.search(rf"{name}=(\d+), ", program)[1]) for name in ("target_batch_size", "batch_size"))
    monkeypatch.syspath_prepend(ROOT / "examples")
    env = {**ENV, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", BATCHES, "20", str(batch)], capture_output=True, text=True, env=env)
    step_s = target / batch * min(map(float, done.stdout.split()))
    assert 0.12 < step_s < 4, f"{step_s} s of one core for the arithmetic of a step"
    page = (ROOT / "docs/tutorial/first-swarm.md").read_text()
    assert f"/{target} samples" in page and "1 to 2 s" in page


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
    (cell,) = [cell for cell in notebook.cells if "EPOCHS = 200" in cell.source]
    cell.source = cell.source.replace("EPOCHS = 200", "EPOCHS = 10")
    (cell,) = [cell for cell in notebook.cells if cell.source.startswith("trainer =")]
    cell.source = hurried(cell.source)
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


@pytest.mark.parametrize("place", ["hivemind_c-1-x.whl", "input/my-set/hivemind_c-1-x.whl", None])
def test_notebook_finds_its_wheel_on_colab_and_kaggle(place, tmp_path, monkeypatch):
    notebook = nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4)
    (source,) = [cell.source for cell in notebook.cells if "find_spec" in cell.source]
    assert "%pip install -q lightning {wheels[0]}" in source and '"/kaggle/input/**' in source
    source = source.replace("%pip install -q lightning {wheels[0]}", "pass").replace("/kaggle", str(tmp_path))
    source = source.replace('find_spec("hivemind_c")', 'find_spec("not_installed_here")')
    monkeypatch.chdir(tmp_path)
    seen = {}
    if place is None:
        with pytest.raises(AssertionError, match="`make wheel` makes"):
            exec(source, seen)
        return
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).touch()
    exec(source, seen)
    assert [os.path.relpath(wheel, tmp_path) for wheel in seen["wheels"]] == [place]


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
