"""State on demand: until its program calls share_state(), an averager offers its state when a joining peer asks.

Thread: one daemon thread for each such averager, which looks into the DHT. Limits: one offer for each look, dropped
when nobody has asked for LINGER_S.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from _hivemind_c import HivemindError

from hivemind_c._log import begin
from hivemind_c.dht.values import get_dht_time, pack, unpack

if TYPE_CHECKING:
    from hivemind_c.averaging.averager import DecentralizedAverager
    from hivemind_c.dht import DHT

logger = logging.getLogger("hivemind_c.averaging")
LOOK_S = 0.5  #: seconds between two looks
ANSWER_S = 2.5  #: seconds in which a donor answers
LINGER_S = 20.0  #: seconds that a request and an offer last
AHEAD_S = 15.0  #: seconds a joiner's clock may be ahead; below LINGER_S, so that no number silences later joiners


def lineage_of(prefix: str) -> bytes:
    """One for all states of a prefix, so that a joiner takes one of them where no majority has the same."""
    return hashlib.blake2b(prefix.encode(), digest_size=16).digest()


def _key(prefix: str) -> bytes:
    return f"{prefix}.state_wanted".encode()


def has_company(dht: "DHT") -> bool:
    return dht.state()["peers"] > 0


def request_state(averager: "DecentralizedAverager") -> int:
    """Announces that this peer wants a state, and returns the least epoch number of the states offered in answer.

    Args:
        averager: The averager of this peer.
    """
    number = int(get_dht_time() * 1000)
    node = averager.dht._node._started()
    node.dht_store(_key(averager.prefix), pack(str(averager.peer_id)), pack(number), round(LINGER_S * 1000)).result(10)
    return number


def _latest_request(averager: "DecentralizedAverager", above: int) -> int:
    """The highest number that another peer asks with, if it is above that one; else 0."""
    try:
        records = averager.dht._node._started().dht_get(_key(averager.prefix), True).result(10)
    except HivemindError:
        return 0  # nobody asks, or the network is down
    own, most, latest = pack(str(averager.peer_id)), 0, (get_dht_time() + AHEAD_S) * 1000
    for subkey, value, _, _ in records:
        try:
            number = unpack(value)
        except ValueError:  # a stranger's bytes
            continue
        if subkey != own and type(number) is int and above < number <= latest:
            most = max(most, number)
    return most


class OnDemandDonor:
    """Answers joining peers for one averager until the averager is shut down or dropped.

    Args:
        averager: The averager. It is not kept alive by this object.
    """

    def __init__(self, averager: "DecentralizedAverager"):
        self._averager = weakref.ref(averager)
        self._ended = threading.Event()
        self._number, self._until = 0, 0.0
        begin("hivemind_c-on-demand", self._run, self._ended.set)

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            averager: Any = self._averager()
            if averager is None or not averager.is_alive():
                return
            try:
                self._look(averager)
            except Exception as error:  # of a program's get_current_state, or of a node that ends
                if averager.is_alive() and averager.dht.is_alive():
                    logger.warning("%s: the state was not offered to a joiner: %s", averager.prefix, error)
            averager = None  # one that nobody else holds ends here

    def _look(self, averager: "DecentralizedAverager") -> None:
        if not averager.shares_on_demand or not has_company(averager.dht):
            return
        number = _latest_request(averager, self._number)
        if number:
            self._number, self._until = number, time.monotonic() + LINGER_S
            averager._offer_state(number, wait=True, lineage=lineage_of(averager.prefix))
        elif self._until and time.monotonic() > self._until:
            self._until = 0.0
            averager._stop_sharing()
