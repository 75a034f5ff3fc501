"""The options of an Optimizer that its plan depends on, as properties."""

from __future__ import annotations

from typing import Any

from hivemind_c.optim.schedule import Schedule


class PlanOptions:
    """The part of Optimizer that shows these options."""

    schedule: Schedule
    grad_averager: Any

    @property
    def offload_optimizer(self) -> bool:
        """The option offload_optimizer."""
        return self.schedule.offload_optimizer

    @property
    def delay_optimizer_step(self) -> bool:
        """The option delay_optimizer_step."""
        return self.schedule.delay_optimizer_step

    @property
    def delay_grad_averaging(self) -> bool:
        """The option delay_grad_averaging."""
        return self.schedule.delay_grad_averaging

    @property
    def delay_state_averaging(self) -> bool:
        """The option delay_state_averaging."""
        return self.schedule.delay_state_averaging

    @property
    def average_state_every(self) -> int:
        """The option average_state_every."""
        return self.schedule.average_state_every

    @property
    def use_local_updates(self) -> bool:
        """The option use_local_updates."""
        return self.schedule.use_local_updates

    @property
    def use_gradient_averaging(self) -> bool:
        """True unless use_local_updates is set."""
        return self.grad_averager is not None
