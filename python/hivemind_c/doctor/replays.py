"""Replays of the events that machines recorded (HIVEMIND_RECORD): does this build decide as the one that recorded them?"""

from __future__ import annotations

import mmap
import pathlib
from typing import Iterator, NamedTuple

import _hivemind_c

from hivemind_c._record import EVENTS
from hivemind_c._text import printable


class Replay(NamedTuple):
    """One machine's record, replayed."""

    name: str  #: of the file, below its folder
    events: int  #: that are whole
    differing: int  #: events in which this build decides otherwise
    first: str  #: the first of them in words
    note: str  #: why the record ends early, or what this build passes over
    fault: str  #: why the file cannot be read; else empty

    @property
    def is_alike(self) -> bool:
        """True if all of it was read, and each decision is the recorded one."""
        return not self.differing and not self.fault


def replay(path: pathlib.Path, name: str = "") -> Replay:
    """Replays one file.

    Args:
        path: The file.
        name: Name to show. Default: that of the file.
    """
    name = name or path.name
    try:
        with open(path, "rb") as file:
            if not path.stat().st_size:
                return Replay(name, 0, 0, "", "", "")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as record:
                found = _hivemind_c.replay(record)
    except (OSError, ValueError) as error:
        return Replay(name, 0, 0, "", "", str(error))
    note = f"the record ends early: {found['end']}" if found["end"] else ""
    if found["unknown"]:
        note = f"this build does not know {found['unknown']}, and passes it over"
    first = "\n".join(map(printable, found["first"].split("\n")))
    return Replay(name, found["events"], found["differing"], first, printable(note), "")


def replays(folder: str) -> Iterator[Replay]:
    """Yields the replay of each record in a folder, or below it. Raises ValueError if there is none.

    Args:
        folder: The folder.
    """
    paths = sorted(pathlib.Path(folder).rglob(f"*{EVENTS}"))
    if not paths:
        raise ValueError(f"no events in {folder!r}: give the folder that HIVEMIND_RECORD named when the peers ran")
    for path in paths:
        yield replay(path, str(path.relative_to(folder)))


def words(one: Replay) -> str:
    """Returns a replay as text: a line, and the first difference below it.

    Args:
        one: The replay.
    """
    said = f"{printable(one.name)}: {one.events} events"
    if one.fault:
        return f"{printable(one.name)}: {one.fault}"
    if one.differing:
        said += f", of which {one.differing} are decided otherwise; the first is\n  {one.first}"
    else:
        said += ", each decided as recorded"
    return f"{said}\n  {one.note}" if one.note else said
