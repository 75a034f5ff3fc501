"""The order of work: which part of a swarm epoch's end happens before step() returns, and which in the background.

The rules are in csrc/core/epoch/plan.c. docs/reference/optimizer.md shows the same as a table and as timelines, and
tests hold the two together.
"""

from __future__ import annotations

import dataclasses
import functools
from enum import Enum
from typing import Tuple

import _hivemind_c


class Action(Enum):
    """The actions of a plan, by the names of the core."""

    ACCUMULATE = "SUM"  #: add the batch's gradient to the epoch's
    LOCAL_STEP = "LOCAL_STEP"  #: step the optimizer with the batch's own gradient
    AVERAGE_GRADIENTS = "AVERAGE_GRADIENTS"  #: with the swarm
    OPTIMIZER_STEP = "STEP"  #: step the optimizer with the epoch's gradient
    SCHEDULER_STEP = "SCHEDULE"  #: step the scheduler
    NEXT_EPOCH = "COUNT"  #: count the epoch
    AVERAGE_STATE = "AVERAGE_STATE"  #: parameters and statistics, with the swarm
    UPDATE_MODEL = "APPLY"  #: write the outcome into the model


Actions = Tuple[Action, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """now: in this order before step() returns. background: in this order after it, in a thread; then the outcome waits
    until a later call of step() takes it over: the first after it is there, at the latest the one that ends the next
    epoch."""

    now: Actions
    background: Actions = ()


def _plan(parts: Tuple[Tuple[str, ...], Tuple[str, ...]]) -> Plan:
    now, late = parts
    return Plan(tuple(map(Action, now)), tuple(map(Action, late)))


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The options that a plan depends on. Raises ValueError for options that contradict each other."""

    use_local_updates: bool = False
    delay_grad_averaging: bool = False
    delay_optimizer_step: bool = False
    delay_state_averaging: bool = True
    offload_optimizer: bool = False
    auxiliary: bool = False
    average_state_every: int = 1
    outer: bool = False
    overlap: int = 0  #: percent of an epoch, at most, in which batches go on while its difference travels

    def __post_init__(self) -> None:
        every = self.average_state_every
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"average_state_every must be a number of swarm epochs, 1 or more, not {every!r}")
        assert self.core is not None  # which checks the options

    @functools.cached_property
    def core(self) -> _hivemind_c.EpochPlan:
        """The options as the core has them."""
        return _hivemind_c.EpochPlan(**dataclasses.asdict(self))

    @property
    def averages_gradients(self) -> bool:
        """Whether an epoch's end averages gradients, or differences in their place."""
        return not self.use_local_updates or self.outer

    def averages_state_at(self, epoch: int) -> bool:
        """Whether state is averaged when `epoch` begins."""
        return self.core.averages_state_at(epoch)

    def state_epoch(self, epoch: int) -> int:
        """The latest epoch, up to the given epoch, at whose beginning peers have equal states: with local updates they
        have averaged then."""
        return self.core.state_epoch(epoch)

    def batch(self) -> Plan:
        """A step() that ends no epoch."""
        return _plan(self.core.batch())

    def epoch(self, next_epoch: int, alone: bool) -> Plan:
        """The actions of a step() that ends a swarm epoch, after batch()."""
        return _plan(self.core.end(next_epoch, alone))
