"""A node: one peer of a swarm, running in this process."""

from __future__ import annotations

import logging
import os
import threading
import time
from types import MappingProxyType
from typing import Iterable, Mapping, NamedTuple, Optional, Tuple, Union

import _hivemind_c

from hivemind_c import _grpc_holes, _invitation, _log, _notebook, _stderr
from hivemind_c._denials import Denials
from hivemind_c._renewal import Renewal

Addresses = Union[str, Iterable[str], None]


logger = logging.getLogger("hivemind_c.node")
MEGABIT = 125_000  #: bytes


class Peer(NamedTuple):
    """Another peer, as this node knows it."""

    peer_id: str
    address: Optional[str]  #: None: it cannot be dialled (client mode)
    client_mode: bool
    rtt: float  #: seconds there and back, when last asked
    seen_ago: float  #: seconds since it was last heard
    version: int = 1  #: version of the protocol that this node and the peer use
    membership: str = ""  #: as its certificate proves: "inv-3f9a... lab-3", or "holder"; empty: the swarm is open


class Port(NamedTuple):
    """The router's answer about a node's port."""

    open: bool  #: it says that the port is open; other peers check that before the address is announced
    text: str  #: one sentence; empty: no answer yet, or the router was not asked


def _rate(mbit: Optional[float]) -> int:
    """Bytes per second; 0: no limit."""
    if mbit is None:
        return 0
    if not 1 <= mbit <= 1e6:
        raise ValueError(f"upload_mbit must be a number of Mbit/s from 1 to 1,000,000, or None, not {mbit!r}")
    return round(mbit * MEGABIT)


class Node:
    """One peer: its identity, its ports and its connections. It can be used from any thread.

    A node stops by shutdown(), at the end of its `with` block, when it is dropped, or when the program ends. At log
    level "info" it logs more if HIVEMIND_LOGLEVEL asks for it.

    Args:
        listen: Multiaddrs or HOST:PORT to listen on, as a list or a string with commas. None: a free port everywhere.
        initial_peers: Addresses of running peers, as a list or a string with commas.
        announce: Addresses that other peers are given instead of those found out.
        identity_path: File with the key of this peer. It is made if it is missing.
        client_mode: Only dial out.
        insecure: Use no TLS, for benchmarks and closed networks only.
        pool_threads: Worker threads of the node. 0: chosen automatically.
        memory_limit: Most bytes of memory that the node may use. 0: no limit.
        log_level: Lowest level of lines for the loggers below "hivemind_c", as in logging.
        start: Start at once. False: start() or the `with` block starts it.
        dht: Settings of the DHT, as hivemind_c.DHT makes them.
        keep_file_limit: Leave this process's limit on open files. False: a node that listens raises it (to 65,536).
        open_port: Ask this machine's router to open the port (NAT-PMP, UPnP), if this machine's address is private.
        swarm_key: Key of a closed swarm, a path or its text. None: the variable HIVEMIND_SWARM_KEY, if it is set.
        invite: Invitation to a closed swarm, a text or a path, which is read again. None: the variable INVITE, if set.
        closed: It is an error if there is neither a swarm key nor an invitation. False: the swarm is open then.
        upload_mbit: Most megabits per second that averages, states and parcels of this peer send. None: no limit.
    """

    started_in: Optional[int] = None  #: the process that has started a node; forked from it, another cannot

    def __init__(
        self,
        listen: Addresses = None,
        *,
        initial_peers: Addresses = None,
        announce: Addresses = None,
        identity_path: Union[str, os.PathLike, None] = None,
        client_mode: bool = False,
        insecure: bool = False,
        pool_threads: int = 0,
        memory_limit: int = 0,
        log_level: Union[int, str] = "info",
        start: bool = True,
        dht: Mapping[str, int] = MappingProxyType({}),
        keep_file_limit: bool = False,
        open_port: bool = True,
        swarm_key: _invitation.SecretOrPath = None,
        invite: _invitation.SecretOrPath = None,
        closed: bool = False,
        upload_mbit: Optional[float] = None,
    ):
        self._upload_rate = _rate(upload_mbit)
        self._starting = threading.Lock()
        self._ended = False
        self._node: Optional[_hivemind_c.Node] = None
        self._denials: Optional[Denials] = None
        self._renewal: Optional[Renewal] = None
        self._files_at = 0.0  # when to look at its files again
        self._config = dict(
            listen=_texts(listen, "listen"),
            initial_peers=_texts(initial_peers, "initial_peers"),
            announce=_texts(announce, "announce"),
            identity_path=identity_path,
            client_mode=client_mode,
            insecure=insecure,
            pool_threads=pool_threads,
            memory_limit=memory_limit,
            log_level=_level(log_level),
            dht=dict(dht),
            keep_file_limit=keep_file_limit,
            open_port=open_port,
            **_invitation.credentials(swarm_key, invite, closed),
        )
        if insecure and (self._config["swarm_key"] or self._config["invite"]):
            raise ValueError(
                "cannot start a node: without TLS (insecure=True) no peer can prove that it was invited; remove "
                "insecure, or the swarm key and the invitation"
            )
        if start:
            self.start()

    def start(self) -> "Node":
        """Starts the node, unless it was started. Its ports are open when this returns."""
        with self._starting:
            if self._node is None:
                _notebook.replace(self._is_in_the_way, "the node")
                secrets = {name: self._config[name] and self._config[name].reveal() for name in ("swarm_key", "invite")}
                Node.started_in = os.getpid()
                self._node = _hivemind_c.Node(**{**self._config, **secrets, "denials": self._kept_denials()})
                self._node.limit_upload(self._upload_rate)
                _log.watch(self)
                _grpc_holes.tell()
                _notebook.made_here(self)
        return self

    def _kept_denials(self) -> bytes:
        """The list of denials that this node kept before, and sets where it keeps it."""
        key, guest = self._config["swarm_key"], self._config["invite"]
        if not key and not guest:
            return b""
        if guest and not key:
            self._renewal = Renewal(guest)
        self._denials = Denials(key, guest, self._config["identity_path"])
        self._denials.say_if_not_kept()
        return self._denials.read()

    def look_at_files(self) -> None:
        """Called now and then: brings the list of denials and its file together, and reads a renewed invitation."""
        if self._denials is None or self._node is None or time.monotonic() < self._files_at:
            return
        self._files_at = time.monotonic() + 1
        try:
            missing = self._denials.keep(self._node.denials()[0])
            if missing is not None:
                self._node.deny(missing)
        except _hivemind_c.HivemindError as error:
            logger.warning("%s", error)
        try:
            self._read_renewed(self._node)
        except (_hivemind_c.HivemindError, OSError) as error:
            logger.warning("%s; the invitation that this peer has stays in use", error)

    def _read_renewed(self, node: _hivemind_c.Node) -> None:
        text = self._renewal and self._renewal.look()
        if not self._renewal or not text:
            return
        ends = time.gmtime(node.renew(text))
        self._renewal.took(text)
        self._config["invite"].renew(text)
        logger.info("the invitation of this peer is renewed: it ends %s UTC", time.strftime("%Y-%m-%d %H:%M", ends))

    def _is_in_the_way(self, other: object) -> bool:
        """True if the other node has a port or a key that this one needs."""
        if not isinstance(other, Node) or other is self or other._ended:
            return False
        mine, its = self._config, other._config
        ports = {address for address in map(str, mine["listen"]) if not address.endswith(("/tcp/0", ":0", ":*"))} & set(
            map(str, its["listen"])
        )
        return bool(ports) or mine["identity_path"] is not None and mine["identity_path"] == its["identity_path"]

    def shutdown(self) -> None:
        """Leaves the swarm and stops the node within two seconds. May be called twice.

        Unfinished calls raise an error that says so.
        """
        self._ended = True
        if self._node is not None:
            self._node.shutdown()
            _log.unwatch(self)

    def __enter__(self) -> "Node":
        return self.start()

    def __exit__(self, *exc_info) -> None:
        self.shutdown()

    @property
    def peer_id(self) -> str:
        """The ID of this peer in the text form of libp2p."""
        return self.core.peer_id

    @property
    def addresses(self) -> list[str]:
        """The addresses under which other peers reach this node, the best one first."""
        return self.core.addresses

    @property
    def port(self) -> Port:
        """The router's answer about this node's port."""
        return Port(*self.core.port[:2])

    @property
    def seen_at(self) -> str:
        """The multiaddr at which an initial peer sees this node's connection. Empty: none has answered yet."""
        return self.core.port[2]

    @property
    def membership(self) -> str:
        """The ID and name of this peer's invitation, or "holder" with the swarm key. Empty: the swarm is open."""
        return self.core.membership

    def check_admission(self) -> None:
        """Raises HivemindPermissionError if the swarm does not admit this peer, or not any more."""
        self.core.check_admission()

    def peers(self) -> list[Peer]:
        """Returns the peers that are alive."""
        return [Peer(*peer) for peer in self.core.peers().result()]

    def limit_upload(self, mbit: Optional[float]) -> None:
        """Limits what averages, states and parcels of this peer send together. Heartbeats do not wait for them.

        Args:
            mbit: Megabits per second, 1 or more. None: no limit.
        """
        self._upload_rate = _rate(mbit)
        if self._node is not None:
            self._node.limit_upload(self._upload_rate)

    def wait_for_peers(self, n: int = 1, timeout: Optional[float] = None) -> list[Peer]:
        """Waits until a number of peers are alive, and returns them.

        Args:
            n: Number of peers.
            timeout: Longest time in seconds to wait before HivemindTimeoutError. None: no limit.
        """
        future = self.core.wait_for_peers(n)
        try:
            future.result(timeout)
        except _hivemind_c.HivemindTimeoutError as error:
            if not future.cancel():
                raise
            known = len(self.peers())
            error.args = (f"only {known} of {n} peers were found within {timeout:g} s",)
            raise
        return self.peers()

    def echo(self, peer: Union[str, Peer], data, timeout: Optional[float] = 3, wait: bool = True):
        """Sends bytes to a peer and back, and returns them.

        Args:
            peer: A Peer or a peer ID.
            data: Up to 1 MiB.
            timeout: Longest time in seconds. None: no limit.
            wait: False: return a future at once.
        """
        future = self.core.echo(_peer_id(peer), data, timeout)
        return future.result() if wait else future

    def send(self, peer: Union[str, Peer], data, timeout: Optional[float] = None, wait: bool = True):
        """Sends a buffer to a peer without copying it. It has arrived when this returns.

        Args:
            peer: A Peer or a peer ID.
            data: Any C-contiguous buffer. With wait=False it must not change before the future is done.
            timeout: Longest time in seconds. None: no limit.
            wait: False: return a future at once.
        """
        future = self.core.send(_peer_id(peer), data, timeout)
        return future.result() if wait else future

    def receive(self, timeout: Optional[float] = None) -> Tuple[str, memoryview]:
        """Waits for the next buffer that a peer sent, and returns (peer ID, bytes where they arrived).

        Args:
            timeout: Longest time in seconds to wait before HivemindTimeoutError. None: no limit.
        """
        future = self.core.receive()
        try:
            return future.result(timeout)
        except _hivemind_c.HivemindTimeoutError as late:
            future.cancel()
            try:
                return future.result(1)  # it may have come in this very moment
            except _hivemind_c.HivemindError:
                raise late from None
        finally:
            future.cancel()  # after Ctrl-C: the next parcel is not for this call

    def __repr__(self) -> str:
        if self._node is None:
            return "<hivemind_c.Node, not started>"
        try:
            return f"<hivemind_c.Node {self._node.peer_id}>"
        except _hivemind_c.HivemindError as error:
            return f"<hivemind_c.Node: {error}>"

    @property
    def core(self) -> _hivemind_c.Node:
        """The node in C. Raises HivemindError before start()."""
        if self._node is None:
            raise _hivemind_c.HivemindError(
                "cannot use this node: it has not been started; call start(), or use it in a with block"
            )
        return self._node


def _level(log_level: Union[int, str]) -> int:
    level, wanted = _log.level_number(log_level), _stderr.wanted_level()
    return level if wanted is None or log_level != "info" else min(level, _log.level_number(wanted))


def _texts(addresses: Addresses, name: str) -> Tuple[str, ...]:
    if addresses is None:
        return ()
    if isinstance(addresses, str):
        return tuple(part.strip() for part in addresses.split(",") if part.strip())
    if isinstance(addresses, (bytes, bytearray)):
        raise TypeError(f"{name}: addresses must be text, not bytes")
    try:
        return tuple(addresses)
    except TypeError:
        raise TypeError(f"{name}: give one address or a list of them, not {addresses!r}") from None


def _peer_id(peer: Union[str, Peer]) -> str:
    return peer.peer_id if isinstance(peer, (Peer, Node)) else peer
