"""The swarm epoch of a TrainingStateAverager: its own number, or that of the Optimizer that has it."""

from __future__ import annotations

from typing import Any


class OwnEpoch:
    """The swarm epoch of a TrainingStateAverager that no Optimizer has."""

    is_adopting = False

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Another swarm epoch begins.

        Args:
            epoch: The swarm epoch.
        """
        self.epoch = epoch


class EpochCounter:
    """The part of TrainingStateAverager that knows its swarm epoch."""

    _counter: Any

    @property
    def local_epoch(self) -> int:
        """The swarm epoch of this peer."""
        return self._counter.epoch

    @local_epoch.setter
    def local_epoch(self, epoch: int) -> None:
        self._counter.set_epoch(epoch)

    def count_by(self, counter: Any) -> None:
        """Lets somebody else count the swarm epochs: an Optimizer's Driver.

        Args:
            counter: Has `epoch`, set_epoch() for another state, and `is_adopting`: it takes over a state.
        """
        self._counter = counter
