"""python -m hivemind_c.as_hivemind PROGRAM.py or -m MODULE, and arguments: runs that program with hivemind_c in the
place of hivemind."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from typing import List

from hivemind_c.as_hivemind.import_hook import FOLDER

USAGE = """usage: python -m hivemind_c.as_hivemind PROGRAM.py [ARGUMENTS]
       python -m hivemind_c.as_hivemind -m MODULE [ARGUMENTS]

Runs a program that was written for hivemind or lightning-hivemind; its imports of them give hivemind_c."""


def _first_on_path(folder: str) -> None:
    """Puts the program's folder on the path, as Python does for a program, but after FOLDER."""
    if getattr(sys.flags, "safe_path", False):
        return
    rest = [entry for entry in sys.path if entry != FOLDER]
    sys.path[:] = [FOLDER, folder, *rest[1:]]


def main(arguments: List[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        raise SystemExit(0 if arguments else 2)
    first, *rest = arguments
    if first == "-m":
        if not rest:
            raise SystemExit(f"-m cannot be run: no module stands behind it\n{USAGE}")
        sys.argv[:] = ["-m", *rest[1:]]
        return _run_module(rest[0])
    if first.startswith("-"):
        raise SystemExit(f"{first} cannot be run: it is no option\n{USAGE}")
    if not os.path.exists(first):
        raise SystemExit(f"{first} cannot be run: there is no such file; check its path")
    sys.argv[:] = arguments
    _first_on_path(os.path.dirname(os.path.realpath(first)))
    runpy.run_path(first, run_name="__main__")


def _run_module(name: str) -> None:
    try:
        there = importlib.util.find_spec(name) is not None
    except ImportError as error:
        raise SystemExit(f"{name} cannot be run: {error}") from None
    if not there:
        raise SystemExit(f"{name} cannot be run: there is no such module; install it, or check its spelling")
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
