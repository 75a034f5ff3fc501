"""One process: nodes that start, stop, talk, and say clearly what is wrong."""

import array
import gc
import os
import pickle
import re
import socket
import stat
import threading
import time
import weakref

import _hivemind_c
import numpy
import pytest

import hivemind_c
from hivemind_c import (
    HivemindCancelledError,
    HivemindConnectionError,
    HivemindError,
    HivemindLookupError,
    HivemindOSError,
    HivemindPermissionError,
    HivemindTimeoutError,
    HivemindValueError,
    Node,
)
from support import HERE, PATIENCE, at_best, eventually, free_port, has_ip6, threads


def stranger():
    """The ID of a peer that nobody knows."""
    with Node(HERE) as node:
        return node.peer_id


# ---- start and stop ----


def test_node_knows_its_identity_and_addresses(node):
    one = node()
    assert one.peer_id.startswith("12D3KooW")
    (address,) = one.addresses
    assert address.startswith("/ip4/127.0.0.1/tcp/") and address.endswith("/p2p/" + one.peer_id)
    assert not address.startswith("/ip4/127.0.0.1/tcp/0/")
    assert one.peers() == []
    assert one.peer_id in repr(one)


def test_node_listens_on_every_interface_by_default(node):
    ports = {address.split("/")[4] for one in (node(None), node(None)) for address in one.addresses}
    assert len(ports) >= 2 and "0" not in ports


def test_a_with_block_starts_and_stops():
    with Node(HERE, start=False) as one:
        assert one.peers() == []
    with pytest.raises(HivemindConnectionError, match="shut down"):
        one.peers()


def test_a_node_that_was_not_started_says_so():
    one = Node(HERE, start=False)
    assert "not started" in repr(one)
    with pytest.raises(HivemindError, match="start"):
        one.peer_id
    one.shutdown()


def test_shutdown_may_come_twice_and_from_several_threads(node):
    one = node()
    racing = [threading.Thread(target=one.shutdown) for _ in range(4)]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    one.shutdown()
    for call in (
        one.peers,
        one.receive,
        lambda: one.wait_for_peers(1),
        lambda: one.echo(one.peer_id, b""),
        lambda: one.send(one.peer_id, b""),
    ):
        with pytest.raises(HivemindConnectionError, match="shut down") as caught:
            call()
        assert caught.value.status == "CLOSED"


def test_a_dropped_node_stops():
    Node(HERE).shutdown()
    before = threads()
    one = Node(HERE)
    assert threads() > before
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert eventually(lambda: gone() is None and threads() <= before)


def test_a_node_lives_as_long_as_a_future_of_it(pair):
    first, second = pair
    third = Node(HERE, initial_peers=first.addresses)
    third.wait_for_peers(1, timeout=60)
    future = third.echo(first, b"still here", wait=False)
    del third
    gc.collect()
    assert future.result(PATIENCE) == b"still here"


def test_a_key_file_makes_the_same_peer_again(tmp_path):
    path = tmp_path / "peer.key"
    with Node(HERE, identity_path=path) as one:
        first = one.peer_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with Node(HERE, identity_path=str(path)) as one:
        assert one.peer_id == first
    path.chmod(0o644)
    with pytest.raises(HivemindPermissionError, match="chmod") as caught:
        Node(HERE, identity_path=path)
    assert caught.value.status == "PERMISSION"
    assert isinstance(caught.value, PermissionError)


def test_path_without_utf8_does_not_hide_the_error():
    with pytest.raises(HivemindError, match="nowhere-\\?") as raised:
        Node(HERE, identity_path=b"/nowhere-\xff/key")
    assert raised.value.status != "INTERNAL"


def test_a_port_in_use_is_named(node):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HivemindOSError, match=str(port)) as caught:
            node(f"127.0.0.1:{port}")
    assert caught.value.status == "IN_USE"
    assert isinstance(caught.value, OSError)


def test_a_failed_start_leaves_no_thread_behind():
    Node(HERE).shutdown()
    before = threads()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for _ in range(5):
            with pytest.raises(HivemindOSError):
                Node(f"127.0.0.1:{taken.getsockname()[1]}")
    assert eventually(lambda: threads() <= before)


@pytest.mark.parametrize("listen", ["/ip6/::1/tcp/0", "[::1]:*", "[::1]:0"])
def test_node_listens_on_ipv6(node, listen):
    if not has_ip6():
        with pytest.raises(HivemindValueError, match=r"cannot listen on \[::1\]:0: this machine has no"):
            node(listen)
        return
    first = node(listen)
    assert all(address.startswith("/ip6/::1/tcp/") for address in first.addresses)
    second = node(listen, initial_peers=first.addresses)
    second.wait_for_peers(1, timeout=60)
    assert second.echo(first, b"six") == b"six"


def test_several_addresses_at_once(node):
    other = "/ip6/::1/tcp/0" if has_ip6() else "/ip4/127.0.0.2/tcp/0"
    first = node([HERE, other])
    assert {"/".join(address.split("/")[:3]) for address in first.addresses} == {
        "/ip4/127.0.0.1",
        other.removesuffix("/tcp/0"),
    }
    for address in first.addresses:
        second = node(initial_peers=address)
        second.wait_for_peers(1, timeout=60)
        assert second.echo(first, b"both") == b"both"


@pytest.mark.parametrize("write", [list, ", ".join])
def test_initial_peers_may_be_a_list_or_a_text_with_commas(node, write):
    first, second = node(), node()
    third = node(initial_peers=write([first.addresses[0], second.addresses[0]]))
    assert {peer.peer_id for peer in third.wait_for_peers(2, timeout=60)} == {first.peer_id, second.peer_id}


def test_announced_addresses_are_sent_to_others(node):
    port = free_port()
    first = node()
    second = node(f"127.0.0.1:{port}", announce=f"/dns4/localhost/tcp/{port}", initial_peers=first.addresses)
    assert second.addresses == [f"/dns4/localhost/tcp/{port}/p2p/{second.peer_id}"]
    (known,) = first.wait_for_peers(1, timeout=60)
    assert (known.peer_id, known.address) == (second.peer_id, second.addresses[0])
    assert first.echo(known, b"by name") == b"by name"


def test_a_client_only_dials_out(node):
    first = node()
    client = node(None, client_mode=True, initial_peers=first.addresses)
    assert client.addresses == []
    client.wait_for_peers(1, timeout=60)
    (known,) = first.wait_for_peers(1, timeout=60)
    assert known.client_mode and known.address is None
    assert client.echo(first, b"out") == b"out"


def test_node_works_without_tls(node):
    first = node(insecure=True)
    second = node(insecure=True, initial_peers=first.addresses)
    second.wait_for_peers(1, timeout=60)
    assert second.echo(first, b"in the clear") == b"in the clear"


# ---- what cannot be ----


@pytest.mark.parametrize(
    "address",
    ["nonsense", "/ip4/1.2.3/tcp/1", "/ip4/1.2.3.4/tcp/99999", "1.2.3.4", "/ip4/1.2.3.4/tcp/1/p2p/Qm", "a b:1", ":::1"],
)
@pytest.mark.parametrize("option", ["listen", "initial_peers", "announce"])
def test_a_bad_address_is_quoted(option, address):
    with pytest.raises(HivemindValueError) as caught:
        Node(**{"listen": HERE, option: address})
    assert isinstance(caught.value, ValueError)
    assert re.search("nonsense|1.2.3|99999|'Qm'|a b|:::1", str(caught.value))


@pytest.mark.parametrize(
    "options",
    [
        dict(listen=5),
        dict(listen=b"127.0.0.1:0"),
        dict(listen=[5]),
        dict(initial_peers=[b"127.0.0.1:1"]),
        dict(initial_peers=[None]),
        dict(identity_path=5),
        dict(pool_threads="four"),
        dict(memory_limit=1.5),
        dict(no_such_option=1),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(options):
    with pytest.raises(TypeError):
        Node(**{"listen": HERE, **options})


@pytest.mark.parametrize(
    "options",
    [
        dict(pool_threads=-1),
        dict(pool_threads=10**6),
        dict(memory_limit=-1),
        dict(log_level="loud"),
        dict(log_level=None),
        dict(listen="127.0.0.1:0\0"),
    ],
)
def test_values_without_a_meaning_are_refused(options):
    with pytest.raises(ValueError):
        Node(**{"listen": HERE, **options})


def test_a_wrong_argument_of_a_call_is_refused(pair):
    first, second = pair
    for call, error, text in [
        (lambda: first.echo(5, b""), TypeError, "peer ID"),
        (lambda: first.echo("12D3KooWnonsense", b""), ValueError, "12D3KooWnonsense"),
        (lambda: first.echo(second, "text"), TypeError, "bytes-like"),
        (lambda: first.send(second, None), TypeError, "bytes-like"),
        (lambda: first.echo(second, b"", timeout=-1), ValueError, "timeout"),
        (lambda: first.echo(second, b"", timeout=float("nan")), ValueError, "timeout"),
        (lambda: first.echo(second, b"", timeout="soon"), TypeError, "timeout"),
        (lambda: first.receive(timeout="soon"), TypeError, "timeout"),
        (lambda: first.wait_for_peers(-1), ValueError, "number of peers"),
        (lambda: first.wait_for_peers("two"), TypeError, "integer"),
        (lambda: first.echo(second, bytes((1 << 20) + 1)), ValueError, "1048576"),
        (lambda: first.send(second, numpy.zeros((4, 4))[:, 1]), (ValueError, BufferError), "contiguous"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert first.echo(second, b"and on") == b"and on"


def test_a_peer_that_nobody_knows(node):
    unknown = stranger()
    one = node()
    for call in (one.echo, one.send):
        with pytest.raises(HivemindLookupError) as caught:
            call(unknown, b"hello", timeout=5)
        assert caught.value.status == "NOT_FOUND"


def test_silent_initial_peer_is_named_with_its_cause(node):
    port = free_port()
    one = node(initial_peers=f"127.0.0.1:{port}")
    with pytest.raises(HivemindConnectionError, match=f"nothing listens on 127.0.0.1:{port}"):
        one.wait_for_peers(1, timeout=60)


def test_the_wrong_identity_is_refused(node):
    first = node()
    expected = stranger()
    wrong = first.addresses[0].replace(first.peer_id, expected)
    second = node(initial_peers=wrong)
    with pytest.raises(HivemindError, match=f"is {first.peer_id}, not {expected}"):
        second.wait_for_peers(1, timeout=60)
    assert first.peers() == [] and second.peers() == []


def test_errors_derive_from_pythons_classes():
    for name, builtin in [
        ("HivemindTimeoutError", TimeoutError),
        ("HivemindConnectionError", ConnectionError),
        ("HivemindPermissionError", PermissionError),
        ("HivemindValueError", ValueError),
        ("HivemindMemoryError", MemoryError),
        ("HivemindOSError", OSError),
        ("HivemindLookupError", LookupError),
        ("HivemindUnsupportedError", NotImplementedError),
    ]:
        kind = getattr(hivemind_c, name)
        assert issubclass(kind, HivemindError) and issubclass(kind, RuntimeError) and issubclass(kind, builtin)
        again = pickle.loads(pickle.dumps(kind("why")))
        assert type(again) is kind and str(again) == "why"
    assert len(_hivemind_c.STATUSES) == len(set(_hivemind_c.STATUSES)) and "TIMEOUT" in _hivemind_c.STATUSES


# ---- echo and parcels ----


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_an_echo_brings_the_same_bytes_back(pair, size):
    first, second = pair
    data = os.urandom(size)
    assert first.echo(second, data) == data
    assert second.echo(first.peer_id, memoryview(data)) == data


def test_peers_are_told_with_address_and_round_trip(pair):
    first, second = pair
    (known,) = second.peers()
    assert known.peer_id == first.peer_id and known.address == first.addresses[0]
    assert 0 < known.rtt < 10 and 0 <= known.seen_ago < 60 and known.client_mode is False
    assert second.echo(known, b"by what peers() gave") == b"by what peers() gave"


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: b"bytes",
        lambda: bytearray(b"bytearray"),
        lambda: memoryview(b"a view of bytes")[2:9],
        lambda: array.array("d", [1.5, 2.5]),
        lambda: numpy.arange(100_000, dtype=numpy.float32).reshape(100, 1000),
        lambda: numpy.frombuffer(os.urandom(40 << 20), numpy.uint8),
    ],
)
def test_parcel_from_any_buffer_arrives_whole(pair, make):
    first, second = pair
    data = make()
    assert first.send(second, data, timeout=60) is None
    sender, view = second.receive(timeout=60)
    assert sender == first.peer_id
    assert view == memoryview(data).cast("B") and view.readonly and view.contiguous


def test_a_parcel_outlives_its_node(pair):
    first, second = pair
    first.send(second, b"kept" * 1000, timeout=60)
    view = second.receive(timeout=60)[1]
    second.shutdown()
    assert bytes(view) == b"kept" * 1000
    assert numpy.frombuffer(view, numpy.uint8).sum() == sum(b"kept") * 1000


def test_buffer_is_borrowed_until_its_future_is_done(pair):
    first, second = pair
    data = bytearray(64 << 20)
    future = first.send(second, data, wait=False)
    if not future.done():
        with pytest.raises(BufferError):
            data.append(1)
    assert future.result(60) is None
    data.append(1)
    # Nobody asks for this one: its buffer comes back all the same.
    first.send(second, data, wait=False)

    def can_grow():
        try:
            data.append(1)
        except BufferError:
            return False
        return True

    assert eventually(can_grow)


def test_a_buffer_comes_back_when_sending_fails(pair):
    first, second = pair
    data = bytearray(1000)
    with pytest.raises(HivemindLookupError):
        first.send(stranger(), data, timeout=5)
    data.append(1)
    first.shutdown()
    with pytest.raises(HivemindConnectionError):
        first.send(second, data)
    data.append(1)


def test_parcels_wait_to_be_received_in_their_order(pair):
    first, second = pair
    for number in range(5):
        first.send(second, bytes([number]) * 10, timeout=60)
    assert [second.receive(timeout=60)[1][0] for _ in range(5)] == list(range(5))


def test_a_receive_that_gave_up_takes_no_parcel(pair):
    first, second = pair
    with pytest.raises(HivemindTimeoutError, match="parcel"):
        second.receive(timeout=0.05)
    forgotten = second._node.receive()
    del forgotten
    cancelled = second._node.receive()
    assert cancelled.cancel() and isinstance(cancelled.exception(PATIENCE), HivemindCancelledError)
    first.send(second, b"for whoever asks next", timeout=60)
    assert second.receive(timeout=60)[1] == b"for whoever asks next"


# ---- futures and threads ----


def test_a_future_tells_when_it_is_done(pair):
    first, second = pair
    future = second._node.receive()
    assert not future.done() and "pending" in repr(future)
    with pytest.raises(HivemindTimeoutError) as caught:
        future.result(timeout=0.02)
    assert caught.value.status == "TIMEOUT"
    with pytest.raises(TimeoutError):
        future.exception(0)
    first.send(second, b"now", timeout=60)
    assert future.result(PATIENCE)[1] == b"now"
    assert future.done() and "done" in repr(future)
    assert future.exception() is None
    assert future.result() is future.result()
    assert future.cancel() is False


def test_a_future_cannot_be_made_by_hand():
    for kind in (_hivemind_c.Future, _hivemind_c.Parcel):
        with pytest.raises(TypeError):
            kind()


def test_a_failed_future_raises_each_time(node):
    future = node().echo(stranger(), b"", wait=False)
    for _ in range(2):
        with pytest.raises(HivemindLookupError):
            future.result(PATIENCE)
    assert isinstance(future.exception(), HivemindLookupError)


def test_many_threads_share_a_node(pair):
    first, second = pair
    wrong = []

    def talk(number):
        for turn in range(25):
            data = f"{number} {turn}".encode() * 50
            if first.echo(second, data, timeout=60) != data:
                wrong.append(data)

    talking = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
    for thread in talking:
        thread.start()
    for thread in talking:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong


def test_several_threads_may_wait_for_one_future(pair):
    first, second = pair
    future = second._node.receive()
    got = []
    waiting = [threading.Thread(target=lambda: got.append(future.result(PATIENCE))) for _ in range(4)]
    for thread in waiting:
        thread.start()
    first.send(second, b"one for all", timeout=60)
    for thread in waiting:
        thread.join(PATIENCE)
    assert len(got) == 4 and all(one is got[0] for one in got)


def test_a_wait_lets_other_threads_run(node):
    one = node()
    waiting = threading.Thread(target=lambda: pytest.raises(HivemindError, one.receive))
    waiting.start()
    start, turns = time.monotonic(), 0
    while time.monotonic() - start < 0.2 or turns < 10_000:
        turns += 1
    assert waiting.is_alive()
    one.shutdown()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_shutdown_ends_all_calls_within_two_seconds(node):
    second = node()

    def attempt():
        first = node(initial_peers=second.addresses)
        first.wait_for_peers(1, timeout=60)
        ended = []

        def wait(call):
            try:
                call()
            except HivemindError as error:
                ended.append(error.status)

        calls = [first.receive, first.receive, lambda: first.wait_for_peers(5)]
        waiting = [threading.Thread(target=wait, args=(call,)) for call in calls]
        for thread in waiting:
            thread.start()
        pending = [first.send(second, bytes(8 << 20), wait=False) for _ in range(8)]
        time.sleep(0.05)
        start = time.monotonic()
        first.shutdown()
        took = time.monotonic() - start
        for thread in waiting:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert len(ended) == 3 and set(ended) <= {"CANCELLED", "CLOSED"}
        for future in pending:
            assert future.exception(PATIENCE) is None or future.exception().status in ("CANCELLED", "CLOSED")
        return took

    at_best(2, attempt)
