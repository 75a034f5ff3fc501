"""How a peer finds its swarm: initial peers from options or the environment, and the line that others paste."""

from __future__ import annotations

import ipaddress
import logging
import os
import shlex
import sys
import time
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from _hivemind_c import HivemindError, HivemindPermissionError

from hivemind_c.dht import DHT
from hivemind_c.node import Addresses, _texts
from hivemind_c.p2p import Multiaddr
from hivemind_c.utils.networking import reachable

logger = logging.getLogger("hivemind_c.strategy")
VARIABLES = "INITIAL_PEERS", "PL_INITIAL_PEERS"
CHECKPOINTS = "--ckpt", "--ckpt_path", "--ckpt-path"  #: options whose value is a checkpoint, "last" too


def initial_peers(given: Addresses, environment: Optional[Mapping[str, str]] = None) -> Tuple[str, ...]:
    """Those given (one, a string with commas, a list), else those of INITIAL_PEERS, else of PL_INITIAL_PEERS."""
    environment = os.environ if environment is None else environment
    for peers in (given, *(environment.get(name) for name in VARIABLES)):
        if found := _texts(peers, "initial_peers"):
            return found
    return ()


def without_checkpoint(command: Sequence[str]) -> List[str]:
    """Returns a command without the options that name a checkpoint: a peer that joins gets the state from the swarm.

    Args:
        command: Words such as "--ckpt_path=x.ckpt", or "--resume" and "x.ckpt" one after the other.
    """
    words: List[str] = []
    for word in command:
        option, equals, value = word.partition("=")
        if equals and option.startswith("-") and (option in CHECKPOINTS or value.endswith(".ckpt")):
            continue
        last = words[-1] if words else ""
        is_value = last.startswith("-") and "=" not in last and not word.startswith("-")
        if is_value and (last in CHECKPOINTS or word.endswith(".ckpt")):
            words.pop()
        else:
            words.append(word)
    return words


def join_line(addresses: Sequence[str], command: Optional[Sequence[str]] = None, invitation: str = "") -> str:
    """The line to paste into a shell elsewhere (in a notebook: into a cell) to run this program as another peer of the
    swarm.

    The line names no checkpoint. HIVEMIND_COMMAND is what people call the program, where something else started it.
    invitation is "INVITE=..." in a closed swarm."""
    peers = ",".join(addresses)
    words = f"{invitation} INITIAL_PEERS={shlex.quote(peers)}".strip()
    if command is None and (called := os.environ.get("HIVEMIND_COMMAND")):
        return f"{words} {called}"
    command = sys.orig_argv if command is None else command
    if any("ipykernel" in word for word in command):
        return "\n".join(f"%env {word}" for word in filter(None, (invitation, f"INITIAL_PEERS={peers}")))
    return f"{words} {shlex.join(without_checkpoint(command))}"


def start(peers: Sequence[str], patience: float, **options: Any) -> DHT:
    """A DHT that has found its peers; if none answers in time it says why, each by its address, and goes on trying
    while training begins. If the swarm is closed and does not admit this peer, it raises the error.
    """
    dht = DHT(peers, start=True, ensure_bootstrap_success=False, **options)
    try:
        if peers:
            dht._wait_for_others(patience)
    except HivemindPermissionError:
        dht.shutdown()
        raise
    except HivemindError as error:
        logger.warning("training begins alone, and this peer keeps looking for the swarm: %s", error)
        dht._troubled_at = time.monotonic()  # that has been told
    except BaseException:
        dht.shutdown()
        raise
    return dht


def _of_private(addresses: Sequence[str]) -> str:
    """A line for people whose machines are in several networks, if all addresses are private."""
    hosts = [Multiaddr(address).get("ip4") or Multiaddr(address).get("ip6") for address in addresses]
    known = [ipaddress.ip_address(host) for host in hosts if host is not None]
    if len(known) < len(hosts) or any(one.is_global or one.is_loopback for one in known) or not known:
        return ""
    return (
        f"\n{hosts[0]} is a private address, so only machines of this network can use that line. For others give "
        "announce_maddrs with the public address, or see docs/howto/open-a-port.md.\n"
    )


def invite(dht: DHT) -> str:
    """Tells the two ways in which others join, and returns the line that they run."""
    addresses = reachable(dht.get_visible_maddrs())
    line = join_line(addresses, invitation=dht.invitation_to_print("trainer"))
    print(
        f"\nA swarm begins here. To join it, run this on other machines, any number of them:\n\n{line}\n\n"
        f'or give them the addresses in the program: HivemindStrategy(initial_peers="{",".join(addresses)}", ...)\n'
        f"{_of_private(addresses)}",
        flush=True,
    )
    return line
