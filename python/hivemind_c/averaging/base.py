"""The node, the tensors and the life of an averager, which its other parts work with."""

from __future__ import annotations

import concurrent.futures
import threading
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Tuple, Union

import _hivemind_c
from _hivemind_c import HivemindError, HivemindValueError

from hivemind_c.averaging.staging import Staging
from hivemind_c.averaging.tensors import LentTensors
from hivemind_c.dht import DHT
from hivemind_c.node import Node
from hivemind_c.p2p import PeerID


class AveragerBase:
    """The part of DecentralizedAverager that the other parts derive from."""

    _dht: DHT
    _prefix: str
    _auxiliary: bool
    _client_mode: bool
    _tensors: LentTensors
    _staging: Staging
    _setup = b""  # what members of its groups must have in common besides tensors
    _own_node: Optional[Node] = None
    _averager: Optional[_hivemind_c.Averager] = None
    _holder: Optional[int] = None  # the thread within get_tensors
    _ended = False
    last_updated: float = -float("inf")  #: when the last step went well, in get_dht_time()

    def is_alive(self) -> bool:
        """True if the averager was started and has not been shut down."""
        return self._averager is not None and not self._ended

    @property
    def is_averaged_in_part(self) -> bool:
        """True if the last step failed and has left some chunks of its average in the tensors."""
        return self.is_alive() and self.core.in_part() > 0

    @property
    def has_changed(self) -> bool:
        """True if averages of the last step changed the compared tensors by more than roundings, also if it failed."""
        return self.is_alive() and self.core.changed()

    @property
    def had_group(self) -> bool:
        """True if the last step had a group, though it may have failed."""
        return self.is_alive() and self.core.had_group()

    # ---- the tensors ----

    @contextmanager
    def get_tensors(self) -> Iterator[Tuple[Any, ...]]:
        """A context in which no round reads or writes the tensors; it yields them.

        It waits while a round uses them. A round that is about to begin waits for the end of the context, and the other
        members wait with it, so keep it short.
        """
        if self._holder == threading.get_ident():
            raise HivemindValueError(
                "get_tensors() within get_tensors() would wait for itself: leave the first context before the second"
            )
        averager = self._averager if not self._ended else None
        locked: List[bool] = []
        try:
            while averager is not None and True not in locked:
                # in one go: Ctrl-C comes before or behind it, never between the lock and the list
                locked[:] = map(averager.lock, (None,))
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

    def repeat(self, log: _hivemind_c.StepLog, epoch: int) -> None:
        """Writes an average that other peers kept into the tensors, as its round did in theirs.

        Args:
            log: The core's log, in which the average is there.
            epoch: The swarm epoch that the average ended.
        """
        with self.get_tensors():
            log.repeat(epoch, self.core)
            if self._tensors.staged:
                self._tensors.from_host()

    def keep_own(self, log: _hivemind_c.StepLog, epoch: int, before: bytes) -> int:
        """Makes the tensors what others will have who repeat this peer's own step. Returns the stamp of that step.

        Args:
            log: The core's log, which offers it.
            epoch: The swarm epoch that the step ends.
            before: Mark of the replica that makes the step.
        """
        with self.get_tensors():
            self._staging.make_ready()
            stamp = log.add_own(self.core, epoch, before)
            if self._tensors.staged:
                self._tensors.from_host()
        return stamp

    # ---- groups ----

    def get_group_bits(self, wait: bool = True) -> Union[str, "concurrent.futures.Future[str]"]:
        """Returns the bits of the group in which this peer averages next, in a swarm that averages in several groups.

        Args:
            wait: False: return a Future, which is done at once.
        """
        bits = self.core.bits()
        return bits if wait else _done(bits)

    def set_group_bits(self, group_bits: str, wait: bool = True) -> Optional["concurrent.futures.Future[None]"]:
        """Sets the bits of the group in which this peer averages next.

        Args:
            group_bits: Characters 0 and 1.
            wait: False: return a Future, which is done at once.
        """
        self.core.set_bits(group_bits)
        return None if wait else _done(None)

    @property
    def peer_id(self) -> PeerID:
        """The ID of this peer in the group: that of its own node if it has one, else that of the DHT."""
        return PeerID(self._node.peer_id)

    @property
    def _node(self) -> Union[Node, DHT]:
        return self._own_node or self._dht

    @property
    def dht(self) -> DHT:
        """The DHT that was given."""
        return self._dht

    @property
    def prefix(self) -> str:
        """The prefix that was given."""
        return self._prefix

    @property
    def client_mode(self) -> bool:
        """True if this peer only dials out."""
        return self._client_mode

    @property
    def auxiliary(self) -> bool:
        """True if this peer helps and contributes nothing."""
        return self._auxiliary

    @property
    def core(self) -> _hivemind_c.Averager:
        """The averager in C. Raises HivemindError before run_in_background(), and after shutdown()."""
        if self._ended:
            raise HivemindError("cannot use this averager: it was shut down")
        if self._averager is None:
            raise HivemindError(
                "cannot use this averager: it has not been started; call run_in_background(), or give start=True"
            )
        return self._averager


def _done(result: Any) -> "concurrent.futures.Future[Any]":
    future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
    future.set_result(result)
    return future
