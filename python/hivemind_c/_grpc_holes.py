"""The known holes of the gRPC core that is loaded, from a table with a date: no network is asked."""

from __future__ import annotations

import functools
import logging
import re
from typing import List, NamedTuple, Optional, Tuple

import _hivemind_c

logger = logging.getLogger("hivemind_c.net")
#: what CVE-2023-44487 costs a peer of an open swarm, by measurements with 1.51.1 (docs/design/defences.md)
RESETS = (
    "one connection that resets its calls can take 700 MB and delay other calls for 6 s; "
    "in a closed swarm a member alone can do that"
)
AS_OF = "2026-11-26"
WITHOUT = "1.66.2"  #: the first version without a hole of the table


class Hole(NamedTuple):
    """One hole of gRPC's C core, as published."""

    name: str
    fixed: Tuple[str, ...]  #: the first version of each branch that has the fix; later branches have it, too
    effect: str  #: on hivemind_c


TABLE = (
    Hole("CVE-2023-1428", ("1.53.0",), "not reproduced in 1.51.1"),
    Hole("CVE-2023-32732", ("1.53.0",), "a peer ends its own connection"),
    Hole("CVE-2023-4785", ("1.53.2", "1.54.3", "1.55.2", "1.56.2"), "none: hivemind_c accepts connections itself"),
    Hole("CVE-2023-33953", ("1.53.2", "1.54.3", "1.55.2", "1.56.2"), "headers cost memory and time before their limit"),
    Hole(
        "CVE-2023-44487",
        ("1.56.3", "1.57.1", "1.58.2", "1.59.2"),
        RESETS,
    ),
    Hole(
        "CVE-2024-7246",
        ("1.58.3", "1.59.5", "1.60.2", "1.61.3", "1.62.3", "1.63.2", "1.64.3", "1.65.4"),
        "none: no proxy is between peers",
    ),
    Hole("CVE-2024-11407", ("1.66.2",), "none: sending without a copy is off"),
)


# grpc_version_string() gives the version of the core, which all patch releases of a branch share.
#: the release of each first core version, where the number of the core does not say it
BRANCHES = {(29, 0): (1, 51), (30, 0): (1, 52), (30, 1): (1, 53)}
STEADY = 31, 44, 23  #: from this core to that one, release 1.(core + 23); later ones are not in the table


def numbers(version: str) -> Tuple[int, ...]:
    """(1, 66, 2) for "1.66.2-pre1"."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def branch(core: str) -> Tuple[int, ...]:
    """The release of a core version: (1, 51) for "29.0.0", (1, 50) for all before, the last one for all after."""
    first, last, more = STEADY
    major = numbers(core)[0]
    if major >= first:
        return 1, min(major, last) + more
    return BRANCHES[max(found)] if (found := [one for one in BRANCHES if one <= numbers(core)[:2]]) else (1, 50)


def named(core: str) -> str:
    """Returns a name such as "gRPC 1.51 (core 29.0.0)", or the core alone if its release is not known."""
    known = (29, 0) <= numbers(core)[:2] and numbers(core)[0] <= STEADY[1]
    return f"gRPC {'.'.join(map(str, branch(core)))} (core {core})" if known else f"gRPC (core {core})"


def fix_of(hole: Hole, core: str) -> Optional[str]:
    """The patch release of this core's branch that fixes a hole; None if none is needed, or there is none."""
    return next((fix for fix in hole.fixed if numbers(fix)[:2] == branch(core) and numbers(fix)[2]), None)


def is_open(hole: Hole, core: str) -> bool:
    """Whether a release with this core has the hole; a fix by a patch release counts as missing."""
    return fix_of(hole, core) is not None or branch(core) < numbers(hole.fixed[-1])[:2]


def open_holes(core: str = _hivemind_c.GRPC_CORE_VERSION) -> List[Hole]:
    return [hole for hole in TABLE if is_open(hole, core)]


def details(core: str = _hivemind_c.GRPC_CORE_VERSION) -> List[str]:
    """Returns a line for each known hole of this core: its name, the patch release with the fix, the effect."""
    lines = []
    for hole in open_holes(core):
        fix = fix_of(hole, core)
        lines.append(f"{hole.name}{f' before {fix}' if fix else ''}: {hole.effect}")
    return lines


def sentence(core: str = _hivemind_c.GRPC_CORE_VERSION) -> str:
    """Returns one sentence: how many known holes this core has, and the remedy."""
    holes = open_holes(core)
    if not holes:
        return f"{named(core)} has no hole that was known on {AS_OF}"
    return (
        f"{named(core)} has {len(holes)} known hole{'s' if len(holes) > 1 else ''}, so a stranger can cost this peer "
        f"time and memory: run `make grpc` in the clone, or install what `make wheel` makes, which brings a "
        "current gRPC"
    )


@functools.lru_cache(maxsize=None)
def tell() -> None:
    """Logs the sentence once in a process, if there are holes."""
    if open_holes():
        logger.info("%s", sentence())
