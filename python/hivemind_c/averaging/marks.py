"""Which replica is the swarm's: the members of a group as an Optimizer hands them to the core.

The rule is in csrc/core/epoch/lineage.c, and docs/design/lineage.md explains it. A hub's members stay in C
(csrc/core/epoch/driver.c).
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

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


def members_of(group: Iterable[Tuple[Any, ...]]) -> List[Member]:
    """Returns the members of a group as the result of its round has them.

    Args:
        group: The first part of that result.
    """
    return [Member(peer, client, auxiliary, word) for peer, _, client, auxiliary, word, _ in group]


def view_of(members: Sequence[Member]) -> View:
    """Returns what the words of a group say. All who heard the same words get the same.

    Args:
        members: The members of a group.
    """
    return View(*_hivemind_c.lineage_view(members))
