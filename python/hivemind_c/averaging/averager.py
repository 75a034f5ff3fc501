"""Tensors that are averaged with those of other peers, under the names that hivemind's users know."""

from __future__ import annotations

import concurrent.futures
import contextvars
import logging
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import _hivemind_c
from _hivemind_c import Future, HivemindError, HivemindValueError

from hivemind_c import _notebook
from hivemind_c.averaging.checks import epoch_bytes, epoch_number, ms, packed, seconds, stall_of, vector_size
from hivemind_c.averaging.control import Gathered, StepControl
from hivemind_c.averaging.settings import AveragerSettings
from hivemind_c.averaging.staging import Staging
from hivemind_c.averaging.state_exchange import StateExchange
from hivemind_c.averaging.tensors import CHUNK_VALUES_MAX, LentTensors
from hivemind_c.compression.base import CompressionBase, CompressionInfo
from hivemind_c.compression.codecs import NoCompression
from hivemind_c.dht import DHT
from hivemind_c.dht.values import get_dht_time
from hivemind_c.node import Node
from hivemind_c.p2p import PeerID

logger = logging.getLogger("hivemind_c.averaging")
MIN_GROUP_SIZE = 2  #: by default
_apart: "contextvars.ContextVar[bool]" = contextvars.ContextVar("hivemind_c averagers made apart", default=False)


@contextmanager
def made_apart(apart: bool = True) -> Iterator[None]:
    """Averagers made within this context are unknown to others, who so do not wait for them, until their first step or `reached`."""
    token = _apart.set(apart)
    try:
        yield
    finally:
        _apart.reset(token)


class DecentralizedAverager(AveragerSettings, StateExchange):
    """Averages its tensors with those of all peers that have the same prefix, and the same shapes and dtypes. Usable from any thread.

    averaged_tensors: floating tensors of torch, or NumPy arrays, each memory once; those in plain memory are averaged where they lie. dht: a DHT that runs; the
    averager uses its node. client_mode: only dial out, by a node of its own if the DHT's is open. prefix: peers with the same prefix average together.
    target_group_size: a larger swarm averages in groups of so many, by group bits. min_group_size: fewer make no group; with 1 a
    step that finds nobody succeeds alone, and changes nothing. min_matchmaking_time: how long a group may take to form when no time is
    scheduled; it begins as soon as everybody is there. averaging_alpha: tensor + alpha * (average - tensor); other than 1 it needs a float32
    copy of the tensors during a round. part_size_bytes: what is encoded and sent at a time, at most (less if the tensors are small). bandwidth: bytes per second, if known; rounds measure it from then on. min_vector_size: who would reduce
    fewer values reduces none (of groups that this peer hosts). request_timeout: how long a question to one peer may take while a group is looked for, but half of that
    time at most. auxiliary: helps, and contributes
    nothing. allreduce_timeout: of a round. sender_timeout (or next_chunk_timeout): who holds the others up for longer is left out; an
    owner of a span is given twice as long (reducer_timeout, given alone, sets both). compression: what travels; for each tensor by an adaptive one. allow_state_sharing: whether
    joiners get this peer's state; True unless it is a client or auxiliary. docs/AVERAGING.md tells more.
    """

    def __init__(
        self,
        averaged_tensors: Sequence[Any],
        dht: DHT,
        *,
        start: bool,
        prefix: str,
        target_group_size: Optional[int] = None,
        min_group_size: int = MIN_GROUP_SIZE,
        initial_group_bits: str = "",
        min_matchmaking_time: Optional[float] = 5,
        request_timeout: Optional[float] = 3,
        averaging_alpha: float = 1,
        part_size_bytes: int = 2**19,
        allreduce_timeout: Optional[float] = None,
        next_chunk_timeout: Optional[float] = None,
        sender_timeout: Optional[float] = None,
        reducer_timeout: Optional[float] = None,
        compression: CompressionBase = NoCompression(),
        state_compression: CompressionBase = NoCompression(),
        tensor_infos: Optional[Sequence[CompressionInfo]] = None,
        bandwidth: Optional[float] = None,
        min_vector_size: int = 0,
        auxiliary: bool = False,
        allow_state_sharing: Optional[bool] = None,
        declare_state_period: float = 30,
        client_mode: Optional[bool] = None,
        daemon: bool = True,
        shutdown_timeout: float = 5,
    ):
        self._dht, self._prefix, self._auxiliary = dht, prefix, bool(auxiliary)
        self._client_mode = dht.client_mode if client_mode is None else bool(client_mode)
        if dht.client_mode and not self._client_mode:
            raise HivemindValueError("client_mode=False is not possible: the DHT's node only dials out; make the DHT with client_mode=False, or remove client_mode")
        if self._client_mode and auxiliary:
            raise HivemindValueError("an auxiliary peer cannot be in client mode: it reduces data that others send to it; remove auxiliary or client_mode")
        stall = stall_of(next_chunk_timeout, sender_timeout, reducer_timeout, allreduce_timeout)
        self._state_compression, self._declare_state_period = state_compression, declare_state_period
        self._allow_state_sharing = not (self._client_mode or auxiliary) if allow_state_sharing is None else bool(allow_state_sharing)
        self._min_matchmaking_time = 5.0 if min_matchmaking_time is None else seconds(min_matchmaking_time, "min_matchmaking_time")
        if target_group_size is not None and min_group_size == MIN_GROUP_SIZE:
            min_group_size = min(min_group_size, target_group_size)  # a smaller target was chosen, and this was not
        self._tensors = LentTensors(averaged_tensors, compression, tensor_infos, min(part_size_bytes // 4, CHUNK_VALUES_MAX) if averaging_alpha == 1 and not auxiliary else 0)
        self._staging = Staging(self._tensors)
        self._bits = initial_group_bits
        self._settings: Dict[str, Union[int, float]] = dict(
            part_bytes=part_size_bytes,
            alpha=averaging_alpha,
            target_group=target_group_size or 0,
            min_group=min_group_size,
            round_ms=ms(allreduce_timeout, "allreduce_timeout"),
            stall_ms=ms(stall, "sender_timeout"),
            request_ms=ms(request_timeout, "request_timeout"),
            min_vector=vector_size(min_vector_size),
            bandwidth=bandwidth or 0,
            auxiliary=int(auxiliary),
            apart=int(_apart.get()),
        )
        self._arguments = dict(
            bandwidth=bandwidth,
            request_timeout=request_timeout,
            allreduce_timeout=allreduce_timeout,
            stall=stall,
            target_group_size=target_group_size,
            min_group_size=min_group_size,
            min_matchmaking_time=self._min_matchmaking_time,
            initial_group_bits=initial_group_bits,
            compression=compression,
            part_size_bytes=part_size_bytes,
            min_vector_size=min_vector_size,
            averaging_alpha=averaging_alpha,
        )
        self._own_node: Optional[Node] = None
        self._averager: Optional[_hivemind_c.Averager] = None
        self._holder: Optional[int] = None  # the thread within get_tensors
        self._ended = False
        self._starting = threading.Lock()
        if start:
            self.run_in_background()

    # ---- life ----

    def run_in_background(self, await_ready: bool = True, timeout: Optional[float] = None) -> None:
        """Starts it, unless it runs."""
        with self._starting:
            if self._averager is None and not self._ended:
                _notebook.replace(self._is_in_the_way, f"the averager {self._prefix!r}")
                if self._client_mode and not self._dht.client_mode:  # a node of its own, which only dials out
                    self._own_node = Node(initial_peers=self._dht.get_visible_maddrs(), client_mode=True)
                self._averager = _hivemind_c.Averager(self._node._started(), self._prefix, self._tensors.loans, self._bits, self._settings)
                self._answer_joiners()
                _notebook.made_here(self)

    start = run_in_background

    def _is_in_the_way(self, other: Any) -> bool:
        """True if the other averages under this prefix on this DHT."""
        return isinstance(other, DecentralizedAverager) and other is not self and (other._dht, other._prefix) == (self._dht, self._prefix)

    def wait_until_ready(self, timeout: Optional[float] = None) -> None:
        """It is, as soon as it has been started."""
        self._running()

    def shutdown(self) -> None:
        """Ends its steps, within two seconds; the tensors are the program's alone from then on. May be called twice."""
        with self._starting:
            self._ended = True
            averager = self._averager
        if self._answers is not None:
            self._answers.end()
        self._stop_sharing()
        if averager is not None:
            averager.close()
        if self._own_node is not None:
            self._own_node.shutdown()

    def is_alive(self) -> bool:
        return self._averager is not None and not self._ended

    def __enter__(self) -> "DecentralizedAverager":
        self.run_in_background()
        return self

    def __exit__(self, *exc_info) -> None:
        self.shutdown()

    # ---- a step ----

    def step(
        self,
        gather: Any = None,
        scheduled_time: Optional[float] = None,
        weight: Optional[float] = None,
        timeout: Optional[float] = None,
        allow_retries: bool = True,
        require_trigger: bool = False,
        wait: bool = True,
        *,
        expected: int = 0,
        epoch: Union[str, int, None] = None,
    ) -> Union[None, Gathered, StepControl]:
        """One round. Returns what its members gave to be gathered, {peer_id: value}, or None if it failed (the log tells why, and every
        element holds the average or what was there). With wait=False a StepControl at once.

        gather: told to all members; anything that MessagePack takes. scheduled_time: when the round should begin, in get_dht_time(); a group is looked for
        until then, and begins as soon as all are there. weight: how much these tensors count, 1 by default. timeout: seconds for all
        of it. allow_retries: look for another group as long as time is left, if none was found. require_trigger: the group forms, and
        waits for control.allow_allreduce(). expected: how many peers make a whole group, if known. epoch: members must agree on it."""
        self._running()
        if wait and require_trigger:
            raise HivemindValueError("require_trigger needs wait=False: a program that waits here cannot call allow_allreduce()")
        if wait and self._holder == threading.get_ident():
            raise HivemindValueError("step() within get_tensors() would wait for itself: leave the context first, or give wait=False")
        self._tensors.check()
        now = get_dht_time()
        if timeout is not None and not timeout > 0:
            raise HivemindValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        if scheduled_time is None:
            looking = self._min_matchmaking_time if timeout is None else min(self._min_matchmaking_time, timeout)
        else:
            looking = max(scheduled_time - now, 0.001)
            if timeout is not None and looking > timeout:
                raise HivemindValueError(f"scheduled_time is {looking:.3g} s from now, and the step ends after {timeout:g} s: make the timeout longer")
        weight = self._weight(weight)
        averager, told = self._mended(), packed(gather)
        try:
            with self._staging.turn:
                self._staging.check_free(averager)
                if not require_trigger:
                    self._staging.make_ready()
                future = averager.step(told, epoch_bytes(epoch), weight, looking, timeout, expected, require_trigger, allow_retries)
                control = StepControl(self, future, weight, now + looking, None if timeout is None else now + timeout, not require_trigger, allow_retries, told)
                watched = self._staging.begun(control)
        except HivemindError as error:
            if error.status != "BUSY" or not wait:
                raise
            return self._failed(error)
        if watched:
            control._watch()
        return self._wait_for(control) if wait else control

    def reached(self, epoch: int) -> None:
        """This peer is in that epoch, and will not step for an earlier one: others that look for a group there hear at once that they are behind. A step whose
        epoch is a number says the same; say it where an epoch is passed without one."""
        self._running().reached(epoch_number(epoch))

    def comes(self, epoch: int) -> None:
        """This peer missed a step, and comes to that epoch with the swarm's state, not sooner: there others wait for it, for a moment."""
        self._running().comes(epoch_number(epoch))

    def awaits(self, epoch: int) -> bool:
        """Whether another peer comes to that epoch with a state that it has yet to load (`comes`)."""
        return self._running().awaits(epoch_number(epoch))

    def step_aside(self) -> None:
        """Until its next step, or `reached`, others do not wait for this peer: it is about to load a state, say."""
        self._running().step_aside()

    def _wait_for(self, control: StepControl) -> Optional[Gathered]:
        try:
            return control.result()
        except (HivemindValueError, TypeError):
            raise
        except HivemindError as error:
            return self._failed(error)
        except BaseException:
            control.cancel()  # Ctrl-C, for one
            raise

    def _failed(self, error: HivemindError) -> None:
        logger.warning("%s: averaging failed: %s", self._prefix, error)

    def _weight(self, weight: Optional[float]) -> float:
        if weight is None:
            return 0.0 if self._auxiliary else 1.0
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < float("inf"):
            raise HivemindValueError(f"weight must be finite and 0 or more, not {weight!r}")
        return float(weight)

    def _go(self, step: Future) -> None:
        with self._staging.turn:
            if not step.done():  # else what is on the host may be another round's
                try:
                    self._tensors.check()
                except HivemindValueError:
                    step.cancel()  # the others need not wait for it
                    raise
                self._staging.make_ready()
            self._running().trigger(step)

    def _mended(self) -> _hivemind_c.Averager:
        """The core's averager: a new one, over copies on the host, when a GPU has failed in a round."""
        averager = self._running()
        if self._tensors.broken():
            with self._starting:
                bits = averager.bits()
                averager.close()
                if not self._ended:
                    self._averager = _hivemind_c.Averager(self._node._started(), self._prefix, self._tensors.loans, bits, self._settings)
        return self._running()

    def _weigh(self, step: Future, weight: float) -> None:
        self._running().set_weight(step, self._weight(weight))

    # ---- the tensors ----

    @contextmanager
    def get_tensors(self) -> Iterator[Tuple[Any, ...]]:
        """The tensors, to read or change: within this context no round touches them. Waits while a round does; a round that is to begin waits for the
        end of the context, and so do the other members: keep it short."""
        if self._holder == threading.get_ident():
            raise HivemindValueError("get_tensors() within get_tensors() would wait for itself: leave the first context before the second")
        averager = self._averager if not self._ended else None
        locked: List[bool] = []
        try:
            while averager is not None and True not in locked:
                locked[:] = map(averager.lock, (None,))  # in one go: Ctrl-C comes before or behind it, never between the lock and the list
                if self._ended and True not in locked:
                    averager = None
            self._holder = threading.get_ident()
            try:
                if averager is not None:
                    self._staging.entered(averager)
                yield self._tensors.tensors
            finally:
                self._holder = None
                if averager is not None:
                    self._staging.left(averager)
        finally:
            if averager is not None and True in locked:
                averager.unlock()

    # ---- groups ----

    def get_group_bits(self, wait: bool = True) -> Union[str, "concurrent.futures.Future[str]"]:
        """Which of the groups of a large swarm this peer averages in next. It is known at once: wait=False gives a Future that is done."""
        bits = self._running().bits()
        return bits if wait else _done(bits)

    def set_group_bits(self, group_bits: str, wait: bool = True) -> Optional["concurrent.futures.Future[None]"]:
        self._running().set_bits(group_bits)
        return None if wait else _done(None)

    @property
    def peer_id(self) -> PeerID:
        return PeerID(self._node.peer_id)

    @property
    def _node(self) -> Node:
        return self._own_node or self._dht._node

    @property
    def dht(self) -> DHT:
        return self._dht

    @property
    def prefix(self) -> str:
        return self._prefix

    @property
    def client_mode(self) -> bool:
        return self._client_mode

    @property
    def auxiliary(self) -> bool:
        return self._auxiliary

    def _running(self) -> _hivemind_c.Averager:
        if self._ended:
            raise HivemindError("cannot use this averager: it was shut down")
        if self._averager is None:
            raise HivemindError("cannot use this averager: it has not been started; call run_in_background(), or give start=True")
        return self._averager

    def __repr__(self) -> str:
        state = "shut down" if self._ended else "running" if self._averager else "not started"
        return f"<hivemind_c.{type(self).__name__} {self._prefix!r} of {len(self._tensors.tensors)} tensors, {state}>"


def _done(result: Any) -> "concurrent.futures.Future[Any]":
    future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
    future.set_result(result)
    return future
