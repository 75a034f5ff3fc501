"""Which replica is the swarm's: the rule that trainers and hubs apply to the words of a group's members.

docs/design/lineage.md has the rules.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from hivemind_c.averaging.control import gathered

SIZE = 16  #: bytes of a mark
TICKET = 16  #: bytes
#: rank of a replica that is known to be another than the swarm's
WRONG = -1
#: added to the rank of a replica that joiners can download from its peer
REACHABLE = 1 << 48
Word = List[Any]  #: [mark, rank]: the rank is WRONG, or the samples behind the last step


class Member(NamedTuple):
    """A member of a group that has averaged."""

    peer: str
    is_client: bool  #: it only dials out
    is_auxiliary: bool  #: it has no replica
    word: Any  #: a stranger's


def members_of(details: Iterable[tuple]) -> List[Member]:
    """Returns the members of a step's result.

    Args:
        details: The tuples of members as the core gives them.
    """
    return [Member(str(one[0]), bool(one[2]), bool(one[3]), gathered(one)) for one in details]


def is_mark(mark: Any) -> bool:
    return isinstance(mark, bytes) and len(mark) == SIZE


def is_word(word: Any) -> bool:
    return isinstance(word, (list, tuple)) and len(word) == 2 and is_mark(word[0]) and type(word[1]) is int


def words_of(members: Iterable[Member]) -> Dict[str, Word]:
    """Returns {peer: word} of the members that have a replica."""
    return {one.peer: one.word for one in members if not one.is_auxiliary and is_word(one.word)}


def swarms_mark(members: Iterable[Member]) -> Optional[bytes]:
    """Returns the mark of the swarm's replica. All who heard the same words say the same. None: no member has a mark.

    Args:
        members: The members of a group.
    """
    all_members = list(members)
    told = [one for one in all_members if not one.is_auxiliary and is_word(one.word)]
    right = [one for one in told if one.word[1] != WRONG] or told
    reached = {one.word[0] for one in right if not one.is_client}
    if reached and not any(one.is_auxiliary and not one.is_client for one in all_members):
        # no hub passes on the state of peers that nobody can dial
        right = [one for one in right if one.word[0] in reached]
    return most_common((one.word[0], one.word[1]) for one in right) if right else None


def right_peers(members: Iterable[Member]) -> Set[str]:
    """Returns the members that have the swarm's replica.

    Args:
        members: The members of a group.
    """
    all_members = list(members)
    mark = swarms_mark(all_members)
    return {peer for peer, word in words_of(all_members).items() if word[0] == mark}


def giver_of(members: Iterable[Member]) -> Optional[str]:
    """Returns the member that sends its state to the hubs of the group, so that the others can load it.

    None: all have one replica, or a peer that has it can be dialled.

    Args:
        members: The members of a group.
    """
    all_members = list(members)
    right = right_peers(all_members)
    can_be_dialled = any(one.peer in right and not one.is_client for one in all_members)
    if can_be_dialled or len(right) == len(words_of(all_members)):
        return None
    return min(right)


def ticket_of(epoch: int, members: Iterable[Member]) -> bytes:
    """Returns the ticket of a state that the giver of a group sends without a request. All its members know it.

    It tells blocks apart, and is no secret: the hub takes a block from the giver alone.

    Args:
        epoch: The epoch that the group ended.
        members: The members of the group.
    """
    told = sorted((peer, word[0]) for peer, word in words_of(members).items())
    return hashlib.blake2b(repr((epoch, told)).encode(), digest_size=TICKET, person=b"hivemind_c gift").digest()


def most_common(words: Iterable[Tuple[bytes, int]]) -> bytes:
    """Returns the mark that most members have; among equals the one with the highest rank, then the larger mark.

    Args:
        words: Marks with their ranks. There is one at least.
    """
    told: Dict[bytes, Tuple[int, int]] = {}
    for mark, rank in words:
        count, most = told.get(mark, (0, WRONG))
        told[mark] = (count + 1, max(most, rank))
    return max(told, key=lambda mark: (*told[mark], mark))
