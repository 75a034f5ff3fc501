"""TrainingStateAverager.step: for programs that decide by themselves when to step, average and count an epoch, without
an Optimizer.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Dict, Iterable, Optional

from _hivemind_c import HivemindError

from hivemind_c._log import wait_at_end
from hivemind_c.averaging.control import Gathered, StepControl
from hivemind_c.optim.state_parts import _StateParts

logger = logging.getLogger("hivemind_c.optim")
LEAP = 1 << 16  #: epochs ahead that are believed: a scheduler is stepped through them


class ManualSteps(_StateParts):
    """The part of TrainingStateAverager for programs that have no Optimizer."""

    _late_step = False  # what is in the background steps the optimizer, too

    @property
    def averaging_in_progress(self) -> bool:
        """True while an earlier call of step() works in the background."""
        return self.background.busy

    def step(  # type: ignore[override]
        self,
        wait_for_delayed_updates: Optional[bool] = None,
        apply_delayed_updates: bool = True,
        increment_epoch: bool = False,
        optimizer_step: bool = False,
        zero_grad: bool = False,
        delay_optimizer_step: bool = False,
        averaging_round: bool = False,
        delay_averaging: Optional[bool] = None,
        averaging_control: Optional[StepControl] = None,
        wait_for_trigger: Optional[Callable[[], Any]] = None,
        grad_scaler: Any = None,
        set_to_none: bool = True,
        averaging_opts: Optional[Dict[str, Any]] = None,
    ) -> Optional[Gathered]:
        """Does the requested actions in the order of its arguments.

        Returns {peer_id: value} of the members of an averaging. None means that there was none, that it is delayed, or
        that it failed, which the log reports. Errors of delayed work are raised by a later call.

        Args:
            wait_for_delayed_updates: Wait for work that earlier calls delayed. None: if this call changes anything.
            apply_delayed_updates: Apply the result of that work, if it is done.
            increment_epoch: Count a swarm epoch, and step the scheduler after the optimizer.
            optimizer_step: Step the optimizer with the gradients of the model, or with custom_gradients its own.
            zero_grad: Drop the gradients afterwards.
            delay_optimizer_step: Step the optimizer in the background. Needs offload_optimizer.
            averaging_round: Average parameters, statistics and extra_tensors.
            delay_averaging: Average in the background. None: as delay_optimizer_step.
            averaging_control: Control from schedule_step(). None: look for a group now.
            wait_for_trigger: A function to call before the step of the optimizer.
            grad_scaler: GradScaler that unscales the gradients and steps the optimizer.
            set_to_none: With zero_grad: set gradients to None. False: set them to zero.
            averaging_opts: Options of DecentralizedAverager.step, as a dict.
        """
        late = delay_optimizer_step if delay_averaging is None else delay_averaging
        self._check_step(
            optimizer_step,
            delay_optimizer_step,
            averaging_round,
            late,
            averaging_control,
            wait_for_trigger,
            grad_scaler,
            averaging_opts,
        )
        changes = optimizer_step or zero_grad or averaging_round or increment_epoch
        self._take_over(
            changes if wait_for_delayed_updates is None else wait_for_delayed_updates, apply_delayed_updates
        )
        if (
            changes
            and self.background.waiting
            and (averaging_round or self._late_step or optimizer_step and not self.delta_rule_averaging)
        ):
            raise ValueError(
                "step() must wait for the result of an earlier call: remove wait_for_delayed_updates and "
                "apply_delayed_updates (with "
                "delta_rule_averaging=True the optimizer may step beside an averaging)"
            )
        self.lineage.kept = False  # replicas differ as the program wants it
        self.local_epoch += increment_epoch
        control, stepped = averaging_control, False
        try:
            if averaging_round and control is None:
                control = self.schedule_step(**averaging_opts or {})
            if optimizer_step and delay_optimizer_step:
                self._lend_gradients()
            elif optimizer_step:
                self._step_with(wait_for_trigger, grad_scaler)
            stepped = True
            if zero_grad:
                self._forget_gradients(delay_optimizer_step, set_to_none)
            if not delay_optimizer_step:
                self._passed(increment_epoch, optimizer_step)
            if not (delay_optimizer_step or averaging_round and late):
                return self._average_now(control) if averaging_round else None
            # before training goes on
            if averaging_round and not delay_optimizer_step and not self._made_ready(control):
                return None
        except BaseException:
            self.local_epoch -= increment_epoch and not stepped  # an epoch that has not happened
            if control is not None:
                control.cancel()
            raise
        self._late_step = delay_optimizer_step
        outcome: Dict[str, Any] = {}
        self.background.start(
            lambda: self._in_background(outcome, control, wait_for_trigger, increment_epoch, zero_grad),
            lambda: self._finish(outcome["members"], increment_epoch and delay_optimizer_step),
            at_end=not (delay_optimizer_step and wait_for_trigger),
        )
        return None

    def _check_step(
        self,
        steps: bool,
        late_step: bool,
        averages: bool,
        late: bool,
        control: Any,
        trigger: Any,
        scaler: Any,
        opts: Optional[Dict[str, Any]],
    ) -> None:
        if late_step and not (steps and self.offload_optimizer):
            raise ValueError(
                "delay_optimizer_step needs optimizer_step=True, and offload_optimizer=True, or the optimizer would "
                "write into what the model trains with"
            )
        if late_step and averages and not late:
            raise ValueError(
                "delay_averaging=False with delay_optimizer_step=True: the step comes first, so its averaging is "
                "delayed, too"
            )
        if averages and late and self.averages_the_model_in_place:
            raise ValueError(
                "with reuse_tensors=True parameters are averaged where the model reads them, which cannot train "
                "meanwhile: leave reuse_tensors out, or delay_averaging"
            )
        if late_step and scaler is not None:
            raise ValueError(
                "a grad_scaler's scale changes before a delayed step: unscale gradients yourself and leave "
                "grad_scaler out, or leave delay_optimizer_step out"
            )
        if (trigger is not None or scaler is not None) and not steps:
            raise ValueError(
                "wait_for_trigger and grad_scaler belong to a step of the optimizer: give optimizer_step=True, too"
            )
        if (control is not None or opts) and not averages:
            raise ValueError(
                "averaging_control and averaging_opts belong to an averaging: give averaging_round=True, too"
            )
        if control is not None and opts:
            raise ValueError(
                "averaging_control was made with options of its own: give averaging_opts to schedule_step(), which "
                "made it"
            )
        if control is not None:
            control.check_unused(self)
        if steps and self.auxiliary:
            raise ValueError("an auxiliary peer trains nothing: leave optimizer_step out")

    def _take_over(self, wait: bool, apply: bool) -> None:
        if wait and not apply:
            self.background.settle()
        elif apply:
            self.background.take(wait)

    # ---- the optimizer ----

    def _lend_gradients(self) -> None:
        if not self.custom_gradients:
            self.parameters.lend_gradients()

    def _step_with(self, trigger: Optional[Callable[[], Any]], grad_scaler: Any) -> None:
        if trigger is not None:
            trigger()
        self._lend_gradients()
        self.step_optimizer(grad_scaler)

    def _forget_gradients(self, late: bool, to_none: bool) -> None:
        for parameter in self.parameters.model:
            if to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()
        if not late:
            self.optimizer.zero_grad(set_to_none=to_none)

    def _passed(self, epoch: bool, stepped: bool) -> None:
        if epoch:
            self.step_scheduler()
        if stepped:
            self.parameters.push()
        if epoch:
            self._offer(averaged=False)

    # ---- averaging ----

    def _made_ready(self, control: StepControl) -> bool:
        """Takes what is to be averaged. False: there is nothing yet, and nobody need wait for it."""
        if self.auxiliary or self.load_state_into_averager_():
            return True
        logger.warning(
            "%s: nothing is averaged, because the optimizer has not stepped yet and has nothing of what "
            "average_opt_statistics names",
            self.prefix,
        )
        control.cancel()
        return False

    def _average(self, control: StepControl) -> Optional[Gathered]:
        try:
            members = self.average_loaded(control)
        except HivemindError as error:
            logger.warning("%s: averaging the state failed, so this peer keeps its own: %s", self.prefix, error)
            return None
        self.follow(control)
        return members

    def _average_now(self, control: StepControl) -> Optional[Gathered]:
        if not self._made_ready(control):
            return None
        members = self._average(control)
        self._finish(members)
        return members

    def _in_background(
        self,
        outcome: Dict[str, Any],
        control: Optional[StepControl],
        trigger: Optional[Callable[[], Any]],
        epoch: bool,
        zero_grad: bool,
    ) -> None:
        try:
            if self._late_step:
                if trigger is not None:  # which may never come: from then on the program's end waits for this
                    trigger()
                    wait_at_end(threading.current_thread())
                self.step_optimizer()
                if zero_grad:
                    self.optimizer.zero_grad()
                if epoch:
                    self.step_scheduler()
        except BaseException:
            self.local_epoch -= epoch  # it has not happened here
            if control is not None:
                control.cancel()
            raise
        ready = control is not None and (not self._late_step or self._made_ready(control))
        outcome["members"] = self._average(control) if ready else None

    def _finish(self, members: Optional[Gathered], epoch: bool = False) -> None:
        """In the thread that trains: the model takes the outcome over. epoch: one has passed with it."""
        self.update_model()
        if members is not None and self.sync_epoch_when_averaging:
            self._reach(members.values())
        if members is not None or epoch:
            self._offer(averaged=members is not None)

    def _offer(self, averaged: bool) -> None:
        """Joiners may have the last average, which its members hold alike; until there is one, what this peer has."""
        self.share_averages |= averaged
        if not self.auxiliary and averaged == self.share_averages:
            self.offers.begin_epoch(self.local_epoch)

    def _reach(self, epochs: Iterable[Any]) -> None:
        """Enters the swarm epoch that more than a third of the members have reached: one false claim moves nothing."""
        told = sorted(
            (epoch if type(epoch) is int and 0 <= epoch <= self.local_epoch + LEAP else 0 for epoch in epochs),
            reverse=True,
        )
        reached = told[len(told) // 3] if told else 0
        while self.local_epoch < reached:
            self.step_scheduler()
            self.local_epoch += 1
