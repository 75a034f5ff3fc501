"""A node of the DHT in this process, under the names that hivemind's users know."""

from __future__ import annotations

import inspect
import logging
import os
import time
from typing import Any, Awaitable, Callable, Iterable, Optional, Tuple, TypeVar, Union

from _hivemind_c import Future, HivemindConnectionError, HivemindError, HivemindLookupError, HivemindTimeoutError

from hivemind_c._signature import hides_options
from hivemind_c.dht import options as options_of
from hivemind_c.dht.node import DHTNode
from hivemind_c.dht.runner import DHTFuture, Runner
from hivemind_c.dht.validation import DHTRecord, RecordValidatorBase, Validators, check_validators
from hivemind_c.dht.values import (
    DHTExpiration,
    DHTKey,
    DHTValue,
    Subkey,
    ValueWithExpiration,
    get_dht_time,
    key_bytes,
    pack,
    ttl_ms,
    unpack,
)
from hivemind_c.node import Addresses, Node, _texts
from hivemind_c.p2p import Multiaddr, PeerID

logger = logging.getLogger("hivemind_c.dht")
Result = TypeVar("Result")

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
_MISSED = {"UNREACHABLE", "TIMEOUT"}  # the network's doing: told in the log when it begins, and answered with False or None


class DHT:
    """One node of the DHT. Usable from any thread; it runs in this process, so daemon, num_workers and await_ready's fork are nothing here.

    initial_peers: where others are, as a list or a string with commas, of multiaddrs or HOST:PORT; one that answers is enough. With none, a
    new swarm begins here. If none answers within bootstrap_timeout (wait_timeout by default) an error names each with its cause, unless
    ensure_bootstrap_success=False: then it goes on trying. host_maddrs: where to listen; announce_maddrs: what others are told instead.
    identity_path: the file with this peer's key, so that its address can be known beforehand. client_mode: ask, but do not serve.
    record_validators: see RecordValidatorBase. **options: hivemind's other options, most of them without effect (docs/MIGRATING.md). The rest are limits of the DHT itself (docs/DHT_USE.md); 0 or None is the default.
    """

    @hides_options
    def __init__(
        self,
        initial_peers: Addresses = None,
        *,
        start: bool,
        daemon: bool = True,
        num_workers: int = 4,
        record_validators: Iterable[RecordValidatorBase] = (),
        shutdown_timeout: float = 3,
        await_ready: bool = True,
        host_maddrs: Addresses = LOOPBACK,
        announce_maddrs: Addresses = None,
        identity_path: Union[str, os.PathLike, None] = None,
        client_mode: bool = False,
        wait_timeout: float = 3,
        bootstrap_timeout: Optional[float] = None,
        ensure_bootstrap_success: bool = True,
        use_ipfs: bool = False,
        use_relay: bool = False,
        use_auto_relay: bool = False,
        bucket_size: int = 20,
        num_replicas: int = 5,
        parallel_rpc: Optional[int] = None,
        cache_size: Optional[int] = None,
        cache_locally: bool = True,
        cache_nearest: int = 1,
        refresh_timeout: Optional[float] = None,
        blacklist_time: float = 5,
        backoff_rate: float = 2,
        startup_timeout: float = 15,
        authorizer: Any = None,
        **options: Any,
    ):
        client_mode = options_of.check(options, OPTIONS) or client_mode
        self.num_workers, self.kwargs = num_workers, options
        if authorizer is not None:
            raise NotImplementedError("authorizer is not supported: a swarm here is open to each peer that reaches it; remove authorizer, and restrict access in the network")
        if use_ipfs:
            logger.warning("ignoring use_ipfs: this DHT finds peers through initial_peers, not through IPFS")
        if use_relay or use_auto_relay:
            logger.warning("ignoring use_relay: peers connect to each other directly; a peer that others cannot reach uses client_mode=True")
        self._troubled = False
        self._pending = check_validators(record_validators)
        self._validators, self._runner = Validators(), Runner()
        self._client_mode = bool(client_mode)
        self._initial_peers = _texts(initial_peers, "initial_peers")
        self._ensure, self._shutdown_timeout, self._startup_timeout = ensure_bootstrap_success, shutdown_timeout, startup_timeout
        self._bootstrap_timeout = wait_timeout if bootstrap_timeout is None else bootstrap_timeout
        self._node = Node(
            None if client_mode else host_maddrs,
            initial_peers=self._initial_peers,
            announce=announce_maddrs,
            identity_path=identity_path,
            client_mode=self._client_mode,
            start=False,
            dht=dict(
                bucket_size=bucket_size,
                num_replicas=num_replicas,
                parallel_rpc=parallel_rpc or 0,
                cache_records=cache_size or 0,
                cache_locally=0 if cache_locally else -1,
                cache_nearest=cache_nearest or -1,
                wait_timeout_ms=_ms(wait_timeout, "wait_timeout"),
                refresh_ms=_ms(refresh_timeout, "refresh_timeout"),
                blacklist_ms=_ms(blacklist_time, "blacklist_time"),
                backoff_rate=round(backoff_rate),
            ),
        )
        if start:
            self.run_in_background(await_ready=await_ready)

    # ---- life ----

    def run_in_background(self, await_ready: bool = True, timeout: Optional[float] = None) -> None:
        """Starts it, unless it runs; with await_ready it has found others (if it was told of any) when this returns."""
        self._node.start()
        try:
            self.add_validators(self._pending)
            if await_ready:
                self.wait_until_ready(timeout)
        except BaseException:
            self.shutdown()
            raise

    start = run_in_background

    def wait_until_ready(self, timeout: Optional[float] = None) -> None:
        """Waits until it has found others, if it was told of any and must find them; startup_timeout by default."""
        if self._initial_peers and self._ensure:
            self._wait_for_others(self._startup_timeout if timeout is None else timeout)

    def _wait_for_others(self, timeout: float) -> None:
        begin = time.monotonic()
        pause = 0.05
        while True:
            left = begin + timeout - time.monotonic()
            try:
                self._node.wait_for_peers(1, timeout=max(0, min(pause, left)))
                return
            except HivemindTimeoutError:
                if self.state()["is_initial"]:
                    return  # the list names this node itself: it is the one that others come to
                if left <= 0:
                    raise HivemindTimeoutError(f"no initial peer has answered within {timeout:g} s: {', '.join(self._initial_peers)}") from None
            except HivemindConnectionError:  # each has been tried: a swarm that starts all at once deserves another try
                if time.monotonic() - begin >= min(self._bootstrap_timeout, timeout):
                    raise
                time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def shutdown(self) -> None:
        """Says goodbye and stops; what is under way ends with an error that says so. May be called twice."""
        self._node.shutdown()
        self._runner.stop(self._shutdown_timeout)

    def is_alive(self) -> bool:
        """Whether it has been started and not shut down."""
        try:
            return bool(self._node.peer_id and self.state())
        except HivemindError:
            return False

    def __enter__(self) -> "DHT":
        self.run_in_background()
        return self

    def __exit__(self, *exc_info) -> None:
        self.shutdown()

    # ---- who and where ----

    @property
    def peer_id(self) -> PeerID:
        return PeerID(self._node.peer_id)

    @property
    def initial_peers(self) -> Tuple[str, ...]:
        """Where others were looked for, as it was given."""
        return self._initial_peers

    @property
    def client_mode(self) -> bool:
        return self._client_mode

    def get_visible_maddrs(self, latest: bool = False) -> list[Multiaddr]:
        """Where others can reach this node, best first: what they give as initial_peers. They are the latest ones always."""
        return [Multiaddr(address) for address in self._node.addresses]

    def state(self) -> dict[str, int]:
        """Numbers: peers alive, contacts in the DHT, records kept here and their bytes, how many of its own it renews (published),
        how many calls to others it has made, how many questions were asked in them, and the bytes that this node holds, all told (memory)."""
        return self._node._started().dht_look().result()

    # ---- store and get ----

    def store(
        self, key: DHTKey, value: DHTValue, expiration_time: DHTExpiration, subkey: Optional[Subkey] = None, return_future: bool = False, **effort: Any
    ) -> Union[bool, DHTFuture[bool]]:
        """Keeps a value until expiration_time (in get_dht_time()), in the dictionary under key if there is a subkey.

        True: nodes keep it. False: something that lives longer is there, that time has passed, or the network failed (the log tells). Wrong arguments and
        keys of other owners are exceptions. effort: what hivemind takes to say how hard to try, without effect."""
        options_of.check_effort("store", effort, ("key", "value", "expiration_time", "subkey", "return_future"))
        left = ttl_ms(expiration_time)
        key_, subkey_ = key_bytes(key), None if subkey is None else pack(subkey)
        packed = self._validators.sign(DHTRecord(key_, subkey_, pack(value), expiration_time))
        if left <= 0:
            logger.debug("the value of %r was not stored: its expiration_time is %.3g s in the past", key, -left / 1000)
            return DHTFuture.of(False) if return_future else False
        future = self._node._started().dht_store(key_, subkey_, packed, left)
        reply = DHTFuture(future, lambda future, timeout: self._stored(future, timeout, key))
        return reply if return_future else _wait(reply)

    def get(self, key: DHTKey, latest: bool = False, return_future: bool = False, **effort: Any) -> Union[None, ValueWithExpiration, DHTFuture[Optional[ValueWithExpiration]]]:
        """The value under a key, and when it ends. Of a key with subkeys the value is a dict {subkey: (value, expiration_time)}.

        latest: ask all who may have it for the newest, instead of believing the first that agree. None: there is none, or the network
        failed (the log tells). effort: what hivemind takes to say how hard to try; sufficient_expiration_time means latest."""
        options_of.check_effort("get", effort, ("key", "latest", "return_future"))
        latest = bool(latest or effort.get("sufficient_expiration_time"))
        future = self._node._started().dht_get(key_bytes(key), latest)
        reply = DHTFuture(future, lambda future, timeout: self._got(future, timeout, key))
        return reply if return_future else _wait(reply)

    def _stored(self, future: Future, timeout: Optional[float], key: DHTKey) -> bool:
        try:
            stored = future.result(timeout) > 0
            self._troubled = False
            return stored
        except HivemindError as error:
            if not future.done() or error.status != "EXISTS" and error.status not in _MISSED:
                raise
            if error.status in _MISSED:
                self._tell(f"the value of {key!r} was not stored: {error}")
            return False

    def _got(self, future: Future, timeout: Optional[float], key: DHTKey) -> Optional[ValueWithExpiration]:
        try:
            records = future.result(timeout)
            self._troubled = False
        except HivemindLookupError:
            return None
        except HivemindError as error:
            if not future.done() or error.status not in _MISSED:
                raise
            self._tell(f"nobody could be asked for {key!r}: {error}")
            return None
        offset = get_dht_time() - time.monotonic()
        found = {}
        for subkey, value, end, _ in records:
            try:
                record = DHTRecord(key_bytes(key), subkey, value, end + offset)
                name = None if subkey is None else unpack(subkey)
                found[name] = ValueWithExpiration(unpack(self._validators.strip(record)), record.expiration_time)
            except Exception as error:  # a stranger's bytes, and whatever a validator makes of them
                logger.warning("ignoring a record of %r: %s", key, error)
        if not found:
            return None
        if records[0][0] is None:
            return found[None]
        return ValueWithExpiration(found, max(entry.expiration_time for entry in found.values()))

    def _tell(self, text: str) -> None:
        """Once, until something works again; the first of a swarm is alone for a while, and that is no news."""
        alone = not self._initial_peers and not self._client_mode
        logger.log(logging.DEBUG if alone or self._troubled else logging.WARNING, "%s", text)
        self._troubled = True

    # ---- extensions ----

    def add_validators(self, record_validators: Iterable[RecordValidatorBase]) -> None:
        self._validators.add(check_validators(record_validators), self)

    def run_coroutine(self, coro: Callable[["DHT", "DHTNode"], Awaitable[Result]], return_future: bool = False):
        """Runs coro(dht, node) in a thread of the DHT's own; returns what it returns, or a concurrent.futures.Future of it."""
        self._node._started()
        future = self._runner.run(_as_coroutine(coro, self))
        if return_future:
            return future
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C, for one
            raise

    def __repr__(self) -> str:
        return f"<hivemind_c.DHT on {self._node!r}>"


OPTIONS = list(inspect.signature(DHT).parameters)


async def _as_coroutine(coro: Callable[[DHT, DHTNode], Awaitable[Result]], dht: DHT) -> Result:
    return await coro(dht, DHTNode(dht))


def _wait(reply: DHTFuture[Result]) -> Result:
    try:
        return reply.result()
    except BaseException:
        reply.cancel()  # Ctrl-C, for one
        raise


def _ms(seconds: Optional[float], name: str) -> int:
    if seconds is None:
        return 0
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= 86400:
        raise ValueError(f"{name} must be from 0 to 86400 seconds, not {seconds!r}")
    return round(seconds * 1000)
