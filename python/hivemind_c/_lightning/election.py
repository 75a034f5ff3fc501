"""The election of the peer that writes shared files: the holder of a lease in the DHT."""

from __future__ import annotations

import logging
import threading
from typing import Any

from _hivemind_c import HivemindError

from hivemind_c._log import begin
from hivemind_c.dht import get_dht_time

logger = logging.getLogger("hivemind_c.strategy")


class Election:
    """A lease in the DHT: `elected` is true in one peer of a run at a time.

    For some seconds it is true in two peers if two swarms become one.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        lease: Seconds after which the place of a dead peer is free. Its holder renews it three times as often.
    """

    def __init__(self, dht: Any, run_id: str, lease: float = 15.0):
        self._dht, self._key, self._me, self._lease = dht, f"{run_id}.writer", dht.peer_id, lease
        self.elected = False
        self._ended = threading.Event()
        self._look()
        self._thread = begin("hivemind_c election", self._watch, self._ended.set)

    def _watch(self) -> None:
        while not self._ended.wait(self._lease / 3):
            try:
                self._look()
            except HivemindError as error:
                logger.debug("the election is over: %s", error)
                return

    def _look(self) -> None:
        was, holder = self.elected, self._holder()
        if holder in (None, self._me):
            self._dht.store(self._key, self._me, get_dht_time() + self._lease)
            holder = self._holder()
        self.elected = holder in (None, self._me)  # None: there is nobody else to ask
        if self.elected and not was:
            logger.debug("this peer is elected to write what the run's peers share")

    def _holder(self) -> Any:
        found = self._dht.get(self._key, latest=True)
        return None if found is None else found.value

    def shutdown(self) -> None:
        self._ended.set()
        self._thread.join()
        self.elected = False
