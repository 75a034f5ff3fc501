"""Tensors to bytes and back, whatever compressed them; and those bytes in parts."""

from __future__ import annotations

from typing import Any, AsyncIterator, Dict, Iterable, Iterator, List, Optional, Union

from _hivemind_c import HivemindValueError

from hivemind_c.compression.base import (
    CompressionBase,
    CompressionInfo,
    CompressionType,
    SerializedTensor,
    compression_of,
    with_grad,
)
from hivemind_c.compression.codecs import BUILT_IN

BASE_COMPRESSION_TYPES: Dict[str, CompressionBase] = {one.compression_type.name: one() for one in BUILT_IN}

STREAMING_CHUNK_SIZE_BYTES = 2**16


def serialize_torch_tensor(
    tensor: Any,
    compression_type: Union[int, CompressionBase] = CompressionType.NONE,
    info: Optional[CompressionInfo] = None,
    allow_inplace: bool = False,
    **kwargs: Any,
) -> SerializedTensor:
    """Compresses a tensor.

    Args:
        tensor: A tensor or a NumPy array.
        compression_type: A CompressionType, the number of a registered compression, or a compression.
        info: Key, shape and role of the tensor. None: made from the tensor.
        allow_inplace: Accepted without effect: the tensor never changes.
        **kwargs: Arguments of CompressionInfo.from_tensor, if info is None.
    """
    info = info or CompressionInfo.from_tensor(tensor, **kwargs)
    chosen = (
        compression_type
        if isinstance(compression_type, CompressionBase)
        else compression_of(SerializedTensor(compression=compression_type))
    )
    return chosen.compress(tensor, info, allow_inplace)


def deserialize_torch_tensor(serialized_tensor: Union[SerializedTensor, bytes]) -> Any:
    """Returns the tensor, by the compression that the bytes name.

    Args:
        serialized_tensor: A SerializedTensor or its bytes.
    """
    if not isinstance(serialized_tensor, SerializedTensor):
        serialized_tensor = SerializedTensor.FromString(serialized_tensor)
    return with_grad(compression_of(serialized_tensor).extract(serialized_tensor), serialized_tensor)


def split_for_streaming(
    serialized_tensor: SerializedTensor, chunk_size_bytes: int = STREAMING_CHUNK_SIZE_BYTES
) -> Iterator[SerializedTensor]:
    """Yields a compressed tensor in parts. The first part holds the header.

    Args:
        serialized_tensor: The compressed tensor.
        chunk_size_bytes: Most bytes of the buffer in one part, 1 or more.
    """
    if chunk_size_bytes < 1:
        raise HivemindValueError(f"chunk_size_bytes must be at least 1, not {chunk_size_bytes}")
    first, buffer = serialized_tensor, memoryview(serialized_tensor.buffer)
    starts = range(0, len(buffer), chunk_size_bytes)
    yield SerializedTensor(
        bytes(buffer[:chunk_size_bytes]),
        first.size,
        first.requires_grad,
        first.dtype,
        first.compression,
        len(starts),
        numpy=first.numpy,
        name=first.name,
    )
    for start in starts[1:]:
        yield SerializedTensor(bytes(buffer[start : start + chunk_size_bytes]))


def combine_from_streaming(stream: Iterable[SerializedTensor]) -> SerializedTensor:
    """Returns the compressed tensor from all of its parts.

    Args:
        stream: The parts in their order.
    """
    parts = list(stream)
    if not parts or max(parts[0].chunks, 1) != len(parts):
        raise HivemindValueError(
            f"{len(parts)} parts of a tensor came, and the number expected is "
            f"{parts[0].chunks if parts else 'at least 1'}"
        )
    first = parts[0]
    buffer = b"".join(part.buffer for part in parts)
    return SerializedTensor(
        buffer, first.size, first.requires_grad, first.dtype, first.compression, numpy=first.numpy, name=first.name
    )


async def deserialize_tensor_stream(stream: AsyncIterator[Iterable[SerializedTensor]]) -> List[Any]:
    """Returns all tensors of a stream of parts. A part with a dtype begins the next tensor.

    Args:
        stream: Asynchronous iterator of lists of parts.
    """
    tensors: List[Any] = []
    parts: List[SerializedTensor] = []
    async for several in stream:
        for part in several:
            if part.dtype and parts:
                tensors.append(deserialize_torch_tensor(combine_from_streaming(parts)))
                parts = []
            parts.append(part)
    if parts:
        tensors.append(deserialize_torch_tensor(combine_from_streaming(parts)))
    return tensors
