"""Hands: the actions that only a program with torch can do, by the names of the machine (csrc/core/epoch/epoch.h)."""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Union

import _hivemind_c
import torch
from _hivemind_c import HivemindError

from hivemind_c.optim.background import Background
from hivemind_c.optim.epoch_end import EpochEnd
from hivemind_c.optim.epoch_notes import norm_of
from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.order import Order
from hivemind_c.optim.parameters import all_finite
from hivemind_c.optim.schedule import Action
from hivemind_c.optim.step_log import StepLog

logger = logging.getLogger("hivemind_c.optim")


class Hands:
    """Does the actions of one Optimizer, each when it is told to, and says so to the machine.

    Args:
        optimizer: The Optimizer.
        machine: The machine that gives the orders.
        log: Its log of averages.
    """

    def __init__(self, optimizer: EpochWork, machine: _hivemind_c.Epoch, log: StepLog):
        self._optimizer, self._machine = optimizer, machine
        self.log = log  #: the averages that it keeps, and those that it repeats
        self._state, self._gradients = optimizer.state_averager, optimizer.grad_averager
        self.end = EpochEnd(0, True, 0, 0, optimizer.ledger.notes, optimizer.ledger.clock, None)  #: the latest
        self.snapshot: Any = None  #: a copy of the state for joiners
        self.loaded: Any = None  #: (metadata, tensors) of the swarm's state, until it is taken over
        self.load_s = 0.0  #: seconds that this took
        self.adopted = 0  #: states that were taken over
        self.is_adopting = False  #: one is being taken over
        self.repeated = 0  #: steps of others that were made again
        self._local = Background("hivemind_c local step")
        self._do: Dict[str, Callable[[Order], Any]] = {
            "MEET": self._meet,
            "LOCAL_STEP": self._local_step,
            "PREPARE": self._prepare,
            "STEP": self._step,
            "SCHEDULE": self._schedule,
            "TAKE": self._take,
            "APPLY": self._apply,
            "SNAPSHOT": self._snapshot,
            "ADOPT": self._adopt,
            "DROP": self._drop,
            "RETURN": self._return,
            "REPEAT": self._repeat,
        }

    def act(self, order: Order, lane: int) -> Any:
        """Does an action, and answers it. Returns the orders that follow, as the machine gives them.

        Args:
            order: The order.
            lane: The lane of the thread.
        """
        answer = self._do[order.what](order)
        facts = answer if isinstance(answer, dict) else {}
        ok = answer if isinstance(answer, int) else 1
        return self._machine.done(lane, order.number, ok, **facts)

    def settle_local_step(self, wait: bool = True) -> None:
        """Takes a step of a batch over, which runs in the background with delay_optimizer_step.

        Args:
            wait: Wait until it is there.
        """
        self._local.take(wait)

    # ---- batches ----

    def _meet(self, order: Order) -> None:
        self._optimizer.join_swarm()

    def _local_step(self, order: Order) -> None:
        optimizer, state = self._optimizer, self._state
        late = Action.LOCAL_STEP in optimizer.schedule.batch().background
        self.settle_local_step()
        optimizer.take_local_gradients()
        if not optimizer.schedule.outer:
            state.parameters.lend_gradients()
        optimizer.clip_gradients()
        if late:
            self._local.start(state.step_optimizer, state.push)
            return
        if optimizer.schedule.overlap:
            state.step_inner(beside=self._machine.state == "ENDING")
        else:
            state.step_inner()

    # ---- an epoch's end ----

    def _prepare(self, order: Order) -> int:
        optimizer, ledger = self._optimizer, self._optimizer.ledger
        epoch, alone = order.epoch, bool(order.ask)
        now = optimizer.tracker.figures()
        averages_no_state = optimizer.compare_setup()
        optimizer.record("end", **optimizer.seen(self._machine), alone=alone)
        optimizer.gather_sums()
        swarm_samples = int(now.samples) if now.epoch == epoch else now.target
        end = self.end = EpochEnd(
            epoch, alone, order.samples, swarm_samples, ledger.notes, ledger.clock, optimizer.take_metric()
        )
        end.peers, end.produced = max(1, now.peers), ledger.samples.figures()["produced"]
        end.averages_no_state = averages_no_state
        if self._gradients is None and not alone and not optimizer.schedule.averages_state_at(end.next_epoch):
            end.outcome = "local"
        if not optimizer.auxiliary:
            self._state.buffers.take(order.samples, alone)
        if self._gradients is None:
            return 1
        self._look_at_parameters(end)
        if optimizer.schedule.outer:
            self._state.parameters.begin_difference()
        self._gradients.load_accumulators_into_averager_(end.metric)
        if (alone and not optimizer.schedule.outer) or not self._gradients.drop_if_not_finite():
            return 1
        if optimizer.schedule.outer:
            self._state.drop_progress()
        logger.warning(
            "swarm epoch %d: this peer's %s is not finite, so its %d samples do not count; it takes the others' "
            "average",
            epoch,
            "difference" if optimizer.schedule.outer else "gradient",
            order.samples,
        )
        return -1

    def _return(self, order: Order) -> None:
        self._gradients.unload_accumulators_()
        self._state.buffers.give_back(order.samples)
        self._optimizer.give_metrics_back()

    def _repeat(self, order: Order) -> int:
        """The average of a swarm epoch in which this peer was not becomes the one that it steps with."""
        ledger, epoch = self._optimizer.ledger, order.epoch
        target = self._optimizer.target_batch_size
        end = EpochEnd(epoch, False, 0, target, ledger.notes, ledger.clock, None)
        try:
            self._gradients.repeat(self.log.core, epoch)
        except HivemindError as error:
            logger.warning("swarm epoch %d: refusing an average that others kept, which does not fit: %s", epoch, error)
            return 0
        self.end, end.averaged, end.is_repeated = end, True, True
        end.metric = self._gradients.averaged_metric()
        self._look_at_parameters(end)
        return 1

    def _look_at_parameters(self, end: EpochEnd) -> None:
        """Now, while the program does not change what requires gradients: as it does at the end of the same epoch in
        all peers.
        """
        averaged = self._gradients.parameters
        end.main, end.beside = self._state.parameters.split(averaged)
        end.takes = [p.requires_grad for p in averaged]
        if end.alone:  # in a group the others' gradients are there where this peer has none
            end.takes = [takes and touched for takes, touched in zip(end.takes, self._gradients.touched())]

    def _make_step(self, is_own: bool) -> None:
        """Steps with the averages.

        Args:
            is_own: They are this peer's alone, and the log has them.
        """
        optimizer, end = self._optimizer, self.end
        with self._gradients.use_averaged_gradients(end.takes, end.main, end.beside):
            norm = None
            if not optimizer.schedule.outer:
                norm = optimizer.clip_gradients()
            elif end.is_repeated:
                self._state.keep_all_progress()
            else:
                end.notes.difference = self._compared()
                missed = self._gradients.rounds[0].missed if end.averaged and end.samples else ()
                self._state.keep_progress(self._gradients.parameters, missed)
            end.notes.gradient_norm = norm_of(self._gradients.averaged_grads) if norm is None else norm
            self._state.step_optimizer()
            if optimizer.schedule.outer:
                self._state.apply_buffers(end.averaged or is_own)

    @torch.no_grad()
    def _step(self, order: Order) -> Dict[str, Any]:
        optimizer, end = self._optimizer, self.end
        own = self.log.add_own(end.epoch) if order.ask and all(end.takes) else ()
        try:
            self._make_step(bool(own))
        except BaseException:
            if own:
                self.log.broke()
            raise
        if end.is_repeated:
            self.repeated += 1
            end.notes.repeated_steps += 1
        optimizer.say(
            "Optimizer step: done! This peer contributed %d samples to swarm epoch %d", end.samples, end.epoch
        )
        facts: Dict[str, Any] = dict(setup=optimizer.setups.take_change())
        if own:
            facts.update(stamps=own)
            end.metric = self._gradients.averaged_metric()  # as others have it
        if end.averaged:
            # who froze others has stepped otherwise
            facts.update(frozen=[i for i, takes in enumerate(end.takes) if not takes])
        if end.averaged and not end.is_repeated:
            stamp = self._gradients.stamp
            facts.update(stamps=stamp if isinstance(stamp, tuple) else (stamp,))
            if not self._machine.is_unusable:  # else no other replica leads to the average's
                self.log.add(end.epoch, facts["stamps"])
        return facts

    def _compared(self) -> Any:
        gradients = self._gradients
        return gradients.compared(self._state.parameters.difference_of(gradients.parameters))

    def _schedule(self, order: Order) -> None:
        for _ in range(order.samples):
            self._state.step_scheduler(self.end.metric)
        if self._gradients is None and self._machine.state == "GATHERING":  # it has counted these epochs
            self._optimizer.forget_count()

    def _take(self, order: Order) -> int:
        self.settle_local_step()
        if not self._state.load_state_into_averager_():
            logger.warning(
                "swarm epoch %d: the optimizer has not stepped yet and has no average_opt_statistics: this peer's "
                "state is averaged after its first step",
                self.end.next_epoch,
            )
            return 0
        if all_finite(self._state.tensors_to_average):
            return 1
        logger.warning(
            "swarm epoch %d: the state of this peer is not finite, so it is not averaged but loaded from others",
            self.end.next_epoch,
        )
        self._state.forget_taken()
        return -1

    def _apply(self, order: Order) -> None:
        self.settle_local_step()
        if not order.samples:
            self._state.forget_taken()  # the copies that were to be averaged are no average
        self._state.update_model()

    # ---- states ----

    def _snapshot(self, order: Order) -> Union[int, Dict[str, Any]]:
        clock = self._optimizer.ledger.clock
        begun = clock.now()
        self.settle_local_step()
        self._state.offer_averages(self._gradients is None and not self.end.alone)
        if not (self._state.allow_state_sharing or self._state.offers.gift is not None):
            return 0
        self.snapshot = self._state.make_state()
        return dict(seconds=clock.now() - begun)

    def _adopt(self, order: Order) -> int:
        self.settle_local_step()
        self._optimizer.ledger.abandon()
        self._state.background.drop()  # what it made is of the state before
        loaded, self.loaded = self.loaded, None
        self.is_adopting = True
        try:
            if not self._state.take_over_state(loaded):
                return 0
        finally:
            self.is_adopting = False
        self.adopted += 1
        self._optimizer.setups.renew()
        self._optimizer.setups.take_change()  # the state's own mark says how it came about
        return 1

    def _drop(self, order: Order) -> None:
        self._state.forget_taken()
        self._optimizer.drop_sums()
