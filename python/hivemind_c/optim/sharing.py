"""The state for joiners: in which epochs this peer offers its own, and how it takes over the swarm's."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Optional

from _hivemind_c import HivemindError

if TYPE_CHECKING:
    from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")
LEAST_PERIOD = 0.5  #: seconds between two offers at least
COST = 0.02  #: of the time that offering may take


class SharedState:
    """Offers a snapshot of the state at epochs that all peers choose alike, so that a majority names the same; one copy of the state is kept for it.

    Every epoch is offered while epochs are long; where they are short every second, fourth, eighth ..., as fits the time that they take.
    """

    def __init__(self, averager: "TrainingStateAverager"):
        self._averager = averager
        self._last: Optional[float] = None  # when the epoch before was settled
        self._epoch_s = self._cost_s = 0.0  # what an epoch takes; what a copy costs
        self._failures, self._again = 0, 0.0
        self.loads = 0  # since an epoch was made together with others

    def settled(self, epoch: int, wanted: bool = False) -> None:
        """The state of this epoch's beginning is there, and the same as the others': offers it, if it is its turn, or known to be wanted."""
        now = time.monotonic()
        if self._last is not None:
            took = now - self._last
            self._epoch_s = took if not self._epoch_s else 0.8 * self._epoch_s + 0.2 * took
        self._last = now
        if not wanted and epoch % self._every():
            return
        try:
            self._averager.share_state(epoch, wait=False)
        except (HivemindError, ValueError) as error:
            logger.warning("epoch %d: the state is not offered to others: %s", epoch, error)
        self._cost_s = time.monotonic() - now

    def _every(self) -> int:
        period, every = max(LEAST_PERIOD, self._cost_s / COST), 1
        while every * self._epoch_s < period and every < 1 << 20 and self._epoch_s:
            every *= 2
        return every

    def may_try(self) -> bool:
        """Whether it is time for another attempt, after those that failed."""
        return time.monotonic() >= self._again

    def withdraw(self) -> None:
        """Offers nothing until the next settled(): who is behind must not speak for a state that is out of date, or no majority can be found."""
        self._averager._stop_sharing()

    def taken(self, loaded: Any, seconds: float) -> bool:
        """Takes over what was loaded: (metadata, tensors), or None. False: it was nothing, or does not fit; then nothing has changed."""
        try:
            if loaded is not None:
                self._averager.set_current_state(*loaded)
        except ValueError as error:
            logger.warning("the swarm's state was not taken over: %s", error)
            loaded = None
        if loaded is None:
            self._failures += 1
            self._again = time.monotonic() + min(0.25 * 2**self._failures, 5.0)
            return False
        self._failures, self._again = 0, 0.0
        self.loads += 1
        logger.info("loaded the swarm's state of epoch %d within %.1f s", self._averager.local_epoch, seconds)
        if self.loads >= 3:
            logger.warning(
                "this peer has loaded the state %d times and still made no epoch with the others: it is slower than the swarm. A larger target_batch_size gives it "
                "more time, load_state_compression or a faster link a quicker download",
                self.loads,
            )
        return True
