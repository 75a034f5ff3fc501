"""Options of hivemind's DHT and its libp2p daemon that have no effect here, accepted so that programs run unchanged."""

from __future__ import annotations

import logging
from typing import Any, Dict, Iterable, Set

from hivemind_c._signature import unknown_option

logger = logging.getLogger("hivemind_c.dht")

_ROUTES = "connections are direct TCP from peer to peer"
_TABLE = "the DHT in C decides that by itself"

#: what an option would do, as the reason why it does nothing
WITHOUT_MEANING: Dict[str, str] = {
    **dict.fromkeys(
        ("auto_nat", "conn_manager", "dht_mode", "force_reachability", "idle_timeout", "nat_port_map", "quic"), _ROUTES
    ),
    **dict.fromkeys(
        (
            "relay_hop_limit",
            "tls",
            "trusted_relays",
            "use_relay_discovery",
            "use_relay_hop",
            "persistent_conn_max_msg_size",
        ),
        _ROUTES,
    ),
    **dict.fromkeys(
        (
            "cache_on_store",
            "cache_refresh_before_expiry",
            "chunk_size",
            "depth_modulo",
            "node_id",
            "reuse_get_requests",
            "strict",
        ),
        _TABLE,
    ),
    "check_if_identity_free": "two peers with one identity are noticed when they meet",
}
#: of get and store
EFFORT = {"await_all_replicas", "beam_size", "exclude_self", "num_workers", "sufficient_expiration_time"}

_warned_options: Set[str] = set()


def check(given: Dict[str, Any], known: Iterable[str]) -> bool:
    """Accepts what hivemind's DHT accepts and says once in this process which of it has no effect. Returns whether it
    asks for a peer that only dials out.
    """
    for option, value in given.items():
        if option == "p2p":
            if value is not None:
                raise TypeError(
                    "DHT: p2p cannot be used, because there is no libp2p daemon to share: leave it out, and share the "
                    "DHT itself"
                )
        elif option not in WITHOUT_MEANING and option != "no_listen":
            raise unknown_option("DHT", option, {*known, *WITHOUT_MEANING, "no_listen"})
    new = [
        option
        for option in given
        if option in WITHOUT_MEANING and given[option] is not None and option not in _warned_options
    ]
    _warned_options.update(new)
    if new:
        reasons = "; ".join(dict.fromkeys(WITHOUT_MEANING[option] for option in new))
        logger.warning("DHT: no effect of %s, because %s", ", ".join(new), reasons)
    return bool(given.get("no_listen"))


def check_effort(where: str, given: Dict[str, Any], known: Iterable[str]) -> None:
    """Accepts what says how hard get and store shall try, which the DHT decides by itself."""
    for option in given:
        if option not in EFFORT:
            raise unknown_option(where, option, {*known, *EFFORT})
