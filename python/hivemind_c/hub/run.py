"""One run of a hub: the keeper of its state, its part in averaging, and its record, each in a thread."""

from __future__ import annotations

import logging
import pathlib
import threading
from typing import Any, List, NamedTuple, Optional

from _hivemind_c import HivemindError

from hivemind_c._log import begin
from hivemind_c.averaging.image import EPOCH_MAX
from hivemind_c.hub.files import Checkpoints
from hivemind_c.hub.keeper import Keeper
from hivemind_c.hub.presence import EVERY_S, Presence
from hivemind_c.hub.receiver import Receiver
from hivemind_c.hub.rounds import Rounds
from hivemind_c.hub.sizes import Budget

logger = logging.getLogger("hivemind_c.hub")
FIRST_S = 1.0  #: until the first record, so that it says what trains
JOIN_S = 5.0  #: the longest wait for a thread at the end


class HubOptions(NamedTuple):
    """Options that all runs of a hub share."""

    budget: Budget
    every: int  #: epochs from one state to the next
    folder: Optional[pathlib.Path]  #: of the checkpoints; None: in memory only
    keep: int  #: checkpoints of a run
    bandwidth: float  #: bytes per second; 0: not known


class HubRun:
    """Serves one run until it is closed.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        options: A HubOptions.
    """

    def __init__(self, dht: Any, run_id: str, options: HubOptions):
        self.run_id, self._ended = run_id, threading.Event()
        self._threads: List[threading.Thread] = []
        self._presence = Presence(dht, run_id)
        files = None if options.folder is None else Checkpoints(options.folder, run_id, options.keep)
        self.rounds = Rounds(dht, run_id, options.budget.averaging, options.bandwidth)
        node, budget = dht.core, options.budget
        self.keeper = Keeper(node, run_id, budget.state, options.every, files, self.rounds.training)
        self._receiver = Receiver(dht, run_id, self.keeper)

    def start(self) -> None:
        """Offers the newest checkpoint, and begins to follow the run."""
        self.keeper.resume()
        self._begin("keeper", self.keeper.run)
        self._begin("requests", self._receiver.follow)
        self._begin("receiver", self._receiver.run)
        self._begin("averagers", self.rounds.run)
        self._begin("presence", self._tell)

    def close(self) -> None:
        """Ends the threads. The DHT is shut down before, so that nothing waits for the network."""
        self._ended.set()
        for thread in self._threads:
            thread.join(JOIN_S)

    def end(self) -> None:
        """Lets the threads end, and waits for none."""
        self._ended.set()

    def _begin(self, name: str, work: Any) -> None:
        self._threads.append(begin(f"hivemind_c hub {name}", lambda: self._guarded(name, work), self._ended.set))

    def _guarded(self, name: str, work: Any) -> None:
        try:
            work(self._ended)
        except HivemindError as error:
            if not self._ended.is_set():
                logger.error("%s: the %s of the hub has ended: %s; start the hub again", self.run_id, name, error)

    def _tell(self, ended: threading.Event) -> None:
        pause = FIRST_S
        while not ended.wait(pause):
            pause = EVERY_S
            try:
                now = self.rounds.training()
                epoch = min(EPOCH_MAX, max(0 if now is None else now.epoch, self.keeper.epoch))
                self._presence.tell(epoch, max(1, self.rounds.target), *self.rounds.counts)
            except HivemindError as error:
                logger.debug("%s: the hub's record was not stored: %s", self.run_id, error)
