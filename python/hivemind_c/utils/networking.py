"""Addresses, as people read them."""

from __future__ import annotations

import logging
from typing import List, Sequence

logger = logging.getLogger("hivemind_c.dht")
HERE_ALONE = ("/ip4/127.", "/ip6/::1/", "/dns4/localhost/", "/dns6/localhost/")


def reachable(addresses: Sequence[str]) -> List[str]:
    """Without those that only this machine can reach, unless there are no others."""
    others = [address for address in addresses if not address.startswith(HERE_ALONE)]
    return others or list(addresses)


def log_visible_maddrs(visible_maddrs: Sequence[str], only_p2p: bool = False) -> None:
    """Says with which --initial_peers others join. only_p2p: accepted, but an address without a place to dial is of no use here."""
    logger.info("others join this peer with --initial_peers %s", " ".join(reachable([str(address) for address in visible_maddrs])))
