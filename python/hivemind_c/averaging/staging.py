"""Tensors that rounds know only as copies on the host: when they are copied there, and the averages back."""

from __future__ import annotations

import threading
from typing import Any, Optional, Protocol

import _hivemind_c
from _hivemind_c import Future, HivemindError, HivemindValueError

from hivemind_c.averaging.tensors import LentTensors


class Step(Protocol):
    """A step under way."""

    def done(self) -> bool: ...
    def is_of(self, future: Future) -> bool: ...


class Staging:
    """Copies between tensors on other devices and their copies in host memory, around rounds and locks.

    The lock of C ends with the round, and averages are copied back a little later. So each holder of the lock, and each
    new round, first makes sure that they are back. Tensors that are lent in place need none of this.

    Args:
        tensors: The tensors of the averager.
    """

    def __init__(self, tensors: LentTensors):
        self._tensors = tensors
        self._latest: Optional[Step] = None
        self.turn = threading.Lock()  # who has it begins a round, and nobody else copies to the host

    def check_free(self, core: Any) -> None:
        """HivemindError, BUSY: a step is under way. The core would say so too, but only when its copies have been
        overwritten.
        """
        if self._under_way(core):
            error = HivemindError(
                "cannot start a step: another step of this averager is under way; wait for it, or cancel it first"
            )
            error.status = "BUSY"
            raise error

    def make_ready(self) -> None:
        """The values are in the tensors: rounds may read them."""
        if self._tensors.staged:
            self._tensors.to_host()
        self._tensors.ready()

    def begun(self, control: Step) -> bool:
        """Whether it has to be watched: its averages are to be copied back when it is over."""
        staged = self._tensors.staged
        self._latest = control if staged else None
        return staged

    def trigger(self, core: _hivemind_c.Averager, step: Future) -> None:
        """The values are in the tensors: the round of a step may begin. HivemindValueError: they are others by now."""
        with self.turn:
            if not step.done():  # else what is on the host may be another round's
                try:
                    self._tensors.check()
                except HivemindValueError:
                    step.cancel()  # the others need not wait for it
                    raise
                self.make_ready()
            core.trigger(step)

    def entered(self, core: Any) -> None:
        """The program has the lock: what it sees are the averages, if a round is over."""
        self._under_way(core)

    def left(self, core: Any) -> None:
        """The program gives the lock back: what it has changed is what the round that waits for it averages."""
        with self.turn:
            if self._under_way(core):
                self._tensors.to_host()
        self._tensors.ready()

    def over(self, step: Future, is_well: bool) -> Optional[HivemindValueError]:
        """Copies the averages of a step back, once for each. An error: they have not reached the program's tensors."""
        latest = self._latest
        if latest is not None and latest.is_of(step):
            if is_well:
                self._tensors.from_host()
            self._latest = None
        return self._tensors.exchanged() if is_well else None

    def _under_way(self, core: Any) -> bool:
        """Whether the core has a step; one that is over has been copied back when this returns."""
        latest = self._latest
        if latest is None or latest.done():
            return False
        try:
            # answered behind what the core does just now: it gives the lock back a moment before it says that the step
            # is over
            core.bits()
        except HivemindError:  # the averager or its node is being shut down
            return False
        return not latest.done()
