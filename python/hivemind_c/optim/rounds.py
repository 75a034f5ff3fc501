"""Rounds: seeks groups and averages with them, as the machine orders (csrc/core/epoch).

With overlap a round of differences is a lane beside the batches, after which the training thread looks in each step().
"""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Callable, Dict, List, Optional, Tuple

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c._record import short
from hivemind_c.averaging.marks import members_of, view_of
from hivemind_c.dht import get_dht_time
from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.hands import Hands
from hivemind_c.optim.lanes import NOW, Lanes
from hivemind_c.optim.notices import Notices
from hivemind_c.optim.order import GRADIENTS, STATE, Order
from hivemind_c.optim.reporter import Reporter

logger = logging.getLogger("hivemind_c.optim")


class _TooLateError(Exception):
    """A round is not waited for any longer."""


class Rounds:
    """The rounds of one Optimizer.

    Args:
        optimizer: The Optimizer.
        machine: The machine that gives the orders.
        hands: They know of the swarm epoch's end.
        lanes: The orders that are left.
        notices: They know whether this peer has met others.
        reporter: It counts rounds, and what failed.
        while_waiting: Called while the training thread waits for a round.
    """

    def __init__(
        self,
        optimizer: EpochWork,
        machine: _hivemind_c.Epoch,
        hands: Hands,
        lanes: Lanes,
        notices: Notices,
        reporter: Reporter,
        while_waiting: Callable[[], None],
    ):
        self._optimizer, self._machine, self._hands, self._lanes = optimizer, machine, hands, lanes
        self._notices, self._reporter, self._while_waiting = notices, reporter, while_waiting
        self._state, self._gradients = optimizer.state_averager, optimizer.grad_averager
        self._averagers: Tuple[Any, Any] = self._gradients, self._state  # by GRADIENTS and STATE
        self.controls: List[Any] = [None, None]  #: of the rounds for which groups are sought
        self._beside: Any = None  # the control of the round that goes on beside the batches
        self._called, self._over = 0.0, 0.0  # when the latest round of gradients was needed, and was over; 0: not known
        self.orders: Dict[str, Callable[[Order, int], None]] = {
            "SEEK": self._seek,
            "TRIGGER": self._trigger,
            "CANCEL": self.cancel,
            "GIVE_UP": self._give_up,
        }

    # ---- beside the batches ----

    def poll(self) -> None:
        """Tells the machine of the round that went on beside the batches, if it is over."""
        if self._beside is None or not self._beside.done():
            return
        control, self._beside = self._beside, None
        averages = functools.partial(self._gradients.take_averages, control)
        self._ends_with(NOW, GRADIENTS, functools.partial(self._has_averaged, control, NOW, averages))

    def settle(self, timeout: Optional[float]) -> bool:
        """Waits until that round is over. False: there is none.

        Args:
            timeout: Longest time in seconds to wait. None: as long as a round may take.
        """
        if self._beside is None:
            return False
        clock = self._optimizer.ledger.clock
        until = clock.now() + (float("inf") if timeout is None else timeout)

        def waits() -> None:
            if clock.now() >= until:
                raise _TooLateError
            self._while_waiting()

        self._beside.while_waiting = waits
        with clock.enter("waiting"), contextlib.suppress(HivemindError, _TooLateError):
            self._beside.details()
        return True

    def forget(self) -> None:
        """That round is void. Nobody hears of it any more."""
        self._beside = None

    # ---- orders ----

    def _seek(self, order: Order, lane: int) -> None:
        averager, optimizer = self._averagers[order.which], self._optimizer
        if order.ask:
            self.controls[order.which] = self._hands.log.listen(order)
            return
        word = self._machine.word(order.which)
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

    def cancel(self, order: Order, lane: int) -> None:
        """Ends the search, or the round, of an order.

        Args:
            order: The order.
            lane: The lane of the thread.
        """
        control, self.controls[order.which] = self.controls[order.which], None
        if control is not None:
            control.cancel()

    def _give_up(self, order: Order, lane: int) -> None:
        control = self.controls[order.which]
        if control is not None and not control.is_given_up:
            control.give_up()

    def _trigger(self, order: Order, lane: int) -> None:
        averages = self._average_gradients if order.which == GRADIENTS else self._average_state
        self._ends_with(lane, order.which, functools.partial(averages, order, lane))

    def _ends_with(self, lane: int, which: int, job: Callable[[], None]) -> None:
        """Does a part of a round. An error of the program ends the round, and is raised."""
        try:
            job()
        except BaseException:
            if self.controls[which] is not None:
                self.controls[which].cancel()
            self._tell_round(lane, which, "CANCELLED")
            raise

    def _average_gradients(self, order: Order, lane: int) -> None:
        end, control = self._hands.end, self.controls[GRADIENTS]
        if control is None:  # the log has said why
            self._tell_round(lane, GRADIENTS, "TIMEOUT")
            return
        self._called, self._over = end.clock.now(), 0.0
        weight = float(order.samples)
        if order.ask:
            control.send_narrow()
        if self._optimizer.schedule.overlap:
            self._beside = self._gradients.average_loaded(weight, control=control, wait=False)
            control.add_done_callback(self._round_ends)
            return
        control.while_waiting = None if lane else self._while_waiting
        self._has_averaged(control, lane, functools.partial(self._gradients.average_loaded, weight, control=control))

    def _round_ends(self, control: Any) -> None:
        """In a thread of its own: the training thread may wait for it."""
        if control is self._beside:
            self._over = self._hands.end.clock.now()
            self._machine.ring()

    def _has_averaged(self, control: Any, lane: int, averages: Callable[..., Any]) -> None:
        """Takes the outcome of a round of gradients, or waits for it."""
        optimizer, end, called = self._optimizer, self._hands.end, self._called
        try:
            with end.clock.enter("waiting"):
                members = averages()
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
        beside = end.notes.add_rounds(rounds, end.clock, called)
        if optimizer.schedule.overlap:
            end.background_spent = {"reducing": beside, "wall": beside}
        self._reporter.add_round()
        if self._gradients.awaits(end.next_epoch):
            self._lanes.hear(lane, self._machine.wanted(lane, end.next_epoch))
        outcome = self._tell_round(lane, GRADIENTS, "OK", parts, seconds=(self._over or end.clock.now()) - called)
        end.averaged = outcome == "CONFIRMED"
        end.outcome = "averaged" if end.averaged else "alone" if outcome == "NOBODY" else "failed"
        if end.averaged:
            optimizer.setups.has_averaged()
        if optimizer.record:
            marks = {short(peer): mark for peer, mark in view_of(met).marks.items()}
            told = stamp if end.averaged else None
            optimizer.record(
                "gradients", epoch=end.epoch, members=marks, stamp=told, missed=self._machine.is_unusable
            )
        end.metric = self._gradients.averaged_metric()
        optimizer.say("Averaged tensors successfully with %d peers", len(members))

    def _average_state(self, order: Order, lane: int) -> None:
        optimizer, end, control = self._optimizer, self._hands.end, self.controls[STATE]
        if control is None or end.averages_no_state:
            self.cancel(order, lane)
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

    def _failed(self, lane: int, which: int, error: HivemindError, control: Any, alike: int = 0) -> None:
        """A round failed: the machine says what that means."""
        had_group, given_up = self._averagers[which].had_group, control.is_given_up
        self._tell_round(lane, which, error.status, alike=alike, had_group=had_group, given_up=given_up)

    def _tell_round(self, lane: int, which: int, status: str, *facts: Any, **more: Any) -> str:
        """Tells the machine of a round that is over. Returns the outcome."""
        outcome, had_met, answer = self._machine.round(lane, which, status, *facts, **more)
        if which == GRADIENTS:
            self._notices.has_met = had_met
        self._lanes.hear(lane, answer)
        return outcome
