"""One finding of the doctor's."""

from __future__ import annotations

from typing import NamedTuple, Tuple

OK, NOTE, WARNING, FAULT = "ok", "note", "warning", "fault"


class Finding(NamedTuple):
    """One result of a check."""

    name: str  #: what was looked at, in a word or two that stay the same
    level: str  #: "ok"; "note": nothing to do; "warning": it works, but not as well as it could; "fault": it will not work
    text: str  #: one sentence; of warnings and faults with cause and remedy
    details: Tuple[str, ...] = ()  #: a list behind the sentence, which --verbose shows
