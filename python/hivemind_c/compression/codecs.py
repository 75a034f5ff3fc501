"""The compressions of hivemind_c: csrc/kern/codec.h, under the names that users know."""

from __future__ import annotations

import math
from typing import Any, Dict, Hashable, Optional, Tuple

import _hivemind_c
from _hivemind_c import HivemindValueError

from hivemind_c import cuda
from hivemind_c.compression import arrays
from hivemind_c.compression.base import (
    CompressionBase,
    CompressionInfo,
    CompressionType,
    SerializedTensor,
    register_compression,
    with_grad,
)


class _Codec(CompressionBase):
    """One codec of the C core."""

    codec_name: str  #: in _hivemind_c.CODECS
    flat_codec_name: str = ""  #: codec of values whose rows are not known, as those of a state; "": the same
    narrow: Optional["_Codec"] = None  #: under which a member of a round may send in its place, if its line is slow
    _reads: Tuple[str, ...] = ()  #: other codecs whose chunks it reads
    _bits: Optional[float] = None  #: for each element, scales included; None: as many as it has

    def compress(
        self,
        tensor: Any,
        info: Optional[CompressionInfo] = None,
        allow_inplace: bool = False,
        *,
        residual: Any = None,
    ) -> SerializedTensor:
        """``residual``: float32, as many elements as the tensor, contiguous; what earlier calls lost is added from it,
        and what this one loses is left in it."""
        at_home = cuda.compressed(self.codec_name, tensor) if residual is None else None
        if at_home is not None:
            return self._serialized(tensor, arrays.dtype_name(tensor.dtype), at_home)
        numbers, dtype = arrays.flat(tensor)
        if dtype not in arrays.FLOATS:
            numbers = self._plain(numbers, dtype)
        width = arrays.row_width(tensor.shape)
        chunk = _hivemind_c.codec_encode(_hivemind_c.CODECS.index(self.codec_name), numbers, residual, width)
        return self._serialized(tensor, dtype, chunk)

    def extract(self, serialized_tensor: SerializedTensor) -> Any:
        shape, dtype = self._shape(serialized_tensor)
        carrier, count = (
            (dtype, serialized_tensor.numel()) if dtype in arrays.FLOATS else arrays.carrier_of(shape, dtype)
        )
        self._expect(serialized_tensor.buffer, carrier, count)
        out = arrays.empty((count,), carrier, serialized_tensor.numpy)
        _hivemind_c.codec_decode(serialized_tensor.buffer, out)
        out = out.reshape(shape) if dtype in arrays.FLOATS else arrays.from_carrier(out, shape, dtype)
        return with_grad(out, serialized_tensor)

    def accumulate(self, serialized_tensor: SerializedTensor, weight: float, out: Any) -> None:
        """``out += weight * tensor`` in one pass: ``out`` is contiguous float32 with as many elements. On any error,
        NaN or Inf among the values included, it stays as it was."""
        _, dtype = self._shape(serialized_tensor)
        if dtype not in arrays.FLOATS:
            raise HivemindValueError(f"only floating tensors can be added up, not {dtype}")
        self._expect(serialized_tensor.buffer, dtype, serialized_tensor.numel())
        _hivemind_c.codec_accumulate(serialized_tensor.buffer, weight, out)

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:
        bits = arrays.bits_of(info.descriptor.dtype)
        return (self._bits or bits) / bits

    def _plain(self, numbers: Any, dtype: str) -> Any:
        raise HivemindValueError(f"{type(self).__name__} compresses floating tensors; send {dtype} with NoCompression")

    def _shape(self, serialized: SerializedTensor) -> Tuple[Tuple[int, ...], str]:
        if serialized.compression != self.compression_type:
            raise HivemindValueError(
                f"the tensor was compressed by number {serialized.compression}, not by {type(self).__name__}"
            )
        known = serialized.dtype in arrays.FLOATS or serialized.dtype in arrays.PLAIN and type(self) is NoCompression
        if not known or not arrays.fits(serialized.size):
            raise HivemindValueError(
                "these bytes are invalid: they name a shape or a dtype that this compression does not write"
            )
        return serialized.size, serialized.dtype

    def _expect(self, chunk: bytes, dtype: str, count: int) -> None:
        """Before anything is allocated: the chunk is of this codec, and large enough for what it is said to hold."""
        codec, *found = _hivemind_c.codec_peek(chunk)
        if _hivemind_c.CODECS[codec] not in (self.codec_name, *self._reads) or found != [arrays.FLOATS[dtype], count]:
            raise HivemindValueError(
                "these bytes contradict themselves: the chunk holds another codec, dtype or number of elements than "
                "its header"
            )


class NoCompression(_Codec):
    """The tensor as it is, to the bit; any dtype."""

    compression_type, codec_name = CompressionType.NONE, "none"

    def _plain(self, numbers: Any, dtype: str) -> Any:
        if dtype not in arrays.PLAIN:
            raise HivemindValueError(f"tensors of dtype {dtype} cannot be sent: convert them first")
        return arrays.as_carrier(numbers, dtype)


class Float16Compression(_Codec):
    """16 bits: float16, what is beyond its range limited to +-65504."""

    compression_type, codec_name, _bits = CompressionType.FLOAT16, "float16", 16


class ScaledFloat16Compression(_Codec):
    """16 bits: float16 of each row of the last dimension, less its mean and divided by its standard deviation.

    Mean and deviation take 64 bits for each row.
    """

    compression_type, codec_name, _bits = CompressionType.MEANSTD_16BIT, "scaled_rows", 16
    flat_codec_name, _reads = "scaled_float16", ("scaled_float16",)

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:
        """Returns the compressed size divided by the size, scales included.

        Args:
            info: Shape and dtype of the tensor.
        """
        return (16 + 64 / arrays.row_width(info.descriptor.shape)) / arrays.bits_of(info.descriptor.dtype)


class BFloat16Compression(_Codec):
    """16 bits: the range of float32, with 8 bits of precision."""

    compression_type, codec_name, _bits = CompressionType.BFLOAT16, "bfloat16", 16


class Uniform8BitQuantization(_Codec):
    """8 bits: equal steps over six standard deviations around the mean."""

    compression_type, codec_name, _bits = CompressionType.UNIFORM_8BIT, "uniform8", 8


class Quantile8BitQuantization(_Codec):
    """8 bits: a code book that follows the tensor's own distribution."""

    compression_type, codec_name, _bits = CompressionType.QUANTILE_8BIT, "quantile8", 8


class BlockwiseQuantization(_Codec):
    """8 bits: blocks of 4,096 by their largest magnitude, in steps that are finer near zero."""

    compression_type, codec_name, _bits = CompressionType.BLOCKWISE_8BIT, "blockwise8", 8 + 32 / 4096


class Linear8BitQuantization(_Codec):
    """8.25 bits: blocks of 64, in equal steps. With ErrorFeedback, what one round loses the next one sends."""

    compression_type, codec_name, _bits = CompressionType.LINEAR_8BIT, "linear8", 8.25


class Linear4BitQuantization(_Codec):
    """4.25 bits: blocks of 64, in 16 equal steps. For use with ErrorFeedback."""

    compression_type, codec_name, _bits = CompressionType.LINEAR_4BIT, "linear4", 4.25


BUILT_IN = (
    NoCompression,
    Float16Compression,
    ScaledFloat16Compression,
    BFloat16Compression,
    Uniform8BitQuantization,
    Quantile8BitQuantization,
    BlockwiseQuantization,
    Linear8BitQuantization,
    Linear4BitQuantization,
)
for _class in BUILT_IN:
    register_compression(_class())


def fitting() -> CompressionBase:
    """Returns 8 bits for rounds whose members' lines all carry them, and 4 for others: the default of differences."""
    codec = Linear8BitQuantization()
    codec.narrow = Linear4BitQuantization()
    return codec


class ErrorFeedback(CompressionBase):
    """Keeps the error of a lossy compression, and adds it to the next tensor of the same key.

    compress() may be repeated within a round, as a retry does: it starts from the error at the beginning of the round.
    commit() ends a round whose bytes were used, rollback() one whose bytes were not.

    Args:
        compression: A built-in compression that is lossy.
    """

    def __init__(self, compression: _Codec):
        if not isinstance(compression, _Codec) or isinstance(compression, NoCompression):
            raise TypeError(
                f"ErrorFeedback needs a compression of hivemind_c that loses something, not {compression!r}"
            )
        self.compression = compression
        self.compression_type = compression.compression_type
        self._kept: Dict[Hashable, Any] = {}
        self._open: Dict[Hashable, Any] = {}

    def compress(
        self, tensor: Any, info: Optional[CompressionInfo] = None, allow_inplace: bool = False
    ) -> SerializedTensor:
        """Compresses a tensor with the kept error added to it.

        Args:
            tensor: A tensor or a NumPy array.
            info: Key of the tensor, by which errors are kept. None: one key for all.
            allow_inplace: Accepted without effect: the tensor never changes.
        """
        key = (info.key, info.part_index) if info else (None, 0)
        kept = self._kept.get(key)
        count = math.prod(tensor.shape)
        if kept is None or kept.shape[0] != count:
            kept = arrays.empty((count,), "float32", not arrays.is_tensor(tensor))
            kept[:] = 0
        residual = kept.clone() if arrays.is_tensor(kept) else kept.copy()
        serialized = self.compression.compress(tensor, info, residual=residual)
        self._open[key] = residual
        return serialized

    def commit(self) -> None:
        """Keeps the errors of this round, whose bytes were used."""
        self._kept.update(self._open)
        self._open.clear()

    def rollback(self) -> None:
        """Drops the errors of this round, whose bytes were not used."""
        self._open.clear()

    def extract(self, serialized_tensor: SerializedTensor) -> Any:
        """Returns the tensor.

        Args:
            serialized_tensor: Result of compress().
        """
        return self.compression.extract(serialized_tensor)

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:
        """Returns the compressed size divided by the size, without compressing.

        Args:
            info: Key, shape and role of the tensor.
        """
        return self.compression.estimate_compression_ratio(info)

    def __repr__(self) -> str:
        return f"hivemind_c.ErrorFeedback({self.compression!r})"
