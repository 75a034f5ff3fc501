"""The search for the groups that end an epoch. It begins ahead of the end, so that no peer waits when it comes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Optional, Tuple

from _hivemind_c import HivemindError

from hivemind_c.dht import get_dht_time

if TYPE_CHECKING:
    from hivemind_c.optim.optimizer import Optimizer

logger = logging.getLogger("hivemind_c.optim")


class GroupSearch:
    """The averaging steps of one Optimizer that wait for the end of an epoch: one for gradients, one for state.

    Args:
        optimizer: The Optimizer.
    """

    def __init__(self, optimizer: "Optimizer"):
        self._optimizer = optimizer
        self._gradients: Any = None
        self._state: Any = None
        self._epoch: Optional[int] = None  # both are for the end of this epoch
        self._without_state: Optional[int] = None  # at whose end no state is averaged

    def prepare(self) -> None:
        """Begins to look for groups, once in an epoch."""
        optimizer = self._optimizer
        epoch = optimizer.local_epoch
        if self._epoch == epoch or optimizer.state_averager.background.busy:
            return
        self.cancel()
        self._epoch = epoch
        tracker = optimizer.tracker
        left = max(0.0, min(tracker.estimated_next_update_time - get_dht_time(), optimizer.averaging_timeout))
        if optimizer.grad_averager is not None:
            self._gradients = self._begin_gradients(epoch, left)
        if optimizer.schedule.averages_state_at(epoch + 1):
            self._state = self._begin_state(epoch + 1, left)

    def take_gradient_control(self, epoch: int) -> Any:
        """Returns the control for averaging gradients now. None: there can be none, which the log explains.

        Args:
            epoch: The epoch that ends.
        """
        control, self._gradients = self._gradients, None
        return self._usable(control) or self._begin_gradients(epoch)

    def take_state_control(self, epoch: int) -> Any:
        """Returns the control for averaging the state now. None: there can be none, which the log explains.

        Args:
            epoch: The epoch that begins.
        """
        control, self._state = self._state, None
        if self._without_state is not None and epoch == self._without_state + 1:
            return None
        return self._usable(control) or self._begin_state(epoch)

    @property
    def controls(self) -> Tuple[Any, Any]:
        """The controls for gradients and for state for which groups are looked for."""
        return self._gradients, self._state

    def cancel(self) -> None:
        """Ends the search: no peer waits for these groups any more."""
        for control in (self._gradients, self._state):
            if control is not None:
                control.cancel()
        self._gradients = self._state = self._epoch = None

    def setup_has_changed(self) -> None:
        """Leaves the group that was to average the state of the next epoch, because its members step differently.

        Gradients were computed before the change, so their group remains.
        """
        if self._state is not None:
            self._state.cancel()
            self._state, self._without_state = None, self._epoch

    def _usable(self, control: Any) -> Any:
        return control if control is not None and not control.done() else None

    def has_begun(self) -> bool:
        """True if a group for the gradients of this epoch has been looked for, and may still come."""
        return self._epoch == self._optimizer.local_epoch and self._usable(self._gradients) is not None

    def _begin_gradients(self, epoch: int, left: float = 0.0) -> Any:
        word = None if self._optimizer.auxiliary else self._optimizer.state_averager.lineage.word()
        return self._begin(self._optimizer.grad_averager, epoch, left, gather=word)

    def _begin_state(self, epoch: int, left: float = 0.0) -> Any:
        """Averagings of state are counted one by one, so that who comes next is known to be about to come."""
        return self._begin(self._optimizer.state_averager, epoch // self._optimizer.schedule.average_state_every, left)

    def enter_epoch(self, epoch: int) -> None:
        """Announces that this peer begins an epoch, so that no peer waits for it in an earlier one.

        Args:
            epoch: The epoch.
        """
        optimizer = self._optimizer
        if optimizer.grad_averager is not None:
            optimizer.grad_averager.reached(epoch)
        optimizer.state_averager.reached(epoch // optimizer.schedule.average_state_every + 1)

    def step_aside(self) -> None:
        """Asks other peers not to wait for this one until it begins an epoch again."""
        self.cancel()
        if self._optimizer.grad_averager is not None:
            self._optimizer.grad_averager.step_aside()
        self._optimizer.state_averager.step_aside()

    def _begin(self, averager: Any, epoch: int, left: float, **more: Any) -> Any:
        """left: seconds until it is needed; none, when the epoch has ended (the tracker tells of the next one's end
        then).
        """
        optimizer = self._optimizer
        try:
            averager.present_setup(optimizer.setups.presented)
            return averager.schedule_step(
                get_dht_time() + left + max(optimizer.matchmaking_time, 0.1),
                timeout=left + optimizer.averaging_timeout + 0.1,
                allow_retries=False,
                epoch=epoch,
                **more,
            )
        except HivemindError as error:
            logger.warning("swarm epoch %d: cannot look for a group, continuing without one: %s", epoch, error)
            return None
