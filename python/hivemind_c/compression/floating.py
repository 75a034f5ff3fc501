"""hivemind's module for compressions that keep floating numbers."""

from hivemind_c.compression.codecs import (
    BFloat16Compression,
    Float16Compression,
    NoCompression,
    ScaledFloat16Compression,
)

__all__ = ["BFloat16Compression", "Float16Compression", "NoCompression", "ScaledFloat16Compression"]
