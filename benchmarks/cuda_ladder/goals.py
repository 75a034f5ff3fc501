"""The measurements of run.sh, each row beside the issue's goal: reads the JSON lines of the logs in a folder, and writes one line for each that has one."""

import json
import sys
from pathlib import Path
from typing import Iterator

MEASURED = ("share", "ratio", "extra", "times as fast")  # under one of these names a row has what its goal speaks of
NO_PLACE = {*MEASURED, "row", "goal", "low", "high", "ms", "GB/s", "plain copy ms"}


def rows(folder: Path) -> Iterator[dict]:
    for log in sorted(folder.glob("*.log")):
        for line in log.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)


def judged(row: dict) -> str:
    value = next(row[name] for name in MEASURED if name in row)
    sign, goal = row["goal"].split()
    met = value >= float(goal) if sign == ">=" else value <= float(goal)
    place = ", ".join(f"{name} {what}" for name, what in row.items() if name not in NO_PLACE)
    return f"{'met   ' if met else 'MISSED'} {value:<7g} goal {row['goal']:<7} {row['row']}: {place}"


if __name__ == "__main__":
    all_rows = [judged(row) for row in rows(Path(sys.argv[1])) if "goal" in row]
    print(*all_rows, f"{sum(one.startswith('met') for one in all_rows)} of {len(all_rows)} goals met", sep="\n")
