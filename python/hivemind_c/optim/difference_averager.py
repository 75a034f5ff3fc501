"""DifferenceAverager: what this peer's local steps have done since the anchor, and its average over the swarm."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence

import torch

from hivemind_c.optim.grad_averager import GradientAverager
from hivemind_c.optim.parameters import copy_all, flat_views


class DifferenceAverager(GradientAverager):
    """Averages anchor minus parameters, in place of gradients.

    Args:
        parameters: Parameters that each batch steps.
        anchor: The anchor of each of them.
        **kwargs: Options of GradientAverager.
    """

    works_on_gpus = False
    _repeats = True  # the epoch ends again

    def __init__(self, parameters: Iterable[torch.Tensor], *, anchor: Sequence[torch.Tensor], **kwargs: Any):
        parameters, self._anchors = list(parameters), [main.detach() for main in anchor]
        pin = any(p.device.type == "cuda" for p in parameters)
        super().__init__(parameters, averaged_grads=flat_views(self._anchors, pin=pin), **kwargs)
        self._views = self._averaged  # no gradients are added up

    def accumulate_grads_(self, batch_size: int) -> None:
        """Counts a batch, whose step comes.

        Args:
            batch_size: Number of samples.
        """
        self.local_samples_accumulated += batch_size
        self.local_times_accumulated += 1

    def rescale_(self, factor: float) -> None:
        """Nothing here is scaled.

        Args:
            factor: Not used.
        """

    def touched(self) -> List[bool]:
        """Returns True for each parameter: each has a difference."""
        return [True] * len(self._anchors)

    @torch.no_grad()
    def load_accumulators_into_averager_(self, metric: Optional[float] = None) -> None:
        """Prepares the difference for averaging.

        Args:
            metric: Value to average beside it, such as the loss. None: this peer has none.
        """
        self._metric[0], self._metric[1] = metric or 0.0, float(metric is not None)
        copy_all(self._averaged, [p.detach() for p in self.parameters])
        for averaged, anchor in zip(self._averaged, self._anchors):
            torch.sub(anchor, averaged, out=averaged)
