"""Loads: looks for the swarm's state, and downloads it, as the machine orders (csrc/core/epoch).

With local steps a download is a lane beside the training, after which the training thread looks in each step().
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Dict, Optional, Tuple

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c.optim.background import Background
from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.hands import Hands
from hivemind_c.optim.lanes import NOW, Lanes
from hivemind_c.optim.order import Order

logger = logging.getLogger("hivemind_c.optim")


class _NotNeededError(Exception):
    """The state that comes is of no use any more."""


class Loads:
    """The loads of one Optimizer. The training thread waits for them, or looks after them with each batch.

    Args:
        optimizer: The Optimizer.
        machine: The machine that gives the orders.
        hands: They take the state over.
        lanes: The orders that are left.
        pass_time: Called each second of a download. The machine hears of the time, and the driver does what it orders.
    """

    def __init__(
        self,
        optimizer: EpochWork,
        machine: _hivemind_c.Epoch,
        hands: Hands,
        lanes: Lanes,
        pass_time: Callable[[], None],
    ):
        self._optimizer, self._machine, self._hands, self._pass_time = optimizer, machine, hands, pass_time
        self._lanes = lanes
        self._state = optimizer.state_averager
        self.timeout: Optional[float] = optimizer.load_state_timeout  #: of the next one
        self._comes: Optional[int] = None  # epoch of the state that comes, of which the machine has heard
        self._beside = Background("hivemind_c load")
        self._seen: Optional[Tuple[int, int, int, int]] = None  # the latest figures of the download beside the training
        self._is_needed = True  # that download
        self._loaded: Any = None  # its state
        self._begun = self._took = 0.0
        self._state.watch_load = self._watch
        self.orders: Dict[str, Callable[[Order, int], None]] = {"LOOK": self._look, "LOAD": self._load}

    def _look(self, order: Order, lane: int) -> None:
        found: Optional[int] = None
        try:
            found = self._state.look_for_state(order.wait, epoch_least=order.epoch)
        except HivemindError as error:
            logger.debug("found no state of swarm epoch %d or later: %s", order.epoch, error)
        finally:
            self._lanes.hear(lane, self._machine.looked(found))

    def _load(self, order: Order, lane: int) -> None:
        optimizer = self._optimizer
        optimizer.record("load", **optimizer.seen(self._machine), least=order.epoch)
        self._state.background.settle()
        self._comes = self._loaded = None
        self._begun = (clock := optimizer.ledger.clock).now()
        if self._machine.trains_aside:
            self._end()  # one that was of no use, and is not over
            self._seen, self._is_needed = None, True
            self._beside.start(functools.partial(self._fetch, self.timeout, order.epoch))
            return
        try:
            with clock.enter("loading"):
                self._fetch(self.timeout, order.epoch)
        finally:
            self._tell()

    def _fetch(self, timeout: Optional[float], least: int) -> None:
        try:
            self._loaded = self._state.fetch_state(timeout, least)
        finally:
            self._took = self._optimizer.ledger.clock.now() - self._begun

    def _tell(self) -> None:
        """The download is over."""
        loaded, self._loaded = self._loaded, None
        self._hands.loaded, self._hands.load_s = loaded, self._took
        self._optimizer.ledger.load_progress.end()
        found = (None,) if loaded is None else (loaded[0]["epoch"], loaded[0].get("lineage"))
        self._lanes.hear(NOW, self._machine.loaded(*found))

    def _watch(self, *figures: int) -> None:
        """A state comes, and the averages of the epochs since then beside it (rule 18 of docs/design/log.md)."""
        if self._beside.busy:
            if not self._is_needed:
                raise _NotNeededError
            self._seen = figures  # type: ignore[assignment]  # for the training thread
            return
        self._come(*figures)
        if self._machine.state == "LOADING":
            self._pass_time()

    def _come(self, epoch: int, came: int, size: int, donors: int) -> None:
        self._optimizer.ledger.load_progress.look(epoch, came, size, donors)
        if self._machine.state == "LOADING" and size and epoch != self._comes:
            self._comes = epoch
            self._lanes.hear(NOW, self._machine.loading(epoch))

    # ---- beside the training ----

    def poll(self) -> None:
        """The training thread is here: tells the machine how far the download is. Raises its error."""
        if not self._beside.waiting:
            return
        seen, self._seen = self._seen, None
        if seen is not None:
            self._come(*seen)
        if self._beside.busy:
            return
        try:
            self._beside.take()
        finally:
            self._tell()

    def end(self) -> None:
        """Ends the download. Nobody hears of it any more."""
        if self._beside.waiting:
            self._end()
            self._optimizer.ledger.load_progress.end()

    def _end(self) -> None:
        self._is_needed = False
        self._beside.drop()  # within the second of a look
        self._loaded = None
