"""The end of a run: SIGTERM and SIGHUP unwind it as Ctrl-C does, and no process that it started outlives it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Iterator, List

PR_SET_CHILD_SUBREAPER = 36
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
END_S = 10.0  #: a process that still lives by then waits in the kernel, and ends when it returns


@contextlib.contextmanager
def leaving_nothing() -> Iterator[None]:
    """Ends all processes that the body has started, also those of its children, whatever ends the body.

    Linux only; elsewhere a row ends its own children.
    """
    before = {number: signal.signal(number, _unwind) for number in SIGNALS}
    adopts = sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    spared = set(_children()) if adopts else set()
    try:
        yield
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # once is enough: the end is short
        if adopts:
            _end_all(spared)
        for number, handler in before.items():
            signal.signal(number, handler)


def _unwind(number: int, frame: Any) -> None:
    """Raises the exit of a program that the signal ends, so that every `finally` runs."""
    raise SystemExit(128 + number)


def _end_all(spared: set) -> None:
    """Kills the children of this process until none is left: those of a child that ended become this one's."""
    end = time.monotonic() + END_S
    while (left := [pid for pid in _children() if pid not in spared]) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _children() -> List[int]:
    """Children of this process, in no order."""
    own, found = os.getpid(), []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == own:
                found.append(int(stat.parent.name))
    return found
