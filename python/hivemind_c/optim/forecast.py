"""Log lines on the progress of the swarm, and the warning about a target_batch_size that is out of reach."""

from __future__ import annotations

import logging
import math
from typing import Callable, Optional

from hivemind_c.dht import get_dht_time
from hivemind_c.optim.progress_tracker import Figures
from hivemind_c.optim.run_peer import RunPeer

logger = logging.getLogger("hivemind_c.optim")
TOO_LONG_S, SENSIBLE_S = 3600.0, 300.0  #: an epoch that lasts longer earns a warning; how long the suggested one would
LEAST_S, MOST_S = 1.0, 10.0  #: between two lines; half of the time until the epoch's end, within these
SURE_AFTER_S = 60.0  #: newcomers and the first batches make speeds that mean nothing


def reachable(target: int, speed: float) -> Optional[int]:
    """Returns a reachable target of two digits, or None if this target is reached in a sensible time.

    Args:
        target: Samples of a swarm epoch.
        speed: Samples per second of the swarm.
    """
    if not 0 < speed < math.inf or target / speed <= TOO_LONG_S:
        return None
    better = max(1.0, speed * SENSIBLE_S)
    unit = 10 ** max(0, math.floor(math.log10(better)) - 1)
    return max(1, int(better // unit * unit))


class Forecast:
    """Logs the progress of the swarm, and warns once if the target is out of reach.

    Args:
        optimizer: The Optimizer.
    """

    def __init__(self, optimizer: RunPeer):
        self._optimizer = optimizer
        self._next_line = 0.0
        self._slow_since: Optional[float] = None
        self._warned = False

    def update(self, figures: Callable[[], Figures]) -> None:
        """Logs the progress now and then.

        Args:
            figures: Returns the progress of the swarm. It is called only for a line that is due.
        """
        now = get_dht_time()
        if now < self._next_line:
            return
        progress = figures()
        optimizer, eta = self._optimizer, max(0.0, progress.eta)
        self._next_line = now + min(max(eta / 2, LEAST_S), MOST_S)
        optimizer.say(
            "Collaboration accumulated %d samples from %d peers; ETA %s (this peer: %d samples of swarm epoch %d)",
            int(progress.samples),
            progress.peers,
            f"{eta:.2f} seconds" if eta < math.inf else "not known yet",
            optimizer.local_samples,
            optimizer.local_epoch,
        )
        missing = progress.target - int(progress.samples)
        if not self._warned and missing > 0 and eta > 0:
            self._judge(progress.target, missing / eta, progress.peers)

    def _judge(self, target: int, speed: float, peers: int) -> None:
        better = reachable(target, speed)
        now = get_dht_time()
        if better is None:
            self._slow_since = None
        elif self._slow_since is None:
            self._slow_since = now
        elif now - self._slow_since >= SURE_AFTER_S:
            self._warned = True
            logger.warning(
                "target_batch_size=%d takes %.1f hours with the current %d peers (%.3g samples/s together): add "
                "peers, or use a target_batch_size of about %d "
                "(some %d minutes for a swarm epoch)",
                target,
                target / speed / 3600,
                peers,
                speed,
                better,
                round(SENSIBLE_S / 60),
            )
