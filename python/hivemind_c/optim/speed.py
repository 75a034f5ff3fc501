"""The speed of a swarm, from its progress at several moments."""

from __future__ import annotations

import time
from typing import Any


class Speed:
    """Samples per second of the whole swarm, as they are counted: smoothed over some ten seconds."""

    def __init__(self) -> None:
        self._at = self._total = self._speed = 0.0

    def look(self, progress: Any) -> float:
        """Returns the speed after a look at the progress.

        Args:
            progress: A GlobalTrainingProgress.
        """
        now, total = time.monotonic(), float(progress.epoch * progress.target_batch_size + progress.samples_accumulated)
        passed = now - self._at
        if not progress.num_peers:  # nobody has been heard yet: what they have done before is not what they do now
            self._at = self._speed = 0.0
        elif not self._at or total < self._total:
            self._at, self._total = now, total
        elif passed >= 0.5:
            keep = 0.0 if not self._speed else 0.5 ** (passed / 5)
            self._speed = keep * self._speed + (1 - keep) * (total - self._total) / passed
            self._at, self._total = now, total
        return self._speed
