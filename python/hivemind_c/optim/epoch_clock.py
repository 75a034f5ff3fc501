"""EpochClock: the time of a thread, divided among its occupations."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Callable, Dict, Iterator

from hivemind_c.optim.epoch_record import OCCUPATIONS


class EpochClock:
    """Counts each moment of one thread for the occupation that the thread is in then.

    Args:
        now: Returns the time in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self.now = now
        self._begun = self._since = now()
        self._occupation = OCCUPATIONS[0]
        self._spent = dict.fromkeys(OCCUPATIONS, 0.0)

    def _count(self) -> None:
        now = self.now()
        self._spent[self._occupation] += now - self._since
        self._since = now

    @contextmanager
    def enter(self, occupation: str) -> Iterator[None]:
        """A context of an occupation. Within it another one may be entered."""
        self._count()
        before, self._occupation = self._occupation, occupation
        try:
            yield
        finally:
            self._count()
            self._occupation = before

    def move(self, seconds: float, to: str) -> float:
        """Counts seconds of waiting for another occupation instead, at most those that there are. Returns how many."""
        seconds = min(max(0.0, seconds), self._spent["waiting"])
        self._spent["waiting"] -= seconds
        self._spent[to] += seconds
        return seconds

    def take(self) -> Dict[str, float]:
        """Returns the seconds of each occupation since the last call, and all of them as "wall"."""
        self._count()
        spent = {**self._spent, "wall": self._since - self._begun}
        self._begun, self._spent = self._since, dict.fromkeys(OCCUPATIONS, 0.0)
        return spent
