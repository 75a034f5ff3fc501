"""Recorder: with HIVEMIND_RECORD=folder, a peer or hub writes its decisions about epochs and states, and their figures.

Each decision is a line of JSON in a file of this process. Beside it, the core writes the events of each machine into a
file of its own (csrc/core/epoch/trace.h). Neither holds data of the model.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import pathlib
import threading
import time
from typing import Any, Dict, Optional

logger = logging.getLogger("hivemind_c")
VARIABLE = "HIVEMIND_RECORD"
EVENTS = ".events"  #: suffix of the core's files
MOST = 128 << 20  #: bytes of a file of decisions; the core's files end at the same size
SHORT = 6  #: letters at the end of a peer's ID that name it, and of digits of a mark


class _File:
    """The file of one process. A line is written whole, by any thread."""

    def __init__(self, folder: str):
        self._lock, self.place = threading.Lock(), (os.getpid(), folder)
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        self._file = open(pathlib.Path(folder) / f"{os.getpid()}-{time.time_ns()}.jsonl", "a", encoding="utf-8")
        self._left = MOST

    def write(self, line: str) -> None:
        """Appends a line. Raises OSError if the file has reached its limit.

        Args:
            line: The line, with its end.
        """
        with self._lock:
            self._left -= len(line)
            if self._left < 0:
                raise OSError(f"{self._file.name} has reached its limit of {MOST >> 20} MiB")
            self._file.write(line)
            self._file.flush()


_file: Optional[_File] = None
_failed = False
_opening = threading.Lock()


def _opened() -> Optional[_File]:
    """The file of this process, or None if nothing is recorded."""
    global _file, _failed
    folder = os.environ.get(VARIABLE, "")
    if not folder or _failed:
        return None
    with _opening:
        if _file is None or _file.place != (os.getpid(), folder):
            try:
                _file = _File(folder)
            except OSError as error:
                _failed = True
                logger.warning(
                    "cannot record decisions: %s names %r: %s; set it to a folder that can be written",
                    VARIABLE,
                    folder,
                    error.strerror or error,
                )
                return None
        return _file


_machines = itertools.count()


def events_path(peer_id: Any) -> str:
    """Returns the name of a new file for the events of one machine, or "" if nothing is recorded.

    Args:
        peer_id: ID of the peer.
    """
    if _opened() is None:
        return ""
    name = f"{os.getpid()}-{time.time_ns()}-{next(_machines)}-{short(peer_id)}{EVENTS}"
    return str(pathlib.Path(os.environ[VARIABLE]) / name)


def short(peer_id: Any) -> str:
    """Returns the end of a peer's ID, which tells peers of a run apart."""
    return str(peer_id)[-SHORT:]


class Recorder:
    """Writes the decisions of one peer of a run. Without HIVEMIND_RECORD it does nothing.

    Args:
        peer_id: ID of the peer.
        run_id: Name of the run.
        role: "trainer", "client", "auxiliary" or "hub".
    """

    def __init__(self, peer_id: Any, run_id: str, role: str):
        self._file = _opened()
        self._head: Dict[str, Any] = {"peer": short(peer_id), "run": run_id, "role": role}

    def __bool__(self) -> bool:
        return self._file is not None

    def __call__(self, what: str, **figures: Any) -> None:
        """Writes one decision.

        Args:
            what: Name of the decision.
            **figures: The figures that it follows from: numbers, words, and marks as bytes.
        """
        if self._file is None:
            return
        line = {"time": round(time.time(), 4), **self._head, "what": what, **figures}
        try:
            self._file.write(json.dumps(line, default=_plain) + "\n")
        except (OSError, ValueError) as error:
            self._file = None
            logger.warning("cannot record decisions any more: %s; the peer continues without", error)


def _plain(value: Any) -> Any:
    return value.hex()[:SHORT] if isinstance(value, (bytes, bytearray)) else str(value)
