"""A hub's record in the DHT, which monitors and trainers read."""

from __future__ import annotations

import logging
import math
import platform
from typing import Any

import _hivemind_c

from hivemind_c.dht import get_dht_time
from hivemind_c.dht.news import News, key_of, subkey_of, write_news
from hivemind_c.dht.values import pack

LEASE_S, EVERY_S = 30.0, 5.0
logger = logging.getLogger("hivemind_c.hub")


class Presence:
    """Stores the record again and again.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
    """

    def __init__(self, dht: Any, run_id: str):
        self._dht, self._run_id = dht, run_id

    def tell(self, epoch: int, target: int, rounds: int, failures: int) -> None:
        """Stores the record, and waits for nothing.

        Args:
            epoch: Epoch of the run.
            target: Samples of an epoch.
            rounds: Rounds of averaging that the hub took part in.
            failures: Rounds that failed.
        """
        news = News(
            version=_hivemind_c.__version__,
            name=f"hub {platform.node()}".strip(),
            role="auxiliary",
            time=get_dht_time(),
            lease=LEASE_S,
            epoch=epoch,
            target=target,
            samples=0,
            speed=0.0,
            loss=None,
            rounds=rounds,
            failures=failures,
            errors=(),
        )
        key, subkey = key_of(self._run_id, self._dht.peer_id).encode(), pack(subkey_of(self._dht.peer_id))
        self._dht._node._started().dht_store(key, subkey, write_news(news), math.ceil(LEASE_S * 1000))
