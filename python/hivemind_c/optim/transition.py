"""An epoch's end, carried out: what schedule.py says, one action after the other, now and in the background."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

import torch

from hivemind_c.optim.schedule import Action, Actions, Plan

if TYPE_CHECKING:
    from hivemind_c.optim.optimizer import Optimizer

logger = logging.getLogger("hivemind_c.optim")


class Transition:
    """One passage from an epoch to the next; made anew for each."""

    def __init__(self, optimizer: "Optimizer", next_epoch: int, alone: bool):
        self.optimizer, self.next_epoch, self.alone = optimizer, next_epoch, alone
        self.epoch = optimizer.local_epoch
        self.state, self.gradients = optimizer.state_averager, optimizer.grad_averager
        self.samples = optimizer.local_samples
        self.averaged = False  # the gradients are the swarm's
        self.stepped = optimizer.schedule.use_local_updates or optimizer.auxiliary
        self.metric = optimizer.take_metric()
        self._do: Dict[Action, Callable[[], None]] = {
            Action.AVERAGE_GRADIENTS: self._average_gradients,
            Action.OPTIMIZER_STEP: self._optimizer_step,
            Action.SCHEDULER_STEP: self._scheduler_step,
            Action.NEXT_EPOCH: self._count_epoch,
            Action.AVERAGE_STATE: self._average_state,
            Action.UPDATE_MODEL: self.state.update_model,
        }

    def run(self, plan: Plan) -> None:
        if self.gradients is not None and not self.optimizer.auxiliary:
            self._prepare_gradients()
        self._run(plan.now)
        if self.gradients is not None:
            self.gradients.reset_accumulated_grads_()
        if not plan.background:
            return
        *job, last = plan.background
        assert last is Action.UPDATE_MODEL, "what is done in the background reaches the model in the thread that trains"
        self.state.background.start(lambda: self._in_background(tuple(job)), self.state.update_model)

    def _run(self, actions: Actions) -> None:
        for action in actions:
            self._do[action]()

    def _in_background(self, actions: Actions) -> None:
        try:
            self._run(actions)
        except BaseException:
            if not self.stepped:  # this epoch has not happened here: the peer is behind, and knows it
                self.state.local_epoch = self.epoch
            raise

    # ---- gradients ----

    def _prepare_gradients(self) -> None:
        self.touched = self.gradients.touched() if self.alone else None
        self.main = self.state.parameters.trainable()[1]
        self.gradients.load_accumulators_into_averager_()

    def _average_gradients(self) -> None:
        self.averaged = False

    @torch.no_grad()
    def _optimizer_step(self) -> None:
        optimizer = self.optimizer
        if not self.averaged and self.samples == 0:
            logger.warning("epoch %d is not stepped: this peer has no gradients of its own, and averaging gave none", self.epoch)
        else:
            with self.gradients.use_averaged_gradients(self.touched, self.main):
                optimizer.clip_averaged_gradients()
                self.state.step_optimizer()
        self.stepped = True
        optimizer.say("Optimizer step: done!")

    def _scheduler_step(self) -> None:
        for epoch in range(self.epoch, self.next_epoch):
            self.state.step_scheduler(self.metric)

    def _count_epoch(self) -> None:
        self.state.local_epoch = self.next_epoch
        self.optimizer.tracker.update_epoch(self.next_epoch)

    # ---- state ----

    def _average_state(self) -> None:
        pass
