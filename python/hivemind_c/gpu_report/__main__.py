"""The report of an installed package: ``python -m hivemind_c.gpu_report``.

Without a GPU it says in one sentence what is missing, and ends with status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from . import machine
from .report import REHEARSAL, Report
from .steps import Command, Runner, Step, chosen, end_on_sigterm

MODULE = "hivemind_c.gpu_report"
OF_THE_TREE = "kernels in C, all tests, compute-sanitizer"


def row(name: str, limit: int) -> Step:
    return Step(name, limit, lambda: Command([sys.executable, "-m", f"{MODULE}.row", name]))


def parts() -> Dict[str, List[Step]]:
    return {
        "correct": [Step("machine", 60, lambda: Command([sys.executable, machine.__file__])), row("equal", 120)],
        "rounds": [row("rounds", 180)],
        "figures": [row(name, 80) for name in ("codecs", "casts", "powersgd", "micro", "blockwise", "offload")],
    }


def why_not() -> Optional[str]:
    """Why no GPU can be used, in one sentence. None: it can."""
    try:
        import torch
    except ImportError:
        return "torch is missing; install torch for CUDA"
    from hivemind_c import cuda

    reason = cuda.why_not()
    if reason is None and not torch.cuda.is_available():
        return "no GPU can be used: torch sees none; install torch for CUDA"
    return reason


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}", description="Check the kernels on GPU 0, measure them, and write a report."
    )
    parser.add_argument("part", nargs="*", help=f"of: {' '.join(parts())}; all by default")
    parser.add_argument("--results", default="gpu-results", help="the folder of report.md, report.json and logs/")
    options = parser.parse_args(arguments)
    try:
        wanted = chosen(list(parts()), options.part)
    except ValueError as error:
        parser.error(str(error))
    rehearsal = bool(os.environ.get("HIVEMIND_GPU_STAND_IN"))
    reason = None if rehearsal else why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 1
    report = Report(
        Path(options.results).resolve(),
        " ".join([f"python -m {MODULE}", *options.part]),
        REHEARSAL if rehearsal else "",
    )
    report.lacks(OF_THE_TREE, "nvcc and the source tree: there, run make gpu")
    runner = Runner(report, Path.cwd())
    end_on_sigterm()
    report.write()
    for name in wanted:
        runner.part(name, parts()[name])
    print(report.summary())
    return 1 if runner.failed else 0


if __name__ == "__main__":
    sys.exit(main())
