"""Which replica is the swarm's: the members of a group as an Optimizer hands them to the core.

The rule is in csrc/core/epoch/lineage.c, and docs/design/lineage.md explains it. A hub's members stay in C
(csrc/core/epoch/driver.c).
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

import _hivemind_c


class Member(NamedTuple):
    """A member of a group that has averaged."""

    peer: str
    is_client: bool  #: it only dials out
    is_auxiliary: bool  #: it has no replica
    word: bytes  #: as it travelled: packed [mark, rank], or a stranger's anything


class View(NamedTuple):
    """The words of a group's members, judged."""

    swarms: Optional[bytes]  #: mark of the swarm's replica; None: no member has a mark
    right: List[str]  #: members that have it
    marks: Dict[str, bytes]  #: of the members that have a replica, by their IDs
    #: The member that sends its state to the hubs of the group, so that the others can load it. None: all have one
    #: replica, or a peer that has it can be dialled.
    giver: Optional[str]


def view_of(members: Sequence[Member]) -> View:
    """Returns what the words of a group say. All who heard the same words get the same.

    Args:
        members: The members of a group.
    """
    return View(*_hivemind_c.lineage_view(members))
