"""The part of DecentralizedAverager that tells other peers where this one stands."""

from __future__ import annotations

from hivemind_c.averaging.base import AveragerBase
from hivemind_c.averaging.checks import epoch_number


class Announcements(AveragerBase):
    """Announces this peer's epoch and its setup."""

    def reached(self, epoch: int) -> None:
        """Announces that this peer is in an epoch and will not step for an earlier one.

        Peers that look for a group of an earlier epoch learn at once that they are behind. A step with a number as its
        epoch announces the same.

        Args:
            epoch: Number of the epoch, 0 or more.
        """
        self.core.reached(epoch_number(epoch))

    def comes(self, epoch: int) -> None:
        """Announces that this peer missed a step and will join at an epoch, where members wait for it for a moment.

        Args:
            epoch: Number of the first epoch that this peer takes part in.
        """
        self.core.comes(epoch_number(epoch))

    def awaits(self, epoch: int) -> bool:
        """True if another peer has announced by `comes` that it will join at an epoch.

        Args:
            epoch: Number of the epoch.
        """
        return self.core.awaits(epoch_number(epoch))

    def step_aside(self) -> None:
        """Asks other peers not to wait for this one until its next step or `reached`."""
        self.core.step_aside()

    def present_setup(self, setup: bytes) -> None:
        """Sets what members of a group must have in common besides their tensors. Other peers are refused.

        Raises HivemindError with the status STATE while a step looks for a group.

        Args:
            setup: Lines of text, at most 2048 bytes. The log names the first line in which a refused peer differs.
        """
        if setup != self._setup and self._averager is not None:
            self.core.set_setup(setup)
        self._setup = setup
