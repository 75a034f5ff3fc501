"""A step under way: told to go, given its weight, waited for, cancelled."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from enum import Enum
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from _hivemind_c import Future, HivemindCancelledError, HivemindError, HivemindTimeoutError, HivemindValueError

from hivemind_c._log import begin, when_done
from hivemind_c.averaging.base import AveragerBase
from hivemind_c.averaging.checks import weight_of
from hivemind_c.averaging.group_info import GroupInfo
from hivemind_c.averaging.staging import Staging
from hivemind_c.dht.values import get_dht_time, unpack
from hivemind_c.p2p import PeerID

logger = logging.getLogger("hivemind_c.averaging")
Gathered = Dict[str, Any]
SLICE_S = 0.25  #: of a wait in which something else is to be done


class AveragingStage(Enum):
    """The stage of a step, as far as the program decides it.

    IDLE and LOOKING_FOR_GROUP exist for programs of hivemind. A step here is never in them, because it may be triggered
    before it has a group.
    """

    IDLE = 1
    LOOKING_FOR_GROUP = 2
    AWAITING_TRIGGER = 3  #: it looks for a group, or has one; allow_allreduce() has not been called
    RUNNING = 4  #: it may run, and does as soon as there is a group
    RUNNING_ALLREDUCE = 4
    FINISHED = 5


class AveragingMode(Enum):
    """The part of a peer in an averaging."""

    NODE = 0  #: it contributes, and reduces a part
    CLIENT = 1  #: it contributes, and only dials out
    AUX = 2  #: it reduces a part, and contributes nothing


def gathered(member: tuple) -> Any:
    """Returns what a member gave to be gathered. None: it cannot be read.

    Args:
        member: A member as the core gives it.
    """
    try:
        return unpack(member[4])
    except ValueError as error:  # a stranger's bytes
        logger.warning("ignoring the gathered data of peer %s: %s", member[0], error)
        return None


class StepControl:
    """A step under way, as DecentralizedAverager.step(wait=False) returns it.

    It can be used from any thread, and awaited. result() returns {peer_id: value} of what the members gave to gather,
    or raises the cause of the failure. Programs do not make one themselves.

    Args:
        averager: The averager of the step.
        staging: The copies of that averager's tensors on the host.
        future: Future of the step in C.
        weight: Weight of the tensors in the average, 0 or more.
        scheduled_time: Moment in get_dht_time() at which the round should begin.
        deadline: Moment in get_dht_time() at which the step ends. None: no limit.
        triggered: True if the round may begin without allow_allreduce().
        allow_retries: True if the step looks for another group when none was found.
        data_for_gather: Packed value for all members.
    """

    def __init__(
        self,
        averager: AveragerBase,
        staging: Staging,
        future: Future,
        weight: float,
        scheduled_time: float,
        deadline: Optional[float],
        triggered: bool,
        allow_retries: bool = True,
        data_for_gather: bytes = b"",
    ):
        self._averager, self._staging, self._future = averager, staging, future
        self._weight, self._triggered = weight, triggered
        self.scheduled_time = scheduled_time  #: in get_dht_time()
        self.deadline = deadline  #: likewise; None: none
        self.allow_retries = allow_retries  #: whether it looks for another group if one was not found
        self.data_for_gather = data_for_gather  #: what this peer gives to be gathered, as it travels
        self.begun = time.monotonic()  #: moment in time.monotonic() at which the search for a group began
        self.is_given_up = False  #: its search was given up, because nobody is left who could come
        self.while_waiting: Optional[Callable[[], Any]] = None  #: called each quarter of a second in which one waits
        self._settled = threading.Event()
        self._settling = threading.Lock()
        self._lost: Optional[HivemindError] = None  # the averages have not reached the program's tensors
        self._details: Optional[tuple] = None  # once it is over, and well

    # ---- what the program says ----

    def allow_allreduce(self) -> None:
        """The values are in the tensors: the round may begin. Needed after require_trigger=True."""
        if not self._triggered:
            self._staging.trigger(self._averager.core, self._future)
            self._triggered = True

    @property
    def weight(self) -> float:
        """How much these tensors count. May be set until the round begins."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._averager.core.set_weight(self._future, weight_of(weight, self._averager.auxiliary))
        self._weight = weight

    def send_narrow(self) -> None:
        """Sends under narrow codecs, where tensors have them. Has no effect once the round has begun."""
        self._averager.core.send_narrow(self._future)

    def give_up(self) -> None:
        """Asks for its end, if it has no group yet."""
        self.is_given_up = True
        self._averager.core.give_up(self._future)

    def cancel(self) -> bool:
        """Ends the step, and returns once it is over. False if it ended otherwise before."""
        return self._future.cancel() and isinstance(self.exception(), HivemindCancelledError)

    # ---- how it is ----

    @property
    def triggered(self) -> bool:
        """True if the round may begin."""
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
        return GroupInfo(
            str(stamp).encode(),
            tuple(PeerID(member[0]) for member in members),
            tuple(gathered(member) for member in members),
        )

    @property
    def stage(self) -> AveragingStage:
        """How far the step is, as an AveragingStage."""
        if self.done():
            return AveragingStage.FINISHED
        return AveragingStage.RUNNING if self._triggered else AveragingStage.AWAITING_TRIGGER

    def get_timeout(self) -> Optional[float]:
        """Seconds that it has left; None: it has no end."""
        return None if self.deadline is None else max(0.0, self.deadline - get_dht_time())

    def done(self) -> bool:
        """True if the step is over."""
        return self._future.done() and self._settle()

    def running(self) -> bool:
        """Whether it may run, and is not over."""
        return self._triggered and not self.done()

    def add_done_callback(self, callback: Callable[["StepControl"], Any]) -> None:
        """Calls a function once the step is over: in a thread of its own, or at once if the step is over already.

        Args:
            callback: A function of this control.
        """
        when_done(self, callback)

    def cancelled(self) -> bool:
        """True if the step ended because it was cancelled."""
        return self.done() and isinstance(self.exception(), HivemindCancelledError)

    # ---- its end ----

    def _settle(self) -> bool:
        """Copies the averages of a finished step from the host to the tensors, once. The first caller does it."""
        if not self._settled.is_set():
            with self._settling:
                if not self._settled.is_set():
                    is_well = self._future.exception() is None
                    self._lost = self._staging.over(self._future, is_well)
                    if is_well:
                        self._averager.last_updated = get_dht_time()
                    self._settled.set()
        return True

    def result(self, timeout: Optional[float] = None) -> Gathered:
        """Waits for the end of the step, and returns {peer_id: value} of what the members gave to gather.

        Args:
            timeout: Longest time in seconds to wait before HivemindTimeoutError. None: no limit.
        """
        return {PeerID(member[0]): gathered(member) for member in self.details(timeout)[0]}

    def details(self, timeout: Optional[float] = None) -> tuple:
        """Waits for the end of the step, and returns its figures as a tuple.

        It holds the members, the parts, the parts averaged, bytes, seconds of matchmaking, of waiting and of the round,
        the number of tries, the values whose averages lack this peer's as ranges (first, how many), whether averages
        came under narrow codecs, the part of the values that this peer reduces, and the stamp. A member is (peer_id,
        is this one, client mode, auxiliary, packed value, fraction of its values that was averaged).

        Args:
            timeout: Longest time in seconds to wait before HivemindTimeoutError. None: no limit.
        """
        if self._details is not None:
            return self._details
        try:
            while self.while_waiting is not None and not self._future.done():
                try:
                    self._future.exception(SLICE_S)
                except HivemindTimeoutError:
                    self.while_waiting()
            details = self._future.result(timeout)
        except HivemindError:
            if self._future.done():
                self._settle()
            raise
        self._settle()
        if self._lost is not None:
            raise self._lost
        self._details = details
        return details

    @property
    def stamp(self) -> int:
        """A number that members have in common if they hold the same averages to the bit. 0: alone."""
        return self.details(0)[-1]

    @property
    def missed(self) -> Sequence[Tuple[int, int]]:
        """Values whose averages lack this peer's, as (first, how many), counted through all tensors."""
        return self.details(0)[8]

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Waits for the end of the step, and returns the cause of its failure, or None.

        Args:
            timeout: Longest time in seconds to wait before HivemindTimeoutError. None: no limit.
        """
        error = self._future.exception(timeout)
        self._settle()
        return error or self._lost

    def __await__(self):
        return self._wait().__await__()

    def is_of(self, future: Future) -> bool:
        """True if this control belongs to a future of C.

        Args:
            future: Future of a step.
        """
        return self._future is future

    def check_unused(self, averager: AveragerBase) -> None:
        """Raises ValueError if this control was used already, or belongs to another averager.

        Args:
            averager: The averager that is about to use it.
        """
        if self._averager is not averager:
            raise ValueError(
                f"the control belongs to another averager, of {self._averager.prefix!r}: give one from this "
                "averager's schedule_step()"
            )
        if self._triggered:
            raise ValueError(
                "the control was already used, and its averaging has begun or is over: make a new one with "
                "schedule_step()"
            )

    def check_begun(self) -> None:
        """Raises why it could not begin: a step is under way, for one. Not why it has found no group since."""
        self._averager.get_group_bits()  # answered behind what the core does with the step
        error = self.exception(0) if self.done() else None
        if error is not None and (
            isinstance(error, HivemindValueError) or getattr(error, "status", "") in ("BUSY", "CLOSED")
        ):
            raise error

    def watch(self) -> None:
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
