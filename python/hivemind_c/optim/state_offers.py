"""The state for joiners: in which epochs this peer offers its own, and how it takes over the swarm's."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from _hivemind_c import HivemindError

from hivemind_c._log import wait_at_end
from hivemind_c.optim.belief import doubled

if TYPE_CHECKING:
    from hivemind_c.optim.state_gift import StateGift
    from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")
LEAST_PERIOD = 0.25  #: seconds between two offers at least
COST = 0.02  #: of the time that offering may take


class StateOffers:
    """Offers a snapshot of the state at epochs that all peers choose alike, so that a majority names the same; one copy
    of the state is kept for it.

    Every epoch is offered while epochs are long; where they are short every second, fourth, eighth ..., as fits the
    time that they take. One that lasts longer than was thought (the others have died, and no group comes together) is
    offered after all, so that who joins then finds a state.
    """

    def __init__(self, averager: "TrainingStateAverager"):
        self._averager = averager
        self._last: Optional[float] = None  # when the latest epoch was settled
        self._begun_epoch: Optional[int] = None  # the epoch whose beginning this peer's state is
        self._offered: Optional[int] = None  # the epoch whose state is on offer
        self._epoch_s = self._cost_s = 0.0  # what an epoch takes; what a copy costs
        self._failures, self._again = 0, 0.0
        self.gift: Optional["StateGift"] = None  #: of a peer that nobody can dial
        self.loads = 0  # since an epoch was made together with others
        #: called with the setup of a state before it is taken over; raises if this peer must not take it
        self.check_setup: Callable[[Any], None] = lambda packed: None

    def begin_epoch(self, epoch: int, wanted: bool = False, changed: bool = True) -> None:
        """The state of this epoch's beginning is there, and the same as the others': offers it, if it is its turn, or
        known to be wanted, or another one than (changed) was offered before."""
        now = time.monotonic()
        if self._last is not None:
            took = now - self._last
            self._epoch_s = took if not self._epoch_s else 0.8 * self._epoch_s + 0.2 * took
        self._last, self._begun_epoch = now, epoch
        early = self._offered == epoch
        wanted = wanted or self.gift is not None and self.gift.is_wanted(epoch)
        if early and not changed or not early and not wanted and epoch % self._every():
            return
        self.offer(epoch)

    def offer(self, epoch: int) -> None:
        """Offers this peer's state as that of this epoch, unless another replica is the swarm's."""
        if self._averager.lineage.is_wrong:
            return
        now, record, mark = time.monotonic(), self._averager.record, self._averager.lineage.mark
        self._offered = epoch
        try:
            self._averager.share_state(epoch, wait=False)
            record("offer", epoch=epoch, mark=mark)
            if self.gift is not None and self.gift.is_wanted(epoch):
                record("gift", epoch=epoch, mark=mark)
                self.gift.give(self._averager, epoch)
        except (HivemindError, ValueError) as error:
            logger.warning("swarm epoch %d: could not offer the state to others, will retry: %s", epoch, error)
        self._cost_s = time.monotonic() - now

    def offer_if_overdue(self, epoch: int) -> None:
        """This peer is in that epoch, and no step has been made in it: whether it has lasted so long that it is to be
        offered after all, or a hub asks for it.
        """
        if self._begun_epoch != epoch or self._last is None:
            return
        wanted = self.gift is not None and self.gift.is_wanted(epoch)
        if wanted or epoch != self._offered and time.monotonic() - self._last >= self._period():
            self.offer(epoch)

    @contextmanager
    def overdue_timer(self, epoch: int) -> Iterator[None]:
        """The same while the program waits, and the state so does not change."""
        if self._begun_epoch != epoch or self._offered == epoch or self._last is None:
            yield
            return
        with self._later(self._last + self._period() - time.monotonic(), self.offer_if_overdue, epoch):
            yield

    @contextmanager
    def late_timer(self, epoch: int) -> Iterator[None]:
        """This epoch's state is there, and nothing but its average is waited for: offers it if that takes long (a
        member has died), so that who joins finds one.
        """
        with self._later(self._period(), self.offer, epoch):
            yield

    @contextmanager
    def _later(self, seconds: float, do: Callable[[int], None], epoch: int) -> Iterator[None]:
        timer = threading.Timer(max(0.0, seconds), do, (epoch,))
        timer.name, timer.daemon = "hivemind_c-offer", True
        wait_at_end(timer, timer.finished.set)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _period(self) -> float:
        return max(LEAST_PERIOD, self._cost_s / COST)

    def _every(self) -> int:
        period, every = self._period(), 1
        while every * self._epoch_s < period and every < 1 << 20 and self._epoch_s:
            every *= 2
        return every

    def may_try(self) -> bool:
        """Whether it is time for another attempt, after those that failed."""
        return time.monotonic() >= self._again

    def withdraw(self) -> None:
        """Offers nothing while this peer is behind: it must not speak for a state that is out of date, or no majority
        can be found. If it turns out that it is not (who was ahead has gone, and nobody has such a state),
        offer_if_overdue() offers it again."""
        self._offered = None
        self._averager.record("withdraw", epoch=self._averager.local_epoch)
        self._averager._stop_sharing()

    def invalidate(self) -> None:
        """The state is not that of an epoch's beginning any more, as it was settled here."""
        self._begun_epoch = None

    def restored(self, epoch: int) -> None:
        """The state of this epoch's beginning comes from a checkpoint, so this peer may be the only one that has it:
        it is offered with a step() in this epoch, when the model has been restored too."""
        self._begun_epoch, self._last = epoch, time.monotonic()

    def apply_loaded(self, loaded: Any, seconds: float) -> bool:
        """Takes over what was loaded: (metadata, tensors), or None. False: it was nothing, or does not fit; then
        nothing has changed.
        """
        try:
            if loaded is not None:
                self._averager.set_current_state(*loaded)
        except ValueError as error:
            logger.warning("could not load the swarm's state, will retry: %s", error)
            loaded = None
        if loaded is None:
            self._failures += 1
            self._again = time.monotonic() + doubled(0.25, self._failures, 5.0)
            return False
        self._failures, self._again = 0, 0.0
        self.invalidate()
        self.loads += 1
        mark = self._averager.lineage.mark
        self._averager.record("loaded", epoch=self._averager.local_epoch, mark=mark, seconds=round(seconds, 3))
        logger.info("loaded the swarm's state of swarm epoch %d within %.1f s", self._averager.local_epoch, seconds)
        if self.loads >= 3:
            logger.warning(
                "this peer has loaded the state %d times and has not finished an epoch with the others: it is slower "
                "than the swarm. A larger target_batch_size gives it "
                "more time, load_state_compression or a faster link a quicker download",
                self.loads,
            )
        return True
