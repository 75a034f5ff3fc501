"""ClockCheck: how far the clocks of the run's other peers are from this machine's, by what their news say."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, List, Optional

from hivemind_c.dht.news import ask, keys, read_all

FIRST_S, PERIOD_S = 10.0, 300.0  #: seconds until the first check, and from one to the next
ENOUGH = 16  #: peers whose clocks suffice


class ClockCheck:
    """Asks the DHT for the other peers' news now and then, one key at a time, and waits for no answer.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        now: Returns the time in seconds, from any beginning.
    """

    def __init__(self, dht: Any, run_id: str, now: Callable[[], float] = time.monotonic):
        self._dht, self._run_id, self._now = dht, run_id, now
        self._next = now() + FIRST_S
        self._keys: List[str] = []
        self._asked: Any = None
        self._found: List[float] = []
        self.offset: Optional[float] = None  #: seconds by which others' clocks are ahead, their median

    def look(self) -> None:
        """Takes the answer that has come, and asks the next question when it is time."""
        if self._asked is not None:
            if not self._asked.done():
                return
            self._take()
        elif not self._keys and self._now() >= self._next:
            self._next, self._keys, self._found = self._now() + PERIOD_S, list(keys(self._run_id)), []
        if self._keys and self._asked is None:
            self._asked = ask(self._dht, self._keys[0])

    def _take(self) -> None:
        asked, self._asked = self._asked, None
        key, self._keys = self._keys[0], self._keys[1:]
        for peer, news, age in read_all(self._run_id, key, asked.result(0)):
            if peer != self._dht.peer_id:
                self._found.append(news.time + age - time.time())
        if len(self._found) >= ENOUGH:
            self._keys = []
        if not self._keys:
            self.offset = statistics.median(self._found) if self._found else None
