"""Company: whether other peers train in the run, and what this peer does if there are none (when_alone)."""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Optional

logger = logging.getLogger("hivemind_c.optim")
CHOICES = ("train", "wait", "stop")


class AloneError(RuntimeError):
    """No other peer trains in the run, and when_alone is "stop"."""


class Company:
    """Watches the count of peers for one Optimizer. Only the training thread uses it.

    Args:
        dht: The DHT of the peer. A peer without initial peers begins a run, so it is never alone in this sense.
        run_id: Name of the run.
        when_alone: One of CHOICES.
        now: Returns the time in seconds, from any beginning.
    """

    def __init__(self, dht: Any, run_id: str, when_alone: str, now: Callable[[], float] = time.monotonic):
        self._dht, self._run_id, self._when_alone, self._now = dht, run_id, when_alone, now
        self._since: Optional[float] = None  # when no other peer was counted first
        self._told = False

    @property
    def waits(self) -> bool:
        """True while no epoch ends because this peer is alone."""
        return self._since is not None and self._when_alone != "train"

    def may_end_epoch(self, peers: int) -> bool:
        """True unless this peer is alone, and is to wait then.

        Raises AloneError if it is to stop, and has been alone for the bootstrap_timeout of its DHT.

        Args:
            peers: Peers that train in the run, with this one.
        """
        if self._when_alone == "train":
            return True
        if peers > 1:
            if self._told:
                logger.warning("run %r has another trainer again: this peer trains on", self._run_id)
            self._since, self._told = None, False
            return True
        if self._since is None:
            if not self._dht.initial_peers or self._dht.state()["is_initial"]:
                return True
            self._since = self._now()
        if not self._told and self._now() - self._since >= self._dht.bootstrap_timeout:
            self._told = True
            alone = f"no other peer trains in run {self._run_id!r} for {self._dht.bootstrap_timeout:g} s"
            if self._when_alone == "stop":
                raise AloneError(
                    f"this peer stops: {alone}, and when_alone='stop'; start it again when others train, or give "
                    "when_alone='wait' or 'train'"
                )
            logger.warning("%s: it ends no epoch and keeps its samples until one comes (when_alone='wait')", alone)
        return False
