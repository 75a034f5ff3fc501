"""The DHT in one process: what is stored is found, for as long as it should be, and what is wrong is said."""

import asyncio
import enum
import gc
import logging
import math
import socket
import sys
import threading
import time
from typing import NamedTuple

import msgpack
import pytest

import hivemind_c
from hivemind_c import DHT, HivemindConnectionError, HivemindError, HivemindPermissionError, HivemindTimeoutError, HivemindValueError, get_dht_time
from hivemind_c.dht import dht as dht_module
from hivemind_c.dht import DHTID, DHTNode, RecordValidatorBase, SignatureValidator, ValueWithExpiration, options
from hivemind_c.dht.values import DEPTH_MAX, pack, unpack
from support import HERE, PATIENCE, PATIENT, at_best, eventually, files, free_port, resident, threads


@pytest.fixture
def pair(dht):
    first = dht()
    second = dht(first.get_visible_maddrs())
    assert eventually(lambda: first.state()["contacts"] == 1)
    return first, second


@pytest.fixture
def swarm(dht):
    def grow(n, **options):
        first = dht(**options)
        nodes = [first, *(dht(first.get_visible_maddrs(), **options) for _ in range(n - 1))]
        assert eventually(lambda: all(node.state()["contacts"] == n - 1 for node in nodes))
        return nodes

    return grow


def soon(seconds=60):
    return get_dht_time() + seconds


# ---- store and get ----

VALUES = [None, True, False, 0, -1, 2**63, -(2**63), 1.5, math.inf, "", "d\u00e9j\u00e0 \U0001f41d", b"", b"\0\xff", [], (), {}, [1, [2, (3, [4])]], (1, (2, (3,))),
          {"a": 1, b"b": (2,), 3: [None], (4, 5): {"deep": ()}}]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value):
    back = unpack(pack(value))
    assert back == value and type(back) is type(value)


def test_stored_value_is_found_by_another_node(pair):
    first, second = pair
    value = {"list": [1, (2.5, None)], "bytes": b"\0"}
    end = soon()
    assert first.store("key", value, end) is True
    found = second.get("key")
    assert isinstance(found, ValueWithExpiration) and found.value == value and type(found.value["list"][1]) is tuple
    assert abs(found.expiration_time - end) < 30
    assert first.get("another") is None
    assert first.get(b"key").value == value  # a str key is its bytes


def test_lone_node_keeps_its_records(dht, caplog):
    one = dht()
    assert one.store("key", 1, soon()) and one.get("key").value == 1 and one.get("other") is None
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_subkeys_make_a_dictionary(pair):
    first, second = pair
    assert first.store("key", 1, soon(60), subkey="one")
    assert second.store("key", 2, soon(90), subkey=("two", 2))
    assert second.store("key", 3, soon(30), subkey=b"three")
    found = first.get("key", latest=True)
    assert {subkey: entry.value for subkey, entry in found.value.items()} == {"one": 1, ("two", 2): 2, b"three": 3}
    assert found.expiration_time == max(entry.expiration_time for entry in found.value.values()) == found.value["two", 2].expiration_time
    assert abs(found.value["one"].expiration_time - soon(60)) < 30
    value, expiration = found.value["one"]
    assert value == 1 and expiration > get_dht_time()


def test_defect_17_record_for_a_year_lives_an_hour(pair):
    first, second = pair
    assert first.store("key", 1, soon(365 * 86400)) is True
    assert get_dht_time() + 3000 < second.get("key", latest=True).expiration_time < soon(3600 + 30)  # its owner says it again before it ends


def test_longer_lived_record_stays(pair):
    first, second = pair
    assert first.store("key", "old", soon(60))
    assert second.store("key", "shorter", soon(30)) is False
    assert first.get("key", latest=True).value == "old"
    assert second.store("key", "longer", soon(90))
    assert first.get("key", latest=True).value == "longer"


def test_a_record_ends_when_it_should(pair):
    first, second = pair
    assert first.store("key", 1, soon(8))
    assert second.get("key", latest=True).value == 1
    assert eventually(lambda: second.get("key", latest=True) is None and first.get("key", latest=True) is None)


def test_futures_are_waited_for_from_threads_and_coroutines(pair):
    first, second = pair
    stored = [first.store(f"key{i}", i, soon(), return_future=True) for i in range(100)]
    assert all(future.result(30) is True for future in stored) and all(future.done() for future in stored)
    got = [second.get(f"key{i}", return_future=True) for i in range(100)]
    assert [future.result().value for future in got] == list(range(100))
    assert got[0].exception() is None and got[0].result() is not None

    async def ask():
        assert await first.store("awaited", 1, soon(), return_future=True)
        return await asyncio.gather(*(second.get(f"key{i}", return_future=True) for i in range(100)))

    assert [entry.value for entry in asyncio.run(ask())] == list(range(100))
    assert second.get("awaited", return_future=True).result(30).value == 1


def test_five_hundred_records_in_eight_nodes(swarm):
    nodes = swarm(8)
    futures = [nodes[i % 8].store(f"key{i}", i, soon(120), return_future=True) for i in range(500)]
    assert all(future.result() for future in futures)
    got = [nodes[(i * 3 + 1) % 8].get(f"key{i}", return_future=True) for i in range(500)]
    assert [future.result().value for future in got] == list(range(500))
    assert sum(node.state()["records"] for node in nodes) >= 500 * 5


# ---- bad input ----


class Number(enum.IntEnum):
    seven = 7


class Point(NamedTuple):
    x: int


def test_derived_types_travel_as_their_base_types():
    assert unpack(pack([Number.seven, Point(1), {Number.seven: True}])) == [7, (1,), {7: True}]


def test_unserialisable_value_is_named(dht):
    one = dht()
    deep = []
    for _ in range(DEPTH_MAX + 2):
        deep = [deep]
    endless = []
    endless.append(endless)
    deep_tuple = ()
    for _ in range(DEPTH_MAX + 2):
        deep_tuple = (deep_tuple,)
    for value, error, words in [
        (object(), TypeError, "builtins.object"),
        ({1, 2}, TypeError, "builtins.set"),
        ([lambda: 0], TypeError, "function"),
        (1j, TypeError, "complex"),
        (2**64, ValueError, "64 bits"),
        (deep, ValueError, "nested"),
        (deep_tuple, ValueError, "nested"),
        (endless, ValueError, "nested"),
        (b"x" * 65537, ValueError, "65536"),
        ("\ud800", ValueError, "surrogates"),
    ]:
        with pytest.raises(error, match=words):
            one.store("key", value, soon())
    assert one.get("key") is None and one.store("key", b"x" * 65000, soon())


def test_expired_store_returns_false(dht):
    one = dht()
    for until in (get_dht_time() - 5, get_dht_time(), -math.inf):
        assert one.store("key", 1, until) is False
        reply = one.store("key", 1, until, return_future=True)
        assert reply.done() and not reply.running() and not reply.cancel() and not reply.cancelled() and reply.result() is False and reply.exception() is None
    assert one.get("key") is None


def test_keys_of_any_kind_are_different_keys(dht):
    one = dht()
    keys = [0, 1, True, -1, 1.5, "1", (1, "a"), ("a", (b"b", 2)), DHTID.generate("a"), DHTID.generate("b")]
    for number, key in enumerate(keys):
        assert one.store(key, number, soon(), num_workers=3, await_all_replicas=True)
    assert [one.get(key, beam_size=3).value for key in keys] == list(range(len(keys)))
    with pytest.raises(TypeError, match="no option 'beamsize'; did you mean 'beam_size'"):
        one.get("key", beamsize=3)


def test_options_of_the_peers_daemon_are_taken_and_said_once(dht, caplog):
    """Each option that has no meaning here is named in one line of the log, the first time that it is given."""
    options._warned_options.clear()
    with caplog.at_level(logging.WARNING):
        one = dht(auto_nat=True, idle_timeout=3, cache_on_store=True, p2p=None)
        dht(auto_nat=False, tls=True)
    lines = [record.message for record in caplog.records if "no effect of" in record.message]
    assert len(lines) == 2 and "no effect of auto_nat, idle_timeout, cache_on_store, because" in lines[0] and "no effect of tls, because" in lines[1]
    assert one.kwargs["idle_timeout"] == 3 and one.num_workers == 4
    assert dht(one.get_visible_maddrs(), no_listen=True).client_mode
    for given, words in ({"identty_path": "x"}, "did you mean 'identity_path'"), ({"aut_nat": 1}, "did you mean 'auto_nat'"), ({"p2p": object()}, "share the DHT itself"):
        with pytest.raises(TypeError, match=words):
            DHT(start=False, **given)


def test_wrong_keys_and_times_are_refused_and_nothing_is_lost(dht):
    one = dht()
    assert one.store("key", 1, soon())
    for arguments, error, words in [
        (({1}, 2, soon()), TypeError, "key"),
        ((None, 2, soon()), TypeError, "key"),
        (("k" * 1025, 2, soon()), HivemindValueError, "1025.*1024"),
        (("key", 2, soon(), "s" * 1025), HivemindValueError, "1028.*1024"),
        (("key", 2, "tomorrow"), TypeError, "seconds"),
        (("key", 2, None), TypeError, "seconds"),
        (("key", 2, True), TypeError, "seconds"),
        (("key", 2, math.nan), ValueError, "NaN"),
        (("key", 2, soon(), {1}), TypeError, "set"),
    ]:
        with pytest.raises(error, match=words):
            one.store(*arguments)
    with pytest.raises(TypeError, match="key"):
        one.get({3})
    with pytest.raises(HivemindValueError, match="2000.*1024"):
        one.get("k" * 2000)
    assert one.get("key").value == 1
    assert one.store("for ever", 1, math.inf) and one.get("for ever").value == 1
    assert one.store("", 0, soon()) and one.get("").value == 0  # an empty key is a key


HOSTILE = [b"", b"\xc1", b"\xff\xff", b"\x91" * 500, b"\x81\x90\x01", b"\xdd\xff\xff\xff\xff", b"\xd6\xff\0\0\0\1", b"\xc7\x00\x01", b"\xc7\x01\x01\x01",
           b"\xa1\xff", b"\x01\x02", b"\xc7\x01\x05\x90", b"\x81\x81\x01\x02\x03", b"\x00" * 65537]  # fmt: skip


@pytest.mark.parametrize("packed", HOSTILE, ids=lambda packed: repr(packed[:8]))
def test_bytes_that_are_no_value_are_refused(packed):
    with pytest.raises(ValueError):
        unpack(packed)


def test_tuples_within_tuples_without_end_are_refused():
    packed = msgpack.packb([])
    while len(packed) < 60000:
        packed = msgpack.packb([msgpack.ExtType(1, packed)])
    with pytest.raises(ValueError):
        unpack(packed)


def test_a_strangers_bytes_are_left_out(pair, caplog):
    first, second = pair
    assert first.store("key", 1, soon(), subkey="good")
    first.core.dht_store(b"key", pack("bad"), b"\xc1", 60000).result()
    first.core.dht_store(b"key", b"\xc1", pack(2), 60000).result()
    first.core.dht_store(b"only bad", None, b"\xc1", 60000).result()
    assert list(second.get("key", latest=True).value) == ["good"]
    assert second.get("only bad") is None
    assert "ignoring a record of" in caplog.text


def test_unknown_and_missing_arguments_are_type_errors():
    with pytest.raises(TypeError, match="start"):
        DHT()
    with pytest.raises(TypeError, match="bukket_size"):
        DHT(start=False, bukket_size=3)
    for options, error, words in [
        (dict(num_replicas=21), ValueError, "num_replicas.*20"),
        (dict(bucket_size=-1), ValueError, "bucket_size"),
        (dict(parallel_rpc="many"), TypeError, "int"),
        (dict(cache_size=2**70), ValueError, "cache_records"),
        (dict(wait_timeout="long"), TypeError, "wait_timeout"),
        (dict(blacklist_time=-1), ValueError, "blacklist_time"),
        (dict(shutdown_timeout=-1), ValueError, "shutdown_timeout must be from 0 to 86400 seconds, not -1"),
        (dict(bootstrap_timeout=-0.5), ValueError, "bootstrap_timeout must be from 0 to 86400 seconds, not -0.5"),
        (dict(bootstrap_timeout=float("nan")), ValueError, "bootstrap_timeout must be from 0"),
        (dict(shutdown_timeout="long"), TypeError, "shutdown_timeout must be a number of seconds"),
        (dict(authorizer=object()), NotImplementedError, "authorizer"),
        (dict(record_validators=[object()]), TypeError, "RecordValidatorBase"),
        (dict(host_maddrs="/ip4/127.0.0.1/tcp/nowhere"), HivemindValueError, "nowhere"),
        (dict(announce_maddrs="0.0.0.0:0"), HivemindValueError, "announce"),
        (dict(initial_peers=b"127.0.0.1:1"), TypeError, "text"),
        (dict(initial_peers="/ip4/1.2.3.4"), HivemindValueError, "1.2.3.4"),
    ]:
        with pytest.raises(error, match=words):
            DHT(start=True, **options)


# Programs of hivemind give any number.
def test_parallel_rpc_above_the_limit_is_cut_and_logged(dht, caplog):
    dht(parallel_rpc=64)
    assert "parallel_rpc" not in caplog.text
    other = dht(parallel_rpc=128)
    assert "using parallel_rpc=64, which is the limit, instead of 128" in caplog.text
    assert other.get("nothing") is None


def test_unsupported_options_are_warned_of(dht, caplog):
    dht(use_ipfs=True, use_relay=True, daemon=False, num_workers=1, parallel_rpc=3, cache_size=10, cache_locally=False, cache_nearest=0, refresh_timeout=60.0)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2
    assert "IPFS" in caplog.text and "client_mode=True" in caplog.text


@pytest.mark.parametrize(
    "given, opens", [({}, 1), ({"nat_port_map": True}, 1), ({"nat_port_map": None}, 1), ({"nat_port_map": False}, 0)]
)
@pytest.mark.parametrize("open_port", [True, False])
def test_nat_port_map_is_open_port(caplog, monkeypatch, given, opens, open_port):
    seen = []
    node = dht_module.Node
    monkeypatch.setattr(dht_module, "Node", lambda *words, **more: seen.append(more["open_port"]) or node(*words, **more))
    DHT(start=False, open_port=open_port, **given)
    assert seen == [open_port and bool(opens)] and "no effect" not in caplog.text


# ---- beginning and ending ----


@pytest.mark.parametrize("form", ["list", "commas", "host and port", "one of several"])
def test_initial_peers_may_have_any_form(dht, form):
    first = dht()
    address = first.get_visible_maddrs()[0]
    port = address.split("/")[4]
    dead = "/ip4/127.0.0.1/tcp/1"
    peers = {"list": [address], "commas": f"{dead}, {address}", "host and port": f"127.0.0.1:{port}", "one of several": [dead, address, "127.0.0.1:2"]}[form]
    second = dht(peers)
    assert first.store("key", form, soon()) and second.get("key").value == form


def test_silent_initial_peers_are_each_named_with_a_cause():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        wrong = DHT(start=True)
        address = wrong.get_visible_maddrs()[0]
        other = "12D3KooWQZTSWv3QgpzC6XkX361vUcUg46SuScV4RhVFHgNJFkYu"
        peers = [f"127.0.0.1:{deaf.getsockname()[1]}", "/ip4/127.0.0.1/tcp/1", address.replace(wrong.peer_id, other)]
        with pytest.raises(HivemindConnectionError) as caught:
            DHT(peers, start=True, bootstrap_timeout=5)
        wrong.shutdown()
    text = str(caught.value)
    assert peers[0] in text and "127.0.0.1:1 (" in text and "nothing listens" in text and wrong.peer_id[-6:] in text


def test_a_silent_initial_peer_costs_its_time_and_is_named():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        def attempt():
            start = time.monotonic()
            with pytest.raises((HivemindTimeoutError, HivemindConnectionError), match=address):
                DHT(address, start=True, bootstrap_timeout=0.2, startup_timeout=1)
            return time.monotonic() - start

        at_best(4, attempt)


def test_swarm_is_joined_after_its_bootstrap_starts(dht):
    port = free_port()
    second = dht(f"127.0.0.1:{port}", ensure_bootstrap_success=False)
    assert second.store("alone", 1, soon())
    first = dht(host_maddrs=f"/ip4/127.0.0.1/tcp/{port}")
    assert eventually(lambda: first.state()["contacts"] and second.state()["contacts"])
    assert first.store("key", 1, soon()) and second.get("key").value == 1
    assert first.get("alone", latest=True).value == 1


def test_a_list_that_everybody_shares_may_name_oneself(dht):
    port = free_port()
    shared = [f"127.0.0.1:{port}"]
    start = time.monotonic()
    first = dht(shared, host_maddrs=f"127.0.0.1:{port}", bootstrap_timeout=3 * PATIENCE, startup_timeout=3 * PATIENCE)
    assert time.monotonic() - start < 2 * PATIENCE  # it does not wait for others
    assert first.store("key", 1, soon()) and dht(shared).get("key").value == 1


def test_a_port_in_use_is_said(dht):
    one = dht()
    with pytest.raises(OSError, match="already does"):
        dht(host_maddrs=one.get_visible_maddrs()[0].split("/p2p/")[0])
    assert one.store("key", 1, soon())


def test_an_identity_makes_the_address_known_beforehand(dht, tmp_path):
    one = dht(identity_path=tmp_path / "key", host_maddrs=f"127.0.0.1:{free_port()}")
    (address,) = one.get_visible_maddrs()
    one.shutdown()
    again = dht(identity_path=str(tmp_path / "key"), host_maddrs=address.split("/p2p/")[0])
    assert again.get_visible_maddrs() == [address]


def test_announced_addresses_are_visible_to_others(dht):
    one = dht(announce_maddrs="/ip4/203.0.113.7/tcp/31337, example.org:31337")
    addresses = one.get_visible_maddrs()
    assert len(addresses) == 2 and all(address.endswith("/p2p/" + one.peer_id) for address in addresses)
    assert addresses[0].startswith("/ip4/203.0.113.7/tcp/31337/") and "/example.org/tcp/31337/" in addresses[1]


def test_a_client_asks_and_never_serves(dht, caplog):
    first = dht()
    client = dht(first.get_visible_maddrs(), client_mode=True, host_maddrs="0.0.0.0:0")
    assert client.client_mode and not first.client_mode and client.get_visible_maddrs() == []
    assert client.store("key", 1, soon()) and first.get("key").value == 1
    assert first.store("other", 2, soon()) and client.get("other").value == 2
    assert client.state()["records"] == 0 and first.state()["records"] == 2 and first.state()["contacts"] == 0


def test_lone_client_fails_quietly_and_warns_once(dht, caplog):
    client = dht(client_mode=True)
    assert client.store("key", 1, soon()) is False and client.get("key") is None and client.get("key") is None
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_dht_may_start_later_and_stop_twice():
    one = DHT(start=False)
    assert not one.is_alive()
    with pytest.raises(HivemindError, match="not been started"):
        one.get("key")
    with one:
        assert one.is_alive() and one.peer_id in repr(one)
        one.run_in_background()
    one.shutdown()
    assert not one.is_alive()
    with pytest.raises(HivemindConnectionError, match="shut down"):
        one.get("key")


def test_shutdown_ends_calls_under_way(dht):
    def attempt():
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            one = dht(f"127.0.0.1:{silent.getsockname()[1]}", ensure_bootstrap_success=False, client_mode=True)
            begun = threading.Event()

            async def wait(dht, node):
                begun.set()
                await asyncio.sleep(3 * PATIENCE)

            future = one.run_coroutine(wait, return_future=True)
            assert begun.wait(PATIENCE)
            start = time.monotonic()
            one.shutdown()
            took = time.monotonic() - start
            with pytest.raises(BaseException):
                future.result(PATIENCE)
            with pytest.raises(HivemindConnectionError):
                one.run_coroutine(wait)
            return took

    at_best(5, attempt)


# ---- extensions ----


def test_coroutines_run_beside_the_program(pair):
    first, second = pair

    async def work(dht, node):
        assert dht is first and node.peer_id == first.peer_id and threading.current_thread() is not threading.main_thread()
        assert await node.store("key", 1, soon(), subkey="a")
        many = await node.get_many(["key", "none"])
        assert (await node.get_many(["key"], sufficient_expiration_time=float("inf")))["key"].value["a"].value == 1
        assert await node.store_many(["x", "y"], [1, 2], soon()) == {"x": True, "y": True}
        assert await node.store_many(["x", "key"], [3, 4], [soon() - 30, soon()], [None, "b"]) == {"x": False, ("key", "b"): True}
        with pytest.raises(ValueError, match="1 values"):
            await node.store_many(["x", "y"], [1], soon())
        return many["key"].value["a"].value, many["none"]

    assert first.run_coroutine(work) == (1, None)
    assert first.run_coroutine(work, return_future=True).result(PATIENCE) == (1, None)

    async def fail(dht, node):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        second.run_coroutine(fail)


def test_a_program_with_a_loop_of_its_own_has_nodes_to_await():
    async def work():
        first = await DHTNode.create(host_maddrs=[HERE], **PATIENT)
        second = await DHTNode.create(await first.get_visible_maddrs(), host_maddrs=[HERE], **PATIENT)
        try:
            assert await first.store("key", 1, soon())
            return (await second.get("key", latest=True)).value, second.client_mode
        finally:
            await second.shutdown()
            await first.shutdown()

    assert asyncio.run(work()) == (1, False)


def test_owners_later_record_counts_with_the_same_expiration(dht):
    validator = SignatureValidator()
    first = dht(record_validators=[validator])
    second = dht(first.get_visible_maddrs())
    mark, end = validator.local_public_key, get_dht_time() + 60
    for value in range(20):  # versions come from the end: these differ by chance
        assert first.store("said", value, end, subkey=mark)
        assert second.get("said", latest=True).value[mark].value == value


def test_a_key_with_an_owner_is_that_owners_alone(dht):
    validator = SignatureValidator()
    first = dht(record_validators=[validator])
    second = dht(first.get_visible_maddrs())
    mark = validator.local_public_key
    assert mark == f"[owner:{first.peer_id}]".encode()
    assert first.store("key", 1, soon(), subkey=mark)
    assert first.store("mine" + mark.decode(), 2, soon())
    assert second.get("key").value[mark].value == 1
    with pytest.raises(HivemindPermissionError, match=first.peer_id):
        second.store("key", 3, soon(90), subkey=mark)
    with pytest.raises(HivemindPermissionError, match=first.peer_id):
        second.store(b"mine" + mark, 3, soon(90))
    assert first.store("key", 4, soon(90), subkey=mark) and second.get("key", latest=True).value[mark].value == 4


def test_a_signature_validator_belongs_to_one_dht(dht):
    validator = SignatureValidator()
    with pytest.raises(ValueError, match="give the validator to a DHT"):
        validator.local_public_key
    first = dht(record_validators=(validator,))
    twin = SignatureValidator()
    first.add_validators([twin])
    assert twin.local_public_key == validator.local_public_key
    with pytest.raises(ValueError, match="another DHT"):
        dht(record_validators=[validator])


class Sealed(RecordValidatorBase):
    """Ends every value with a word; believes no other, and nothing under the key "forbidden"."""

    def __init__(self, word, priority=0):
        self.word, self.priority = word, priority

    def validate(self, record):
        return record.value.endswith(self.word) and record.key != b"forbidden" and record.expiration_time > get_dht_time()

    def sign_value(self, record):
        return record.value + self.word

    def strip_value(self, record):
        return record.value[: -len(self.word)]


def test_validators_sign_validate_and_strip(pair, caplog):
    first, second = pair
    first.add_validators([Sealed(b"<inner>", 2), Sealed(b"<outer>", 1)])
    assert first.store("key", 1, soon(), subkey="good") and first.get("key").value["good"].value == 1
    assert second.core.dht_get(b"key").result()[0][1] == b"\x01<inner><outer>"
    assert second.store("key", 2, soon(), subkey="bare")
    assert list(first.get("key", latest=True).value) == ["good"]
    assert "Sealed does not accept" in caplog.text
    with pytest.raises(ValueError, match="Sealed does not accept"):
        first.store("forbidden", 1, soon())


def test_a_validator_that_raises_costs_the_record_and_no_more(pair, caplog):
    first, second = pair

    class Broken(RecordValidatorBase):
        def validate(self, record):
            raise ZeroDivisionError("a mistake of the validator's")

    second.add_validators([Broken()])
    assert first.store("key", 1, soon()) and second.get("key") is None
    assert "a mistake of the validator's" in caplog.text


# ---- nothing stays behind ----


def test_storing_and_getting_leaks_nothing(pair):
    first, second = pair
    keys = [f"key{i}" for i in range(50)]

    def work(times):
        for turn in range(times // 50):
            for future in [first.store(key, turn, soon(60 + 10 * turn), subkey="s", return_future=True) for key in keys]:
                future.result()
            for future in [second.get(key, latest=True, return_future=True) for key in keys]:
                future.result()
            first.get("none", return_future=True)  # that nobody waits for
            first.store(keys[0], 1, soon(90), return_future=True).cancel()
            for wrong in (lambda: first.store("k" * 2000, 1, soon()), lambda: first.store("k", b"x" * 70000, soon()), lambda: first.get({2})):
                with pytest.raises((ValueError, TypeError)):
                    wrong()

    work(2000)
    gc.collect()
    before = sys.getallocatedblocks(), resident(), files(), threads()
    work(2000)
    gc.collect()
    assert eventually(lambda: files() <= before[2] and threads() <= before[3]), (files(), threads(), before)
    assert eventually(lambda: gc.collect() is not None and sys.getallocatedblocks() - before[0] < 1000)
    assert resident() - before[1] < 16 << 20


def test_dht_names_are_at_the_top_of_the_package():
    assert hivemind_c.DHT is hivemind_c.dht.DHT and hivemind_c.get_dht_time is hivemind_c.dht.get_dht_time
