"""The DHT: keys, subkeys, expiration, a coroutine, and a validator of one's own."""

import hivemind
from hivemind.dht.validation import DHTRecord, RecordValidatorBase
from hivemind.utils import MSGPackSerializer, ValueWithExpiration
from hivemind.utils.networking import choose_ip_address, log_visible_maddrs


class Capital(RecordValidatorBase):
    """Accepts texts that begin with a capital letter, under keys of people."""

    def validate(self, record: DHTRecord) -> bool:
        if not record.key.startswith(b"people"):
            return True
        return MSGPackSerializer.loads(record.value)[:1].isupper()

    @property
    def priority(self) -> int:
        return 1


dht = hivemind.DHT(
    host_maddrs=["/ip4/127.0.0.1/tcp/0"],
    initial_peers=[],
    start=True,
    record_validators=[Capital()],
    use_ipfs=False,
    parallel_rpc=8,
    num_workers=2,
    auto_nat=False,
)
other = hivemind.DHT(initial_peers=dht.get_visible_maddrs(), start=True, client_mode=True)
log_visible_maddrs(dht.get_visible_maddrs(), only_p2p=False)
assert choose_ip_address(dht.get_visible_maddrs()) == "127.0.0.1"

now = hivemind.get_dht_time()
assert dht.store("my_key", ("i", "love", "bees"), expiration_time=now + 600)
value, expiration = dht.get("my_key", latest=True)
assert value == ("i", "love", "bees") and abs(expiration - now - 600) < 1
assert dht.store("my_dictionary", subkey="key1", value=123, expiration_time=now + 600)
assert other.store("my_dictionary", subkey="key2", value=567, expiration_time=now + 600)
found = other.get("my_dictionary", latest=True)
assert isinstance(found, ValueWithExpiration) and {key: entry.value for key, entry in found.value.items()} == {
    "key1": 123,
    "key2": 567,
}
assert dht.store(("a", 1), 2.5, now + 60) and other.get(("a", 1)).value == 2.5
assert dht.store("my_key", "too late", now - 1) is False

assert dht.store("people.1", "Ada", now + 60)
try:
    dht.store("people.2", "ada", now + 60)
except ValueError as error:
    assert "Capital does not accept the record" in str(error)
else:
    raise AssertionError("the validator was not asked")

future = dht.get("my_key", return_future=True)
assert future.result().value == ("i", "love", "bees") and future.done() and not future.cancelled()


async def several(dht, node):
    await node.store_many(["k1", "k2"], [1, 2], expiration_time=hivemind.get_dht_time() + 60)
    return {key: entry.value for key, entry in (await node.get_many(["k1", "k2"])).items()}


assert dht.run_coroutine(several) == {"k1": 1, "k2": 2}
assert dht.run_coroutine(several, return_future=True).result() == {"k1": 1, "k2": 2}
dht.shutdown(), other.shutdown()
