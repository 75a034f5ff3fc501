"""The layout of an Optimizer's averagers, which it stores in the DHT for hubs."""

from __future__ import annotations

import logging
import time
from _hivemind_c import HivemindError

from hivemind_c.averaging import layout_records
from hivemind_c.averaging.layout import RunLayout, pack_layout
from hivemind_c.optim.run_peer import RunPeer

logger = logging.getLogger("hivemind_c.optim")


class LayoutReport:
    """Stores the layout again and again, unless enough other trainers do."""

    def __init__(self) -> None:
        self._packed = b""
        self._next = 0.0

    def renew(self, optimizer: RunPeer) -> None:
        """Stores the layout if it is time. Waits for nothing.

        Args:
            optimizer: The Optimizer.
        """
        now = time.monotonic()
        if now < self._next or optimizer.auxiliary:
            return
        self._next = now + layout_records.EVERY_S
        if not layout_records.is_chosen(optimizer.dht.peer_id, optimizer.tracker.global_progress.num_peers):
            return
        try:
            self._packed = self._packed or pack_layout(_layout(optimizer))
        except HivemindError as error:
            logger.warning("%s", error)
            self._next = float("inf")
            return
        layout_records.store(optimizer.dht, optimizer.run_id, self._packed)


def _layout(optimizer: RunPeer) -> RunLayout:
    gradients, state = optimizer.grad_averager, optimizer.state_averager
    averagers = [state.layout("state", optimizer.average_state_every)]
    if gradients is not None and gradients.averages_once:
        averagers.insert(0, gradients.layout("gradients", 1))
    return RunLayout(optimizer.matchmaking_time, optimizer.averaging_timeout, tuple(averagers))
