"""DifferenceAverager: what this peer's local steps have done since the anchor, and its average over the swarm."""

from __future__ import annotations

import math
from typing import Any, Iterable, List, Optional, Sequence, Set, Tuple

import torch

from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.compression import AdaptiveCompressionBase, CompressionBase, CompressionInfo, NoCompression, TensorRole
from hivemind_c.optim.buffers import Buffers, infos_of
from hivemind_c.optim.grad_averager import GradientAverager
from hivemind_c.optim.parameters import copy_all, flat_views

IN_CACHE = 1 << 16  #: values that are compared at once


class DifferenceAverager(GradientAverager):
    """Averages anchor minus parameters, in place of gradients, and the buffers of the module as they are.

    Args:
        parameters: Parameters that each batch steps.
        anchor: The anchor of each of them.
        buffers: Buffers that are averaged with the differences, exactly.
        **kwargs: Options of GradientAverager.
    """

    works_on_gpus = False
    _repeats = True  # the epoch ends again

    def __init__(
        self, parameters: Iterable[torch.Tensor], *, anchor: Sequence[torch.Tensor], buffers: Buffers, **kwargs: Any
    ):
        parameters, self._anchors = list(parameters), [main.detach() for main in anchor]
        self._buffers = buffers
        pin = any(p.device.type == "cuda" for p in parameters)
        super().__init__(parameters, averaged_grads=flat_views(self._anchors, pin=pin), **kwargs)
        self._views = self._averaged  # no gradients are added up

    def _join(
        self, dht: Any, tensors: List[torch.Tensor], *, compression: CompressionBase = NoCompression(), **kwargs: Any
    ) -> None:
        averages = self._buffers.averages
        infos = [CompressionInfo.from_tensor(t, key=i, role=TensorRole.GRADIENT) for i, t in enumerate(tensors)]
        rest = [CompressionInfo.from_tensor(self._metric, key="metric"), *infos_of(averages)]
        DecentralizedAverager.__init__(
            self,
            [*tensors, self._metric, *averages],
            dht,
            tensor_infos=[*infos, *rest],
            compression=_DifferencesAlone({info.key for info in rest}, compression),
            **kwargs,
        )

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
        self._buffers.load()

    @torch.no_grad()
    def compared(self, parameters: Sequence[torch.Tensor]) -> Tuple[float, Optional[float]]:
        """Returns the norm of this peer's difference, and its cosine to the average, before the model is rebased.

        None in place of the cosine: one of both is zero.

        Args:
            parameters: Those that the difference was taken from.
        """
        own = mean = both = 0.0
        for three in zip(self._anchors, parameters, self._averaged):
            for anchor, p, average in zip(*(one.detach().cpu().reshape(-1).split(IN_CACHE) for one in three)):
                mine = anchor - p
                own += float(torch.dot(mine, mine))
                mean += float(torch.dot(average, average))
                both += float(torch.dot(mine, average))
        length = math.sqrt(own) * math.sqrt(mean)
        return math.sqrt(own), min(1.0, max(-1.0, both / length)) if length else None

    def drop_if_not_finite(self) -> bool:
        """Sets the prepared difference to zero if it, or a buffer, holds a NaN or Inf. True if one did."""
        if self._buffers.are_spoilt:
            torch._foreach_zero_(self._averaged)
            return True
        return super().drop_if_not_finite()


class _DifferencesAlone(AdaptiveCompressionBase):
    """The compression that the user chose for differences, and none for all else.

    Args:
        exact: Keys of the tensors that must arrive exactly.
        rest: Compression of the differences.
    """

    def __init__(self, exact: Set[Any], rest: CompressionBase):
        self._exact, self._rest, self._none = exact, rest, NoCompression()

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        return self._none if info.key in self._exact else self._rest
