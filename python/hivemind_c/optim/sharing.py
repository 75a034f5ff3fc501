"""The state for joiners: when this peer offers its own, and how it takes over the swarm's."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from _hivemind_c import HivemindError

from hivemind_c.averaging.state import StateSharing

if TYPE_CHECKING:
    from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")
LEAST_PERIOD = 1.0  #: seconds between two offers at least
COST = 0.02  #: of the time that offering may take


class SharedState:
    """Offers a snapshot of the state at epochs that all peers choose alike, so that a majority names the same; one copy of the state is kept for it.

    Every epoch is offered while epochs are long; where they are short every second, fourth, eighth ..., as fits the time that they take.
    """

    def __init__(self, averager: "TrainingStateAverager", dht: Any, prefix: str, *, allow: bool, compression: Any, declare_period: float):
        self._averager, self._allow = averager, allow
        self._sharing = StateSharing(dht, prefix, compression=compression, declare_period=declare_period)
        self._offered: Any = None  # the future of the latest offer
        self._last: Optional[float] = None  # when the epoch before was settled
        self._epoch_s = self._cost_s = 0.0  # what an epoch takes; what a copy costs
        self._failures, self._again = 0, 0.0
        self.loads = 0  # since an epoch was made together with others

    def settled(self, epoch: int, state: Callable[[], Tuple[Dict[str, Any], List[Any], List[Any]]]) -> None:
        """The state of this epoch's beginning is there, and the same as the others': offers it, if it is its turn."""
        now = time.monotonic()
        if self._last is not None:
            took = now - self._last
            self._epoch_s = took if not self._epoch_s else 0.8 * self._epoch_s + 0.2 * took
        self._last = now
        if not self._allow or epoch % self._every():
            return
        metadata, tensors, infos = state()
        copies = [tensor.detach().clone() for tensor in tensors]
        try:
            self._offered = self._sharing.offer(epoch, copies, metadata, infos=infos, wait=False)
        except (HivemindError, ValueError) as error:
            logger.warning("epoch %d: the state is not offered to others: %s", epoch, error)
        self._cost_s = time.monotonic() - now

    def _every(self) -> int:
        period, every = max(LEAST_PERIOD, self._cost_s / COST), 1
        while every * self._epoch_s < period and every < 1 << 20 and self._epoch_s:
            every *= 2
        return every

    @property
    def priority(self) -> float:
        return self._sharing.priority

    @priority.setter
    def priority(self, value: float) -> None:
        self._sharing.priority = value

    def may_try(self) -> bool:
        """Whether it is time for another attempt, after those that failed."""
        return time.monotonic() >= self._again

    def load(self, timeout: Optional[float], epoch_least: int = 0) -> bool:
        """Takes over what the majority of the swarm offers. False: there is none to be had, and the log tells why; nothing has changed."""
        begin = time.monotonic()
        try:
            state = self._sharing.load(timeout, epoch_least=epoch_least)
            self._averager.set_current_state(state.metadata, state.tensors)
        except (HivemindError, ValueError) as error:
            self._failures += 1
            self._again = time.monotonic() + min(0.25 * 2**self._failures, 30.0)
            logger.warning("the swarm's state could not be loaded: %s", error)
            return False
        self._failures, self._again = 0, 0.0
        self.loads += 1
        logger.info("loaded the swarm's state of epoch %d within %.1f s", self._averager.local_epoch, time.monotonic() - begin)
        if self.loads >= 3:
            logger.warning(
                "this peer has loaded the state %d times and still made no epoch with the others: it is slower than the swarm. A larger target_batch_size gives it "
                "more time, load_state_compression or a faster link a quicker download",
                self.loads,
            )
        return True

    def shutdown(self) -> None:
        try:
            self._sharing.withdraw()
        except HivemindError:
            pass  # the node has ended, and its offers with it
