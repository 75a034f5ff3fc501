"""A hub's requests for states, and the blocks that answer them: a stranger's bytes are checked."""

import struct

import pytest

from hivemind_c.averaging import gifts
from hivemind_c.averaging.gifts import PARCEL, Arrivals, new_request, parcels_of, requests_to
from hivemind_c.averaging.image import Image, block_of, block_size_max, read_block
from hivemind_c.dht.news import subkey_of
from hivemind_c.dht.values import ValueWithExpiration, get_dht_time
from support import eventually

IMAGE = Image(7, b"metadata", (bytes(range(256)) * 70_000, b"", b"xyz"), ((0, 1, False), (0, 0, False), (0, 0, True)))
HEAD = struct.Struct("<16sQQ")


@pytest.fixture
def waiting():
    """A request, and the arrivals that wait for its block."""
    request, arrivals = new_request("hub", "giver", 5, 1, IMAGE.size), Arrivals()
    arrivals.expect(request, block_size_max(IMAGE.size))
    return request, arrivals


def whole_block():
    return b"".join(map(bytes, block_of("run", IMAGE)))


def test_block_travels_in_parcels_and_is_read_again(waiting):
    request, arrivals = waiting
    block = whole_block()
    parcels = [bytes(parcel) for parcel in parcels_of(request.ticket, block_of("run", IMAGE), len(block))]
    assert len(parcels) == 3 and max(map(len, parcels)) == PARCEL + HEAD.size
    assert [arrivals.add("giver", parcel) for parcel in parcels] == [None, None, request.ticket]
    image = read_block(arrivals.take(request.ticket), "run", IMAGE.size)
    assert tuple(map(bytes, image.parts)) == IMAGE.parts and image.kinds == IMAGE.kinds and image.epoch == 7
    assert [arrivals.add("giver", parcel) for parcel in parcels] == [None, None, request.ticket]  # the next one


def test_parcel_that_nobody_waits_for_takes_no_memory(waiting):
    request, arrivals = waiting
    ticket, most = request.ticket, block_size_max(IMAGE.size)
    for sender, parcel in [
        ("other", HEAD.pack(ticket, 100, 0) + b"x"),
        ("giver", HEAD.pack(bytes(16), 100, 0) + b"x"),
        ("giver", HEAD.pack(ticket, most + 1, 0) + b"x"),
        ("giver", HEAD.pack(ticket, 100, 100) + b"x"),
        ("giver", HEAD.pack(ticket, 100, (1 << 64) - 1) + b"x"),
        ("giver", HEAD.pack(ticket, 100, 0)),
        ("giver", b""),
    ]:
        assert arrivals.add(sender, parcel) is None and arrivals.arrived(request) == 0
    assert arrivals.add("giver", HEAD.pack(ticket, 100, 0) + b"x") is None
    for at, total in ((0, 100), (5, 100), (1, 50)):
        assert arrivals.add("giver", HEAD.pack(ticket, total, at) + b"y") is None
    assert arrivals.arrived(request) == 1
    arrivals.forget(request)
    assert arrivals.add("giver", HEAD.pack(ticket, 100, 1) + b"x") is None


def test_block_of_a_request_that_has_ended_is_dropped(waiting):
    request, arrivals = waiting
    assert arrivals.add("giver", HEAD.pack(request.ticket, 1, 0) + b"x") == request.ticket
    arrivals.forget(request)  # by the thread that asks, before the receiver takes the block
    assert arrivals.take(request.ticket) is None
    assert arrivals.add("giver", HEAD.pack(request.ticket, 1, 0) + b"x") is None


def test_requests_in_the_dht_are_those_to_this_trainer(dhts):
    request = new_request(dhts[0].peer_id, dhts[1].peer_id, 5, 1, 1000)
    gifts.store(dhts[0], "gift", request)
    key, end = gifts.key_of("gift"), get_dht_time() + 60
    wrong = [1, dhts[1].peer_id, b"short", 5, 1, 1000], "text", [1], [2, *request[1:]], [1, *request[1:5], -1]
    for value in wrong:
        assert dhts[2].store(key, value, end, subkey=subkey_of(dhts[2].peer_id))
        found = dhts[1].get(key, latest=True)
        assert eventually(lambda: requests_to(dhts[1].peer_id, dhts[1].get(key, latest=True)) == [request])
        assert requests_to(dhts[3].peer_id, found) == []
    assert requests_to(dhts[1].peer_id, None) == []
    assert requests_to(dhts[1].peer_id, ValueWithExpiration(7, end)) == []
