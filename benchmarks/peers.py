"""The other projects that rows are measured against, in an environment of their own: .venv-peers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable

from benchmarks.frame import BenchmarkError, Sample
from benchmarks.programs import ROOT, run

VENV = ROOT / ".venv-peers"
PYTHON = VENV / "bin" / "python"
#: hivemind 1.1.12 needs NumPy 1; torch is the one this project is tested with.
REQUIREMENTS = ("hivemind==1.1.12", "numpy<2", "bitsandbytes", "torch==2.13.0")
CHECK = "import hivemind, bitsandbytes, numpy, torch; print(hivemind.__version__, numpy.__version__, torch.__version__)"


def stands() -> bool:
    """Whether the environment was made whole, with these requirements."""
    stamp = VENV / "stamp"
    return PYTHON.exists() and stamp.exists() and stamp.read_text() == "\n".join(REQUIREMENTS)


def make(say: Callable[[str], None]) -> str:
    """Makes the environment unless it stands (some minutes, about a gigabyte); returns the versions in it."""
    if not stands():
        shutil.rmtree(VENV, ignore_errors=True)
        say(f"peers: making {VENV.name} with {', '.join(REQUIREMENTS)}; this takes some minutes")
        _do([sys.executable, "-m", "venv", str(VENV)])
        _do([str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", *REQUIREMENTS])
    versions = _do([str(PYTHON), "-W", "ignore", "-c", CHECK]).strip().splitlines()[-1]
    (VENV / "stamp").write_text("\n".join(REQUIREMENTS))
    return "hivemind {} (NumPy {}, torch {})".format(*versions.split())


def python(code: str, *arguments: str, timeout_s: float = 300) -> Sample:
    """Runs Python code with the peers, and reads the JSON object it prints last."""
    if not stands():
        raise BenchmarkError("this row is measured against hivemind: run `python -m benchmarks peers` first")
    return run([str(PYTHON), "-W", "ignore", "-c", code, *arguments], timeout_s, {"PYTHONPATH": ""})


def _do(command) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONPATH": ""})
    if done.returncode != 0:
        raise BenchmarkError(f"`{' '.join(command[1:5])} ...` failed: {done.stdout.strip()[-600:]}")
    return done.stdout
