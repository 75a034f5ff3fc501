"""The DHT as coroutines see it: in DHT.run_coroutine, or in a program that has an event loop of its own."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, ClassVar, Iterable, Optional, Protocol, Sequence, Union

from hivemind_c.dht.routing import DHTID
from hivemind_c.dht.runner import DHTFuture
from hivemind_c.dht.values import DHTExpiration, DHTKey, DHTValue, Subkey, ValueWithExpiration
from hivemind_c.p2p import Multiaddr, PeerID


class _Records(Protocol):
    """A DHT, as a DHTNode uses it."""

    @property
    def peer_id(self) -> PeerID: ...
    @property
    def client_mode(self) -> bool: ...
    def is_alive(self) -> bool: ...
    def shutdown(self) -> None: ...
    def get_visible_maddrs(self, latest: bool = False) -> list[Multiaddr]: ...
    def store(
        self,
        key: DHTKey,
        value: DHTValue,
        expiration_time: DHTExpiration,
        subkey: Optional[Subkey] = None,
        return_future: bool = False,
        **effort: Any,
    ) -> Union[bool, DHTFuture[bool]]: ...
    def get(
        self, key: DHTKey, latest: bool = False, return_future: bool = False, **effort: Any
    ) -> Union[None, ValueWithExpiration, DHTFuture[Optional[ValueWithExpiration]]]: ...


class DHTNode:
    """The methods of a DHT for coroutines, which await them.

    Args:
        dht: The DHT.
    """

    _new_dht: ClassVar[Callable[..., _Records]]  # the class DHT, which its own file sets

    def __init__(self, dht: _Records):
        self._dht = dht

    @classmethod
    async def create(cls, initial_peers: Any = None, **options: Any) -> "DHTNode":
        """Starts a DHT and returns its DHTNode. shutdown() ends it.

        Args:
            initial_peers: As in DHT.
            **options: Other options of DHT.
        """
        options.setdefault("start", True)
        if "record_validator" in options:  # hivemind's name for it
            options["record_validators"] = options.pop("record_validator") or ()
        return cls(await asyncio.to_thread(cls._new_dht, initial_peers, **options))

    async def shutdown(self) -> None:
        """Leaves the swarm and stops the DHT."""
        await asyncio.to_thread(self._dht.shutdown)

    @property
    def peer_id(self) -> PeerID:
        """The ID of this peer."""
        return self._dht.peer_id

    @property
    def node_id(self) -> DHTID:
        """The place of this node among those of keys."""
        return DHTID.generate(self.peer_id.to_bytes())

    @property
    def is_alive(self) -> bool:
        """True if the DHT was started and has not been shut down."""
        return self._dht.is_alive()

    @property
    def client_mode(self) -> bool:
        """True if this node only dials out."""
        return self._dht.client_mode

    async def get_visible_maddrs(self, latest: bool = False) -> list[Multiaddr]:
        """Returns the addresses under which other peers reach this node, the best one first.

        Args:
            latest: Accepted without effect: the addresses are always the latest.
        """
        return self._dht.get_visible_maddrs(latest)

    async def store(
        self,
        key: DHTKey,
        value: DHTValue,
        expiration_time: DHTExpiration,
        subkey: Optional[Subkey] = None,
        **effort: Any,
    ) -> bool:
        """Stores a value, as DHT.store does.

        Args:
            key: Text or bytes, at most 1,024 bytes.
            value: Value of types that MessagePack has.
            expiration_time: Moment in get_dht_time() at which the record ends.
            subkey: Name of an entry in the dictionary under the key. None: the key has one value.
            **effort: Names that hivemind has for how hard to try. They have no effect.
        """
        return await self._dht.store(key, value, expiration_time, subkey, return_future=True, **effort)

    async def get(self, key: DHTKey, latest: bool = False, **effort: Any) -> Optional[ValueWithExpiration]:
        """Returns the value under a key and its expiration time, or None, as DHT.get does.

        Args:
            key: Text or bytes.
            latest: Ask all nodes that may have the record for the newest.
            **effort: Names that hivemind has for how hard to try. sufficient_expiration_time means latest.
        """
        return await self._dht.get(key, latest, return_future=True, **effort)

    async def get_many(
        self,
        keys: Iterable[DHTKey],
        sufficient_expiration_time: Optional[DHTExpiration] = None,
        *,
        latest: bool = False,
        **effort: Any,
    ) -> dict[DHTKey, Optional[ValueWithExpiration]]:
        """Gets several keys at once, and returns {key: (value, expiration_time) or None}.

        Args:
            keys: The keys.
            sufficient_expiration_time: A value means latest.
            latest: Ask all nodes that may have the records for the newest.
            **effort: Names that hivemind has for how hard to try. They have no effect.
        """
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
        """Stores several values at once, and returns {key: stored}, or {(key, subkey): stored} where there is a subkey.

        Args:
            keys: The keys.
            values: One value for each key.
            expiration_time: One moment in get_dht_time() for all, or one for each key.
            subkeys: One subkey or None for each key. None: no subkeys.
            **effort: Names that hivemind has for how hard to try. They have no effect.
        """
        keys = list(keys)
        until = [expiration_time] * len(keys) if isinstance(expiration_time, (int, float)) else list(expiration_time)
        inside = [None] * len(keys) if subkeys is None else list(subkeys)
        if not len(keys) == len(values) == len(until) == len(inside):
            raise ValueError(
                f"{len(keys)} keys, {len(values)} values, {len(until)} expiration times and {len(inside)} subkeys: "
                "give the same number of each"
            )
        replies = [
            self._dht.store(key, value, end, subkey, return_future=True, **effort)
            for key, value, end, subkey in zip(keys, values, until, inside)
        ]
        return {
            key if subkey is None else (key, subkey): await reply for key, subkey, reply in zip(keys, inside, replies)
        }
