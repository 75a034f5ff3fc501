"""The states that a hub takes from trainers that it cannot dial.

The core decides which trainer is asked (csrc/core/state/taker.h); it is told where the trainers are.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, List, Tuple

from _hivemind_c import HivemindError

from hivemind_c._record import short
from hivemind_c.averaging.image import Image
from hivemind_c.dht import news
from hivemind_c.hub.keeper import Keeper

logger = logging.getLogger("hivemind_c.hub")
LOOK_S = 1.0  #: between two looks at a run


class Receiver:
    """Takes the states of one run that trainers give.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        keeper: The Keeper of the run.
    """

    def __init__(self, dht: Any, run_id: str, keeper: Keeper):
        self._dht, self.run_id, self._keeper = dht, run_id, keeper
        self._key = f"{run_id}_state_averager".encode()

    def follow(self, ended: threading.Event) -> None:
        """Tells the core each second where the trainers are, until ended is set.

        Args:
            ended: The end.
        """
        while not ended.wait(LOOK_S):
            try:
                trainers, keeper, node = self._trainers(), self._keeper, self._dht.core
                figures = tuple((peer, role == "client", epoch) for peer, role, epoch in trainers)
                told = keeper.least, keeper.every, keeper.size_max, keeper.has_room
                node.gift_follow(self._key, figures, *told).result()
            except HivemindError as error:
                logger.debug("%s: could not ask for a state: %s", self.run_id, error)

    def _trainers(self) -> List[Tuple[str, str, int]]:
        """(ID, role, epoch) of each trainer."""
        told = news.gather(self._dht, self.run_id)
        return [(peer, one.role, one.epoch) for peer, one, _ in told if one.role != "auxiliary"]

    def run(self, ended: threading.Event) -> None:
        """Keeps each state that comes, until the DHT is shut down.

        Args:
            ended: Set at the end.
        """
        while not ended.is_set():
            try:
                node = self._dht.core
                taking = node.gift_take(self._key, self._keeper.size_max)
                self._take(node, *taking.result())
            except HivemindError as error:
                if error.status in ("CLOSED", "CANCELLED"):
                    return  # the node has ended
                raise

    def _take(self, node: Any, epoch: int, metadata: bytes, giver: str, parts: Any, digest: bytes, kinds: Any) -> None:
        self._keeper.record("given", epoch=epoch, giver=short(giver))
        if not self._keeper.has_room:
            return
        try:
            self._keeper.take(Image(epoch, metadata, tuple(parts), tuple(kinds)))
        except ValueError as error:
            logger.warning("%s: refusing the state that peer %s sent: %s", self.run_id, giver, error)
            node.gift_refuse(self._key).result()
