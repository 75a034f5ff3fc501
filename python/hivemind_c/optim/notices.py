"""Notices: what the machine says of one Optimizer's way, for the log, the records and the monitor."""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict

import _hivemind_c

from hivemind_c.compression.codecs import NoCompression
from hivemind_c.optim.company import AloneError
from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.hands import Hands
from hivemind_c.optim.keep_up import Figures, why
from hivemind_c.optim.order import Order
from hivemind_c.optim.reporter import Reporter

logger = logging.getLogger("hivemind_c.optim")
DISCARDED, CUT = 1, 2  #: kinds of lost samples that the log tells of
OFTEN = 3  #: loads without a common epoch, from which on the log says why


class Notices:
    """Tells what the machine has decided. It decides nothing.

    Args:
        optimizer: The Optimizer.
        reporter: Its Reporter.
        machine: The machine that decides.
        hands: Those that do what it decides.
    """

    def __init__(self, optimizer: EpochWork, reporter: Reporter, machine: _hivemind_c.Epoch, hands: Hands):
        self._optimizer, self._reporter, self._machine, self._hands = optimizer, reporter, machine, hands
        self._carried = -1  # swarm epoch whose samples were carried last
        self.has_met = False  #: it had averaged gradients with others before the latest round
        self._left = (0, False)  # the epoch from which it stepped aside, and whether the others made its step
        self._is_left_out = False
        self._tell: Dict[str, Callable[[Order, int], None]] = {
            "ALONE": self._alone,
            "COMPANY": self._company,
            "STOP": self._stop,
            "OWN_STEP": self._own_step,
            "STAYS": self._stays,
            "CARRIES": self._carries,
            "LEFT_OUT": self._left_out,
            "NO_STEP": self._no_step,
            "WRONG": self._wrong,
            "DOUBT": self._doubt,
            "SILENT": self._silent,
            "ENTERS": self._enters,
            "ASIDE": self._aside,
            "ENDED": self._ended,
            "SETTLED": self._settled,
            "LOADED": self._loaded,
            "RESTS": self._rests,
            "REPEATS": self._repeats,
        }

    def tell(self, order: Order, lane: int) -> None:
        """Tells a notice.

        Args:
            order: The order.
            lane: The lane of the thread.
        """
        self._tell[order.what](order, lane)

    def lost(self, order: Order, lane: int) -> None:
        """Tells of samples that count for nothing.

        Args:
            order: The order.
            lane: The lane of the thread.
        """
        optimizer, end = self._optimizer, self._hands.end
        if order.which:  # they were in flight
            end.samples = max(0, end.samples - order.samples)
            end.notes.lose(order.samples, order.what)
        else:
            optimizer.ledger.notes.lose(order.samples, order.what)
        epoch = end.epoch if order.which else order.epoch
        if order.number == DISCARDED:
            self._reporter.say_discarded(epoch, order.samples, self.has_met)
        elif order.number == CUT:
            self._reporter.say_cut(epoch, order.samples, optimizer.target_batch_size)

    # ---- company ----

    def _alone(self, order: Order, lane: int) -> None:
        logger.warning("%s: it ends no swarm epoch, and keeps its samples (when_alone='wait')", self._lonely())

    def _company(self, order: Order, lane: int) -> None:
        logger.warning("run %r has another trainer again: this peer trains on", self._optimizer.run_id)

    def _stop(self, order: Order, lane: int) -> None:
        raise AloneError(
            f"this peer stops: {self._lonely()}, and when_alone='stop'; start it again when others train, or give "
            "when_alone='wait' or 'train'"
        )

    def _lonely(self) -> str:
        optimizer = self._optimizer
        return f"no other peer trains in run {optimizer.run_id!r} for {optimizer.dht.bootstrap_timeout:g} s"

    def _silent(self, order: Order, lane: int) -> None:
        logger.warning(
            "the swarm did not answer within 5 s: this peer starts alone and joins the others when it hears them"
        )

    # ---- an epoch's end ----

    def _own_step(self, order: Order, lane: int) -> None:
        end = self._hands.end
        if end.error is None:
            return  # it is a group of one
        own = (
            f"steps with its own {end.samples} samples' gradient"
            if end.samples
            else "has no gradient of its own to step with"
        )
        logger.warning(
            "swarm epoch %d: averaging gradients failed, so this peer %s: %s", end.epoch, own, end.error
        )

    def _stays(self, order: Order, lane: int) -> None:
        end = self._hands.end
        own = "stays in this swarm epoch, having no gradient of its own to step with"
        if end.error is None:
            logger.warning("swarm epoch %d: no peer averages with this one, so it %s", end.epoch, own)
        else:
            logger.warning("swarm epoch %d: averaging gradients failed, so this peer %s: %s", end.epoch, own, end.error)
        if self._optimizer.grad_averager is not None:
            self._optimizer.grad_averager.reset_accumulated_grads_()

    def _carries(self, order: Order, lane: int) -> None:
        end, outer = self._hands.end, self._optimizer.schedule.outer
        end.notes.carry(end.samples)
        is_new, self._carried = end.epoch != self._carried, end.epoch
        logger.log(
            logging.WARNING if is_new else logging.DEBUG,  # it tries again until it is done
            "swarm epoch %d: averaging %s failed, and others train, so this peer makes no %s; its %d samples go into "
            "its next %s: %s",
            end.epoch,
            *(("differences", "outer step") if outer else ("gradients", "step")),
            end.samples,
            "difference" if outer else "average",
            end.error or "no peer averages with this one",
        )

    def _no_step(self, order: Order, lane: int) -> None:
        logger.warning(
            "swarm epoch %d: skipping the step: this peer has no gradients of its own, and averaging gave none",
            self._hands.end.epoch,
        )

    def _left_out(self, order: Order, lane: int) -> None:
        optimizer, end = self._optimizer, self._hands.end
        logger.log(
            logging.WARNING if self.has_met else logging.INFO,  # a peer that has just come may be late for one step
            "swarm epoch %d: the others made this step without this peer: it is to catch up",
            end.epoch,
        )
        end.outcome, self._is_left_out = "left out", True
        optimizer.record("left_out", **optimizer.seen(self._machine))
        if lane:
            optimizer.ledger.settle(end)

    def _wrong(self, order: Order, lane: int) -> None:
        epoch = self._hands.end.epoch
        if self.has_met:
            logger.warning(
                "swarm epoch %d: this peer's state is not the swarm's, because an averaging failed: it loads the "
                "swarm's",
                epoch,
            )
        else:
            logger.info(
                "swarm epoch %d: this peer began with another model than the swarm: it loads the swarm's", epoch
            )

    def _ended(self, order: Order, lane: int) -> None:
        optimizer, end = self._optimizer, self._hands.end
        if optimizer.grad_averager is not None:
            optimizer.grad_averager.reset_accumulated_grads_()
        self._record("ended", end)
        optimizer.has_ended(end)

    def _settled(self, order: Order, lane: int) -> None:
        end = self._hands.end
        self._record("settled", end)
        self._optimizer.ledger.settle(end)

    def _record(self, what: str, end: Any) -> None:
        mark = self._optimizer.state_averager.lineage.mark if self._optimizer.record else None
        self._optimizer.record(what, epoch=end.next_epoch, mark=mark, outcome=end.outcome, mine=end.samples)

    # ---- aside, and back ----

    def _enters(self, order: Order, lane: int) -> None:
        self._optimizer.ledger.load_progress.end()
        self._optimizer.record("enter", **self._optimizer.seen(self._machine))

    def _aside(self, order: Order, lane: int) -> None:
        optimizer = self._optimizer
        self._left, self._is_left_out = (order.epoch, self._is_left_out), False
        optimizer.record("aside", **optimizer.seen(self._machine))
        logger.info(
            "this peer is in swarm epoch %d and the swarm in %d: it is to catch up",
            order.epoch,
            order.number,
        )

    def _loaded(self, order: Order, lane: int) -> None:
        optimizer, hands = self._optimizer, self._hands
        epoch, was_left_out = self._left
        if order.epoch != epoch:
            optimizer.ledger.caught_up(epoch, was_left_out)
        mark = optimizer.state_averager.lineage.mark if optimizer.record else None
        optimizer.record("loaded", epoch=order.epoch, mark=mark, seconds=round(hands.load_s, 3))
        logger.info("loaded the swarm's state of swarm epoch %d within %.1f s", order.epoch, hands.load_s)
        if order.number >= OFTEN:
            logger.warning("%s", why(self._figures(order.number)))

    def _figures(self, loads: int) -> Figures:
        """The figures of a peer that does not keep up."""
        optimizer, now = self._optimizer, self._optimizer.tracker.figures()
        batch = optimizer.batch_size_per_step or 0
        return Figures(
            loads=loads,
            load_s=self._hands.load_s,
            load_bytes=optimizer.ledger.load_progress.size,
            average_bytes=self._hands.log.sizes.get("entry_bytes", 0),
            epoch_s=now.target / now.speed if now.speed > 0 else 0.0,
            batch_s=batch / now.local_speed if now.local_speed > 0 else 0.0,
            target=optimizer.target_batch_size,
            is_compressed=not isinstance(optimizer.load_state_compression, NoCompression),
        )

    def _repeats(self, order: Order, lane: int) -> None:
        optimizer, (epoch, was_left_out) = self._optimizer, self._left
        optimizer.ledger.caught_up(epoch, was_left_out)
        mark = optimizer.state_averager.lineage.mark if optimizer.record else None
        optimizer.record("repeat", epoch=order.epoch, of=order.number, mark=mark)
        logger.info(
            "this peer catches up: it makes the step of swarm epoch %d again, and the swarm is in %d",
            order.epoch,
            order.number,
        )

    def _rests(self, order: Order, lane: int) -> None:
        self._optimizer.record("load_failed", **self._optimizer.seen(self._machine))

    def _doubt(self, order: Order, lane: int) -> None:
        logger.warning(
            "peers claim swarm epoch %d, and this peer could get no state of it: for %g s it does not count these "
            "peers, and continues in swarm epoch %d",
            order.number,
            order.wait,
            order.epoch,
        )
