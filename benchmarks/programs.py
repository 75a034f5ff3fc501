"""Runs the programs that are measured, each in a process of its own, and reads the JSON object they print last."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence, Tuple

from benchmarks import package
from benchmarks.frame import BenchmarkError, Sample

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
C_PROGRAMS = CSRC / "build" / "rel" / "bench"


def last_json(output: str) -> Dict:
    """The object on the last line that is one."""
    for line in reversed(output.splitlines()):
        if line.lstrip().startswith("{"):
            return json.loads(line)
    raise ValueError("no JSON object was printed")


def cpu_seconds() -> float:
    """Processor time of all children that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def run(command: Sequence[str], timeout_s: float = 300, env: Optional[Mapping[str, str]] = None) -> Sample:
    """Runs a program to its end; what it printed last, its numbers only, with the CPU seconds it took (unless it says so itself)."""
    before = cpu_seconds()
    shown = " ".join(" ".join(str(part) for part in command).split())[:120]  # code has lines
    try:
        code, output, errors = _finish(command, timeout_s, {**os.environ, **(env or {})})
    except FileNotFoundError:
        raise BenchmarkError(f"{command[0]} is not there: `make -C csrc bench` builds the C programs") from None
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"`{shown}` did not end within {timeout_s:g} s") from None
    if code != 0:
        raise BenchmarkError(f"`{shown}` failed with {code}: {(errors or output).strip()[-400:]}")
    try:
        outcome = last_json(output)
    except ValueError as error:
        raise BenchmarkError(f"`{shown}`: {error}; it said: {output.strip()[-200:]!r}") from None
    numbers = {name: float(value) for name, value in outcome.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    if numbers.get("failed"):
        raise BenchmarkError(f"`{shown}`: {numbers['failed']:.0f} of its calls failed, so its rate says nothing")
    numbers.setdefault("cpu_s", cpu_seconds() - before)
    return numbers


def _finish(command: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Tuple[int, str, str]:
    """Exit code and output; whatever it started ends with it. Files take the output: a pipe would stay open while a child that it left behind lives."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        words = [str(part) for part in command]
        with subprocess.Popen(words, env=env, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=errors) as process:
            try:
                process.wait(timeout_s)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        errors.seek(0)
        return process.returncode, output.read(), errors.read()


def build_c() -> None:
    """Builds the C programs in benchmarks/c; quick when they are there."""
    done = subprocess.run(["make", "-s", "-C", str(CSRC), "bench"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise BenchmarkError(f"`make -C csrc bench` failed: {done.stdout.strip()[-400:]}")


def c_program(name: str, *arguments: str, timeout_s: float = 300) -> Sample:
    """Runs one of the C programs (bench_rpc, ...)."""
    return run([str(C_PROGRAMS / name), *arguments], timeout_s)


def our_python(code: str, *arguments: str, timeout_s: float = 120) -> Sample:
    """Runs Python code that may import hivemind_c."""
    path = package.path(os.environ.get("PYTHONPATH", ""))
    return run([sys.executable, "-c", code, *arguments], timeout_s, {"PYTHONPATH": path})
