"""The way to others: are their addresses right, do they answer, and can they dial back?"""

from __future__ import annotations

import concurrent.futures
import ipaddress
import os
import re
import socket
import time
from types import MappingProxyType
from typing import Any, Generator, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from hivemind_c import HivemindError, Node, _invitation, _variables
from hivemind_c.doctor.finding import FAULT, NOTE, OK, WARNING, Finding
from hivemind_c.doctor.settings import Settings
from hivemind_c.node import Port, _texts

DIALLED_MAX = 16  #: initial peers that are tried
VARIABLES = "INITIAL_PEERS", "PL_INITIAL_PEERS"
Findings = Generator[Finding, None, List[str]]


# ---- what was said ----


def check_environment(settings: Settings) -> Findings:
    """Gives the addresses of initial peers that can be read."""
    environment = os.environ if settings.environment is None else settings.environment
    said = {name: value for name in VARIABLES if (value := environment.get(name, "").strip())}
    if len(set(said.values())) > 1:
        yield Finding("environment", WARNING, "INITIAL_PEERS and PL_INITIAL_PEERS are both set and differ, and the first one counts: unset PL_INITIAL_PEERS")
    for name in _variables.unknown(environment):
        yield Finding("environment", WARNING, _variables.sentence(name))
    proxies = [name for name in ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "grpc_proxy") if environment.get(name)]
    if proxies:
        yield Finding("proxy", NOTE, f"{proxies[0]} is set, and peers dial each other directly without a proxy: if nobody answers below, ask for outgoing TCP to be allowed")
    source, given = "--initial_peers", _texts(tuple(settings.initial_peers), "initial_peers")
    if not given and said:
        source, given = next((name, _texts(value, name)) for name, value in said.items())
    peers = []
    for address in given:
        finding = unreadable(source, address)
        if finding is None:
            peers.append(address)
        else:
            yield finding
    if not given:
        yield Finding("initial peers", NOTE, "no initial peers are named, so a swarm would begin here: give --initial_peers, or set INITIAL_PEERS, to join one")
    elif len(peers) > DIALLED_MAX:
        yield Finding("initial peers", NOTE, f"{len(peers)} initial peers are named; the first {DIALLED_MAX} are tried")
    return peers[:DIALLED_MAX]


def check_credentials(settings: Settings) -> Optional[Finding]:
    """Reads the swarm key and the invitation for the nodes of the later checks. None: nothing is wrong with them."""
    try:
        settings.credentials = _invitation.of_command(settings.swarm_key, settings.invite)
    except (HivemindError, ValueError, OSError) as error:
        return Finding("invitation", FAULT, str(error))
    return None


def unreadable(source: str, address: str) -> Optional[Finding]:
    try:
        Node("/ip4/127.0.0.1/tcp/0", initial_peers=[address], log_level="error").shutdown()
    except (HivemindError, ValueError) as error:
        if getattr(error, "cause", "") == "other_transport":
            text = f"{address!r} in {source} is an address for another transport, like UDP (QUIC), and only TCP is supported: give the address of that peer with /tcp/ in it"
            return Finding("initial peers", FAULT, text)
        return Finding("initial peers", FAULT, f"{source} cannot be read: {error}")
    return None


def check_identity(settings: Settings) -> Iterator[Finding]:
    path = settings.identity_path
    if path is None:
        if not settings.client_mode:  # nobody dials it, so it has no address to keep
            now = "this peer gets a new key each time that it starts, and so another address"
            yield Finding("identity", NOTE, f"{now}: give identity_path to keep one")
        return
    if not os.path.exists(path):
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            yield Finding("identity", FAULT, f"the identity file {path} cannot be made, because its folder is not there: run mkdir -p {folder}")
        elif not os.access(folder, os.W_OK):
            yield Finding("identity", FAULT, f"the identity file {path} cannot be made, because its folder may not be written to: choose another folder, or run as its owner")
        else:
            yield Finding("identity", OK, f"the identity file {path} will be made when a peer starts with it")
        return
    try:
        with Node(client_mode=True, identity_path=path, log_level="error") as node:
            yield Finding("identity", OK, f"the identity file {path} is that of {node.peer_id}")
    except (HivemindError, OSError, ValueError) as error:
        yield Finding("identity", FAULT, str(error))


# ---- do they answer? ----


def dial(peers: Sequence[str], timeout: float, credentials: Mapping[str, Any] = MappingProxyType({})) -> Findings:
    """Gives those that answer."""
    answering: List[str] = []
    views: List[View] = []
    with concurrent.futures.ThreadPoolExecutor(max(1, len(peers))) as pool:
        for address, (finding, view) in zip(peers, pool.map(lambda address: _dial(address, timeout, credentials), peers)):
            yield finding
            if finding.level == OK:
                answering.append(address)
            views += [view] if view else []
    yield from check_nat(views)
    if peers and not answering:
        yield Finding("swarm", FAULT, "no initial peer answers, so this machine would train alone: see above why for each, or take addresses that a running peer prints now")
    return answering


class View(NamedTuple):
    """How another peer sees a connection of this machine."""

    host: str
    is_own_host: bool
    is_own_port: bool


def check_nat(views: Sequence[View]) -> Iterator[Finding]:
    """Compares the addresses at which other peers see this machine with its own."""
    foreign = [view for view in views if not view.is_own_host]
    if not views:
        return
    if not foreign:
        yield Finding("NAT", OK, f"peers see this machine at its own address ({', '.join(sorted({view.host for view in views}))}): no NAT is in between")
        return
    hosts = sorted({view.host for view in foreign})
    kind = "which keeps port numbers" if all(view.is_own_port for view in foreign) else "which changes port numbers"
    more = ", with several outer addresses" if len(hosts) > 1 else ""
    yield Finding(
        "NAT", NOTE, f"peers see this machine at {', '.join(hosts)}, which is not its own address: it is behind a NAT, {kind}{more}; others can dial it only "
        "if the router forwards its port, and without that it trains with client_mode=True through peers or a hub that can be dialled"
    )  # fmt: skip


def _view(seen: str) -> Optional[View]:
    """The view that a multiaddr tells; None: it tells nothing."""
    m = re.match(r"/ip[46]/([^/]+)/tcp/(\d+)", seen)
    mine = _sockets()
    own = {(host, port) for host, port, state, inode in _tables() if state == 0x01 and inode in mine}
    return View(m[1], m[1] in {host for host, _ in own}, int(m[2]) in {port for _, port in own}) if m else None


def _dial(address: str, timeout: float, credentials: Mapping[str, Any]) -> Tuple[Finding, Optional[View]]:
    node = Node(client_mode=True, initial_peers=[address], log_level=50, **credentials)
    try:
        found = node.wait_for_peers(1, timeout=timeout)
        peer = found[0]
        return Finding("initial peer", OK, f"{address} answers within {1000 * peer.rtt:.0f} ms as {peer.peer_id}"), _view(node.seen_at)
    except HivemindError as error:
        return Finding("initial peer", FAULT, why(address, error, timeout)), None
    finally:
        node.shutdown()


#: The doctor's sentence for each cause; for any other it shows the core's own sentence. docs/reference/error-causes.md lists the causes.
WORDS = {
    "refused": "nothing listens at {address} (the connection is refused): start the peer there, or correct the address and port",
    "timed_out": "{address} does not answer within {timeout:g} s: open its TCP port in the firewall there, and check that the peer still runs",
    "no_route": "there is no route from here to {address}: check the address and this machine's {family}, or give another address of that peer",
    "name_not_found": "the host name in {address} cannot be resolved: correct it, check this machine's DNS, or give the IP address",
    "not_a_peer": "another program than a peer answers at {address} (it does not speak TLS as peers do): correct the port, or use the address that the peer prints",
    "tls_version": "the program at {address} offers only old versions of TLS: correct the port, or install the current hivemind_c there",
    "bad_certificate": "the program at {address} cannot prove that it is a peer: correct the port, or use the address that the peer prints ({error})",
    "connection_lost": "{address} accepts the connection and then drops it: check that the peer still runs, and look into its log ({error})",
}
WHOLE = "other_peer", "protocol_version", "clock", "not_invited", "invitation_ended", "denied", "bad_invitation"  #: causes whose sentence from the core names the address and the remedy


def why(address: str, error: HivemindError, timeout: float) -> str:
    """Cause and remedy for an initial peer that does not answer. A cause that is new here is shown as it came."""
    if error.cause in WORDS:
        family = "IPv6" if "/ip6/" in address or "[" in address else "IPv4"
        return WORDS[error.cause].format(address=address, timeout=timeout, family=family, error=error)
    if error.cause in WHOLE:
        return str(error)
    return f"{address} does not answer ({error.cause}): {error}"


# ---- can they dial back? ----


def check_reachable(settings: Settings, answering: Sequence[str]) -> Iterator[Finding]:
    if settings.client_mode:
        yield Finding("reachable", NOTE, "in client mode nobody dials this machine: it can train, but reduces for nobody and is no initial peer")
        return
    node = Node(settings.host_maddrs or None, announce=settings.announce_maddrs, start=False, log_level=50)
    try:
        node.start()
    except (HivemindError, ValueError, OSError) as error:
        more = " (if that is your trainer, all is well: stop it for this test)" if getattr(error, "cause", "") == "address_in_use" else ""
        yield Finding("listening", FAULT, f"{error}{more}")
        return
    addresses = node.addresses
    node.shutdown()
    yield Finding("listening", OK, f"can listen; others would be told {', '.join(_without_peer(address) for address in addresses)}")
    if not any(_host(address) for address in addresses if not _loopback(address)):
        yield Finding(
            "addresses", WARNING, "only this machine can reach a peer that listens on loopback (127.0.0.1): listen on every interface, "
            "with host_maddrs=/ip4/0.0.0.0/tcp/31337"
        )  # fmt: skip
    elif all(_private(address) for address in addresses):
        yield Finding(
            "addresses", NOTE, "all addresses of this machine are private, so peers elsewhere reach it only if its router forwards the port: "
            "forward it and give the outer address as announce_maddrs, or take part with client_mode=True"
        )  # fmt: skip
    if answering:
        yield from _dialled_back(settings, answering)
    else:
        yield Finding("reachable", NOTE, "whether others can dial this machine is seen only with a peer that answers: give one as --initial_peers")


def _dialled_back(settings: Settings, answering: Sequence[str]) -> Iterator[Finding]:
    before = _listening()
    with Node(settings.host_maddrs or None, announce=settings.announce_maddrs, initial_peers=list(answering), log_level=50, **settings.credentials) as node:
        ports = _listening() - before
        deadline = time.monotonic() + settings.timeout
        came: Set[Tuple[str, int]] = set()
        while not came and time.monotonic() < deadline:
            time.sleep(0.1)
            came = connections(ports)
        outer = [] if settings.announce_maddrs else _outer(node, deadline)
        addresses = ", ".join(_without_peer(address) for address in node.addresses)
        yield from _gateway(node.port, outer)
    if came:
        yield Finding("reachable", OK, f"peers have dialled back, by {', '.join(f'{host} port {port}' for host, port in sorted(came))}")
    else:
        port = ", ".join(map(str, sorted(ports)))
        yield Finding(
            "reachable", FAULT, f"no peer could dial back to {addresses} within {settings.timeout:g} s: open TCP port {port} in the firewall, behind a router forward "
            "it and give the outer address as announce_maddrs, or take part with client_mode=True"
        )  # fmt: skip


def _outer(node: Node, deadline: float) -> List[str]:
    """The addresses besides this machine's own that other peers have dialled. If the router opened one, it waits for that."""
    own = _own_hosts()
    while True:
        outer = [_without_peer(address) for address in node.addresses if _host(address) not in own]
        if outer or not node.port.open or time.monotonic() >= deadline:
            return outer
        time.sleep(0.1)


def _own_hosts() -> Set[str]:
    with Node(log_level=50, open_port=False) as node:
        return {_host(address) for address in node.addresses}


def _gateway(said: Port, outer: Sequence[str]) -> Iterator[Finding]:
    """The router's answer about the port, and whether that was true."""
    if outer:
        yield Finding("router", OK, f"peers elsewhere are told {', '.join(outer)}")
    if said.text and not said.open:
        yield Finding("router", NOTE, f"{said.text}; forward the port at the router, turn on UPnP there, or run hivemind-hub on a machine that others can dial")
    elif said.open and not outer:
        yield Finding("router", WARNING, f"{said.text}, but no peer could dial it: the router may be behind another one; run hivemind-hub on a machine that others can dial")
    elif said.open:
        yield Finding("router", OK, said.text)


def _tables() -> Iterator[Tuple[str, int, int, int]]:
    """Of each TCP socket of this machine: its host and port here, the state, the inode."""
    for path, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        try:
            with open(path) as table:
                lines = table.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            host, port = words[1].split(":")
            raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8))
            yield socket.inet_ntop(family, raw).removeprefix("::ffff:"), int(port, 16), int(words[3], 16), int(words[9])


def _sockets() -> Set[int]:
    """The inodes of this process's sockets."""
    mine = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if m := re.match(r"socket:\[(\d+)\]", target):
            mine.add(int(m[1]))
    return mine


def _listening() -> Set[int]:
    """The ports at which this process listens now."""
    mine = _sockets()
    return {port for _, port, state, inode in _tables() if state == 0x0A and inode in mine}


def connections(ports: Set[int]) -> Set[Tuple[str, int]]:
    """By which host and port of this machine others are connected to these ports."""
    return {(host, port) for host, port, state, _ in _tables() if state == 0x01 and port in ports}


def _host(address: str) -> str:
    m = re.match(r"/(?:ip4|ip6|dns4|dns6|dns)/([^/]+)/", address)
    return m[1] if m else ""


def _loopback(address: str) -> bool:
    host = _host(address)
    return host.startswith("127.") or host in ("::1", "localhost")


def _private(address: str) -> bool:
    try:
        return ipaddress.ip_address(_host(address)).is_private
    except ValueError:
        return False  # a name


def _without_peer(address: str) -> str:
    return address.split("/p2p/")[0]


