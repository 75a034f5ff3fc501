"""The watching thread of the monitor: looks at the run again and again, keeps the results, and hands them on."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, List, Optional, Protocol

from hivemind_c import HivemindError
from hivemind_c.monitor.gather import Gatherer, Snapshot
from hivemind_c.monitor.history import History, Point

logger = logging.getLogger("hivemind_c.monitor")
#: of a core that looking may take (the page, and what else the process does, come on top); in a large swarm it asks
#: less often
BUSY = 0.025
LIVE_S = 1.0  #: and yet what it shows is no older, unless showing alone costs half of that
OWED_S = 10.0  #: the longest time that what it has spent keeps it from asking


class Listener(Protocol):
    """A receiver of snapshots."""

    def look(self, now: Snapshot) -> None: ...

    def close(self) -> None: ...


class LookBudget:
    """A limit on the processor time of looks, and on the looks that may ask the swarm.

    The first look asks for all peers at once, which is expensive, and must not keep the page old.

    Args:
        period: Seconds between two looks.
    """

    def __init__(self, period: float):
        self._period = period
        self._owed = 0.0  # seconds of a core that were spent beyond BUSY
        self._light = 0.0  # that the latest look which asked nothing has cost

    @property
    def asking(self) -> bool:
        return self._owed < 1e-3

    def pause(self, spent: float, asked: bool) -> float:
        """Seconds from the beginning of a look that cost so much to the next one's."""
        if not asked:
            self._light = spent
        owed = self._owed + spent
        pause = max(self._period, min(owed / BUSY, max(LIVE_S, 2 * self._light / BUSY)))
        self._owed = min(max(0.0, owed - BUSY * pause), BUSY * OWED_S)
        return pause


class Watch:
    """The thread that looks. latest and points may be read by any thread.

    Args:
        gatherer: Looks at the run once.
        history: Keeps the points.
        period: Seconds between two looks.
    """

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
        budget, whole = LookBudget(self._period), False
        while not ended.is_set():
            began, cpu = time.monotonic(), time.process_time()
            asking = budget.asking or not whole
            try:
                whole = self.look(asking).whole
            except (HivemindError, OverflowError, ValueError) as error:
                # the network is away, a stranger's words do not fit
                logger.warning("could not look at the run, will retry: %s", error)
            pause = budget.pause(time.process_time() - cpu, asking)  # the node's threads too: they check the signatures
            ended.wait(max(0.05, began + (pause if whole else self._period) - time.monotonic()))

    def look(self, asking: bool = True) -> Snapshot:
        now = self.latest = self._gatherer.look(asking)
        self.looks += 1
        for listener in (self._history, *self._listeners):
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
