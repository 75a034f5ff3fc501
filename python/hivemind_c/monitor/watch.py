"""The monitor at work: looks at the run again and again, keeps what it saw, and hands it to whoever shows it."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from typing import Any, List, Optional, Protocol

from hivemind_c import HivemindError
from hivemind_c.monitor.gather import Gatherer, Snapshot
from hivemind_c.monitor.history import History, Point

logger = logging.getLogger("hivemind_c.monitor")
BUSY = 0.03  #: of the time that looking may take; in a large swarm it looks less often


class Listener(Protocol):
    def look(self, now: Snapshot) -> None: ...

    def close(self) -> None: ...


class Watch:
    """period: seconds between two looks. latest and points may be read by any thread."""

    def __init__(self, gatherer: Gatherer, history: History, period: float = 1.0):
        self._gatherer, self._history, self._period = gatherer, history, period
        self._listeners: List[Any] = []
        self.latest: Optional[Snapshot] = None
        self.looks = 0
        gatherer.known_failures(history.failures())

    def points(self) -> List[Point]:
        return self._history.points

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def run(self, ended: threading.Event) -> None:
        """Until ended is set."""
        while not ended.is_set():
            began, cpu = time.monotonic(), time.process_time()
            try:
                self.look()
            except (HivemindError, sqlite3.Error) as error:  # the network is away, or the disk is full: it looks again
                logger.warning("the run could not be looked at: %s", error)
            spent = time.process_time() - cpu  # the node's threads too: they check the signatures
            ended.wait(max(self._period - (time.monotonic() - began), spent / BUSY, 0.05))

    def look(self) -> Snapshot:
        now = self.latest = self._gatherer.look()
        self.looks += 1
        if now.num_peers or now.peers:  # before anybody trains there is nothing to remember
            self._history.add(now)
        for listener in self._listeners:
            try:
                listener.look(now)
            except Exception as error:  # a full disk, a service that is down: watching goes on
                logger.warning("%s: %s", type(listener).__name__, error)
        return now

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._gatherer.shutdown()
        self._history.close()
