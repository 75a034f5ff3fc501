"""What a Trainer's user sees of the swarm: three metrics, and a progress bar."""

from __future__ import annotations

import time
from typing import Any, Dict

from hivemind_c._lightning import namespaces


class Speed:
    """Samples per second of the whole swarm, as they are counted: smoothed over some ten seconds."""

    def __init__(self) -> None:
        self._at = self._total = self._speed = 0.0

    def look(self, progress: Any) -> float:
        now, total = time.monotonic(), float(progress.epoch * progress.target_batch_size + progress.samples_accumulated)
        passed = now - self._at
        if not self._at or total < self._total:
            self._at, self._total = now, total
        elif passed >= 0.5:
            keep = 0.0 if not self._speed else 0.5 ** (passed / 5)
            self._speed = keep * self._speed + (1 - keep) * (total - self._total) / passed
            self._at, self._total = now, total
        return self._speed


def figures(progress: Any, speed: Speed) -> Dict[str, float]:
    return {"num_peers": float(progress.num_peers), "global_epoch": float(progress.epoch), "swarm_samples_per_second": speed.look(progress)}


class SwarmProgressBar:
    """Lightning's progress bar, with the swarm's: samples gathered of those that a global epoch takes, peers, and seconds to the next one.

    Trainer(strategy=HivemindStrategy(...), callbacks=[SwarmProgressBar()])
    """

    _base = "callbacks.TQDMProgressBar"

    def __new__(cls, *args: Any, **kwargs: Any) -> "SwarmProgressBar":
        return namespaces.new(cls, cls._base)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        namespaces.settle(self, self._base, trainer)
        super().setup(trainer, pl_module, stage)  # type: ignore[misc]

    def get_metrics(self, trainer: Any, pl_module: Any) -> Dict[str, Any]:
        items = super().get_metrics(trainer, pl_module)  # type: ignore[misc]
        progress = getattr(trainer.strategy, "global_progress", None)
        if progress is not None:
            eta = max(0.0, progress.eta_next_epoch - time.time())
            items["swarm"] = f"{progress.samples_accumulated}/{progress.target_batch_size}"
            items["global_epoch"], items["peers"] = progress.epoch, progress.num_peers
            items["eta"] = f"{eta:.0f}s" if eta < 1e6 else "?"
        return items
