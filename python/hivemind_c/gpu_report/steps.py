"""Steps of a report, each a process under a time limit. Needs the standard library alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Set, Tuple, Union

from .report import Report


@dataclass(frozen=True)
class Command:
    """A program with what it has beside this process's environment. is_pytest: it fails unless a test passed."""

    args: Sequence[str]
    env: Dict[str, str] = field(default_factory=dict)
    is_pytest: bool = False


@dataclass(frozen=True)
class Missing:
    """A step that does not run, because this machine lacks something."""

    what: str


@dataclass(frozen=True)
class Step:
    """`command` is asked when the step's turn has come. needs: steps that have to be done before."""

    name: str
    limit: int  # seconds
    command: Callable[[], Union[Command, Missing]]
    needs: Tuple[str, ...] = ()


class Runner:
    """Runs steps in order. Each writes its output to logs/NAME.log, and the report is whole after each."""

    def __init__(self, report: Report, cwd: Path) -> None:
        self.report, self.cwd = report, cwd
        self.ended: Dict[str, str] = {}  # how each step went

    def part(self, name: str, steps: Sequence[Step]) -> None:
        for step in steps:
            if step.name not in self.ended:  # several parts begin with the same steps
                self.run(name, step)
                self.report.write()

    def run(self, part: str, step: Step) -> None:
        broken = [name for name in step.needs if self.ended.get(name) != "ok"]
        command = Missing(f"the step {broken[0]}") if broken else step.command()
        if isinstance(command, Missing):
            self.end(part, step, "not run", 0, command.what)
            self.report.lacks(step.name, command.what)
            return
        log = self.report.folder / "logs" / f"{step.name.replace(' ', '_')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        code = ended_in_time(command, step.limit, log, self.cwd)
        took = time.monotonic() - begin
        text = log.read_text(encoding="utf-8", errors="replace")
        rows = self.read(part, step, text)
        how = (
            "ok"
            if code == 0
            else f"ended after its limit of {step.limit} s"
            if code is None
            else f"failed with status {code}"
        )
        if how == "ok" and command.is_pytest and not re.search(r"\b\d+ passed", text):
            how = "failed: no test ran"
        self.end(part, step, how, took, f"{rows} rows" if rows else last_words(text))
        if how != "ok":
            self.report.failure(step.name, how, text)

    def end(self, part: str, step: Step, how: str, seconds: float, result: str) -> None:
        self.ended[step.name] = how
        self.report.step(part, step.name, how, seconds, result)
        print(f"{part:<10} {step.name:<24} {how:<10} {seconds:6.1f} s   {result}", flush=True)

    def read(self, part: str, step: Step, text: str) -> int:
        """Rows, the machine and missing packages are JSON objects in the output; pytest names skipped tests.

        Returns the number of rows.
        """
        rows = len(self.report.rows)
        for line in text.splitlines():
            found = json_of(line)
            if "row" in found:
                self.report.row(part, found)
            elif "missing" in found:
                self.report.lacks(step.name, found["missing"])
            elif "machine" in found:
                self.report.machine.update(found["machine"])
            elif skipped := re.match(r"SKIPPED \[\d+\] (\S+): (.*)", line):
                self.report.lacks(f"{step.name}: {skipped[1]}", skipped[2])
        return len(self.report.rows) - rows

    @property
    def failed(self) -> bool:
        return bool(self.report.failures)


def json_of(line: str) -> Dict[str, Any]:
    try:
        found = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def last_words(text: str) -> str:
    """The last line that is no JSON object, at most 120 characters."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("{")]
    return lines[-1].strip("= ")[:120] if lines else ""


def ended_in_time(command: Command, limit: int, log: Path, cwd: Path) -> Union[int, None]:
    """The exit status, or None if the limit was reached. Nothing that the command started is left."""
    with open(log, "wb") as out:
        try:
            child = subprocess.Popen(
                list(command.args), cwd=cwd, env={**os.environ, **command.env}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            out.write(f"{command.args[0]} cannot be started: {error.strerror}\n".encode())
            return 127
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()


def end_on_sigterm() -> None:
    """Lets SIGTERM end this program by SystemExit, so that a step that runs ends with it."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def chosen(parts: Sequence[str], words: Sequence[str]) -> List[str]:
    """The parts that were asked for, in their own order; all if none was. ValueError: one of them is unknown."""
    unknown: Set[str] = set(words) - set(parts)
    if unknown:
        raise ValueError(f"there is no part {sorted(unknown)[0]!r}; choose of: {' '.join(parts)}")
    return [part for part in parts if part in words or not words]
