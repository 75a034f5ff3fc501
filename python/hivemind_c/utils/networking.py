"""Addresses, as people read them."""

from __future__ import annotations

import ipaddress
import logging
from typing import List, Sequence

from hivemind_c.p2p import Multiaddr

logger = logging.getLogger("hivemind_c.dht")
LOCALHOST = "127.0.0.1"
HERE_ALONE = ("/ip4/127.", "/ip6/::1/", "/dns4/localhost/", "/dns6/localhost/")


def reachable(addresses: Sequence[str]) -> List[str]:
    """Returns the addresses without those that only this machine can reach, unless there are no others.

    Args:
        addresses: Multiaddrs.
    """
    others = [address for address in addresses if not address.startswith(HERE_ALONE)]
    return others or list(addresses)


def choose_ip_address(
    maddrs: Sequence[str], prefer_global: bool = True, protocol_priority: Sequence[str] = ("ip4", "ip6")
) -> str:
    """Returns the best IP address in a list of multiaddrs.

    Args:
        maddrs: Multiaddrs.
        prefer_global: Prefer an address that is reachable from everywhere.
        protocol_priority: Protocols, the best one first.
    """
    found = []
    for address in map(Multiaddr, maddrs):
        for protocol in protocol_priority:
            if (value := address.get(protocol)) is not None:
                everywhere = ipaddress.ip_address(value).is_global
                found.append((prefer_global and not everywhere, protocol_priority.index(protocol), len(found), value))
    if not found:
        raise ValueError(
            f"no address has one of {', '.join(protocol_priority)}: {', '.join(maddrs) or 'the list is empty'}; give "
            "what get_visible_maddrs() returns"
        )
    return min(found)[-1]


def log_visible_maddrs(visible_maddrs: Sequence[str], only_p2p: bool = False) -> None:
    """Logs the --initial_peers with which other peers join.

    Args:
        visible_maddrs: Multiaddrs of this peer.
        only_p2p: Accepted without effect.
    """
    logger.info(
        "others join this peer with --initial_peers %s",
        " ".join(reachable([str(address) for address in visible_maddrs])),
    )
