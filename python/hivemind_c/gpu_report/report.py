"""The report: all that was found so far, as report.md and report.json. Needs the standard library alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

MEASURED = ("share", "ratio", "extra", "times as fast")  # a row has one of these if it has a goal
APART = {*MEASURED, "row", "goal", "met", "low", "high", "part"}
REHEARSAL = (
    "It is a rehearsal without a GPU: stand-ins ran in place of the kernels, and no figure says anything of a GPU."
)
TAIL = 30  # lines of a failed step's output


class Report:
    """Holds steps, rows, failures and what is missing. write() puts all of it into the folder, as a whole.

    note: a sentence for the head of a rehearsal, whose figures are held to no goal.
    """

    def __init__(self, folder: Path, command: str, note: str = "") -> None:
        self.folder, self.command, self.note = folder, command, note
        self.machine: Dict[str, Any] = {}
        self.steps: List[Dict[str, Any]] = []
        self.rows: List[Dict[str, Any]] = []
        self.failures: List[Dict[str, Any]] = []
        self.missing: List[Dict[str, str]] = []

    def step(self, part: str, name: str, how: str, seconds: float, result: str = "") -> None:
        self.steps.append({"part": part, "step": name, "how": how, "seconds": round(seconds, 1), "result": result})

    def row(self, part: str, row: Dict[str, Any]) -> None:
        self.rows.append({**row, "part": part, **({"met": met(row)} if "goal" in row and not self.note else {})})

    def failure(self, step: str, how: str, output: str) -> None:
        self.failures.append({"step": step, "how": how, "output": "\n".join(output.splitlines()[-TAIL:])})

    def lacks(self, what: str, missing: str) -> None:
        entry = {"not compared": what, "missing": missing}
        if entry not in self.missing:
            self.missing.append(entry)

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = {
            "command": self.command,
            "note": self.note,
            "machine": self.machine,
            "goals": dict(zip(("met", "all"), self.goals())),
            "steps": self.steps,
            "rows": self.all_rows(),
            "failures": self.failures,
            "missing": self.missing,
        }
        for name, text in (("report.json", json.dumps(whole, indent=1) + "\n"), ("report.md", markdown(self) + "\n")):
            fresh = self.folder / (name + ".part")
            fresh.write_text(text, encoding="utf-8")
            os.replace(fresh, self.folder / name)

    def summary(self) -> str:
        good, goals = self.goals()
        failed = f"{len(self.failures)} of {len(self.steps)} steps failed"
        return f"{failed}, {good} of {goals} goals are met: {self.folder / 'report.md'}"

    def all_rows(self) -> List[Dict[str, Any]]:
        """The rows, and those that are made of several."""
        return self.rows + ([] if self.note else joined(self.rows))

    def goals(self) -> Tuple[int, int]:
        """How many goals are met, and how many there are."""
        verdicts = [row["met"] for row in self.all_rows() if "met" in row]
        return sum(verdicts), len(verdicts)


def measured(row: Dict[str, Any]) -> Optional[str]:
    """The name of the figure that a row's goal is about."""
    return next((name for name in MEASURED if name in row), None)


def met(row: Dict[str, Any]) -> bool:
    sign, goal = row["goal"].split()
    value = row[measured(row) or ""]
    return value >= float(goal) if sign == ">=" else value <= float(goal)


def joined(rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """A round's device part: all chunks encoded and moved out by four threads, against a plain copy of float32 values.

    The copy is the fastest that the row "to pinned memory" of the codec none has seen for as many MB.
    """
    copies: Dict[float, float] = {}
    for row in rows:
        if row["row"] == "to pinned memory" and row["codec"] == "none":
            copies[row["MB"]] = min(row["plain copy ms"], copies.get(row["MB"], row["plain copy ms"]))
    found = []
    for row in rows:
        if row["row"] == "transfers out" and row["threads"] == 4 and row["MB"] in copies:
            plain = copies[row["MB"]]
            ours = {
                "row": "a round's device part",
                "codec": row["codec"],
                "MB": row["MB"],
                "ratio": round(row["ms"] / plain, 3),
            }
            ours.update({"goal": "<= 1.1", "ms": row["ms"], "plain copy ms": plain, "part": row["part"]})
            found.append({**ours, "met": met(ours)})
    return found


# ---- Markdown ----


def cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def table(heads: List[str], rows: List[List[Any]]) -> Iterator[str]:
    yield "| " + " | ".join(map(cell, heads)) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(map(cell, row)) + " |"
    yield ""


def rows_of(kind: str, rows: List[Dict[str, Any]]) -> Iterator[str]:
    """One table for a kind of row: its parameters and other figures, then what was measured beside its goal."""
    yield f"### {kind[:1].upper()}{kind[1:]}\n"
    others = list(dict.fromkeys(name for row in rows for name in row if name not in APART))
    name = next(filter(None, map(measured, rows)), None)
    heads = (
        others
        + ([name, "middle three fifths"] if name else [])
        + (["goal", ""] if any("goal" in row for row in rows) else [])
    )
    lines = []
    for row in rows:
        line = [row.get(other, "") for other in others]
        if name:
            line += [row.get(name, ""), f"{row['low']} to {row['high']}" if "low" in row else ""]
        if "goal" in heads:
            line += [row.get("goal", ""), {True: "met", False: "**missed**"}.get(row.get("met"), "")]
        lines.append(line)
    yield from table(heads, lines)


def markdown(report: Report) -> str:
    rows = report.all_rows()
    good, goals = report.goals()
    gpu = report.machine.get("GPU", "an unnamed machine")
    lines = [
        f"# hivemind_c on {gpu}\n",
        "This page is for people who want to know whether hivemind_c works on this GPU, and how fast it is.",
        f"`{report.command}` wrote it.",
    ]
    lines += [report.note] if report.note else []
    lines += [
        f"{len(report.failures)} of {len(report.steps)} steps failed, and {good} of {goals} performance goals are met.",
        "",
    ]
    lines += ["## Machine\n", *table(["", ""], [[name, value] for name, value in report.machine.items()])]
    steps = [[step[name] for name in ("part", "step", "how", "seconds", "result")] for step in report.steps]
    lines += ["## Steps\n", *table(["part", "step", "how", "seconds", "result"], steps)]
    if rows:
        lines += ["## Figures\n", "Both sides of a comparison are measured in turn, in the same run."]
        lines += [
            "A share is of a copy between two places of the device's memory.",
            "An extra is a part of the plain step's time.",
            "",
        ]
    for kind in dict.fromkeys(row["row"] for row in rows):
        lines += rows_of(kind, [row for row in rows if row["row"] == kind])
    if report.failures:
        lines += ["## Failures\n"]
        for failure in report.failures:
            lines += [
                f"### {failure['step']}: {failure['how']}\n",
                "```text",
                failure["output"].replace("```", "'''"),
                "```\n",
            ]
    if report.missing:
        lines += [
            "## Not compared\n",
            "These steps and comparisons did not run, because this machine lacks something that they need.",
            "",
        ]
        lines += table(["not compared", "missing"], [[one["not compared"], one["missing"]] for one in report.missing])
    return "\n".join(lines).rstrip()
