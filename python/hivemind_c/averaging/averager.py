"""DecentralizedAverager: tensors that are averaged with those of other peers."""

from __future__ import annotations

import contextvars
import logging
import threading
from contextlib import contextmanager
from typing import Any, Dict, Iterator, Optional, Sequence, Union

import _hivemind_c
from _hivemind_c import HivemindError, HivemindValueError

from hivemind_c import _notebook
from hivemind_c._signature import names_options
from hivemind_c.averaging.announcements import Announcements
from hivemind_c.averaging.checks import (
    check_modes,
    epoch_bytes,
    most_norm,
    most_weight,
    ms,
    packed,
    seconds,
    stall_of,
    vector_size,
    weight_of,
)
from hivemind_c.averaging.control import Gathered, StepControl
from hivemind_c.averaging.settings import AveragerSettings
from hivemind_c.averaging.staging import Staging
from hivemind_c.averaging.state_exchange import StateExchange
from hivemind_c.averaging.tensors import CHUNK_VALUES_MAX, LentTensors
from hivemind_c.compression.base import CompressionBase, CompressionInfo
from hivemind_c.compression.codecs import NoCompression
from hivemind_c.dht import DHT
from hivemind_c.dht.options import limit
from hivemind_c.dht.values import get_dht_time

logger = logging.getLogger("hivemind_c.averaging")
MIN_GROUP_SIZE = 2  #: by default
GatheredData = Any  #: hivemind's name for the type of a value that a member gives to gather
_apart: "contextvars.ContextVar[bool]" = contextvars.ContextVar("hivemind_c averagers made apart", default=False)


@contextmanager
def made_apart(apart: bool = True) -> Iterator[None]:
    """A context in which new averagers are unknown to other peers until their first step or `reached`.

    Other peers do not wait for such an averager.

    Args:
        apart: False: averagers made in the context are known at once.
    """
    token = _apart.set(apart)
    try:
        yield
    finally:
        _apart.reset(token)


class DecentralizedAverager(AveragerSettings, Announcements, StateExchange):
    """Averages tensors with those of all peers that have the same prefix, shapes and dtypes.

    It can be used from any thread. docs/reference/averager.md explains groups, rounds and failures.

    Args:
        averaged_tensors: Floating-point tensors or NumPy arrays, each memory once. Main memory is changed in place.
        dht: A DHT that runs. The averager uses its node.
        start: Start at once. False: run_in_background() starts it.
        prefix: Name of the averaging. Peers with the same prefix average together.
        target_group_size: Most members of one group. A larger swarm averages in several groups. None: 256.
        min_group_size: Fewest members of a group. With 1, a step that finds nobody succeeds alone and changes nothing.
        initial_group_bits: Digits 0 and 1 that choose the first group, where a large swarm averages in several groups.
        min_matchmaking_time: Longest time in seconds to search for a group, if step() has no scheduled_time.
        request_timeout: Seconds for one question to one peer during the search for a group, at most half of the search.
        averaging_alpha: Step towards the average: tensor + alpha * (average - tensor). Other than 1 it needs a copy.
        part_size_bytes: Most bytes that are encoded and sent as one part. Small tensors are sent in smaller parts.
        allreduce_timeout: Longest time in seconds for a round. None: only the timeout of step() limits it.
        next_chunk_timeout: Older name of sender_timeout. If both are given, sender_timeout applies.
        sender_timeout: Seconds that a member may stall a round before the round continues without it. None: 10.
        reducer_timeout: Without effect beside sender_timeout. Given alone, half of it is the sender_timeout.
        compression: Compression of the tensors on the network. An adaptive one chooses for each tensor.
        state_compression: Compression of the state that joining peers download.
        tensor_infos: One CompressionInfo for each tensor, by which an adaptive compression chooses.
        bandwidth: Bandwidth of this peer in bytes per second, if known. Rounds measure it later. None: unknown.
        min_vector_size: Fewest values that a member averages for others, in groups that this peer hosts; else none.
        weight_max: Largest weight of a member; a larger one counts as this. All members give the same. None: no limit.
        norm_ratio_max: Largest norm of a chunk, in multiples of the members' median; else refused. None: no limit.
        auxiliary: Help other peers to average, and contribute nothing.
        allow_state_sharing: Let joining peers download the state. None: True unless in client mode or auxiliary.
        declare_state_period: Seconds between two announcements of an offered state.
        client_mode: Only dial out, through a node of its own if that of the DHT listens. None: as the DHT.
        daemon: Accepted without effect.
        shutdown_timeout: Accepted without effect.
    """

    _repeats = False  # the program seeks another group of an epoch whose round has failed
    keeps_averages = False  #: whether rounds keep the encoded averages until the next step, for a StepLog
    _sections: Sequence[int] = ()  # indices of tensors that share no chunk with the tensor before
    _compared = 0  # tensors, from the first on, that has_changed is about

    @names_options
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
        weight_max: Optional[float] = None,
        norm_ratio_max: Optional[float] = None,
        auxiliary: bool = False,
        allow_state_sharing: Optional[bool] = None,
        declare_state_period: float = 30,
        client_mode: Optional[bool] = None,
        daemon: bool = True,
        shutdown_timeout: float = 5,
    ):
        self._dht, self._prefix, self._auxiliary = dht, prefix, bool(auxiliary)
        self._client_mode = dht.client_mode if client_mode is None else bool(client_mode)
        check_modes(dht.client_mode, self._client_mode, self._auxiliary)
        stall = stall_of(next_chunk_timeout, sender_timeout, reducer_timeout, allreduce_timeout)
        self._state_compression = state_compression
        self._declare_state_period = seconds(declare_state_period, "declare_state_period")
        limit(shutdown_timeout, "shutdown_timeout")
        self._allow_state_sharing = (
            not (self._client_mode or auxiliary) if allow_state_sharing is None else bool(allow_state_sharing)
        )
        self._min_matchmaking_time = (
            5.0 if min_matchmaking_time is None else seconds(min_matchmaking_time, "min_matchmaking_time")
        )
        if target_group_size is not None and min_group_size == MIN_GROUP_SIZE:
            min_group_size = min(min_group_size, target_group_size)  # a smaller target was chosen, and this was not
        self._tensors = LentTensors(
            averaged_tensors,
            compression,
            tensor_infos,
            min(part_size_bytes // 4, CHUNK_VALUES_MAX) if averaging_alpha == 1 and not auxiliary else 0,
            self._sections,
        )
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
            weight_max=most_weight(weight_max),
            norm_ratio=most_norm(norm_ratio_max),
            compared=self._compared,
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
            weight_max=weight_max,
            norm_ratio_max=norm_ratio_max,
        )
        self._starting = threading.Lock()
        if start:
            self.run_in_background()

    # ---- life ----

    def run_in_background(self, await_ready: bool = True, timeout: Optional[float] = None) -> None:
        """Starts the averager, unless it runs.

        Args:
            await_ready: Accepted without effect: the averager is ready when this returns.
            timeout: Accepted without effect.
        """
        with self._starting:
            if self._averager is None and not self._ended:
                _notebook.replace(self._is_in_the_way, f"the averager {self._prefix!r}")
                if self._client_mode and not self._dht.client_mode:  # a node of its own, which only dials out
                    self._own_node = self._dht.client_node()
                self._averager = self._open(self._bits)
                self._answer_joiners()
                _notebook.made_here(self)

    start = run_in_background

    def _is_in_the_way(self, other: Any) -> bool:
        """True if the other averages under this prefix on this DHT."""
        return (
            isinstance(other, DecentralizedAverager)
            and other is not self
            and (other.dht, other.prefix) == (self._dht, self._prefix)
        )

    def wait_until_ready(self, timeout: Optional[float] = None) -> None:
        """Raises an error if the averager does not run. It is ready as soon as it was started.

        Args:
            timeout: Accepted without effect.
        """
        _ = self.core  # an error, unless the averager runs

    def shutdown(self) -> None:
        """Ends unfinished steps within two seconds. No round uses the tensors afterwards. May be called twice."""
        with self._starting:
            self._ended = True
            averager = self._averager
        self._end_answers()
        self.withdraw_state()
        if averager is not None:
            averager.close()
        if self._own_node is not None:
            self._own_node.shutdown()

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
        """Runs one round: finds a group and averages the tensors with it.

        Returns {peer_id: value} of what the members gave to gather, or None if the round failed, which the log reports.
        After a failure each element holds its old value or the average. With wait=False it returns a StepControl at
        once.

        Args:
            gather: Value for all members, of types that MessagePack has.
            scheduled_time: Latest moment in get_dht_time() for the round to begin. It begins when all members are in.
            weight: Weight of these tensors in the average, 0 or more. None: 1.
            timeout: Longest time in seconds for the step as a whole. None: no limit.
            allow_retries: Look for another group while time is left, if none was found.
            require_trigger: Let the group wait for control.allow_allreduce() before the round. Needs wait=False.
            wait: Return when the round is over.
            expected: Number of peers that make a whole group. 0: as many as are known under the prefix.
            epoch: Value that the members must agree on. None: no condition.
        """
        _ = self.core  # an error, unless the averager runs
        if wait and require_trigger:
            raise HivemindValueError(
                "require_trigger needs wait=False: a program that waits here cannot call allow_allreduce()"
            )
        if wait and self._holder == threading.get_ident():
            raise HivemindValueError(
                "step() within get_tensors() would wait for itself: leave the context first, or give wait=False"
            )
        self._tensors.check()
        now = get_dht_time()
        if timeout is not None and not timeout > 0:
            raise HivemindValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        if scheduled_time is None:
            looking = self._min_matchmaking_time if timeout is None else min(self._min_matchmaking_time, timeout)
        else:
            looking = max(scheduled_time - now, 0.001)
            if timeout is not None and looking > timeout:
                raise HivemindValueError(
                    f"scheduled_time is {looking:.3g} s from now, and the step ends after {timeout:g} s: make the "
                    "timeout longer"
                )
        weight = weight_of(weight, self._auxiliary)
        averager, told = self._mended(), packed(gather)
        try:
            with self._staging.turn:
                self._staging.check_free(averager)
                if not require_trigger:
                    self._staging.make_ready()
                future = averager.step(
                    told,
                    epoch_bytes(epoch),
                    weight,
                    looking,
                    timeout,
                    expected,
                    require_trigger,
                    allow_retries,
                    self._repeats,
                    self.keeps_averages,
                )
                control = StepControl(
                    self,
                    self._staging,
                    future,
                    weight,
                    now + looking,
                    None if timeout is None else now + timeout,
                    not require_trigger,
                    allow_retries,
                    told,
                )
                watched = self._staging.begun(control)
        except HivemindError as error:
            if error.status != "BUSY" or not wait:
                raise
            return self._failed(error)
        if watched:
            control.watch()
        return self._wait_for(control) if wait else control

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

    def _mended(self) -> _hivemind_c.Averager:
        """The core's averager: a new one, over copies on the host, when a GPU has failed in a round."""
        averager = self.core
        if self._tensors.broken():
            with self._starting:
                bits = averager.bits()
                averager.close()
                if not self._ended:
                    self._averager = self._open(bits)
        return self.core

    def _open(self, bits: str) -> _hivemind_c.Averager:
        loans, node = self._tensors.loans, self._node.core
        averager = _hivemind_c.Averager(node, self._prefix, loans, bits, self._settings)
        averager.set_setup(self._setup)
        return averager

    def __repr__(self) -> str:
        state = "shut down" if self._ended else "running" if self._averager else "not started"
        return f"<hivemind_c.{type(self).__name__} {self._prefix!r} of {len(self._tensors.tensors)} tensors, {state}>"
