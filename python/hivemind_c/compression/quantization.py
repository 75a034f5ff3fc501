"""hivemind's module for compressions that round to few values."""

from hivemind_c.compression.codecs import (
    BlockwiseQuantization,
    Linear4BitQuantization,
    Linear8BitQuantization,
    Quantile8BitQuantization,
    Uniform8BitQuantization,
)

__all__ = [
    "BlockwiseQuantization",
    "Linear4BitQuantization",
    "Linear8BitQuantization",
    "Quantile8BitQuantization",
    "Uniform8BitQuantization",
]
