"""Compressions that leave some tensors as they are."""

from __future__ import annotations

from typing import Iterable, List, Sequence

import torch

from hivemind_c.averaging.tensors import codec_of
from hivemind_c.compression import AdaptiveCompressionBase, CompressionBase, CompressionInfo, NoCompression, TensorRole


class UncompressedStatistics(AdaptiveCompressionBase):
    """The compression that the user chose, but none for optimizer statistics.

    Second moments are often too small for float16, and a zero among them makes an enormous step.

    Args:
        rest: Compression of all other tensors.
    """

    def __init__(self, rest: CompressionBase):
        self.rest, self.exact = rest, NoCompression()

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        return self.exact if info.role is TensorRole.OPTIMIZER else self.rest


def uncompressed_statistics(chosen: CompressionBase) -> CompressionBase:
    """Returns a compression like the chosen one that leaves optimizer statistics as they are.

    Args:
        chosen: Compression from the user. An adaptive one, or none at all, is returned unchanged.
    """
    return chosen if isinstance(chosen, (AdaptiveCompressionBase, NoCompression)) else UncompressedStatistics(chosen)


def infos_of_state(tensors: Sequence[torch.Tensor], n_main: int, n_extra: int) -> List[CompressionInfo]:
    """Returns one CompressionInfo for each tensor of a state.

    Args:
        tensors: Tensors of a state, without buffers.
        n_main: How many are parameters, which come first.
        n_extra: How many are extra tensors, which come last.
    """
    n_statistics = len(tensors) - n_main - n_extra
    roles = (TensorRole.PARAMETER,) * n_main + (TensorRole.OPTIMIZER,) * n_statistics
    roles += (TensorRole.UNSPECIFIED,) * n_extra
    return [CompressionInfo.from_tensor(t, key=i, role=role) for i, (t, role) in enumerate(zip(tensors, roles))]


def is_lossy(compression: CompressionBase, infos: Iterable[CompressionInfo]) -> bool:
    """Returns whether a compression encodes one of these tensors.

    Args:
        compression: The compression, which may be adaptive.
        infos: One for each tensor, by which the compression chooses.
    """
    return any(codec_of(compression, info) for info in infos)
