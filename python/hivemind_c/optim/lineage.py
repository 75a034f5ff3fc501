"""Whose replica is the swarm's? Each peer's carries a mark that says how it came about, so that those who drifted apart
notice it when they meet.

Equal marks: equal states, to the bit (where the optimizer's arithmetic is the same). A mark begins as a digest of the
state, and moves on with whatever changes it: an average, by what it is made of; a step with one's own gradient, by
whose it was. An average of what is alike changes nothing, and so moves no mark. So it costs nothing to keep, and
nothing is hashed twice.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Iterable, List, Optional, Tuple

import torch

from hivemind_c.averaging.marks import (
    REACHABLE,
    SIZE,
    WRONG,
    Member,
    Word,
    is_mark,
    right_peers,
    swarms_mark,
    words_of,
)

#: of a mark as numbers that can be averaged: small ones, so that the mean of equal ones is not rounded away from them
DIGITS, BITS = 11, 12


class Lineage:
    def __init__(self, content: Callable[[], Iterable[torch.Tensor]]):
        self._content = content  # the state, as it is now
        self._mark: Optional[bytes] = None
        self._samples = 0
        self.kept = True  #: False: replicas differ on purpose, and nobody asks
        self.is_wrong = False  #: another replica is the swarm's, until its state is loaded
        self.is_reachable = True  #: joiners can download this replica from this peer

    @property
    def mark(self) -> bytes:
        if not self.kept:
            return b""
        if self._mark is None:
            digest = hashlib.blake2b(digest_size=SIZE)
            for tensor in self._content():
                digest.update(memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
            self._mark = digest.digest()
        return self._mark

    def became(self, *what: Any, samples: Optional[int] = None) -> None:
        """The state has changed: all who were equal and did the same are equal again."""
        if not self.kept:
            return
        self._mark = hashlib.blake2b(repr(what).encode(), key=self.mark, digest_size=SIZE).digest()
        self._samples = self._samples if samples is None else samples

    def restart(self, mark: Any = None) -> None:
        """The state is another one: of that mark, or of none that is known."""
        self._mark = mark if is_mark(mark) else None
        self._samples, self.is_wrong = 0, False

    def word(self) -> Word:
        """For the others, when a group forms."""
        if self.is_wrong:
            return [self.mark, WRONG]
        return [self.mark, self._samples + (REACHABLE if self.is_reachable else 0)]

    def compare(self, members: Iterable[Member]) -> Tuple[bool, bool]:
        """By the words of all members of a group, this one among them: whether this replica is the swarm's; whether
        all have the same.
        """
        all_members = list(members)
        told = words_of(all_members)
        is_mine = not told or swarms_mark(all_members) == self.mark
        return is_mine, len(right_peers(all_members)) == len(told)


def digits_of(mark: bytes) -> List[float]:
    """A mark as numbers that travel with a state: their mean is these numbers only if all have that mark."""
    number = int.from_bytes(mark, "little")
    return [float(number >> BITS * i & (1 << BITS) - 1) for i in range(DIGITS)]
