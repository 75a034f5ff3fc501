"""Whose replica is the swarm's? Each peer's carries a mark that says how it came about, so that those who drifted apart
notice it when they meet.

Equal marks: equal states, to the bit (where the optimizer's arithmetic is the same). A mark begins as a digest of the
state, and moves on with whatever changes it: an average, by what it is made of; a step with one's own gradient, by
whose it was. An average of what is alike changes nothing, and so moves no mark. So it costs nothing to keep, and
nothing is hashed twice.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch

SIZE = 16
#: of a mark as numbers that can be averaged: small ones, so that the mean of equal ones is not rounded away from them
DIGITS, BITS = 11, 12
Word = List[Any]  #: what peers tell each other: [mark, samples behind the last step]


class Lineage:
    def __init__(self, content: Callable[[], Iterable[torch.Tensor]]):
        self._content = content  # the state, as it is now
        self._mark: Optional[bytes] = None
        self._samples = 0
        self.kept = True  #: False: replicas differ on purpose, and nobody asks

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
        self._samples = 0

    def word(self) -> Word:
        """For the others, when a group forms."""
        return [self.mark, self._samples]

    def compare(self, words: Iterable[Any]) -> Tuple[bool, bool]:
        """By the words of all members of a group, this one's among them: whether who has this replica may keep it;
        whether all have the same.
        """
        told = [(word[0], word[1]) for word in words if is_word(word)]
        return not told or most_common(told) == self.mark, len({mark for mark, _ in told}) < 2


def is_mark(mark: Any) -> bool:
    return isinstance(mark, bytes) and len(mark) == SIZE


def digits_of(mark: bytes) -> List[float]:
    """A mark as numbers that travel with a state: their mean is these numbers only if all have that mark."""
    number = int.from_bytes(mark, "little")
    return [float(number >> BITS * i & (1 << BITS) - 1) for i in range(DIGITS)]


def is_word(word: Any) -> bool:
    """What is gathered is a stranger's."""
    return isinstance(word, (list, tuple)) and len(word) == 2 and is_mark(word[0]) and type(word[1]) is int


def most_common(words: Iterable[Tuple[bytes, int]]) -> bytes:
    """The mark that the most members have; among equals the one with more samples behind its last step, and after that
    by the marks: all who heard the same words say the same."""
    told: Dict[bytes, Tuple[int, int]] = {}
    for mark, samples in words:
        count, most = told.get(mark, (0, 0))
        told[mark] = (count + 1, max(most, samples))
    return max(told, key=lambda mark: (*told[mark], mark))
