"""A hub's record in the DHT, which monitors and trainers read."""

from __future__ import annotations

import collections
import logging
import math
import platform
from typing import Any, Deque

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c.dht import get_dht_time
from hivemind_c.dht.news import News, ask, key_of, read_all, subkey_of, write_news
from hivemind_c.dht.values import pack

LEASE_S, EVERY_S = 30.0, 5.0
LOOK_EVERY, REPLY_S = 3, 15.0  #: records between two looks for a twin; seconds for the answer
logger = logging.getLogger("hivemind_c.hub")


class Presence:
    """Stores the record again and again, and notices another process that stores under the same key.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
    """

    def __init__(self, dht: Any, run_id: str):
        self._dht, self._run_id = dht, run_id
        self._key = key_of(run_id, dht.peer_id)
        self._began, self._told, self._warned = get_dht_time(), 0, False
        self._times: Deque[float] = collections.deque(maxlen=math.ceil(2 * LEASE_S / EVERY_S))  # of the latest records

    def tell(self, epoch: int, target: int, rounds: int, failures: int) -> Any:
        """Begins to store the record, and returns the future of that.

        Before each third one it looks for a twin, which waits for the DHT's answer.

        Args:
            epoch: Epoch of the run.
            target: Samples of an epoch.
            rounds: Rounds of averaging that the hub took part in.
            failures: Rounds that failed.
        """
        if self._told and self._told % LOOK_EVERY == 0 and not self._warned:
            self._look_for_a_twin()
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
            proof=self._dht.proof,
        )
        self._told += 1
        self._times.append(news.time)
        subkey = pack(subkey_of(self._dht.peer_id))
        node, lease_ms = self._dht.core, math.ceil(LEASE_S * 1000)
        return node.dht_store(self._key.encode(), subkey, write_news(news), lease_ms)

    def _look_for_a_twin(self) -> None:
        """Says once that another process has this hub's key: a record since the start that is not of this hub."""
        try:
            found = ask(self._dht, self._key).result(REPLY_S)
        except (HivemindError, TimeoutError) as error:  # the record is stored all the same
            logger.debug("%s: could not look for a hub with the same key: %s", self._run_id, error)
            return
        for peer, news, _ in read_all(self._run_id, self._key, found):
            if peer == self._dht.peer_id and news.time > self._began and news.time not in self._times:
                self._warned = True
                logger.error(
                    "another process has the key of this hub, and peers take the two for one (%s, %r): "
                    "end one of them, and give it a file of its own by --identity_path",
                    peer,
                    news.name,
                )
