"""What is done when: which part of an epoch's end happens before step() returns, and which in the background.

Pure: options in, a plan out. docs/reference/optimizer.md shows the same as a table and as timelines, and tests
hold the two together.
"""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Tuple


class Action(Enum):
    ACCUMULATE = "add the batch's gradient to the epoch's"
    LOCAL_STEP = "step the optimizer with the batch's own gradient"
    AVERAGE_GRADIENTS = "average gradients with the swarm"
    OPTIMIZER_STEP = "step the optimizer with the epoch's gradient"
    SCHEDULER_STEP = "step the scheduler"
    NEXT_EPOCH = "count the epoch"
    AVERAGE_STATE = "average parameters and statistics with the swarm"
    UPDATE_MODEL = "write the outcome into the model"


Actions = Tuple[Action, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """now: in this order before step() returns. background: in this order after it, in a thread; then the outcome waits
    until a later call of step() takes it over: the first after it is there, at the latest the one that ends the next
    epoch."""

    now: Actions
    background: Actions = ()


@dataclasses.dataclass(frozen=True)
class Schedule:
    use_local_updates: bool = False
    delay_grad_averaging: bool = False
    delay_optimizer_step: bool = False
    delay_state_averaging: bool = True
    offload_optimizer: bool = False
    auxiliary: bool = False
    average_state_every: int = 1

    def __post_init__(self) -> None:
        if self.delay_grad_averaging and self.use_local_updates:
            raise ValueError(
                "delay_grad_averaging cannot be combined with use_local_updates: no gradients are averaged then; "
                "remove delay_grad_averaging"
            )
        if self.delay_grad_averaging and not self.delay_optimizer_step:
            raise ValueError(
                "delay_grad_averaging=True needs delay_optimizer_step=True: a step cannot come before its gradients; "
                "remove delay_optimizer_step"
            )
        if self.delay_optimizer_step and not self.offload_optimizer:
            raise ValueError(
                "a delayed optimizer step works on a copy of the parameters while the model trains on: write "
                "offload_optimizer=True, "
                "optimizer=lambda params: torch.optim.AdamW(params), params=model.parameters()"
            )
        if self.auxiliary and self.use_local_updates:
            raise ValueError(
                "an auxiliary peer has no local updates: it trains nothing; remove auxiliary or use_local_updates"
            )
        every = self.average_state_every
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"average_state_every must be a number of epochs, 1 or more, not {every!r}")

    @property
    def steps_late(self) -> bool:
        """Whether the model may change later than in the step() that asked for it."""
        return self.delay_optimizer_step or self.delay_state_averaging

    def averages_state_at(self, epoch: int) -> bool:
        """Whether state is averaged when `epoch` begins."""
        return epoch % self.average_state_every == 0

    def state_epoch(self, epoch: int) -> int:
        """The latest epoch, up to the given epoch, at whose beginning peers have equal states: with local updates they
        have averaged then."""
        return epoch - epoch % self.average_state_every if self.use_local_updates else epoch

    def batch(self) -> Plan:
        """A step() that ends no epoch."""
        if self.auxiliary:
            return Plan(())
        if not self.use_local_updates:
            return Plan((Action.ACCUMULATE,))
        if self.delay_optimizer_step:
            return Plan((), (Action.LOCAL_STEP, Action.UPDATE_MODEL))
        return Plan((Action.LOCAL_STEP,) + ((Action.UPDATE_MODEL,) if self.offload_optimizer else ()))

    def epoch(self, next_epoch: int, alone: bool) -> Plan:
        """What a step() that ends an epoch does after batch()."""
        average_state = (Action.AVERAGE_STATE,) if self.averages_state_at(next_epoch) and not alone else ()
        if self.auxiliary:
            return Plan((() if alone else (Action.AVERAGE_GRADIENTS,)) + (Action.NEXT_EPOCH,) + average_state)
        update = (Action.UPDATE_MODEL,)
        if self.use_local_updates:
            now: Actions = (Action.SCHEDULER_STEP, Action.NEXT_EPOCH)
            if not average_state:
                return Plan(now)
            return (
                Plan(now, average_state + update) if self.delay_state_averaging else Plan(now + average_state + update)
            )
        gradients = () if alone else (Action.AVERAGE_GRADIENTS,)
        step = (Action.OPTIMIZER_STEP, Action.SCHEDULER_STEP)
        if self.delay_grad_averaging:
            return Plan((Action.NEXT_EPOCH,), gradients + step + average_state + update)
        if self.delay_optimizer_step:
            return Plan(gradients + (Action.NEXT_EPOCH,), step + average_state + update)
        now = gradients + step + (Action.NEXT_EPOCH,)
        if average_state and self.delay_state_averaging:
            return Plan(now + (update if self.offload_optimizer else ()), average_state + update)
        return Plan(now + average_state + (update if average_state or self.offload_optimizer else ()))
