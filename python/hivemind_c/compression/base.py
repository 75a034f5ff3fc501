"""Compressions: their input about a tensor, and their output."""

from __future__ import annotations

import dataclasses
import math
import struct
from abc import ABC
from enum import Enum, IntEnum, auto
from typing import Any, Dict, Hashable, Iterable, List, Optional, Tuple

from _hivemind_c import HivemindLookupError, HivemindValueError

from hivemind_c.compression import arrays

Key = Hashable


class TensorRole(Enum):
    """The role of a tensor in the model."""

    ACTIVATION = auto()
    PARAMETER = auto()
    GRADIENT = auto()
    OPTIMIZER = auto()
    UNSPECIFIED = auto()


class CompressionType(IntEnum):
    """The numbers of the built-in compressions. USER_FIRST to USER_LAST are for those of users."""

    NONE = 0
    MEANSTD_16BIT = 1
    FLOAT16 = 2
    QUANTILE_8BIT = 3
    UNIFORM_8BIT = 4
    BLOCKWISE_8BIT = 5
    BFLOAT16 = 6
    LINEAR_8BIT = 7
    LINEAR_4BIT = 8

    @classmethod
    def Name(cls, number: int) -> str:
        """Returns the name of a number.

        Args:
            number: A number of this enum.
        """
        return cls(number).name

    @classmethod
    def Value(cls, name: str) -> int:
        """Returns the number of a name.

        Args:
            name: A name of this enum.
        """
        return cls[name].value

    @classmethod
    def keys(cls) -> List[str]:
        """Returns the names."""
        return [one.name for one in cls]

    @classmethod
    def values(cls) -> List[int]:
        """Returns the numbers."""
        return [one.value for one in cls]

    @classmethod
    def items(cls) -> List[Tuple[str, int]]:
        """Returns the pairs of name and number."""
        return [(one.name, one.value) for one in cls]


USER_FIRST, USER_LAST = 128, 255


@dataclasses.dataclass(frozen=True)
class TensorDescriptor:
    """The properties of a tensor without its values."""

    size: Tuple[int, ...]
    dtype: Any = None
    layout: Any = None
    device: Any = None
    requires_grad: bool = False
    pin_memory: bool = False
    compression: int = CompressionType.NONE

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of the tensor."""
        return self.size

    def numel(self) -> int:
        """Returns the number of elements."""
        return math.prod(self.size)

    @classmethod
    def from_tensor(cls, tensor: Any) -> TensorDescriptor:
        """Returns the descriptor of a tensor.

        Args:
            tensor: A tensor or a NumPy array.
        """
        if not arrays.is_tensor(tensor):
            return cls(tuple(tensor.shape), tensor.dtype)
        pinned = tensor.device.type == "cpu" and tensor.is_pinned()
        return cls(tuple(tensor.shape), tensor.dtype, tensor.layout, tensor.device, tensor.requires_grad, pinned)

    def make_zeros(self, **kwargs: Any) -> Any:
        """Returns a tensor of zeros with these properties.

        Args:
            **kwargs: Arguments of torch.zeros that replace properties.
        """
        import torch

        properties = {
            name: getattr(self, name) for name in ("dtype", "layout", "device", "requires_grad", "pin_memory")
        }
        return torch.zeros(
            self.size, **{**{name: value for name, value in properties.items() if value is not None}, **kwargs}
        )


@dataclasses.dataclass(frozen=True)
class CompressionInfo:
    """The properties of a tensor by which a compression may choose."""

    key: Any  #: its name or index among the parameters, optimizer states, inputs or outputs
    descriptor: TensorDescriptor
    role: TensorRole = TensorRole.UNSPECIFIED
    part_index: int = 0  #: which part of the tensor this is
    part_size: Optional[int] = None  #: elements in a part at most; None: the tensor is whole

    @classmethod
    def from_tensor(
        cls, tensor: Any, key: Any = None, descriptor: Optional[TensorDescriptor] = None, **kwargs: Any
    ) -> CompressionInfo:
        """Returns the properties of a tensor.

        Args:
            tensor: A tensor or a NumPy array.
            key: Name or index of the tensor.
            descriptor: Its descriptor. None: made from the tensor.
            **kwargs: Further fields, such as role.
        """
        return cls(key, descriptor or TensorDescriptor.from_tensor(tensor), **kwargs)

    def get_part(self, part_index: int, part_size: Optional[int]) -> CompressionInfo:
        """Returns the properties of one part of the tensor.

        Args:
            part_index: Index of the part.
            part_size: Most elements in a part. None: the tensor is whole.
        """
        return dataclasses.replace(self, part_index=part_index, part_size=part_size)


class SerializedTensor:
    """A compressed tensor and its bytes.

    Bytes, little-endian: "HVt1", u8 version 1, u8 flags (1: requires_grad, 2: a NumPy array), u16 compression, u8
    dimensions, u8 and u8 lengths of two names, u8 0, u32 chunks, u64 length of the buffer. Then follow a u64 for each
    dimension, the name of the dtype, the name of a user's compression, and the buffer. A buffer from a built-in
    compression is one chunk of docs/design/codecs.md.

    Args:
        buffer: The compressed values.
        size: Shape of the tensor.
        requires_grad: True if the tensor requires a gradient.
        dtype: Name of its dtype, such as "float32".
        compression: Number of the compression, as in CompressionType.
        chunks: Number of parts, in the first part of a tensor that is split.
        numpy: True for a NumPy array.
        name: Name of the class, for a user's compression.
    """

    __slots__ = ("buffer", "size", "requires_grad", "dtype", "compression", "chunks", "numpy", "name")
    _HEAD = struct.Struct("<4sBBHBBBBIQ")
    DIMS_MAX = 64

    def __init__(
        self,
        buffer: bytes = b"",
        size: Iterable[int] = (),
        requires_grad: bool = False,
        dtype: str = "",
        compression: int = CompressionType.NONE,
        chunks: int = 0,
        *,
        numpy: bool = False,
        name: str = "",
    ):
        self.buffer, self.size, self.requires_grad, self.dtype = (
            buffer,
            tuple(map(int, size)),
            bool(requires_grad),
            str(dtype),
        )
        self.compression, self.chunks, self.numpy, self.name = int(compression), int(chunks), bool(numpy), str(name)

    def _fields(self) -> Tuple[Any, ...]:
        return tuple(bytes(self.buffer) if field == "buffer" else getattr(self, field) for field in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SerializedTensor) and self._fields() == other._fields()

    def __repr__(self) -> str:
        form = f"compression={self.compression}, size={self.size}, dtype={self.dtype!r}"
        return f"SerializedTensor({len(self.buffer)} bytes, {form})"

    def numel(self) -> int:
        """Returns the number of elements."""
        return math.prod(self.size)

    def SerializeToString(self) -> bytes:
        """Returns the bytes."""
        dtype, name = self.dtype.encode(), self.name.encode()
        flags = self.requires_grad | self.numpy << 1
        try:
            head = self._HEAD.pack(
                b"HVt1",
                1,
                flags,
                self.compression,
                len(self.size),
                len(dtype),
                len(name),
                0,
                self.chunks,
                len(self.buffer),
            )
            return b"".join([head, struct.pack(f"<{len(self.size)}Q", *self.size), dtype, name, self.buffer])
        except struct.error as error:
            raise HivemindValueError(f"this tensor cannot be written as bytes: {error}") from None

    def ByteSize(self) -> int:
        """Returns the number of bytes that SerializeToString() would make."""
        return (
            self._HEAD.size + 8 * len(self.size) + len(self.dtype.encode()) + len(self.name.encode()) + len(self.buffer)
        )

    @classmethod
    def FromString(cls, data: Any) -> SerializedTensor:
        """Returns the tensor that bytes describe. Raises HivemindValueError if they are invalid.

        Args:
            data: Result of SerializeToString().
        """
        view = memoryview(data).cast("B")
        if len(view) < cls._HEAD.size:
            raise HivemindValueError("these bytes are not a serialized tensor: they are too short")
        magic, version, flags, compression, dims, n_dtype, n_name, zero, chunks, length = cls._HEAD.unpack_from(view)
        if magic != b"HVt1" or zero or flags > 3:
            raise HivemindValueError(
                "these bytes are not a serialized tensor: they were damaged, or written by another program"
            )
        if version != 1:
            raise HivemindValueError(
                "this tensor was serialized by another version of hivemind_c: use the same one on both sides"
            )
        start = cls._HEAD.size + 8 * dims
        if dims > cls.DIMS_MAX or len(view) != start + n_dtype + n_name + length:
            raise HivemindValueError(
                "these bytes are not a complete serialized tensor: their length differs from the one in their header"
            )
        try:
            dtype, name = (
                bytes(view[a:b]).decode()
                for a, b in ((start, start + n_dtype), (start + n_dtype, start + n_dtype + n_name))
            )
        except UnicodeDecodeError:
            raise HivemindValueError("these bytes are not a serialized tensor: a name in them is not text") from None
        size = struct.unpack_from(f"<{dims}Q", view, cls._HEAD.size)
        buffer = bytes(view[start + n_dtype + n_name :])
        return cls(buffer, size, bool(flags & 1), dtype, compression, chunks, numpy=bool(flags & 2), name=name)

    def ParseFromString(self, data: Any) -> int:
        """Replaces this tensor by the one that bytes describe, and returns their number.

        Args:
            data: Result of SerializeToString().
        """
        other = type(self).FromString(data)
        for field in self.__slots__:
            setattr(self, field, getattr(other, field))
        return len(data)


class CompressionBase(ABC):
    """A compression. A subclass makes one of your own.

    Give it a compression_type from 128 to 255. Write encode and decode, or compress and extract. Call
    register_compression with an instance on every peer.
    """

    compression_type: int

    def encode(self, tensor: Any, info: CompressionInfo) -> bytes:
        """Returns the bytes of a tensor.

        Args:
            tensor: A dense, contiguous, detached tensor on the CPU.
            info: Key, shape and role of the tensor.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither encode nor compress")

    def decode(self, buffer: bytes, shape: Tuple[int, ...], dtype: Any) -> Any:
        """Returns a tensor from bytes. Do not trust them: a peer may send any.

        Args:
            buffer: Bytes that encode() made, or that a peer claims it made.
            shape: Shape of the tensor.
            dtype: Its dtype.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither decode nor extract")

    def compress(
        self, tensor: Any, info: Optional[CompressionInfo] = None, allow_inplace: bool = False
    ) -> SerializedTensor:
        """Compresses a tensor.

        Args:
            tensor: A tensor or a NumPy array.
            info: Key, shape and role of the tensor. None: those that the tensor shows.
            allow_inplace: Accepted without effect: the tensor never changes.
        """
        info = info or CompressionInfo.from_tensor(tensor)
        plain, dtype = arrays.flat(tensor)
        return self._serialized(tensor, dtype, self.encode(plain.reshape(tuple(tensor.shape)), info))

    def extract(self, serialized_tensor: SerializedTensor) -> Any:
        """Returns the tensor. Raises HivemindValueError for invalid bytes, and allocates no more than they justify.

        Args:
            serialized_tensor: Result of compress().
        """
        dtype = serialized_tensor.dtype
        if dtype not in arrays.FLOATS and dtype not in arrays.PLAIN:
            raise HivemindValueError(f"these bytes are not a valid tensor: they name the unknown dtype {dtype[:40]!r}")
        if not arrays.fits(serialized_tensor.size):
            raise HivemindValueError("these bytes are not a valid tensor: they name a shape that is too large")
        wanted = arrays.dtype_of(dtype, serialized_tensor.numpy)
        tensor = self.decode(serialized_tensor.buffer, serialized_tensor.size, wanted)
        if tuple(tensor.shape) != serialized_tensor.size:
            raise HivemindValueError(
                f"{type(self).__name__} gave a tensor of shape {tuple(tensor.shape)} for {serialized_tensor.size}"
            )
        return with_grad(tensor, serialized_tensor)

    def estimate_compression_ratio(self, info: CompressionInfo) -> float:
        """Returns the compressed size divided by the size, without compressing. Lower is better.

        Args:
            info: Key, shape and role of the tensor.
        """
        return 1.0

    def _serialized(self, tensor: Any, dtype: str, buffer: bytes) -> SerializedTensor:
        is_array = not arrays.is_tensor(tensor)
        name = type(self).__name__ if self.compression_type >= USER_FIRST else ""
        requires_grad = not is_array and tensor.requires_grad
        return SerializedTensor(
            buffer, tensor.shape, requires_grad, dtype, self.compression_type, numpy=is_array, name=name
        )

    def __repr__(self) -> str:
        return f"hivemind_c.{type(self).__name__}()"


def with_grad(tensor: Any, serialized: SerializedTensor) -> Any:
    if serialized.requires_grad and arrays.is_tensor(tensor) and (tensor.is_floating_point() or tensor.is_complex()):
        tensor.requires_grad_()
    return tensor


_registered: Dict[int, CompressionBase] = {}


def register_compression(compression: CompressionBase) -> None:
    """Makes a compression known, so that this peer can read tensors compressed by it.

    The same class may be registered again. Another class under the same number is an error.

    Args:
        compression: Instance of a class derived from CompressionBase.
    """
    if not isinstance(compression, CompressionBase):
        raise TypeError(f"register_compression needs an instance of CompressionBase, not {compression!r}")
    number = getattr(compression, "compression_type", None)
    built_in = isinstance(number, CompressionType)
    if not isinstance(number, int) or not (built_in or USER_FIRST <= number <= USER_LAST):
        raise HivemindValueError(f"compression_type must be a number from {USER_FIRST} to {USER_LAST}, not {number!r}")
    there = _registered.get(int(number))
    if there is not None and type(there).__qualname__ != type(compression).__qualname__:
        raise HivemindValueError(
            f"compression_type {number} is {type(there).__name__}'s already: choose another number for "
            f"{type(compression).__name__}"
        )
    _registered[int(number)] = compression


def compression_of(serialized: SerializedTensor) -> CompressionBase:
    """The registered compression that made this."""
    found = _registered.get(serialized.compression)
    if found is None:
        name = f" ({serialized.name[:40]!r})" if serialized.name else ""
        raise HivemindLookupError(
            f"the tensor was compressed by number {serialized.compression}{name}, which is not known here: call "
            "register_compression on each peer"
        )
    if serialized.name and serialized.name != type(found).__name__:
        raise HivemindLookupError(
            f"the tensor was compressed by {serialized.name[:40]!r}, but number {serialized.compression} is "
            f"{type(found).__name__} here: "
            "register the same compressions on every peer"
        )
    return found
