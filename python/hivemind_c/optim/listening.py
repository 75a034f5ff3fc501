"""Listening: a peer that repeats steps is a member of the others' round, without values (docs/design/log.md)."""

from __future__ import annotations

from typing import Any, List, Tuple

from _hivemind_c import HivemindError

from hivemind_c.averaging.checks import epoch_bytes, packed
from hivemind_c.averaging.marks import Member, members_of


class Listening:
    """The step of such a round. It is used as a control is, and touches no tensor.

    Args:
        averager: The averager of gradients.
        epoch: The others' swarm epoch.
        wait: Longest time in seconds to find the group.
        timeout: Longest time in seconds of the step.
    """

    def __init__(self, averager: Any, epoch: int, wait: float, timeout: float):
        self._averager, self.epoch = averager, epoch
        self.is_given_up = False
        self._future = averager.core.step(
            packed(None), epoch_bytes(epoch), 0.0, wait, timeout, 0, False, False, False, True, True
        )

    def give_up(self) -> None:
        """Asks for its end, if it has no group yet."""
        self.is_given_up = True
        self._averager.core.give_up(self._future)

    def cancel(self) -> None:
        """Ends the step."""
        self._future.cancel()

    def done(self) -> bool:
        """True if the step is over."""
        return self._future.done()

    def outcome(self) -> Tuple[str, Tuple[Any, ...]]:
        """Returns the status of the step that is over, and its result, if it has one."""
        try:
            return "OK", (self._future.result(0),)
        except HivemindError as error:
            return error.status, ()

    def members(self) -> List[Member]:
        """The members of a round that ended well."""
        return members_of(self._future.result(0)[0])

    @property
    def stamp(self) -> int:
        """The stamp of its averages."""
        return self._future.result(0)[-1]
