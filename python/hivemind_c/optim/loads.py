"""Loads: looks for the swarm's state, and downloads it, as the machine orders (csrc/core/epoch)."""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Optional

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.hands import Hands
from hivemind_c.optim.lanes import NOW, Lanes
from hivemind_c.optim.order import Order

logger = logging.getLogger("hivemind_c.optim")


class Loads:
    """The loads of one Optimizer. The training thread waits for them.

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
        loaded: Any = None
        optimizer = self._optimizer
        optimizer.record("load", **optimizer.seen(self._machine), least=order.epoch)
        self._state.background.settle()
        self._comes = None
        begun = (clock := optimizer.ledger.clock).now()
        try:
            with clock.enter("loading"):
                loaded = self._state.fetch_state(self.timeout, order.epoch)
        finally:
            self._hands.loaded, self._hands.load_s = loaded, clock.now() - begun
            optimizer.ledger.load_progress.end()
            found = (None,) if loaded is None else (loaded[0]["epoch"], loaded[0].get("lineage"))
            self._lanes.hear(lane, self._machine.loaded(*found))

    def _watch(self, epoch: int, came: int, size: int, donors: int) -> None:
        """A state comes, and the averages of the epochs since then beside it (rule 18 of docs/design/log.md)."""
        self._optimizer.ledger.load_progress.look(epoch, came, size, donors)
        if self._machine.state != "LOADING":
            return
        if size and epoch != self._comes:
            self._comes = epoch
            self._lanes.hear(NOW, self._machine.loading(epoch))
        self._pass_time()
