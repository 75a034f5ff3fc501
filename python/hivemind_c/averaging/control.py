"""A step under way: told to go, given its weight, waited for, cancelled."""

from __future__ import annotations

import asyncio
import logging
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from _hivemind_c import Future, HivemindCancelledError, HivemindError, HivemindValueError

from hivemind_c._log import begin, when_done
from hivemind_c.averaging.group_info import GroupInfo
from hivemind_c.dht.values import get_dht_time, unpack
from hivemind_c.p2p import PeerID

if TYPE_CHECKING:
    from hivemind_c.averaging.averager import DecentralizedAverager

logger = logging.getLogger("hivemind_c.averaging")
Gathered = Dict[str, Any]


class AveragingStage(Enum):
    """Where a step is, as far as the program decides it. IDLE and LOOKING_FOR_GROUP are hivemind's: a step here is never in them, as it may be triggered before it has a group."""

    IDLE = 1
    LOOKING_FOR_GROUP = 2
    AWAITING_TRIGGER = 3  #: it looks for a group, or has one; allow_allreduce() has not been called
    RUNNING = 4  #: it may run, and does as soon as there is a group
    RUNNING_ALLREDUCE = 4
    FINISHED = 5


class AveragingMode(Enum):
    """What a peer does in an averaging."""

    NODE = 0  #: it contributes, and reduces a part
    CLIENT = 1  #: it contributes, and only dials out
    AUX = 2  #: it reduces a part, and contributes nothing


def _value(member: tuple) -> Any:
    try:
        return unpack(member[4])
    except ValueError as error:  # a stranger's bytes
        logger.warning("ignoring the gathered data of peer %s: %s", member[0], error)
        return None


class StepControl:
    """What DecentralizedAverager.step(wait=False) returns. Usable from any thread, and awaitable.

    result() gives what was gathered, {peer_id: value}, or raises what went wrong.
    """

    def __init__(
        self,
        averager: "DecentralizedAverager",
        future: Future,
        weight: float,
        scheduled_time: float,
        deadline: Optional[float],
        triggered: bool,
        allow_retries: bool = True,
        data_for_gather: bytes = b"",
    ):
        self._averager, self._future = averager, future
        self._weight, self._triggered = weight, triggered
        self.scheduled_time = scheduled_time  #: in get_dht_time()
        self.deadline = deadline  #: likewise; None: none
        self.allow_retries = allow_retries  #: whether it looks for another group if one was not found
        self.data_for_gather = data_for_gather  #: what this peer gives to be gathered, as it travels
        self._settled = threading.Event()
        self._settling = threading.Lock()
        self._lost: Optional[HivemindError] = None  # the averages have not reached the program's tensors

    # ---- what the program says ----

    def allow_allreduce(self) -> None:
        """The values are in the tensors: the round may begin. Needed after require_trigger=True."""
        if not self._triggered:
            self._averager._go(self._future)
            self._triggered = True

    @property
    def weight(self) -> float:
        """How much these tensors count. May be set until the round begins."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._averager._weigh(self._future, weight)
        self._weight = weight

    def cancel(self) -> bool:
        """Asks for its end; False if it was over already."""
        return self._future.cancel()

    # ---- how it is ----

    @property
    def triggered(self) -> bool:
        return self._triggered

    @property
    def began_allreduce(self) -> bool:
        """Whether it may run, or has."""
        return self._triggered or self.done()

    async def wait_for_trigger(self) -> None:
        """Waits for allow_allreduce(), or for the end of the step."""
        while not self.began_allreduce:
            await asyncio.sleep(0.005)

    @property
    def group(self) -> GroupInfo:
        """Of a step that is done well: its members, and what they gave to be gathered."""
        members, *_, stamp = self.details(0)
        return GroupInfo(str(stamp).encode(), tuple(PeerID(member[0]) for member in members), tuple(_value(member) for member in members))

    @property
    def stage(self) -> AveragingStage:
        if self.done():
            return AveragingStage.FINISHED
        return AveragingStage.RUNNING if self._triggered else AveragingStage.AWAITING_TRIGGER

    def get_timeout(self) -> Optional[float]:
        """Seconds that it has left; None: it has no end."""
        return None if self.deadline is None else max(0.0, self.deadline - get_dht_time())

    def done(self) -> bool:
        return self._future.done() and self._settle()

    def running(self) -> bool:
        """Whether it may run, and is not over."""
        return self._triggered and not self.done()

    def add_done_callback(self, callback: Callable[["StepControl"], Any]) -> None:
        """callback(this) once it is over: in a thread of its own, or at once and here if it is already."""
        when_done(self, callback)

    def cancelled(self) -> bool:
        return self.done() and isinstance(self.exception(), HivemindCancelledError)

    # ---- its end ----

    def _settle(self) -> bool:
        """Once over: what a round on host copies brought goes back to where the tensors live. Whoever comes first does it."""
        if not self._settled.is_set():
            with self._settling:
                if not self._settled.is_set():
                    self._averager._staging.over(self._future)
                    if self._future.exception() is None:
                        self._lost = self._averager._tensors.exchanged()
                        self._averager.last_updated = get_dht_time()
                    self._settled.set()
        return True

    def result(self, timeout: Optional[float] = None) -> Gathered:
        """Waits; what each member of the group gave to be gathered. HivemindTimeoutError if it is not over in this time."""
        return {PeerID(member[0]): _value(member) for member in self.details(timeout)[0]}

    def details(self, timeout: Optional[float] = None) -> tuple:
        """Waits; (members, parts, parts averaged, bytes, seconds of matchmaking, of waiting, of the all-reduce, tries, stamp): members are tuples
        (peer_id, is this one, client mode, auxiliary, packed value, which part of its values was counted). stamp: a number, alike in members that hold
        the same averages to the bit; 0 when alone."""
        try:
            details = self._future.result(timeout)
        except HivemindError:
            if self._future.done():
                self._settle()
            raise
        self._settle()
        if self._lost is not None:
            raise self._lost
        return details

    @property
    def stamp(self) -> int:
        """Of a step that is done well: a number that is alike in members that hold the same averages, to the bit; 0 when alone."""
        return self.details(0)[-1]

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Waits; what went wrong, or None."""
        error = self._future.exception(timeout)
        self._settle()
        return error or self._lost

    def __await__(self):
        return self._wait().__await__()

    def is_of(self, future: Future) -> bool:
        return self._future is future

    def check_unused(self, averager: "DecentralizedAverager") -> None:
        """That it may be handed to this averager, which is to trigger it."""
        if self._averager is not averager:
            raise ValueError(f"the control belongs to another averager, of {self._averager.prefix!r}: give one from this averager's schedule_step()")
        if self._triggered:
            raise ValueError("the control was already used, and its averaging has begun or is over: make a new one with schedule_step()")

    def check_begun(self) -> None:
        """Raises why it could not begin: a step is under way, for one. Not why it has found no group since."""
        self._averager.get_group_bits()  # answered behind what the core does with the step
        error = self.exception(0) if self.done() else None
        if error is not None and (isinstance(error, HivemindValueError) or getattr(error, "status", "") in ("BUSY", "CLOSED")):
            raise error

    def _watch(self) -> None:
        """Settles also when nobody waits for it, in a thread of its own."""
        begin("hivemind_c-step", self.exception)

    async def _wait(self) -> Gathered:
        pause = 0.001
        try:
            while not self._future.done():
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.05)
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.result(0)

    def __repr__(self) -> str:
        return f"<hivemind_c.StepControl, {self.stage.name.lower()}, weight {self._weight:g}>"
