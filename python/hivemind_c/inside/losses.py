"""Losses on their way to the host, for which no rank waits."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, List, Tuple

import torch


class LateLosses:
    """Copies losses to the host in the background, and gives those that are there."""

    def __init__(self) -> None:
        self._coming: Deque[Tuple[torch.Tensor, Any]] = deque(maxlen=256)

    def add(self, loss: Any) -> None:
        """Begins to copy a loss.

        Args:
            loss: A tensor with one element; anything else is left out.
        """
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            return
        loss, arrived = loss.detach(), None
        if loss.device.type == "cuda":
            here = torch.empty(loss.shape, dtype=loss.dtype, pin_memory=True)
            here.copy_(loss, non_blocking=True)
            loss, arrived = here, torch.cuda.current_stream(loss.device).record_event()
        self._coming.append((loss, arrived))

    def take(self, most: int) -> List[float]:
        """Returns losses that have arrived, the oldest first.

        Args:
            most: Most losses to return.
        """
        there: List[float] = []
        while self._coming and len(there) < most and (self._coming[0][1] is None or self._coming[0][1].query()):
            there.append(float(self._coming.popleft()[0]))
        return there
