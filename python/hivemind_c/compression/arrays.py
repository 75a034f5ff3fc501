"""Torch tensors and NumPy arrays in one way: as flat, contiguous numbers in, as new ones out. Neither library
is imported before one of its arrays is seen."""

from __future__ import annotations

import math
import sys
from typing import Any, Tuple

from _hivemind_c import HivemindValueError

#: numbers of kern/dtype.h
FLOATS = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4}
#: bytes of the dtypes that travel as they are, without a codec
PLAIN = {
    **dict.fromkeys(["bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2"], 1),
    **dict.fromkeys(["int16", "uint16"], 2),
    **dict.fromkeys(["int32", "uint32"], 4),
    **dict.fromkeys(["int64", "uint64", "complex64"], 8),
    "complex128": 16,
}
CARRIERS = {1: "float16", 2: "float16", 4: "float32", 8: "float64", 16: "float64"}
COUNT_MAX = 1 << 36


def is_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def is_numpy(array: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, (numpy.ndarray, numpy.generic))


def dtype_name(dtype: Any) -> str:
    """ "float32" for torch.float32, for numpy.dtype("<f4") and for "float32"."""
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(dtype).rpartition(".")[2]


def bits_of(dtype: Any) -> int:
    name = dtype_name(dtype)
    return 8 * {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8, **PLAIN}.get(name, 4)


def fits(shape: Tuple[int, ...]) -> bool:
    """Whether there may be a tensor of this shape: also where a dimension of 0 makes it empty, the others are not
    beyond all bounds.
    """
    return (
        min(shape, default=0) >= 0 and math.prod(shape) <= COUNT_MAX and math.prod(max(n, 1) for n in shape) < 1 << 60
    )


def flat(array: Any) -> Tuple[Any, str]:
    """The numbers in their order, contiguous, aligned and on the CPU (a copy only where they are not), and the dtype's
    name.
    """
    if is_tensor(array):
        if array.layout is not sys.modules["torch"].strided:
            raise HivemindValueError(
                f"only dense tensors can be compressed, not {array.layout}: call .to_dense() first"
            )
        plain = array.detach().resolve_conj().resolve_neg().cpu().contiguous()
        plain = plain.clone() if plain.numel() and plain.data_ptr() % plain.element_size() else plain
        return plain.reshape(-1), dtype_name(array.dtype)
    if is_numpy(array):
        numpy = sys.modules["numpy"]
        plain = numpy.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        return (plain if plain.flags.aligned else plain.copy()).reshape(-1), dtype_name(array.dtype)
    raise TypeError(f"a torch tensor or a NumPy array is needed, not {type(array).__name__}")


def row_width(shape: Tuple[int, ...]) -> int:
    """Numbers in a row, which is the last dimension: at least 1."""
    return max(shape[-1], 1) if len(shape) else 1


def dtype_of(name: str, numpy_array: bool) -> Any:
    """The dtype of a name that stands in FLOATS or PLAIN."""
    if numpy_array:
        import numpy

        try:
            return numpy.dtype(name)
        except TypeError:
            raise HivemindValueError(f"NumPy here has no dtype {name}: it cannot hold this array") from None
    import torch

    if not hasattr(torch, name):
        raise HivemindValueError(f"torch here has no dtype {name}: it cannot hold this tensor")
    return getattr(torch, name)


def empty(shape: Tuple[int, ...], dtype: str, numpy_array: bool) -> Any:
    """A new array. Its size must have been held against what is there to fill it."""
    return __import__("numpy" if numpy_array else "torch").empty(shape, dtype=dtype_of(dtype, numpy_array))


def as_carrier(numbers: Any, dtype: str) -> Any:
    """Flat numbers of a plain dtype as floats with the same bytes (and a zero byte if those are odd), for the codec
    that keeps bits.
    """
    size = PLAIN[dtype]
    library = sys.modules["torch" if is_tensor(numbers) else "numpy"]
    if size > 1:
        return numbers.view(getattr(library, CARRIERS[size]))
    even = library.zeros(len(numbers) + len(numbers) % 2, dtype=library.uint8)
    even[: len(numbers)] = numbers.view(library.uint8)
    return even.view(library.float16)


def from_carrier(carrier: Any, shape: Tuple[int, ...], dtype: str) -> Any:
    is_array = not is_tensor(carrier)
    if PLAIN[dtype] == 1:
        carrier = carrier.view(dtype_of("uint8", is_array))[: math.prod(shape)]
    if dtype == "bool":
        return (carrier != 0).reshape(shape)  # whatever the bytes were, each is a truth value
    return carrier.view(dtype_of(dtype, is_array)).reshape(shape)


def carrier_of(shape: Tuple[int, ...], dtype: str) -> Tuple[str, int]:
    """The carrier's dtype and count for a tensor of a plain dtype."""
    size = PLAIN[dtype]
    carrier = CARRIERS[size]
    width = {"float16": 2, "float32": 4, "float64": 8}[carrier]
    return carrier, (math.prod(shape) * size + width - 1) // width
