"""Runs the measurement of one kind: ``python -m hivemind_c.gpu_report.row NAME``. It prints one JSON object a line.

A package that the measurement needs and that is missing is printed as such, and is no failure.
"""

from __future__ import annotations

import importlib
import json
import sys

ROWS = ("equal", "codecs", "casts", "powersgd", "micro", "blockwise", "offload", "rounds")


def main(name: str) -> int:
    if name not in ROWS:
        print(f"there is no measurement {name!r}; choose of: {' '.join(ROWS)}", file=sys.stderr)
        return 2
    try:
        work = importlib.import_module(f"hivemind_c.gpu_report.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "hivemind_c").split(".")[0] in ("hivemind_c", "_hivemind_c"):
            raise
        print(json.dumps({"missing": error.name}))
        return 0
    return work.main() or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
