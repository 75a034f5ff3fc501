"""The election of the peer that writes shared files: the holder of a lease in the DHT."""

from __future__ import annotations

import logging
import threading
from typing import Any

from _hivemind_c import HivemindError

from hivemind_c._log import begin
from hivemind_c.dht import get_dht_time

logger = logging.getLogger("hivemind_c.strategy")
CLAIM_S = 1.0  #: one that has just been elected looks again: another one may have stored its claim meanwhile


class Election:
    """A lease in the DHT: `elected` is true in one peer of a run at a time.

    For some seconds it is true in two peers if two swarms become one, and for a second in two that start at one moment.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        lease: Seconds after which the place of a dead peer is free. Its holder renews it three times as often.
    """

    def __init__(self, dht: Any, run_id: str, lease: float = 15.0):
        self._dht, self._key, self._me, self._lease = dht, f"{run_id}.writer", dht.peer_id, lease
        self._elected = self._is_new = False  # by the latest look; and not by the one before it
        self._until = 0.0  # when this peer's lease ends
        self._turn, self._ended = threading.Lock(), threading.Event()
        self._look()
        self._thread = begin("hivemind_c election", self._watch, self._ended.set)

    @property
    def elected(self) -> bool:
        """True if this is the peer that writes. Its lease ends also while the DHT does not answer."""
        return self._elected and get_dht_time() < self._until

    def _watch(self) -> None:
        pause = self._lease / 3
        while not self._ended.wait(min(pause, CLAIM_S) if self._is_new else pause):
            self.look()

    def look(self) -> None:
        """Looks now who is elected. If the DHT does not answer, this peer keeps its lease until that ends."""
        try:
            self._look()
        except HivemindError as error:
            logger.debug("could not look who is elected, will retry: %s", error)

    def _look(self) -> None:
        with self._turn:
            was, holder = self.elected, self._holder()
            if holder in (None, self._me):
                until = get_dht_time() + self._lease
                self._dht.store(self._key, self._me, until)
                holder, self._until = self._holder(), until
            self._elected = holder in (None, self._me)  # None: there is nobody else to ask
            self._is_new = self._elected and not was
            if self._is_new:
                logger.debug("this peer is elected to write what the run's peers share")

    def _holder(self) -> Any:
        found = self._dht.get(self._key, latest=True)
        return None if found is None else found.value

    def shutdown(self) -> None:
        self._ended.set()
        self._thread.join()
        self._elected = False
