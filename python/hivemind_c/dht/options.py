"""Options of hivemind's DHT and its libp2p daemon that have no effect here, accepted so that programs run unchanged."""

from __future__ import annotations

import logging
from typing import Any, Dict, Iterable, Optional, Set, Tuple

from hivemind_c._signature import unknown_option

logger = logging.getLogger("hivemind_c.dht")

_ROUTES = "connections are direct TCP from peer to peer"
_TABLE = "the DHT in C decides that by itself"

#: what an option would do, as the reason why it does nothing
WITHOUT_MEANING: Dict[str, str] = {
    **dict.fromkeys(
        ("auto_nat", "conn_manager", "dht_mode", "force_reachability", "idle_timeout", "quic"), _ROUTES
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
#: that have another name here
RENAMED = {"no_listen": "client_mode", "nat_port_map": "open_port"}
#: of get and store
EFFORT = {"await_all_replicas", "beam_size", "exclude_self", "num_workers", "sufficient_expiration_time"}

_warned_options: Set[str] = set()


def check(given: Dict[str, Any], known: Iterable[str]) -> Tuple[bool, bool]:
    """Accepts what hivemind's DHT accepts and says once in this process which of it has no effect. Returns whether it
    asks for a peer that only dials out, and whether it lets the router be asked for the port.
    """
    for option, value in given.items():
        if option == "p2p":
            if value is not None:
                raise TypeError(
                    "DHT: p2p cannot be used, because there is no libp2p daemon to share: leave it out, and share the "
                    "DHT itself"
                )
        elif option not in WITHOUT_MEANING and option not in RENAMED:
            raise unknown_option("DHT", option, {*known, *WITHOUT_MEANING, *RENAMED})
    new = [
        option
        for option in given
        if option in WITHOUT_MEANING and given[option] is not None and option not in _warned_options
    ]
    _warned_options.update(new)
    if new:
        reasons = "; ".join(dict.fromkeys(WITHOUT_MEANING[option] for option in new))
        logger.warning("DHT: no effect of %s, because %s", ", ".join(new), reasons)
    opens = given.get("nat_port_map")
    return bool(given.get("no_listen")), opens is None or bool(opens)


def check_effort(where: str, given: Dict[str, Any], known: Iterable[str]) -> None:
    """Accepts what says how hard get and store shall try, which the DHT decides by itself."""
    for option in given:
        if option not in EFFORT:
            raise unknown_option(where, option, {*known, *EFFORT})


def limit(seconds: Optional[float], name: str) -> Optional[float]:
    """Returns a limit of time, which may be 0 or None, or says what to give.

    Args:
        seconds: The limit.
        name: Of the option.
    """
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {seconds!r}")
    if not 0 <= seconds <= 86400:
        raise ValueError(f"{name} must be from 0 to 86400 seconds, not {seconds!r}")
    return seconds
