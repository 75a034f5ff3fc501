"""Decisions that peers and hubs recorded (HIVEMIND_RECORD), side by side by time."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, Iterator, List, Sequence

from hivemind_c._text import printable

Line = Dict[str, Any]
_HEAD = ("time", "peer", "run", "role", "what")
WIDTH = 44  #: letters of one peer's column
LINE_MAX = 1 << 16  #: bytes of a line that is read


def read(folder: str) -> List[Line]:
    """Returns all lines of the files in a folder, by time. Lines that are no record are passed over.

    Raises ValueError if there is none.

    Args:
        folder: The folder, or one that holds the folders of several machines.
    """
    found = []
    for path in sorted(pathlib.Path(folder).rglob("*.jsonl")):
        with open(path, encoding="utf-8", errors="replace") as file:
            found += [line for text in file if len(text) <= LINE_MAX and (line := _line(text)) is not None]
    if not found:
        raise ValueError(f"no records in {folder!r}: give the folder that HIVEMIND_RECORD named when the peers ran")
    return sorted(found, key=lambda line: line["time"])


def _line(text: str) -> Any:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # the last line of a peer that was killed may be cut
        return None
    fits = isinstance(line, dict) and type(line.get("time")) in (int, float) and all(
        isinstance(line.get(name), str) for name in _HEAD[1:]
    )
    return line if fits else None


def peers_of(lines: Sequence[Line]) -> List[str]:
    """Returns the peers of records in the order in which they began, hubs first.

    Args:
        lines: Lines of read().
    """
    roles: Dict[str, str] = {}
    for line in lines:
        roles.setdefault(line["peer"], line["role"])
    return sorted(roles, key=lambda peer: roles[peer] != "hub")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}:{_text(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if value is None:
        return "-"
    return ("no", "yes")[value] if isinstance(value, bool) else printable(str(value))


def cell(line: Line) -> str:
    """Returns a decision with its figures as one text.

    Args:
        line: A line of read().
    """
    figures = " ".join(f"{name}={_text(value)}" for name, value in line.items() if name not in _HEAD)
    return f"{printable(line['what'])} {figures}".strip()


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Yields the rows of the table: the time in seconds, and a column for each peer. A long text continues below.

    Args:
        lines: Lines of read(), at least one.
    """
    peers = peers_of(lines)
    roles = {line["peer"]: line["role"] for line in lines}
    yield "  seconds  " + "".join(printable(f"{roles[peer]} {peer}").ljust(WIDTH) for peer in peers).rstrip()
    for line in lines:
        text, column = cell(line), peers.index(line["peer"])
        moment = f"{line['time'] - lines[0]['time']:9.3f}  "
        for part in _wrapped(text):
            yield moment + " " * (WIDTH * column) + part
            moment = " " * len(moment)


def _wrapped(text: str) -> Iterator[str]:
    row = ""
    for word in text.split(" "):
        if row and len(row) + 1 + len(word) >= WIDTH:
            yield row
            row = "  " + word
        else:
            row = f"{row} {word}" if row else word
    yield row
