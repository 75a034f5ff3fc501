"""Driver: carries out the orders of the machine that decides for a peer of a run (csrc/core/epoch).

It decides nothing. An order goes to an averager, the tracker or the hands, and the machine hears what came of it.
docs/design/epoch.md has the orders and the rules.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, List, Optional, Tuple

import _hivemind_c
from _hivemind_c import HivemindCancelledError, HivemindError

from hivemind_c._record import events_path, short
from hivemind_c.averaging.marks import members_of, view_of
from hivemind_c.dht import get_dht_time
from hivemind_c.optim.background import Background
from hivemind_c.optim.company import CHOICES
from hivemind_c.optim.epoch_clock import EpochClock
from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.hands import Hands
from hivemind_c.optim.lanes import LATE, NOW, Lanes
from hivemind_c.optim.loads import Loads
from hivemind_c.optim.notices import Notices
from hivemind_c.optim.order import GRADIENTS, STATE, Order
from hivemind_c.optim.reporter import Reporter
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
        self._optimizer, self._reporter = optimizer, reporter
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
        self.controls: List[Any] = [None, None]  #: of the rounds for which groups are sought
        self._lanes = Lanes()
        self._loads = Loads(optimizer, self.machine, self.hands, self._lanes, self._pass_time)
        self._offering: Optional[Tuple[int, Any]] = None  # the offer under way: its epoch, and a future
        self._do: Dict[str, Callable[[Order, int], None]] = {
            "REACHED": self._reached,
            "SEEK": self._seek,
            "TRIGGER": self._trigger,
            "CANCEL": self._cancel,
            "GIVE_UP": self._give_up,
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
        self._loads.timeout = timeout
        try:
            self._drive(self.machine.asked(least))
        finally:
            self._loads.timeout = self._optimizer.load_state_timeout
        return self.hands.adopted > before

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

    # ---- groups and rounds ----

    def _reached(self, order: Order, lane: int) -> None:
        if order.which == GRADIENTS and self._optimizer.auxiliary:
            self._optimizer.setups.follow()
        self._averagers[order.which].reached(order.epoch)

    def _seek(self, order: Order, lane: int) -> None:
        averager, optimizer = self._averagers[order.which], self._optimizer
        if order.ask:
            self.controls[order.which] = self.hands.log.listen(order)
            return
        word = self.machine.word(order.which)
        more: Dict[str, Any] = {} if word is None else {"gather": word}
        try:
            averager.present_setup(optimizer.setups.presented)
            self.controls[order.which] = averager.schedule_step(
                get_dht_time() + order.wait,
                timeout=order.timeout,
                allow_retries=False,
                epoch=order.epoch,
                **more,
            )
        except HivemindError as error:
            self.controls[order.which] = None
            logger.warning(
                "swarm epoch %d: cannot look for a group, continuing without one: %s", order.epoch, error
            )

    def _cancel(self, order: Order, lane: int) -> None:
        control, self.controls[order.which] = self.controls[order.which], None
        if control is not None:
            control.cancel()

    def _give_up(self, order: Order, lane: int) -> None:
        control = self.controls[order.which]
        if control is not None and not control.is_given_up:
            control.give_up()

    def _failed(self, lane: int, which: int, error: HivemindError, control: Any, alike: int = 0) -> None:
        """A round failed: the machine says what that means."""
        had_group, given_up = self._averagers[which].had_group, control.is_given_up
        self._tell_round(lane, which, error.status, alike=alike, had_group=had_group, given_up=given_up)

    def _tell_round(self, lane: int, which: int, status: str, *facts: Any, **more: Any) -> str:
        """Tells the machine of a round that is over. Returns the outcome."""
        outcome, had_met, answer = self.machine.round(lane, which, status, *facts, **more)
        if which == GRADIENTS:
            self.notices.has_met = had_met
        self._lanes.hear(lane, answer)
        return outcome

    def _trigger(self, order: Order, lane: int) -> None:
        try:
            (self._average_gradients if order.which == GRADIENTS else self._average_state)(order, lane)
        except BaseException:
            control = self.controls[order.which]
            if control is not None:
                control.cancel()
            self._tell_round(lane, order.which, "CANCELLED")
            raise

    def _while_waiting(self) -> None:
        """The training thread waits for a round: joiners may need a copy of the state meanwhile."""
        self._hear_hubs()
        self._pass_time()

    def _pass_time(self) -> None:
        self._lanes.hear(NOW, self.machine.time())
        self._carry_out_all(NOW)

    def _average_gradients(self, order: Order, lane: int) -> None:
        optimizer, end, control = self._optimizer, self.hands.end, self.controls[GRADIENTS]
        if control is None:  # the log has said why
            self._tell_round(lane, GRADIENTS, "TIMEOUT")
            return
        called = end.clock.now()
        control.while_waiting = None if lane else self._while_waiting
        try:
            with end.clock.enter("waiting"):
                members = self._gradients.average_loaded(float(order.samples), control=control)
        except HivemindError as error:
            end.error = error
            self._reporter.add_failure(end.epoch, f"gradients: {error}")
            optimizer.record("gradients_failed", epoch=end.epoch, status=error.status, mine=end.samples)
            end.notes.fail(f"averaging gradients failed: {error}")
            self._failed(lane, GRADIENTS, error, control)
            if optimizer.auxiliary:
                logger.warning("swarm epoch %d: averaging gradients failed: %s", end.epoch, error)
            return
        rounds, stamp = self._gradients.rounds, self._gradients.stamp
        parts = tuple(control.details(0) for control in rounds)
        met = members_of(parts[0][0])
        end.notes.add_rounds(rounds, end.clock, called)
        self._reporter.add_round()
        if self._gradients.awaits(end.next_epoch):
            self._lanes.hear(lane, self.machine.wanted(lane, end.next_epoch))
        outcome = self._tell_round(lane, GRADIENTS, "OK", parts)
        end.averaged = outcome == "CONFIRMED"
        end.outcome = "averaged" if end.averaged else "alone" if outcome == "NOBODY" else "failed"
        if end.averaged:
            optimizer.setups.has_averaged()
        if optimizer.record:
            marks = {short(peer): mark for peer, mark in view_of(met).marks.items()}
            told = stamp if end.averaged else None
            optimizer.record(
                "gradients", epoch=end.epoch, members=marks, stamp=told, missed=self.machine.is_unusable
            )
        end.metric = self._gradients.averaged_metric()
        optimizer.say("Averaged tensors successfully with %d peers", len(members))

    def _average_state(self, order: Order, lane: int) -> None:
        optimizer, end, control = self._optimizer, self.hands.end, self.controls[STATE]
        if control is None or end.averages_no_state:
            self._cancel(order, lane)
            self._tell_round(lane, STATE, "TIMEOUT", alike=1)
            return
        called = end.clock.now()
        control.while_waiting = None if lane else self._while_waiting
        try:
            with end.clock.enter("waiting"):
                members = self._state.average_loaded(control)
        except HivemindError as error:
            logger.warning(
                "swarm epoch %d: averaging the state failed, so this peer keeps its own: %s", end.next_epoch, error
            )
            self._reporter.add_failure(end.next_epoch, f"state: {error}")
            optimizer.record("state_failed", epoch=end.next_epoch, status=error.status)
            end.notes.fail(f"averaging the state failed: {error}")
            self._failed(lane, STATE, error, control, self._state.is_kept)
            return
        if self._gradients is None:
            end.outcome = "averaged"
        end.notes.add_rounds([control], end.clock, called)
        self._reporter.add_round()
        self._tell_round(lane, STATE, "OK", (control.details(0),), self._state.were_alike())
        optimizer.record(
            "state", epoch=end.next_epoch, members=list(map(short, members)), mark=self._state.lineage.mark
        )
        optimizer.say("Averaged state successfully with %d peers", len(members))

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
        self._loads.end()
        self._lanes.hear(NOW, self.machine.leave())
        while (order := self._lanes.next(NOW)) is not None:
            if order.kind in ("CANCEL", "WITHDRAW"):
                self._do[order.kind](order, NOW)
