"""The DHT as coroutines see it: in DHT.run_coroutine, or in a program that has an event loop of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence, Union

from hivemind_c.dht.routing import DHTID
from hivemind_c.dht.values import DHTExpiration, DHTKey, DHTValue, Subkey, ValueWithExpiration
from hivemind_c.p2p import Multiaddr, PeerID

if TYPE_CHECKING:
    from hivemind_c.dht.dht import DHT


class DHTNode:
    """What coroutines have of a DHT: the same, to await."""

    def __init__(self, dht: "DHT"):
        self._dht = dht

    @classmethod
    async def create(cls, initial_peers: Any = None, **options: Any) -> "DHTNode":
        """A DHT of its own, with DHT's options; end it with shutdown()."""
        from hivemind_c.dht.dht import DHT

        options.setdefault("start", True)
        if "record_validator" in options:  # hivemind's name for it
            options["record_validators"] = options.pop("record_validator") or ()
        return cls(await asyncio.to_thread(DHT, initial_peers, **options))

    async def shutdown(self) -> None:
        await asyncio.to_thread(self._dht.shutdown)

    @property
    def peer_id(self) -> PeerID:
        return self._dht.peer_id

    @property
    def node_id(self) -> DHTID:
        """A place for this node among those of keys."""
        return DHTID.generate(self.peer_id.to_bytes())

    @property
    def is_alive(self) -> bool:
        return self._dht.is_alive()

    @property
    def client_mode(self) -> bool:
        return self._dht.client_mode

    async def get_visible_maddrs(self, latest: bool = False) -> list[Multiaddr]:
        return self._dht.get_visible_maddrs(latest)

    async def store(self, key: DHTKey, value: DHTValue, expiration_time: DHTExpiration, subkey: Optional[Subkey] = None, **effort: Any) -> bool:
        return await self._dht.store(key, value, expiration_time, subkey, return_future=True, **effort)

    async def get(self, key: DHTKey, latest: bool = False, **effort: Any) -> Optional[ValueWithExpiration]:
        return await self._dht.get(key, latest, return_future=True, **effort)

    async def get_many(
        self, keys: Iterable[DHTKey], sufficient_expiration_time: Optional[DHTExpiration] = None, *, latest: bool = False, **effort: Any
    ) -> dict[DHTKey, Optional[ValueWithExpiration]]:
        """All at once. sufficient_expiration_time: accepted for the latest: what is asked of the swarm and not of what is kept here."""
        latest = latest or bool(sufficient_expiration_time)
        replies = {key: self._dht.get(key, latest, return_future=True, **effort) for key in keys}
        return {key: await reply for key, reply in replies.items()}

    async def store_many(
        self,
        keys: Sequence[DHTKey],
        values: Sequence[DHTValue],
        expiration_time: Union[DHTExpiration, Sequence[DHTExpiration]],
        subkeys: Optional[Sequence[Optional[Subkey]]] = None,
        **effort: Any,
    ) -> dict[Any, bool]:
        """All at once; whether each was stored, by its key, or (key, subkey) where it has one."""
        keys = list(keys)
        until = [expiration_time] * len(keys) if isinstance(expiration_time, (int, float)) else list(expiration_time)
        inside = [None] * len(keys) if subkeys is None else list(subkeys)
        if not len(keys) == len(values) == len(until) == len(inside):
            raise ValueError(f"{len(keys)} keys, {len(values)} values, {len(until)} expiration times and {len(inside)} subkeys: give the same number of each")
        replies = [self._dht.store(key, value, end, subkey, return_future=True, **effort) for key, value, end, subkey in zip(keys, values, until, inside)]
        return {key if subkey is None else (key, subkey): await reply for key, subkey, reply in zip(keys, inside, replies)}
