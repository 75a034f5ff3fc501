"""The layout of a run in the DHT: stored by some of its trainers, read by hubs."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from typing import Any, Dict, Optional

from hivemind_c.averaging.layout import RunLayout, read_layout
from hivemind_c.dht.news import owner, subkey_of
from hivemind_c.dht.values import ValueWithExpiration, pack

LEASE_S, EVERY_S = 60.0, 20.0
STORED_BY = 8  #: trainers of a large run, on average


def key_of(run_id: str) -> str:
    return f"{run_id}_layout"


def is_chosen(peer_id: str, peers: int, now: Optional[float] = None) -> bool:
    """True if a trainer is to store the layout now.

    Args:
        peer_id: ID of the trainer.
        peers: Number of trainers.
        now: The time. None: the present one.
    """
    if peers <= STORED_BY:
        return True
    minute = int((time.time() if now is None else now) // LEASE_S)
    drawn = hashlib.sha256(f"{peer_id} {minute}".encode()).digest()
    return int.from_bytes(drawn[:8], "little") * peers < STORED_BY << 64


def store(dht: Any, run_id: str, packed: bytes) -> None:
    """Stores a layout under the name of this peer. Waits for nothing.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        packed: Result of pack_layout().
    """
    node, subkey = dht.core, pack(subkey_of(dht.peer_id))
    node.dht_store(key_of(run_id).encode(), subkey, pack(packed), round(LEASE_S * 1000))


def fetch(dht: Any, run_id: str, timeout: float) -> Optional[RunLayout]:
    """Returns the layout that most trainers have stored. None: there is none.

    Raises HivemindError if the DHT does not answer.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        timeout: Longest time in seconds to wait.
    """
    found = dht.get(key_of(run_id), latest=True, return_future=True).result(timeout)
    told: Dict[str, bytes] = {}
    if found is not None and isinstance(found.value, dict):
        for subkey, entry in found.value.items():
            peer = owner(subkey)
            if peer is not None and isinstance(entry, ValueWithExpiration) and type(entry.value) is bytes:
                told[peer] = entry.value
    counts = Counter(told.values())
    for packed in sorted(counts, key=lambda packed: (-counts[packed], packed)):
        try:
            return read_layout(packed)
        except ValueError:
            continue  # a stranger's bytes
    return None
