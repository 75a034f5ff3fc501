"""The known holes of the gRPC core that is loaded, from a table with a date: no network is asked."""

from __future__ import annotations

import functools
import logging
import re
from typing import List, NamedTuple, Tuple

import _hivemind_c

logger = logging.getLogger("hivemind_c.net")
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
    Hole("CVE-2023-44487", ("1.56.3", "1.57.1", "1.58.2", "1.59.2"), "calls that are begun and reset cost time"),
    Hole(
        "CVE-2024-7246",
        ("1.58.3", "1.59.5", "1.60.2", "1.61.3", "1.62.3", "1.63.2", "1.64.3", "1.65.4"),
        "none: no proxy is between peers",
    ),
    Hole("CVE-2024-11407", ("1.66.2",), "none: sending without a copy is off"),
)


def numbers(version: str) -> Tuple[int, ...]:
    """(1, 66, 2) for "1.66.2-pre1"."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def is_open(hole: Hole, version: str) -> bool:
    """Whether a version lacks the fix; one of a branch that never had it counts as open."""
    here = numbers(version)
    fixes = [numbers(text) for text in hole.fixed]
    own = [fix for fix in fixes if fix[:2] == here[:2]]
    return here < own[0] if own else here < fixes[-1]


def open_holes(version: str = _hivemind_c.GRPC_VERSION) -> List[Hole]:
    return [hole for hole in TABLE if is_open(hole, version)]


def sentence(version: str = _hivemind_c.GRPC_VERSION) -> str:
    """Returns one sentence: the known holes of this version, and the remedy."""
    holes = ", ".join(hole.name for hole in open_holes(version))
    if not holes:
        return f"gRPC {version} has no hole that was known on {AS_OF}"
    return (
        f"gRPC {version} has known holes ({holes}; as of {AS_OF}), so a stranger can cost this peer time and memory: "
        f"build hivemind_c after `make grpc`, or where the system has gRPC {WITHOUT} or later"
    )


@functools.lru_cache(maxsize=None)
def tell() -> None:
    """Logs the sentence once in a process, if there are holes."""
    if open_holes():
        logger.info("%s", sentence())
