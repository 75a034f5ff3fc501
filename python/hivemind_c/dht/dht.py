"""The DHT class: one node of the DHT in this process, under the names of hivemind."""

from __future__ import annotations

import inspect
import logging
import math
import os
import time
from functools import cached_property
from typing import Any, Awaitable, Callable, Iterable, Optional, Tuple, TypeVar, Union

import _hivemind_c
from _hivemind_c import Future, HivemindConnectionError, HivemindError, HivemindLookupError, HivemindTimeoutError

from hivemind_c import _invitation, _issued
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

CALM_S = 30.0  #: without a failure, after which the next one is a warning again
LOOPBACK = "/ip4/127.0.0.1/tcp/0"
QUESTIONS_MAX = 64  #: of one lookup at a time; the core's limit
# the network's doing: told in the log when it begins, and answered with False or None
_MISSED = {"UNREACHABLE", "TIMEOUT"}


class DHT:
    """One node of the DHT, which runs in this process and can be used from any thread.

    docs/reference/dht.md shows how to store, get and sign records. 0 or None for a limit is its default.

    Args:
        initial_peers: Multiaddrs or HOST:PORT of peers, as a list or a string with commas. None: begin a swarm.
        start: Start at once. False: run_in_background() starts it.
        daemon: Accepted without effect, because the node runs in this process.
        num_workers: Accepted without effect.
        record_validators: Checks for each record that this program stores or gets; see RecordValidatorBase.
        shutdown_timeout: Seconds that shutdown() waits for coroutines of run_coroutine().
        await_ready: Return from the start once an initial peer has answered.
        host_maddrs: Addresses to listen on. The default can be reached from this machine only.
        announce_maddrs: Addresses that other peers are given instead of those found out.
        identity_path: File with the key of this peer, so that its peer ID lasts. It is made if it is missing.
        client_mode: Only dial out: ask other nodes, and serve none.
        wait_timeout: Seconds to wait for the answer of one node.
        bootstrap_timeout: Seconds for an initial peer to answer. None: as wait_timeout.
        ensure_bootstrap_success: Raise an error if no initial peer answers. False: keep trying in the background.
        use_ipfs: Accepted with a warning: peers are found through initial_peers.
        use_relay: Accepted with a warning: peers connect to each other directly.
        use_auto_relay: Accepted with a warning, as use_relay.
        bucket_size: Nodes at one distance that this node remembers. 0: 20.
        num_replicas: Nodes that keep each record, at most 20. 0: 5.
        parallel_rpc: Questions that one lookup asks at a time. None or 0: 4. Above 64: 64, with a warning.
        cache_size: Records that this node remembers after it got them. None or 0: 4,096.
        cache_locally: Remember, for some seconds, each record that this node got.
        cache_nearest: Nodes near a key that are given a copy after a get, if they had none.
        refresh_timeout: Seconds without a lookup after which a bucket is refreshed. None: 600.
        blacklist_time: Seconds for which a node that did not answer is not asked.
        backoff_rate: Factor by which that time grows with each further failure.
        startup_timeout: Seconds that the start waits for an initial peer in all.
        keep_file_limit: Leave this process's limit on open files. False: a node that listens raises it (to 65,536).
        open_port: Ask this machine's router to open the port (NAT-PMP, UPnP), if this machine's address is private.
        swarm_key: Key of a closed swarm, a path or its text. None: the variable HIVEMIND_SWARM_KEY, if it is set.
        invite: Invitation to a closed swarm, a text or a path, which is read again. None: the variable INVITE, if set.
        closed: It is an error if there is neither a swarm key nor an invitation. False: the swarm is open then.
        upload_mbit: Most megabits per second that averages and states of this peer send. None: no limit.
        authorizer: Not supported: a value other than None is an error. invite closes a swarm.
        **options: Other options of hivemind: no_listen is client_mode, nat_port_map is open_port, others do nothing.
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
        keep_file_limit: bool = False,
        open_port: bool = True,
        swarm_key: _invitation.SecretOrPath = None,
        invite: _invitation.SecretOrPath = None,
        closed: bool = False,
        upload_mbit: Optional[float] = None,
        authorizer: Any = None,
        **options: Any,
    ):
        dials_out, opens = options_of.check(options, OPTIONS)
        client_mode = dials_out or client_mode
        self.num_workers, self.kwargs = num_workers, options
        if authorizer is not None:
            raise NotImplementedError(
                "authorizer is not supported; remove it, and give invite= or swarm_key= to each peer of a closed swarm "
                "(docs/howto/private-swarm.md)"
            )
        if use_ipfs:
            logger.warning("ignoring use_ipfs: this DHT finds peers through initial_peers, not through IPFS")
        if use_relay or use_auto_relay:
            logger.warning(
                "ignoring use_relay: peers connect to each other directly; a peer that others cannot reach uses "
                "client_mode=True"
            )
        self._troubled_at = -math.inf  # when a question failed for want of others
        self._pending = check_validators(record_validators)
        self._validators, self._runner = Validators(), Runner()
        self._client_mode = bool(client_mode)
        self._initial_peers = _texts(initial_peers, "initial_peers")
        self._ensure, self._shutdown_timeout, self._startup_timeout = (
            ensure_bootstrap_success,
            options_of.limit(shutdown_timeout, "shutdown_timeout") or 0.0,
            startup_timeout,
        )
        patience = options_of.limit(bootstrap_timeout, "bootstrap_timeout")
        self._bootstrap_timeout = wait_timeout if patience is None else patience
        self._node = Node(
            None if client_mode else host_maddrs,
            initial_peers=self._initial_peers,
            announce=announce_maddrs,
            identity_path=identity_path,
            client_mode=self._client_mode,
            start=False,
            keep_file_limit=keep_file_limit,
            open_port=open_port and opens,
            swarm_key=swarm_key,
            invite=invite,
            closed=closed,
            upload_mbit=upload_mbit,
            dht=dict(
                bucket_size=bucket_size,
                num_replicas=num_replicas,
                parallel_rpc=_questions(parallel_rpc),
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
        """Starts the node, unless it runs.

        Args:
            await_ready: Return once an initial peer has answered, if there are initial peers.
            timeout: Longest time in seconds to wait for it. None: startup_timeout.
        """
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
        """Waits until an initial peer has answered, if there are any and ensure_bootstrap_success holds.

        Args:
            timeout: Longest time in seconds to wait. None: startup_timeout.
        """
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
                    raise HivemindTimeoutError(
                        f"no initial peer has answered within {timeout:g} s: {', '.join(self._initial_peers)}"
                    ) from None
            except HivemindConnectionError:  # each has been tried: a swarm that starts all at once deserves another try
                if time.monotonic() - begin >= min(self._bootstrap_timeout, timeout):
                    raise
                time.sleep(pause)
            pause = min(2 * pause, 0.5)

    @property
    def bootstrap_timeout(self) -> float:
        """Seconds for an initial peer to answer."""
        return self._bootstrap_timeout

    def shutdown(self) -> None:
        """Leaves the swarm and stops the node. Unfinished calls raise an error. May be called twice."""
        self._node.shutdown()
        self._runner.stop(self._shutdown_timeout)

    def is_alive(self) -> bool:
        """True if the node was started and has not been shut down."""
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
        """The ID of this peer, a digest of its public key."""
        return PeerID(self._node.peer_id)

    @property
    def initial_peers(self) -> Tuple[str, ...]:
        """The addresses of initial_peers, as they were given."""
        return self._initial_peers

    @property
    def client_mode(self) -> bool:
        """True if this node only dials out."""
        return self._client_mode

    def get_visible_maddrs(self, latest: bool = False) -> list[Multiaddr]:
        """Returns the addresses under which other peers reach this node, the best one first.

        Other peers give them as initial_peers.

        Args:
            latest: Accepted without effect: the addresses are always the latest.
        """
        return [Multiaddr(address) for address in self._node.addresses]

    def limit_upload(self, mbit: Optional[float]) -> None:
        """Limits what averages and states of this peer send together. Heartbeats do not wait for them.

        Args:
            mbit: Megabits per second, 1 or more. None: no limit.
        """
        self._node.limit_upload(mbit)

    @property
    def core(self) -> _hivemind_c.Node:
        """The node in C. Raises HivemindError before run_in_background()."""
        return self._node.core

    @cached_property
    def proof(self) -> bytes:
        """The proof that this peer is a member of its closed swarm, which is no secret. Empty: the swarm is open."""
        return self.core.proof()

    def client_node(self) -> Node:
        """Returns a new node that only dials out and joins the swarm through this one."""
        mine = self._node._config
        return Node(
            initial_peers=[str(address) for address in self.get_visible_maddrs()],
            client_mode=True,
            swarm_key=mine["swarm_key"],
            invite=mine["invite"],
        )

    @property
    def membership(self) -> str:
        """The ID and name of this peer's invitation, or "holder" with the swarm key. Empty: the swarm is open."""
        return self._node.membership

    def invitation_to_print(self, name: str = "") -> str:
        """Returns "INVITE=hvi1..." for a line that invites other peers. Empty: the swarm is open.

        A holder of the key has one invitation of that name, for seven days at a time, and a guest shows its own.

        Args:
            name: Name of the invitation.
        """
        return _issued.to_print(self._node._config, name)

    def check_admission(self) -> None:
        """Raises HivemindPermissionError if the swarm does not admit this peer, or not any more."""
        self._node.check_admission()

    def state(self) -> dict[str, int]:
        """Returns counters of this node by name.

        They are live peers, contacts, records kept and their bytes, own records that it renews (published), calls made,
        questions asked in them, and bytes of memory in use (memory).
        """
        return self.core.dht_look().result()

    # ---- store and get ----

    def store(
        self,
        key: DHTKey,
        value: DHTValue,
        expiration_time: DHTExpiration,
        subkey: Optional[Subkey] = None,
        return_future: bool = False,
        **effort: Any,
    ) -> Union[bool, DHTFuture[bool]]:
        """Stores a value under a key, or in the dictionary under the key if a subkey is given.

        Returns True if nodes keep the value. Returns False if a record that lives longer is there, if expiration_time
        has passed, or if the network failed, which the log reports. Invalid arguments and keys of other owners raise an
        error.

        Args:
            key: Text or bytes, at most 1,024 bytes.
            value: Numbers, text, bytes, and lists, tuples and dicts of them, at most 65,536 bytes when packed.
            expiration_time: Moment in get_dht_time() at which the record ends.
            subkey: Name of an entry in the dictionary under the key. None: the key has one value.
            return_future: Return a DHTFuture at once instead of the result.
            **effort: Names that hivemind has for how hard to try. They have no effect.
        """
        options_of.check_effort("store", effort, ("key", "value", "expiration_time", "subkey", "return_future"))
        left = ttl_ms(expiration_time)
        key_, subkey_ = key_bytes(key), None if subkey is None else pack(subkey)
        packed = self._validators.sign(DHTRecord(key_, subkey_, pack(value), expiration_time))
        if left <= 0:
            logger.debug("the value of %r was not stored: its expiration_time is %.3g s in the past", key, -left / 1000)
            return DHTFuture.of(False) if return_future else False
        future = self.core.dht_store(key_, subkey_, packed, left)
        reply = DHTFuture(future, lambda future, timeout: self._stored(future, timeout, key))
        return reply if return_future else _wait(reply)

    def get(
        self, key: DHTKey, latest: bool = False, return_future: bool = False, **effort: Any
    ) -> Union[None, ValueWithExpiration, DHTFuture[Optional[ValueWithExpiration]]]:
        """Returns the value under a key and its expiration time, or None.

        The value of a key with subkeys is a dict {subkey: (value, expiration_time)}. None means that there is no
        record, or that the network failed, which the log reports.

        Args:
            key: Text or bytes.
            latest: Ask all nodes that may have the record for the newest. False: believe the first that agree.
            return_future: Return a DHTFuture at once instead of the result.
            **effort: Names that hivemind has for how hard to try. sufficient_expiration_time means latest.
        """
        options_of.check_effort("get", effort, ("key", "latest", "return_future"))
        latest = bool(latest or effort.get("sufficient_expiration_time"))
        future = self.core.dht_get(key_bytes(key), latest)
        reply = DHTFuture(future, lambda future, timeout: self._got(future, timeout, key))
        return reply if return_future else _wait(reply)

    def _stored(self, future: Future, timeout: Optional[float], key: DHTKey) -> bool:
        try:
            stored = future.result(timeout) > 0
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
        """Once, until nothing fails for CALM_S; the first of a swarm is alone for a while, and that is no news."""
        alone, now = not self._initial_peers and not self._client_mode, time.monotonic()
        # a record that this node keeps itself is found between two that others keep
        known, self._troubled_at = now - self._troubled_at < CALM_S, now
        logger.log(logging.DEBUG if alone or known else logging.WARNING, "%s", text)

    # ---- extensions ----

    def add_validators(self, record_validators: Iterable[RecordValidatorBase]) -> None:
        """Adds checks for the records that this program stores or gets.

        Args:
            record_validators: Objects of classes derived from RecordValidatorBase.
        """
        self._validators.add(check_validators(record_validators), self)

    def run_coroutine(self, coro: Callable[["DHT", "DHTNode"], Awaitable[Result]], return_future: bool = False):
        """Runs a coroutine in a thread of the DHT, and returns its result.

        Args:
            coro: An async function of (dht, node), where node is a DHTNode.
            return_future: Return a concurrent.futures.Future at once instead of the result.
        """
        _ = self.core  # an error, unless the node was started
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


DHTNode._new_dht = DHT
OPTIONS = list(inspect.signature(DHT).parameters)


async def _as_coroutine(coro: Callable[[DHT, DHTNode], Awaitable[Result]], dht: DHT) -> Result:
    return await coro(dht, DHTNode(dht))


def _wait(reply: DHTFuture[Result]) -> Result:
    try:
        return reply.result()
    except BaseException:
        reply.cancel()  # Ctrl-C, for one
        raise


def _questions(parallel_rpc: Optional[int]) -> int:
    """Returns the questions of a lookup at a time, within the core's limit. 0: its default."""
    if isinstance(parallel_rpc, int) and parallel_rpc > QUESTIONS_MAX:
        logger.warning("using parallel_rpc=%d, which is the limit, instead of %d", QUESTIONS_MAX, parallel_rpc)
        return QUESTIONS_MAX
    return parallel_rpc or 0


def _ms(seconds: Optional[float], name: str) -> int:
    return round((options_of.limit(seconds, name) or 0) * 1000)
