"""The state for joiners, where a program has no Optimizer: in which epochs this peer offers its own.

An Optimizer's machine decides it (csrc/core/epoch/epoch_offer.c).
"""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Optional

from _hivemind_c import HivemindError

from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.optim.state_gift import StateGift

logger = logging.getLogger("hivemind_c.optim")
LEAST_PERIOD = 0.25  #: seconds between two offers at least
COST = 0.02  #: of the time that offering may take


class StateOffers:
    """Offers a snapshot of the state at epochs that all peers choose alike, so that a majority names the same; one copy
    of the state is kept for it.

    Every epoch is offered while epochs are long; where they are short every second, fourth, eighth ..., as fits the
    time that they take.

    Args:
        averager: The averager of the state.
    """

    def __init__(self, averager: DecentralizedAverager):
        self._averager = averager
        self._last: Optional[float] = None  # when the latest epoch was settled
        self._epoch_s = self._cost_s = 0.0  # what an epoch takes; what a copy costs
        self.gift: Optional[StateGift] = None  #: of a peer that nobody can dial
        #: called with the setup of a state before it is taken over; raises if this peer must not take it
        self.check_setup: Callable[[Any], None] = lambda packed: None

    def begin_epoch(self, epoch: int) -> None:
        """The state of this epoch's beginning is there, and the same as the others': offers it, if it is its turn.

        Args:
            epoch: The swarm epoch.
        """
        now = time.monotonic()
        if self._last is not None:
            took = now - self._last
            self._epoch_s = took if not self._epoch_s else 0.8 * self._epoch_s + 0.2 * took
        self._last = now
        if epoch % self._every():
            return
        try:
            self._averager.share_state(epoch, wait=False)
        except (HivemindError, ValueError) as error:
            logger.warning("swarm epoch %d: could not offer the state to others, will retry: %s", epoch, error)
        self._cost_s = time.monotonic() - now

    def _every(self) -> int:
        period, every = max(LEAST_PERIOD, self._cost_s / COST), 1
        while every * self._epoch_s < period and every < 1 << 20 and self._epoch_s:
            every *= 2
        return every
