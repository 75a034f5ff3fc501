"""python -m benchmarks --list | ROW [--json] [--rounds N] [--against WHEEL] [--quick] [--keep FILE] | peers"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import pkgutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional

from benchmarks import package, peers, rows
from benchmarks.ending import leaving_nothing
from benchmarks.frame import BenchmarkError, Run, as_json, as_table
from benchmarks.kept import Kept


def all_rows() -> Dict[str, Any]:
    """Every module in benchmarks/rows/, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(rows.__path__))
    return {name.replace("_", "-"): importlib.import_module(f"benchmarks.rows.{name}") for name in names}


def listing(known: Dict[str, Any]) -> str:
    """One line for each row: its name, what it measures, what it aims at."""
    lines: List[str] = []
    for name, row in known.items():
        goals = ", ".join(f"{ratio} >= {goal:g}" for ratio, goal in row.GOALS.items())
        lines.append(f"{name:<12} {row.__doc__.strip().splitlines()[0]}" + (f" [{goals}]" if goals else ""))
    return "\n".join(lines)


def main(arguments: Optional[List[str]] = None, known: Optional[Dict[str, Any]] = None) -> int:
    known = all_rows() if known is None else known
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures hivemind_c against its peers, in turns within one run.")
    parser.add_argument("row", nargs="?", help=f"one of {', '.join(known)}; or `peers`, which makes .venv-peers")
    parser.add_argument("--list", action="store_true", help="say what can be measured")
    parser.add_argument("--json", action="store_true", help="print the JSON line only")
    parser.add_argument("--rounds", type=int, metavar="N", help="how often each side is measured")
    parser.add_argument("--against", metavar="WHEEL", help="set this tree against a wheel of hivemind_c, in place of plain PyTorch and hivemind")
    parser.add_argument("--quick", action="store_true", help="the short form of a row that has one, to see that it works: its figures say nothing")
    parser.add_argument("--keep", metavar="FILE", help="write each turn into FILE, and measure none that is there: an interrupted run continues")
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds: give 1 or more")
    if options.list:
        print(listing(known))
        return 0
    if options.row not in known and options.row != "peers":
        parser.error(f"{'say which row' if options.row is None else f'no row is called {options.row}'}: {', '.join(known)}, or --list")

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        if options.row == "peers":
            print(f".venv-peers stands: {peers.make(say)}")
            return 0
        row = known[options.row]
        with leaving_nothing(), contextlib.ExitStack() as stack:
            within = None if options.against is None else functools.partial(package.using, stack.enter_context(package.unpacked(options.against)))
            kept = None if options.keep is None else Kept(Path(options.keep))
            run = Run(options.row, options.rounds or (1 if options.quick else row.ROUNDS), say, within, kept, options.quick)
            row.measure(run)
    except BenchmarkError as error:
        say(f"benchmarks: {error}")
        return 2
    if not options.json:
        print(as_table(run, row.GOALS))
    print(as_json(run, row.GOALS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
