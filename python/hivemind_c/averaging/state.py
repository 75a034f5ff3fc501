"""The swarm's state, for who joins: offered by those who have it, loaded whole from several of them at once. The rules are the core's
(csrc/core/state/state.h); here tensors become buffers, and buffers tensors. Nothing that comes from the network is ever run as code."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from _hivemind_c import CODECS, Future, HivemindError, HivemindValueError

from hivemind_c.compression.adaptive import AdaptiveCompressionBase
from hivemind_c.compression.base import CompressionBase, CompressionInfo
from hivemind_c.compression.codecs import NoCompression
from hivemind_c.dht.values import _pack, _unpack

METADATA_MAX = 1 << 20  #: bytes, packed: the core's limit
_FLOATS = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4}  #: as in csrc/kern/dtype.h
_OTHERS = ("int8", "int16", "int32", "int64", "uint8", "bool")
_VERSION = 1


class LoadedState(NamedTuple):
    """A state that came from the swarm. Its tensors are nobody else's: they may be changed in place."""

    epoch: int
    metadata: Any
    tensors: List[Any]
    donor: str  #: the peer that gave most of it


class StateSharing:
    """Offers this peer's state under a prefix, and loads the swarm's.

    node: a Node or a DHT that runs. compression: of the floating tensors on their way, the same at all peers of a run. declare_period:
    how often an offer is announced anew, in seconds.

    What peers announce must be equal to the bit where their states are: so metadata holds only what all of them share (the epoch's
    learning rate, say), and no times, names or speeds.
    """

    def __init__(self, node: Any, prefix: str, *, compression: CompressionBase = NoCompression(), declare_period: float = 30):
        if not declare_period > 0:
            raise ValueError(f"declare_period must be more than 0 seconds, not {declare_period!r}")
        self._node = getattr(node, "_node", node)._started() if not hasattr(node, "_started") else node._started()
        self.prefix, self.compression = prefix, compression
        self._key, self._declare_ms, self._priority = prefix.encode(), min(round(declare_period * 1000), 1 << 30) or 1, 0.0

    def offer(
        self,
        epoch: int,
        tensors: Sequence[Any],
        metadata: Any = None,
        *,
        infos: Optional[Sequence[CompressionInfo]] = None,
        wait: bool = True,
        lineage: bytes = b"",
    ) -> Union[bytes, Future]:
        """Offers these tensors in place of those before; gives the digest that names them, or with wait=False a future of it.

        CPU memory is borrowed, not copied: it must not be changed until a newer offer or a withdrawal has taken the place of this one and
        nobody downloads it any more (then the tensors are let go of). What is not contiguous or not on the CPU is copied once.
        metadata: anything that MessagePack can say, up to 1 MiB. lineage: 16 bytes that say how the state came about; where no manifest has a
        majority, because states of one history differ by rounding, a joiner takes one of the lineage that more than two thirds name."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 64:
            raise ValueError(f"an epoch must be an int from 0 up, not {epoch!r}")
        if len(lineage) not in (0, 16):
            raise ValueError(f"a lineage must have 16 bytes or none, not {len(lineage)}")
        infos = infos or [CompressionInfo.from_tensor(tensor, key=i) for i, tensor in enumerate(tensors)]
        if len(infos) != len(tensors):
            raise ValueError(f"{len(infos)} infos were given for {len(tensors)} tensors: give one for each tensor")
        schema = [[_dtype_name(tensor), list(tensor.shape)] for tensor in tensors]
        packed = _pack({"version": _VERSION, "tensors": schema, "metadata": metadata}, 0)
        if len(packed) > METADATA_MAX:
            raise ValueError(f"the state's metadata has {len(packed)} bytes when packed, and the limit is {METADATA_MAX}: share large values as tensors")
        parts = tuple((_buffer(tensor), _codec(self.compression, info, name), _FLOATS.get(name, 0)) for tensor, info, (name, _) in zip(tensors, infos, schema))
        future = self._node.state_offer(self._key, epoch, packed, parts, self._priority, self._declare_ms, lineage)
        return future.result() if wait else future

    def withdraw(self, at_once: bool = False) -> None:
        """Offers nothing any more; at_once breaks off those who are downloading. Fine when nothing was offered."""
        error = self._node.state_withdraw(self._key, at_once).exception()
        if error is not None and error.status != "NOT_FOUND":
            raise error

    @property
    def priority(self) -> float:
        """Donors with more are asked first."""
        return self._priority

    @priority.setter
    def priority(self, value: float) -> None:
        if not math.isfinite(value):
            raise ValueError(f"a priority must be a finite number, not {value!r}")
        self._priority = float(value)
        error = self._node.state_priority(self._key, self._priority).exception()
        if error is not None and error.status != "NOT_FOUND":
            raise error

    def load(self, timeout: Optional[float] = None, *, like: Optional[Sequence[Any]] = None, epoch_least: int = 0, size_max: int = 0) -> LoadedState:
        """The state that a majority of the swarm names, whole, or an error that says why not; nothing else is touched.

        like: tensors (or anything with shape and dtype) that it must agree with. epoch_least: older ones are not wanted. size_max: bytes
        that it may take, 0 for no limit. HivemindLookupError: nobody offers one. HivemindConnectionError: no donor answers."""
        future = self._node.state_load(self._key, timeout, size_max, epoch_least)
        try:
            epoch, packed, donor, buffers = future.result()
        except BaseException:
            future.cancel()  # after Ctrl-C: nobody waits for it any more
            raise
        schema, metadata = _read(packed, len(buffers))
        if like is not None:
            _compare(schema, like)
        return LoadedState(epoch, metadata, [_tensor(buffer, *kind) for buffer, kind in zip(buffers, schema)], donor)


def _dtype_name(tensor: Any) -> str:
    name = str(tensor.dtype).replace("torch.", "")
    if name not in _FLOATS and name not in _OTHERS:
        raise HivemindValueError(f"a tensor of {tensor.dtype} cannot be shared: convert it to one of {', '.join((*_FLOATS, *_OTHERS))}")
    return name


def _buffer(tensor: Any) -> Any:
    """Its memory as plain bytes."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _codec(compression: Any, info: CompressionInfo, dtype: str) -> int:
    while isinstance(compression, AdaptiveCompressionBase):
        compression = compression.choose_compression(info)
    name = getattr(compression, "_name", None)
    if name not in CODECS:
        raise HivemindValueError(f"cannot share a state with {type(compression).__name__}: use a compression of hivemind_c, or NoCompression()")
    return CODECS.index(name) if dtype in _FLOATS else 0


def _read(packed: bytes, n: int) -> Tuple[List[Tuple[str, Tuple[int, ...]]], Any]:
    """A stranger's words about n tensors: their dtypes and shapes, and the metadata."""
    try:
        said: Dict[str, Any] = _unpack(packed, 0)
        schema = [(str(name), tuple(shape)) for name, shape in said["tensors"]]
        metadata = said["metadata"]
        if said["version"] != _VERSION or len(schema) != n:
            raise ValueError(f"version {said['version']}, {len(schema)} tensors described and {n} sent")
        for name, shape in schema:
            if name not in _FLOATS and name not in _OTHERS:
                raise ValueError(f"a dtype {name!r}")
            if len(shape) > 64 or not all(type(size) is int and 0 <= size < 1 << 48 for size in shape):
                raise ValueError("a shape that no tensor has")
    except HivemindError:
        raise
    except Exception as error:
        raise HivemindValueError(f"the swarm's state was not written by this version of hivemind_c: {error}") from None
    return schema, metadata


def _compare(schema: Sequence[Tuple[str, Tuple[int, ...]]], like: Sequence[Any]) -> None:
    wanted = [(str(tensor.dtype).replace("torch.", ""), tuple(tensor.shape)) for tensor in like]
    if len(wanted) != len(schema):
        raise HivemindValueError(f"the swarm's state has {len(schema)} tensors, and this peer's {len(wanted)}: train the same model on both")
    for i, (theirs, ours) in enumerate(zip(schema, wanted)):
        if theirs != ours:
            raise HivemindValueError(f"tensor {i} of the swarm's state is {theirs[0]} of shape {theirs[1]}, and this peer's {ours[0]} of shape {ours[1]}")


def _tensor(buffer: memoryview, name: str, shape: Tuple[int, ...]) -> Any:
    import torch

    dtype = getattr(torch, name)
    size = math.prod(shape) * dtype.itemsize
    if size != buffer.nbytes:
        raise HivemindValueError(f"a tensor of the swarm's state has {buffer.nbytes} bytes, and its shape asks for {size}")
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
