"""The setup of a run: what must be alike at all peers, as text that travels and that a person can read."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from hivemind_c._text import printable

BYTES_MAX, LINES_MAX, FIELD_MAX, VALUE_MAX = 2048, 40, 60, 100
Difference = Tuple[str, str, str]  #: a field, its value here, its value there
ABSENT = "absent"  #: the value of a field that a setup does not have


@dataclass(frozen=True)
class RunSetup:
    """Ordered pairs of a field and its value, as text of printable characters within the limits above."""

    fields: Tuple[Tuple[str, str], ...]

    def packed(self) -> bytes:
        """Returns the setup as lines "field: value", at most BYTES_MAX bytes."""
        return "".join(f"{field}: {value}\n" for field, value in self.fields).encode()

    @property
    def digest(self) -> bytes:
        """16 bytes that are equal in equal setups."""
        return hashlib.blake2b(self.packed(), digest_size=16).digest()


def shortened(text: Any, most: int) -> str:
    """Returns a text of printable characters; a long one ends with a digest of all of it.

    Args:
        text: Any value.
        most: Most characters of the result, more than 12.
    """
    whole = str(text)
    shown = printable(whole)
    if len(shown.encode()) <= most and shown == whole:
        return shown
    shown = shown.encode("ascii", "replace").decode()[: most - 12]
    return f"{shown}... {hashlib.blake2b(whole.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def run_setup(pairs: Iterable[Tuple[str, Any]]) -> RunSetup:
    """Returns the setup of these pairs. The rest, beyond the limits, is one last field with a digest.

    Args:
        pairs: Fields and their values, the most telling first.
    """
    fields = [(shortened(field, FIELD_MAX).replace(": ", ":"), shortened(value, VALUE_MAX)) for field, value in pairs]
    room, kept = BYTES_MAX - FIELD_MAX, 0
    while kept < min(len(fields), LINES_MAX - 1):
        room -= len("".join(fields[kept]).encode()) + 3
        if room < 0:
            break
        kept += 1
    if rest := fields[kept:]:
        digest = hashlib.blake2b(repr(rest).encode(), digest_size=8).hexdigest()
        return RunSetup((*fields[:kept], ("further settings", f"{len(rest)}, digest {digest}")))
    return RunSetup(tuple(fields))


def parse_setup(packed: Any) -> RunSetup:
    """Returns the setup that a stranger sent.

    Raises ValueError if it is not what packed() makes.

    Args:
        packed: The bytes.
    """
    if type(packed) is not bytes or not 0 < len(packed) <= BYTES_MAX:
        raise ValueError(f"a setup has 1 to {BYTES_MAX} bytes")
    try:
        text = packed.decode()
    except UnicodeDecodeError:
        raise ValueError("a setup is text") from None
    lines = text.split("\n")
    if lines.pop() or not 0 < len(lines) <= LINES_MAX:
        raise ValueError(f"a setup has 1 to {LINES_MAX} lines")
    fields: List[Tuple[str, str]] = []
    for line in lines:
        field, colon, value = line.partition(": ")
        if not (colon and 0 < len(field.encode()) <= FIELD_MAX and len(value.encode()) <= VALUE_MAX):
            raise ValueError("a line of a setup is a field, a colon and a value, neither of them long")
        if not line.isprintable():
            raise ValueError("a setup has printable characters")
        fields.append((field, value))
    if len({field for field, _ in fields}) < len(fields):
        raise ValueError("a setup names each field once")
    return RunSetup(tuple(fields))


def values_of(setup: RunSetup) -> int:
    """Returns the number of the model's values, or 0 if the setup does not say it.

    Args:
        setup: The setup, which may be a stranger's.
    """
    found = re.match(r"[0-9]+ with ([0-9]{1,15}) values\b", dict(setup.fields).get("parameters", ""))
    return int(found[1]) if found else 0


def difference(mine: RunSetup, theirs: RunSetup) -> List[Difference]:
    """Returns all fields whose values differ, in the order of this peer's setup.

    Args:
        mine: The setup of this peer.
        theirs: The setup of another peer.
    """
    here, there = dict(mine.fields), dict(theirs.fields)
    return [
        (field, here.get(field, ABSENT), there.get(field, ABSENT))
        for field in {**here, **there}
        if here.get(field) != there.get(field)
    ]


def in_words(found: List[Difference]) -> str:
    """Returns a clause that names the first fields that differ, with both values.

    Args:
        found: Result of difference(), not empty.
    """
    telling = [one for one in found if ABSENT not in one[1:]][:3] or found[:1]
    shown = "; ".join(f"{field} is {mine} here and {theirs} there" for field, mine, theirs in telling)
    more = len(found) - len(telling)
    return f"{shown}; {more} more setting{'s differ' if more > 1 else ' differs'}" if more else shown


class Verdict(NamedTuple):
    """The verdict of other peers' setups about this peer's."""

    alike: int  #: other peers with the same setup
    differing: Mapping[str, RunSetup]  #: the others, by their IDs
    common: Optional[RunSetup]  #: the most common setup among those that differ; None: none differs

    @property
    def is_alone(self) -> bool:
        """True if others are there and none has the same setup."""
        return not self.alike and self.common is not None


def judge(mine: RunSetup, others: Mapping[str, RunSetup]) -> Verdict:
    """Returns the Verdict.

    Args:
        mine: The setup of this peer.
        others: The setups of other peers, by their IDs.
    """
    differing = {peer: theirs for peer, theirs in others.items() if theirs != mine}
    counts = Counter(differing.values())
    # among equals the same one everywhere
    common = max(counts, key=lambda setup: (counts[setup], setup.digest)) if counts else None
    return Verdict(len(others) - len(differing), differing, common)


class ConfigMismatchError(RuntimeError):
    """This peer is set up differently from all other peers of its run, or from its state, so it does not train.

    Args:
        found: The fields that differ, with the values here and there.
        is_kept: True if no other peer trains, so that the state is one that a hub keeps.
    """

    def __init__(self, found: List[Difference], is_kept: bool = False):
        self.found = found
        self.field, self.mine, self.theirs = found[0]
        if is_kept:
            text = (
                f"cannot continue the run: {in_words(found)}, where a hub keeps a state of an earlier setup and nobody "
                "else trains; begin with another run_id, set this peer up as before, or start the hub without these "
                "checkpoints"
            )
        else:
            text = (
                f"cannot join the run: {in_words(found)}; set this peer up like the others, or give "
                "config_mismatch='warn' to train with them nevertheless"
            )
        super().__init__(text)
