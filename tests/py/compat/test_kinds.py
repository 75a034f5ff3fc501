"""Small things that programs written for hivemind take from it: names and addresses of peers, and hivemind_c.utils."""

import asyncio
import pickle
import threading
import time
from collections import namedtuple

import pytest
import torch

import hivemind_c as hivemind
from hivemind_c.dht import DHTID
from hivemind_c.p2p import Multiaddr, PeerID
from hivemind_c.utils.asyncio import (
    achain,
    aenumerate,
    aiter_with_timeout,
    amap_in_executor,
    anext,
    as_aiter,
    asingle,
    azip,
    cancel_and_wait,
    enter_asynchronously,
    iter_as_aiter,
)
from hivemind_c.utils.timed_storage import TimedStorage, get_dht_time

ADDRESS = "/ip4/10.0.0.7/tcp/31337/p2p/12D3KooWSyxVsnHYVjeEtvdnu7G72vesNro81sSYnLEEoCpLZS72"


def test_a_peer_id_is_text_and_has_the_peers_methods():
    one = PeerID.from_base58(ADDRESS.rpartition("/")[2])
    assert (
        one == str(one) == one.to_base58() == one.pretty() == one.to_string()
        and isinstance(one, str)
        and {one: 1}[str(one)] == 1
    )
    assert (
        len(one.to_bytes()) == 38
        and one.to_bytes()[:6] == b"\x00\x24\x08\x01\x12\x20"
        and PeerID(one.to_bytes()) == one
    )  # an identity multihash of an Ed25519 key
    assert PeerID(b"\0\0\1") == "112" and PeerID("112").to_bytes() == b"\0\0\1"
    assert pickle.loads(pickle.dumps(one)) == one and type(pickle.loads(pickle.dumps(one))) is PeerID
    with pytest.raises(ValueError, match="has '0' in it"):
        PeerID.from_base58("Q0")


def test_a_multiaddr_is_text_and_has_the_peers_methods():
    one = Multiaddr(ADDRESS)
    assert one == ADDRESS and one["tcp"] == one.value_for_protocol(6) == "31337"
    assert (
        [protocol.name for protocol in one.keys()] == ["ip4", "tcp", "p2p"]
        and one.values()[0] == "10.0.0.7"
        and one.items()[1][0].code == 6
    )
    assert one.get("udp") is None and "tcp" in one and one.startswith("/ip4/") and one[:4] == "/ip4"
    assert (
        one.split() == ["/ip4/10.0.0.7", "/tcp/31337", "/p2p/" + one["p2p"]]
        and one.split("/")[1] == "ip4"
        and one.split(1) == ["/ip4/10.0.0.7", one[13:]]
    )
    assert one.decapsulate("/p2p/" + one["p2p"]).encapsulate("/p2p-circuit") == "/ip4/10.0.0.7/tcp/31337/p2p-circuit"
    assert pickle.loads(pickle.dumps(one)) == one
    for text, words in (
        ("10.0.0.7:31337", "write it as /ip4"),
        ("/ip4/1.2.3.4/tpc/3", "'tpc' is not known"),
        ("/ip4/1.2.3.4/tcp", "no value stands after 'tcp'"),
    ):
        with pytest.raises(ValueError, match=words):
            Multiaddr(text)
    with pytest.raises(LookupError, match="has no udp: it has ip4, tcp, p2p"):
        one["udp"]
    with pytest.raises(ValueError, match="not in it"):
        one.decapsulate("/udp/1")


def test_node_names_itself_by_these_kinds(dhts):
    assert isinstance(dhts[0].peer_id, PeerID) and all(
        isinstance(address, Multiaddr) for address in dhts[0].get_visible_maddrs()
    )
    assert dhts[0].get_visible_maddrs()[0]["p2p"] == dhts[0].peer_id

    async def look(dht, node):
        return node.peer_id, node.node_id, node.is_alive

    assert dhts[0].run_coroutine(look) == (dhts[0].peer_id, DHTID.generate(dhts[0].peer_id.to_bytes()), True)


def test_the_best_ip_address_is_chosen():
    choose = hivemind.utils.choose_ip_address
    found = [
        "/ip4/127.0.0.1/tcp/1",
        "/ip6/2001:4860::1/tcp/1",
        "/ip4/10.0.0.7/tcp/1",
        "/ip4/8.8.8.8/tcp/1",
        "/dns4/example.org/tcp/1",
    ]
    assert choose(found) == "8.8.8.8" and choose(found, protocol_priority=("ip6", "ip4")) == "2001:4860::1"
    assert choose(found[:3]) == "2001:4860::1" and choose(found[:3], prefer_global=False) == "127.0.0.1"
    with pytest.raises(ValueError, match="get_visible_maddrs"):
        choose(found[-1:])


def test_places_of_keys():
    """SHA-1 of bytes as they are and of anything else as MessagePack has it, as hivemind computes them."""
    assert (
        DHTID.generate("a") == 0x9EDDB6860ECF7699015FFFF67E3B375820A48CAD
        and DHTID.generate(5) == 0x8DC00598417D4EB788A77AC6CCEF3CB484905D8B
    )
    assert DHTID.generate(b"a") == 0x86F7E437FAA5A7FCE15D1DDCB9EAEAEA377667B8 and DHTID.generate() != DHTID.generate()
    a, b = DHTID(0b1100), DHTID(0b1010)
    assert (
        a.xor_distance(b) == 6 and a.xor_distance([b, a]) == [6, 0] and DHTID.longest_common_prefix_length(a, b) == 157
    )
    assert DHTID.from_bytes(a.to_bytes()) == a and len(a.to_bytes()) == 20
    with pytest.raises(ValueError, match="2\\*\\*160"):
        DHTID(2**160)


# ---- utils ----


def test_nested_structures_go_flat_and_come_back():
    utils, Pair = hivemind.utils, namedtuple("Pair", "x y")
    structure = {"b": [1, 2], "a": (3, {"z": 4, "y": 5}), "c": Pair(6, [])}
    flat = list(utils.nested_flatten(structure))
    assert flat == [3, 5, 4, 1, 2, 6]
    doubled = utils.nested_map(lambda one, two: one + two, structure, structure)
    assert (
        doubled == {"b": [2, 4], "a": (6, {"z": 8, "y": 10}), "c": Pair(12, [])}
        and type(doubled["c"]) is Pair
        and list(doubled) == ["b", "a", "c"]
    )
    assert utils.nested_pack(flat, structure) == structure and utils.nested_pack([7], 1) == 7
    assert (
        utils.nested_compare(structure, doubled)
        and not utils.nested_compare([1], (1,))
        and not utils.nested_compare({"a": 1}, {"b": 1})
        and not utils.nested_compare([1], 1)
    )
    for wrong in (flat[:-1], flat + [1]):
        with pytest.raises(ValueError, match="for a structure of 6"):
            utils.nested_pack(wrong, structure)
    with pytest.raises(ValueError, match="that differ"):
        utils.nested_map(max, [1], [1, 2])


def test_speed_is_a_moving_average_and_pauses_do_not_count():
    ema = hivemind.utils.PerformanceEMA(alpha=0.5)
    assert ema.update(10, interval=1) == pytest.approx(10) and ema.update(10, interval=2) == pytest.approx(
        1 / (0.1 / 3 + 0.2 * 2 / 3)
    )
    with ema.pause():
        time.sleep(0.3)
        with pytest.raises(RuntimeError, match="paused"):
            ema.update(1)
    ema.reset_timer()
    with ema.update_threadsafe(5):
        time.sleep(0.05)
    assert ema.num_updates == 3 and 0 < ema.samples_per_second < 1000


def test_a_future_is_waited_for_by_threads_and_coroutines():
    future = hivemind.utils.MPFuture()
    threading.Timer(0.05, future.set_result, [7]).start()

    async def wait():
        return await future

    assert asyncio.run(wait()) == future.result() == 7 and future.done() and not future.cancelled()
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pickle.dumps(future)


def test_classes_are_packed_by_a_code_of_their_own():
    serializer = hivemind.utils.MSGPackSerializer

    @serializer.ext_serializable(0x61)
    class Mine:
        def __init__(self, value):
            self.value = value

        def packb(self):
            return bytes([self.value])

        @classmethod
        def unpackb(cls, data):
            return cls(data[0])

    value = serializer.loads(serializer.dumps({"a": (1, [None, b"x", (2.5, "y")]), 3: Mine(9)}))
    assert value["a"] == (1, [None, b"x", (2.5, "y")]) and value[3].value == 9
    with pytest.raises(TypeError, match="a set cannot be packed"):
        serializer.dumps({1})
    with pytest.raises(ValueError, match="belongs to Mine"):
        serializer.ext_serializable(0x61)(Mine)
    with pytest.raises(ValueError, match="import the module"):
        serializer.loads(b"\xc7\x01\x62\x00")


def test_rsa_keys_sign_where_cryptography_is_installed():
    """And elsewhere say what to install; nothing of hivemind_c needs them."""
    import importlib.util

    from hivemind_c.utils.crypto import RSAPrivateKey, RSAPublicKey

    if importlib.util.find_spec("cryptography") is None:
        for use in RSAPrivateKey, RSAPrivateKey.process_wide, lambda: RSAPublicKey.from_bytes(b"ssh-rsa AAAA"):
            with pytest.raises(ImportError, match="pip install cryptography, or use the node's own key"):
                use()
        return
    key = RSAPrivateKey.process_wide()
    public = RSAPublicKey.from_bytes(key.get_public_key().to_bytes())
    signature = key.sign(b"data")
    assert (
        public == key.get_public_key()
        and key is RSAPrivateKey.process_wide()
        and key.to_bytes() != RSAPrivateKey().to_bytes()
    )
    assert (
        public.verify(b"data", signature)
        and not public.verify(b"other", signature)
        and not public.verify(b"data", b"no base64!")
    )
    assert not RSAPrivateKey().get_public_key().verify(b"data", signature)


def test_timed_values_end():
    store, now = TimedStorage(maxsize=2), get_dht_time()
    assert (
        store.store("a", 1, now + 9)
        and store.store("b", 2, now + 0.1)
        and not store.store("a", 3, now + 5)
        and not store.store("c", 1, now - 1)
    )
    assert store.top() == ("b", (2, now + 0.1)) and store.get("a").value == 1 and len(store) == 2
    assert (
        store.store("c", 3, now + 7)
        and "b" not in store
        and dict(store.items()) == {"c": (3, now + 7), "a": (1, now + 9)}
    )
    del store["a"]
    store.store("d", 4, get_dht_time() + 0.05)
    with store.freeze():
        time.sleep(0.1)
        assert "d" in store
    assert "d" not in store and store
    store.clear()
    assert not store and store.top() == (None, None)


def test_coroutines_pass_values_through():
    async def slow():
        yield 1
        await asyncio.sleep(10)
        yield 2

    async def squares(n):
        return [
            value
            async for value in amap_in_executor(
                lambda a, b: a * b, iter_as_aiter(range(n)), iter_as_aiter(range(n)), max_prefetch=2
            )
        ]

    async def all_of_it():
        assert [pair async for pair in azip(as_aiter(1, 2, 3), as_aiter("a", "b"))] == [(1, "a"), (2, "b")]
        assert [pair async for pair in aenumerate(achain(as_aiter("a"), as_aiter("b")))] == [(0, "a"), (1, "b")]
        assert await asingle(as_aiter(5)) == 5 and await anext(as_aiter(6, 7)) == 6
        for wrong in (as_aiter(), as_aiter(1, 2)):
            with pytest.raises(ValueError, match="exactly one"):
                await asingle(wrong)
        with pytest.raises(asyncio.TimeoutError):
            assert [value async for value in aiter_with_timeout(slow(), 0.05)] == []
        assert await squares(7) == [0, 1, 4, 9, 16, 25, 36]
        with pytest.raises(ZeroDivisionError):
            async for _ in amap_in_executor(lambda one: 1 / one, as_aiter(1, 0)):
                pass
        lock = threading.Lock()
        async with enter_asynchronously(lock):
            assert lock.locked()
        assert not lock.locked()
        assert await cancel_and_wait(asyncio.get_running_loop().create_task(asyncio.sleep(60)))

    loop = hivemind.utils.switch_to_uvloop()
    try:
        loop.run_until_complete(asyncio.wait_for(all_of_it(), 60))
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def test_the_limit_of_open_files_is_never_lowered():
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hivemind.utils.increase_file_limit(16, 16)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    hivemind.utils.increase_file_limit(before[0], before[1])
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_an_optimizers_state_goes_flat_and_comes_back():
    from hivemind_c.optim.state_averager import (
        LRSchedulerBase,
        dump_optimizer_state,
        initialize_optimizer_state_,
        load_optimizer_state,
    )

    def adam(decay=0.1):
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=decay)

    (one, first), (other, second) = adam(), adam()
    for _ in range(3):
        one(torch.ones(3)).sum().backward()
        first.step()
    before = [p.clone() for p in other.parameters()]
    with pytest.raises(ValueError, match="initialize_optimizer_state_"):
        load_optimizer_state(second, *dump_optimizer_state(first))
    initialize_optimizer_state_(second)
    assert all(torch.equal(p, was) and p.grad is None for p, was in zip(other.parameters(), before))
    flat, tensors = dump_optimizer_state(first)
    assert {entry["type"] for entry in flat} == {"value", "tensor"} and len(tensors) == 6
    load_optimizer_state(second, flat, tensors)
    for p, q in zip(one.parameters(), other.parameters()):
        assert all(torch.equal(first.state[p][name], second.state[q][name]) for name in first.state[p])
    assert issubclass(torch.optim.lr_scheduler.ExponentialLR, LRSchedulerBase)
    assert hivemind.utils.math.get_flatten_greedy_dims(torch.zeros(2, 3, 4)) == (6, 4)
