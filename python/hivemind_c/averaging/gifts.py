"""How a hub gets the state of trainers that it cannot dial: it asks one of them in the DHT, which sends blocks.

A request is a record under RUN_gifts, signed by the hub; the trainer sends states as long as it lasts. A block
(image.py) travels in parcels, each with the ticket of the request, the size of the block, and its own place in it.
"""

from __future__ import annotations

import secrets
import struct
from typing import Any, Dict, List, NamedTuple, Optional

from hivemind_c.averaging.marks import TICKET
from hivemind_c.dht.news import owner, subkey_of
from hivemind_c.dht.values import ValueWithExpiration, pack

VERSION = 1
LEASE_S = 15.0
REST = 4  #: times as long as a state took to arrive, until the next one may be sent: homes have slow lines
PARCEL = 8 << 20  #: bytes of a block in one parcel
_HEAD = struct.Struct(f"<{TICKET}sQQ")
PEER_ID_MAX = 100
UNASKED_MAX = 1 << 30  #: bytes of a state for a hub that has not said how much it keeps


class Request(NamedTuple):
    """A hub's request for a state."""

    hub: str  #: ID of the hub
    giver: str  #: ID of the trainer
    ticket: bytes
    least: int  #: oldest epoch that is of use
    every: int  #: epochs from one state to the next
    size_max: int  #: most bytes of the state


def new_request(hub: str, giver: str, least: int, every: int, size_max: int) -> Request:
    """Returns a request with a ticket that nobody can guess.

    Args:
        hub: ID of the hub.
        giver: ID of the trainer.
        least: Oldest epoch that is of use.
        every: Epochs from one state to the next.
        size_max: Most bytes of the state.
    """
    return Request(hub, giver, secrets.token_bytes(TICKET), least, every, size_max)


def key_of(run_id: str) -> str:
    return f"{run_id}_gifts"


def store(dht: Any, run_id: str, request: Request) -> None:
    """Stores a request of this hub. Waits for nothing.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        request: The Request.
    """
    value = pack([VERSION, request.giver, request.ticket, request.least, request.every, request.size_max])
    node, subkey = dht._node._started(), pack(subkey_of(dht.peer_id))
    node.dht_store(key_of(run_id).encode(), subkey, value, round(LEASE_S * 1000))


def requests_to(giver: str, found: Any) -> List[Request]:
    """Returns the requests to a trainer among the records that the DHT has. Those that do not fit do not count.

    Args:
        giver: ID of the trainer.
        found: Result of dht.get(key_of(run_id)).
    """
    if found is None or not isinstance(found.value, dict):
        return []
    requests = [_request(subkey, entry) for subkey, entry in found.value.items()]
    return [request for request in requests if request is not None and request.giver == giver]


def _request(subkey: Any, entry: Any) -> Optional[Request]:
    hub = owner(subkey)
    if hub is None or not isinstance(entry, ValueWithExpiration):
        return None
    value = entry.value
    if not isinstance(value, (list, tuple)) or len(value) != 6 or value[0] != VERSION:
        return None
    _, giver, ticket, least, every, size_max = value
    fine = (
        type(giver) is str
        and len(giver) <= PEER_ID_MAX
        and type(ticket) is bytes
        and len(ticket) == TICKET
        and all(type(number) is int and 0 <= number < 1 << 63 for number in (least, every, size_max))
    )
    return Request(hub, giver, ticket, least, every, size_max) if fine else None


def parcels_of(ticket: bytes, pieces: Any, total: int) -> Any:
    """Yields a block as parcels.

    Args:
        ticket: The ticket of the request.
        pieces: The block in pieces.
        total: Bytes of the block.
    """
    at, parcel = 0, bytearray(_HEAD.pack(ticket, total, 0))
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            room = PARCEL + _HEAD.size - len(parcel)
            parcel += view[:room]
            view = view[room:]
            if len(parcel) == PARCEL + _HEAD.size:
                yield parcel
                at += PARCEL
                parcel = bytearray(_HEAD.pack(ticket, total, at))
    if len(parcel) > _HEAD.size:
        yield parcel


class _Arrival:
    """A block that arrives."""

    def __init__(self, giver: str, most: int):
        self.giver, self.most = giver, most
        self.block: Optional[bytearray] = None
        self.count = 0  # bytes that have come


class Arrivals:
    """The blocks that arrive, for requests that wait for one.

    Memory for a block is taken once its first parcel comes from the trainer that was asked.
    """

    def __init__(self) -> None:
        self._waiting: Dict[bytes, _Arrival] = {}

    def expect(self, request: Request, total_max: int) -> None:
        """Begins to wait for the block of a request.

        Args:
            request: The Request.
            total_max: Most bytes of the block.
        """
        self._waiting[request.ticket] = _Arrival(request.giver, total_max)

    def forget(self, request: Request) -> None:
        """Ends that.

        Args:
            request: The Request.
        """
        self._waiting.pop(request.ticket, None)

    def arrived(self, request: Request) -> int:
        """Returns the number of bytes that have come.

        Args:
            request: The Request.
        """
        waiting = self._waiting.get(request.ticket)
        return 0 if waiting is None else waiting.count

    def add(self, sender: str, parcel: Any) -> Optional[bytes]:
        """Takes a parcel of any peer. Returns the ticket if its block is whole now.

        Args:
            sender: ID of the peer.
            parcel: The bytes.
        """
        view = memoryview(parcel)
        if len(view) <= _HEAD.size:
            return None
        ticket, total, at = _HEAD.unpack(view[: _HEAD.size])
        waiting = self._waiting.get(ticket)
        body = view[_HEAD.size :]
        if waiting is None or waiting.giver != sender or not at + len(body) <= total <= waiting.most:
            return None  # nobody waits for it
        if waiting.block is None:
            waiting.block = bytearray(total)
        if len(waiting.block) != total or at != waiting.count:
            return None
        waiting.block[at : at + len(body)] = body
        waiting.count += len(body)
        return ticket if waiting.count == total else None

    def take(self, ticket: bytes) -> Optional[bytearray]:
        """Returns a block that is whole. The next one of that ticket may come. None: the request has ended meanwhile.

        Args:
            ticket: Its ticket.
        """
        arrival = self._waiting.get(ticket)
        if arrival is None:
            return None
        block, arrival.block, arrival.count = arrival.block, None, 0
        return block
