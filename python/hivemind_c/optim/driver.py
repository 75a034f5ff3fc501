"""Driver: carries out the orders of the machine that decides for a peer of a run (csrc/core/epoch).

It decides nothing. An order goes to an averager, the tracker or the hands, and the machine hears what came of it.
docs/design/epoch.md has the orders and the rules.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Optional, Tuple

import _hivemind_c
from _hivemind_c import HivemindCancelledError, HivemindError

from hivemind_c._record import events_path
from hivemind_c.optim.background import Background
from hivemind_c.optim.company import CHOICES
from hivemind_c.optim.epoch_clock import EpochClock
from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.hands import Hands
from hivemind_c.optim.lanes import LATE, NOW, Lanes
from hivemind_c.optim.loads import Loads
from hivemind_c.optim.notices import Notices
from hivemind_c.optim.order import GRADIENTS, Order
from hivemind_c.optim.reporter import Reporter
from hivemind_c.optim.rounds import Rounds
from hivemind_c.optim.step_log import StepLog

logger = logging.getLogger("hivemind_c.optim")


class Driver:
    """The machine of one Optimizer, and what carries out its orders.

    Args:
        optimizer: The Optimizer, whose averagers and tracker exist.
        reporter: Its Reporter.
        when_alone: One of CHOICES.
        log_memory: Most bytes of averages that are kept for peers that were absent. None: those of the model.
    """

    def __init__(self, optimizer: EpochWork, reporter: Reporter, when_alone: str, log_memory: Optional[int] = None):
        self._optimizer = optimizer
        self._state, self._gradients = optimizer.state_averager, optimizer.grad_averager
        self._averagers: Tuple[Any, Any] = self._gradients, self._state  # by GRADIENTS and STATE
        dht = optimizer.dht
        log = StepLog(optimizer, log_memory)
        self.machine = _hivemind_c.Epoch(
            progress=optimizer.tracker.core,
            lineage=self._state.lineage,
            ledger=optimizer.ledger.samples,
            plan=optimizer.schedule.core,
            peer_id=str(dht.peer_id),
            target=optimizer.target_batch_size,
            matchmaking=optimizer.matchmaking_time,
            averaging=optimizer.averaging_timeout,
            averaging_given=optimizer.averaging_is_given,
            company=CHOICES.index(when_alone),
            alone=dht.bootstrap_timeout,
            begins_run=not dht.initial_peers or bool(dht.state()["is_initial"]),
            reachable=not optimizer.client_mode,
            differs=bool(self._state.extra_tensors),
            epoch=self._state.local_epoch,
            record=events_path(dht.peer_id),
            **log.sizes,
        )
        self.hands = Hands(optimizer, self.machine, log)
        self.notices = Notices(optimizer, reporter, self.machine, self.hands)
        self.background: Background = self._state.background
        self._lanes = Lanes()
        self.rounds = Rounds(
            optimizer, self.machine, self.hands, self._lanes, self.notices, reporter, self._while_waiting
        )
        self._loads = Loads(optimizer, self.machine, self.hands, self._lanes, self._pass_time)
        self._offering: Optional[Tuple[int, Any]] = None  # the offer under way: its epoch, and a future
        self._do: Dict[str, Callable[[Order, int], None]] = {
            "REACHED": self._reached,
            **self.rounds.orders,
            "ASIDE": self._aside,
            "COMES": self._comes,
            "OFFER": self._offer,
            "GIVE": self._give,
            "WITHDRAW": self._withdraw,
            **self._loads.orders,
            **log.orders(),
            "POLL": lambda order, lane: self._poll(),
            "DISBELIEVE": self._disbelieve,
            "ACT": self._act,
            "TELL": self.notices.tell,
            "LOST": self.notices.lost,
            "GOODBYE": lambda order, lane: None,
            "LATE": lambda order, lane: self._start_late(),
        }

    # ---- events of the training thread ----

    def batch(self, samples: int) -> None:
        """The training thread is here with a batch, which the sums hold; does what is to be done before the next one.

        Args:
            samples: Samples in the batch. 0: there is none.
        """
        self._come_by()
        self._drive(self.machine.batch(samples))
        self._take_what_came()

    def _take_what_came(self) -> None:
        while self._optimizer.schedule.outer and self.machine.waits_for_thread:
            self._drive(self.machine.pause())
            self._poll()  # the next average may be there

    def behind(self, samples: int) -> None:
        """A batch counts for nothing, because a state was loaded since; the others may be about to average.

        Args:
            samples: Samples in the batch.
        """
        self._come_by()
        self._drive(self.machine.behind(samples))

    def _come_by(self) -> None:
        self._hear_hubs()
        if self._offering is not None and self._offering[1].done():
            self._has_offered(*self._offering)
        if self._optimizer.schedule.outer:
            self._poll()

    def _poll(self) -> None:
        """Tells the machine what has come beside the training, or beside the training thread's wait."""
        self._loads.poll()
        self.rounds.poll()
        if self.machine.state == "REPEATING":
            self.hands.log.poll(self.machine, NOW, self._lanes.hear)

    def summed(self, samples: int, behind: int = 0) -> None:
        """Samples of other processes of this peer, or of a checkpoint, are in the sums. Called between two batches.

        Args:
            samples: Their number.
            behind: Further ones, made with the model before a state was loaded, which count nowhere.
        """
        if samples or behind:
            self._drive(self.machine.summed(samples, behind))

    def overflow(self, samples: int, summed: int) -> None:
        """A batch's gradient overflowed.

        Args:
            samples: Samples of the batch.
            summed: Samples of the sums that are lost with it.
        """
        self._drive(self.machine.overflow(samples, summed))

    def take(self, wait: bool = False) -> None:
        """Takes the outcome of the late lane over, if it is there. Raises its error.

        Args:
            wait: Wait until it is there.
        """
        self.hands.settle_local_step(wait)
        self.background.take(wait)

    def pause(self) -> None:
        """The training thread is here between two batches."""
        self._drive(self.machine.pause())

    def load(self, least: int, timeout: Optional[float]) -> bool:
        """Loads the swarm's state. True if this peer has it now.

        Args:
            least: Oldest epoch whose state is accepted.
            timeout: Longest time in seconds to download it. None: no limit.
        """
        before = self.hands.adopted
        self.hands.settle_local_step()
        self.background.settle()
        self.settle_round()
        self._loads.timeout = timeout
        try:
            self._drive(self.machine.asked(least))
        finally:
            self._loads.timeout = self._optimizer.load_state_timeout
        return self.hands.adopted > before

    def settle_round(self, timeout: Optional[float] = None) -> None:
        """Waits for a round that goes on beside the batches, and takes what came of it over. Raises its error.

        Args:
            timeout: Longest time in seconds to wait. None: as long as a round may take.
        """
        if self.rounds.settle(timeout):
            self._poll()
            self._take_what_came()

    # ---- in place of a number of its own (TrainingStateAverager.local_epoch) ----

    @property
    def epoch(self) -> int:
        """The swarm epoch of this peer."""
        return self.machine.epoch

    @property
    def is_adopting(self) -> bool:
        """True while a state is taken over that the machine has asked for: its epoch and mark are the machine's."""
        return self.hands.is_adopting

    def set_epoch(self, epoch: int) -> None:
        """The state of another swarm epoch is there: that of a checkpoint, if the machine has not asked for it.

        Args:
            epoch: The swarm epoch.
        """
        if not self.is_adopting:
            self._loads.end()
            self._drive(self.machine.restored(epoch))
            self.rounds.forget()

    # ---- lanes ----

    def _drive(self, answer: Any) -> None:
        """Carries out what is to be done before the training thread goes on."""
        lanes = self._lanes
        if answer is None and not lanes.has(NOW):
            return
        lanes.hear(NOW, answer)
        clock = self._optimizer.ledger.clock
        with clock.enter("stepping"):
            self._carry_out_all(NOW)
            while lanes.is_waiting(NOW):
                with clock.enter("waiting"):
                    lanes.hear(NOW, self.machine.next(NOW))
                self._carry_out_all(NOW)
            if lanes.has(LATE) and not self.background.busy:
                self._start_late()  # a thread that had an error has left them

    def _start_late(self) -> None:
        self.background.drop()  # of the end before; the machine has taken its outcome over
        self.background.start(self._late, self.pause)

    def _late(self) -> None:
        end = self.hands.end
        end.clock = EpochClock()
        try:
            with end.clock.enter("stepping"):
                self._lanes.hear(LATE, self.machine.next(LATE))
                self._carry_out_all(LATE)
        finally:
            end.background_spent = end.clock.take()

    def _carry_out_all(self, lane: int) -> None:
        while (order := self._lanes.next(lane)) is not None:
            self._do[order.kind](order, lane)

    def _act(self, order: Order, lane: int) -> None:
        try:
            self._lanes.hear(lane, self.hands.act(order, lane))
            self.hands.log.follow()
        except BaseException:
            self._lanes.hear(lane, self.machine.broke(lane, order.number))
            while (lane or self.machine.drops) and (left := self._lanes.next(lane)) is not None:
                self._do[left.kind](left, lane)  # lost samples, groups and sums of no use
            raise

    # ---- the count, and the time ----

    def _reached(self, order: Order, lane: int) -> None:
        if order.which == GRADIENTS and self._optimizer.auxiliary:
            self._optimizer.setups.follow()
        self._averagers[order.which].reached(order.epoch)

    def _while_waiting(self) -> None:
        """The training thread waits for a round: joiners may need a copy of the state meanwhile."""
        self._hear_hubs()
        self._pass_time()

    def _pass_time(self) -> None:
        self._lanes.hear(NOW, self.machine.time())
        self._carry_out_all(NOW)

    def _aside(self, order: Order, lane: int) -> None:
        for averager in filter(None, self._averagers):
            averager.step_aside()

    def _comes(self, order: Order, lane: int) -> None:
        if self._gradients is not None:
            self._gradients.comes(order.epoch)

    def _disbelieve(self, order: Order, lane: int) -> None:
        self._optimizer.record("doubt", epoch=self.machine.epoch, doubted=order.epoch, until=round(order.wait, 3))
        self._optimizer.tracker.core.disbelieve(max(order.epoch, 1), order.wait)

    # ---- states ----

    def _offer(self, order: Order, lane: int) -> None:
        try:
            if self._state.allow_state_sharing:
                self._offering = order.epoch, self._state.offer_state(self.hands.snapshot, order.epoch, wait=False)
            self._optimizer.record("offer", epoch=order.epoch, mark=self._state.lineage.mark)
        except (HivemindError, ValueError) as error:
            self._offers_not(order.epoch, lane, error)

    def _has_offered(self, epoch: int, offer: Any) -> None:
        self._offering = None
        error = offer.exception()
        if error is not None and not isinstance(error, HivemindCancelledError):
            self._offers_not(epoch, NOW, error)

    def _offers_not(self, epoch: int, lane: int, error: BaseException) -> None:
        if getattr(error, "status", "") == "TOO_LARGE":  # so is the next one
            logger.warning("offering no state any more to peers that join: %s", error)
            self._state.allow_state_sharing, self._state.offers.gift = False, None
        else:
            logger.warning("swarm epoch %d: could not offer the state to others, will retry: %s", epoch, error)
        self._lanes.hear(lane, self.machine.offered(lane, epoch, False))

    def _give(self, order: Order, lane: int) -> None:
        gift = self._state.offers.gift
        if gift is None:
            return
        self._optimizer.record("gift", epoch=order.epoch, mark=self._state.lineage.mark)
        try:
            gift.give(self._state, order.epoch, self.hands.snapshot, *(() if order.ask else self.machine.gift))
        except (HivemindError, ValueError) as error:
            self._offers_not(order.epoch, lane, error)

    def _hear_hubs(self) -> None:
        """Tells the machine of a hub that asks for the state of a peer that nobody can dial."""
        gift = self._state.offers.gift
        if gift is not None and (least := gift.take_request()) is not None:
            self._lanes.hear(NOW, self.machine.wanted(NOW, least, by_hub=True))

    def _withdraw(self, order: Order, lane: int) -> None:
        self._optimizer.record("withdraw", epoch=self.machine.epoch)
        self._state.withdraw_state()

    # ---- its end ----

    def leave(self, timeout: float) -> None:
        """Leaves the run. The outcome of the late lane reaches the model if it comes in time.

        Args:
            timeout: Longest time in seconds to wait for it.
        """
        self.hands.settle_local_step(True)
        self.background.end(timeout)
        try:
            self.settle_round(timeout)
        except Exception as error:  # no caller is left who could act on it
            logger.warning("the last outer step failed, so it is not in the model: %s: %s", type(error).__name__, error)
        self._loads.end()
        self._lanes.hear(NOW, self.machine.leave())
        while (order := self._lanes.next(NOW)) is not None:
            if order.kind in ("CANCEL", "WITHDRAW"):
                self._do[order.kind](order, NOW)
