"""Times of the parts of `make test`, held against tests/times.txt.

    python scripts/times.py run C -- make check     runs a command as a part of a run of the tests
    python scripts/times.py accept                  the newest complete run becomes tests/times.txt

A time of a processor depends on the machine, so each part has the seconds that one piece of work took beside it: its
unit.
"""

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "times.txt"
BEGUN = ROOT / "build" / "times-begun.json"  #: of the run under way
NEWEST = ROOT / "build" / "times.json"  #: of the newest run of which all parts have ended
GROWTH, LEAST_S = 1.2, 10.0  #: a part has grown if it takes so many times as long, and so many seconds more
QUIET = 0.1  #: waits are judged if others took at most this part of the processors
EACH_S = 10.0  #: between two measurements of the unit
HEAD = "part cpu_s wall_s unit_ms".split()


def unit():
    """Seconds of a processor that a piece of work takes here and now."""
    begun, block = time.thread_time(), b"\0" * 4096
    for _ in range(2000):
        block = hashlib.sha256(block).digest() * 128
    return time.thread_time() - begun


def used(who):
    """Seconds of a processor that resource.RUSAGE_SELF or RUSAGE_CHILDREN has taken."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def busy():
    """Seconds of all processors of this machine that anybody has taken."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, *_ = map(int, stat.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def part_of(test):
    """The part of a test: its folder below tests/py, or "form"."""
    words = test.split("/")
    return words[2] if words[:2] == ["tests", "py"] and len(words) > 3 else "form"


def parts():
    """The parts that a complete run has."""
    folders = (ROOT / "tests" / "py").iterdir()
    return ["C", "form", *sorted(path.name for path in folders if any(path.glob("test_*.py")))]


def as_part(cpu_s, wall_s, units):
    return {"cpu_s": round(cpu_s, 1), "wall_s": round(wall_s, 1), "unit_ms": round(1000 * statistics.median(units), 2)}


def run(part, command):
    """Runs a command as the first part of a run; its exit code."""
    begun, busy_before = time.monotonic(), busy()
    process, units, due = subprocess.Popen(command), [unit()], time.monotonic() + EACH_S
    while process.poll() is None:
        time.sleep(0.05)
        if time.monotonic() > due:
            units.append(unit())
            due = time.monotonic() + EACH_S
    took = as_part(used(resource.RUSAGE_CHILDREN), time.monotonic() - begun, units)
    BEGUN.parent.mkdir(exist_ok=True)
    BEGUN.write_text(json.dumps({"busy_before": busy_before, "begun": time.time(), "parts": {part: took}}))
    return process.returncode


def complete(more, begun=BEGUN, newest=NEWEST):
    """Adds the parts of pytest to the run under way. The parts of all, or None if none is under way."""
    if not begun.exists():
        return None
    told = json.loads(begun.read_text())
    told["parts"].update(more)
    took = sum(part["cpu_s"] for part in told["parts"].values())
    whole = (time.time() - told["begun"]) * os.cpu_count()
    told["others"] = round(max(0.0, busy() - told.pop("busy_before") - took) / max(whole, 1.0), 3)
    newest.write_text(json.dumps(told))
    begun.unlink()
    return told["parts"]


def table_of(text):
    """The rows of a table: part -> its times."""
    rows = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert rows[0] == HEAD, f"the first line of a table of times is {' '.join(HEAD)}"
    return {part: dict(zip(HEAD[1:], map(float, times))) for part, *times in rows[1:]}


def as_table(times):
    lines = [HEAD] + [[part, *(f"{times[part][name]:g}" for name in HEAD[1:])] for part in times]
    return "".join(f"{part:<12}{cpu:>8}{wall:>8}{unit:>8}\n" for part, cpu, wall, unit in lines)


def grown(table, seen, others):
    """Lines about the parts that take longer than the table says, on a machine as fast as the table's.

    Args:
        table: Times by part.
        seen: Times of a run by part.
        others: Part of the processors that other programs took meanwhile.
    """
    lines = []
    for part, now in seen.items():
        if part not in table:
            lines.append(f"{part} is not in the table")
            continue
        was = table[part]
        pairs = [("of a processor", was["cpu_s"], now["cpu_s"] * was["unit_ms"] / now["unit_ms"])]
        if others <= QUIET and now["unit_ms"] <= GROWTH * was["unit_ms"]:
            pairs.append(("of its tests", was["wall_s"], now["wall_s"]))
        for what, before, after in pairs:
            if after > GROWTH * before and after > before + LEAST_S:
                lines.append(f"{part} took {after:.0f} s {what}, and the table has {before:.0f} s")
    return lines


def main():
    if sys.argv[1:2] == ["run"] and sys.argv[3:4] == ["--"]:
        return run(sys.argv[2], sys.argv[4:])
    if sys.argv[1:] == ["accept"]:
        told = json.loads(NEWEST.read_text())
        head = "".join(line for line in TABLE.read_text().splitlines(keepends=True) if line.startswith("#"))
        TABLE.write_text(head + as_table({part: told["parts"][part] for part in parts()}))
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
