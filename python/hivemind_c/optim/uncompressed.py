"""Compressions that leave some tensors as they are."""

from __future__ import annotations

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
