"""State on demand: until its program calls share_state(), an averager offers its state when a joining peer asks.

The core finds donors and agrees with them on a number; here the state is made and offered under it.
Thread: one daemon thread for each such averager, which sleeps until a joiner asks. Limits: csrc/core/state/demand.h; an
offer is dropped when nobody has asked for LINGER_S.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import weakref
from typing import Any, Optional, Protocol

import _hivemind_c
from _hivemind_c import Future, HivemindError, HivemindLookupError, HivemindTimeoutError

from hivemind_c._log import begin
from hivemind_c.averaging.state import StateSharing
from hivemind_c.dht.values import get_dht_time

logger = logging.getLogger("hivemind_c.averaging")
LINGER_S = 20.0  #: seconds that an offer lasts after the last joiner asked
DECLARED_S = 2.5  #: seconds in which a donor that has only just begun is declared
MAKING_S = 120.0  #: seconds in which donors make their offers, if nothing is offered yet


def lineage_of(prefix: str) -> bytes:
    """One for all states of a prefix, so that a joiner takes one of them where no majority has the same."""
    return hashlib.blake2b(prefix.encode(), digest_size=16).digest()


def _clock() -> int:
    return int(get_dht_time() * 1000)


def load_on_demand(sharing: StateSharing, timeout: Optional[float], patient: bool, **limits: Any) -> Any:
    """The state that donors offer because this peer asks for it, else one that is on offer.

    Args:
        sharing: The states of this peer's prefix.
        timeout: Longest time in seconds in which nothing of it arrives. None: 600.
        patient: Look for DECLARED_S until somebody gives a state.
        **limits: Further arguments of StateSharing.load.
    """
    until = time.monotonic() + (DECLARED_S if timeout is None else min(DECLARED_S, timeout / 2))
    while True:
        loaded = _ask_and_load(sharing, timeout, **limits)
        if loaded is not None:
            return loaded
        try:
            return sharing.load(timeout, **limits)
        except HivemindLookupError:
            if not patient or time.monotonic() > until:
                raise
            time.sleep(0.2)  # a donor that has only just begun is not declared yet


def _ask_and_load(sharing: StateSharing, timeout: Optional[float], **limits: Any) -> Any:
    """None: no peer gives a state on demand."""
    number, until = _clock(), time.monotonic() + (MAKING_S if timeout is None else min(MAKING_S, timeout))
    while (left := until - time.monotonic()) > 0:
        future = sharing.want(number)
        try:
            number = future.result(left)
        except HivemindError as error:
            future.cancel()
            logger.debug("%s: no state on demand: %s", sharing.prefix, error)
            return None
        except BaseException:
            future.cancel()  # after Ctrl-C
            raise
        try:
            return sharing.load(timeout, epoch_least=number, **limits)
        except HivemindLookupError:
            pass  # the donors are still making their offers
        except HivemindError as error:
            if error.status != "STATE":
                raise
            number = _clock()  # they made offers under several numbers
    return None


class Sharer(Protocol):
    """An averager that can offer its state."""

    @property
    def shares_on_demand(self) -> bool: ...
    def make_state(self) -> Any: ...
    def offer_state(self, made: Any, epoch: int, wait: bool, lineage: Optional[bytes]) -> Any: ...
    def withdraw_state(self) -> None: ...


class OnDemandDonor:
    """Gives the state of one averager to joining peers that ask, until end().

    Args:
        node: The core's node of the averager.
        prefix: The prefix of the averager.
        averager: The averager. It is not kept alive by this object.
    """

    def __init__(self, node: _hivemind_c.Node, prefix: str, averager: Sharer):
        self._averager = weakref.ref(averager, lambda _: self._stop())
        self._node, self._prefix = node, prefix
        self._turn = threading.Lock()  # over each offer of this donor, and its end
        self._ended = False
        self._asked: Optional[Future] = None
        begin("hivemind_c-on-demand", self._run, self._stop)

    def end(self) -> None:
        """Makes no further offers. It does not withdraw the last one."""
        self._stop()
        with self._turn:
            pass  # an offer that was being made is under way now, so a later offer of the caller replaces it

    def _stop(self) -> None:
        self._ended = True
        if self._asked is not None:
            self._asked.cancel()

    def _run(self) -> None:
        try:
            while True:
                self._asked = self._node.state_await(self._prefix.encode(), _clock())
                if self._ended:
                    self._asked.cancel()
                self._give(self._number(self._asked))
        except HivemindError as error:
            if not self._ended and error.status not in ("CANCELLED", "CLOSED"):
                logger.warning("%s: giving no state to joiners that ask: %s", self._prefix, error)

    def _number(self, asked: Future) -> int:
        """The number that the next joiner asks with. An earlier offer is dropped when none has asked for a while."""
        try:
            return asked.result(LINGER_S)
        except HivemindTimeoutError:
            if asked.done():
                raise
        averager = self._averager()
        with self._turn:
            if averager is not None and not self._ended:
                averager.withdraw_state()
        averager = None  # one that nobody else holds ends here
        return asked.result()

    def _give(self, number: int) -> None:
        averager, offer = self._averager(), None
        try:
            if averager is not None and averager.shares_on_demand:
                made = averager.make_state()  # without the lock: it may wait for a round
                with self._turn:
                    if not self._ended:
                        lineage = lineage_of(self._prefix)
                        offer = averager.offer_state(made, number, wait=False, lineage=lineage)
                made = averager = None
            if offer is not None:
                offer.result()
        except Exception as error:  # of a program's get_current_state, or of a newer offer
            if not self._ended:
                logger.warning("%s: the state was not offered to a joiner: %s", self._prefix, error)
