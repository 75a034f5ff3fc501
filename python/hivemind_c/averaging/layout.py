"""The layout of a run's averagers: what a peer without tensors must know to take part in their rounds.

A trainer writes it from its averagers, and a hub reads it. A stranger's layout is refused unless all values are within
their bounds.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Dict, List, NamedTuple, Tuple

import msgpack
from _hivemind_c import CODECS, HivemindValueError

from hivemind_c.averaging.checks import MOST_NORM_RATIO
from hivemind_c.averaging.tensors import LentTensors
from hivemind_c.compression import arrays

VERSION = 1
PACKED_MAX = 60_000  #: bytes of a packed layout: it fits into a record of the DHT
UNPACKED_MAX = 16 << 20
TENSORS_MAX, DIMS_MAX, VALUES_MAX = 1 << 16, 64, 1 << 48
SECONDS_MAX = 86_400.0
EVERY_MAX = 1 << 32
GROUP_BITS_MAX = 64
#: of an averager, with the largest value of each
_WHOLE = {
    "part_bytes": 1 << 30,
    "target_group": 1 << 20,
    "min_group": 1 << 20,
    "round_ms": (1 << 32) - 2,
    "stall_ms": (1 << 32) - 2,
    "request_ms": (1 << 32) - 2,
    "min_vector": (1 << 32) - 2,
}
#: settings that older hubs do not know, with the largest value of each; 0 is not written
_LATER = {"norm_ratio": MOST_NORM_RATIO}
#: number of the dtype, of the codec, of the narrow codec or 0, whether it is apart, shape
Tensor = Tuple[int, int, int, bool, Tuple[int, ...]]


class AveragerLayout(NamedTuple):
    """One averager of a run."""

    kind: str  #: "gradients" or "state"
    every: int  #: epochs from one round to the next
    bits: str  #: of the first group
    settings: Dict[str, Any]  #: as the core has them
    tensors: Tuple[Tensor, ...]

    @property
    def values(self) -> int:
        """The number of values in all tensors."""
        return sum(math.prod(shape) for *_, shape in self.tensors)

    def loans(self) -> List[Tuple[Any, int, None, bool, int]]:
        """The tensors as the core's Averager takes them from an auxiliary peer."""
        return [((dtype, shape), codec, None, apart, narrow) for dtype, codec, narrow, apart, shape in self.tensors]


class RunLayout(NamedTuple):
    """All averagers of a run, and its times in seconds."""

    matchmaking_time: float
    averaging_timeout: float
    averagers: Tuple[AveragerLayout, ...]


def layout_of(lent: LentTensors, settings: Dict[str, Any], bits: str, kind: str, every: int) -> AveragerLayout:
    """Returns the layout of an averager with tensors.

    Args:
        lent: Its tensors.
        settings: Its settings, as the core has them.
        bits: Those of its first group.
        kind: "gradients" or "state".
        every: Epochs from one round to the next.
    """
    tensors = tuple(
        (arrays.FLOATS[arrays.dtype_name(tensor.dtype)], codec, narrow, apart, tuple(map(int, tensor.shape)))
        for tensor, (_, codec, _, apart, narrow) in zip(lent.tensors, lent.loans)
    )
    kept = {name: settings[name] for name in (*_WHOLE, "weight_max")}
    kept.update({name: settings[name] for name in _LATER if settings[name]})
    return AveragerLayout(kind, every, bits, kept, tensors)


def pack_layout(layout: RunLayout) -> bytes:
    """Returns a layout as bytes. Raises HivemindValueError if they are too many for a record.

    Args:
        layout: A RunLayout.
    """
    said = {
        "version": VERSION,
        "times": [float(layout.matchmaking_time), float(layout.averaging_timeout)],
        "averagers": [
            [one.kind, one.every, one.bits, one.settings, [_packed(tensor) for tensor in one.tensors]]
            for one in layout.averagers
        ],
    }
    packed = zlib.compress(msgpack.packb(said), 9)
    if len(packed) > PACKED_MAX:
        raise HivemindValueError(
            f"a hub cannot average for this run: its layout has {len(packed)} bytes when compressed, and the limit is "
            f"{PACKED_MAX}; let one trainer be dialled, or use fewer, larger tensors"
        )
    return packed


def read_layout(packed: Any) -> RunLayout:
    """Returns the layout in a stranger's bytes.

    Raises ValueError if they are not those of pack_layout().

    Args:
        packed: The bytes.
    """
    if type(packed) is not bytes or len(packed) > PACKED_MAX:
        raise ValueError(f"a layout has at most {PACKED_MAX} bytes")
    try:
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(packed, UNPACKED_MAX)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("it is not whole, or larger than the limit")
        said = msgpack.unpackb(plain, max_ext_len=0)
        version, (matchmaking, averaging), averagers = said["version"], said["times"], said["averagers"]
        found = tuple(_averager(*one) for one in averagers)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, zlib.error, msgpack.UnpackException) as error:
        raise ValueError(f"a layout cannot be read: {error}") from None
    kinds = [one.kind for one in found]
    fine = version == VERSION and len(set(kinds)) == len(kinds) and kinds
    if not fine or not all(_is_number(time, SECONDS_MAX) for time in (matchmaking, averaging)):
        raise ValueError("a layout has another version, or values out of their bounds")
    return RunLayout(matchmaking, averaging, found)


def _is_whole(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and 0 <= value <= most


def _averager(kind: Any, every: Any, bits: Any, settings: Any, tensors: Any) -> AveragerLayout:
    fine = (
        kind in ("gradients", "state")
        and _is_whole(every, EVERY_MAX)
        and every > 0
        and type(bits) is str
        and len(bits) <= GROUP_BITS_MAX
        and not set(bits) - {"0", "1"}
        and set(settings) - set(_LATER) == {*_WHOLE, "weight_max"}
        and all(_is_whole(settings[name], most) for name, most in _WHOLE.items())
        and _is_number(settings["weight_max"], 3e38)
        and all(_is_number(settings.get(name, 0), most) for name, most in _LATER.items())
        and 0 < len(tensors) <= TENSORS_MAX
    )
    if not fine:
        raise ValueError("values out of their bounds")
    layout = AveragerLayout(kind, every, bits, settings, tuple(_tensor(*one) for one in tensors))
    if layout.values > VALUES_MAX:
        raise ValueError("more values than a run may have")
    return layout


def _packed(tensor: Tensor) -> List[Any]:
    """Two codecs stand as a list, which a hub refuses that does not know narrow ones."""
    dtype, codec, narrow, apart, shape = tensor
    return [dtype, [codec, narrow] if narrow else codec, apart, *shape]


def _tensor(dtype: Any, codecs: Any, apart: Any, *shape: Any) -> Tensor:
    codec, narrow = codecs if type(codecs) is list else (codecs, 0)
    fine = (
        dtype in arrays.FLOATS.values()
        and _is_whole(codec, len(CODECS) - 1)
        and _is_whole(narrow, len(CODECS) - 1)
        and type(apart) is bool
        and len(shape) <= DIMS_MAX
        and all(_is_whole(size, VALUES_MAX) for size in shape)
    )
    if not fine:
        raise ValueError("a tensor out of its bounds")
    return dtype, codec, narrow, apart, shape
