"""The swarm's state, for who joins: offered by those who have it, loaded whole from several of them at once. The rules
are the core's (csrc/core/state/state.h); here tensors become buffers, and buffers tensors. Nothing that comes from the
network is ever run as code."""

from __future__ import annotations

import collections
import logging
import math
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from _hivemind_c import CODECS, Future, HivemindError, HivemindLookupError, HivemindTimeoutError, HivemindValueError

from hivemind_c.averaging.image import Image
from hivemind_c.compression.adaptive import AdaptiveCompressionBase
from hivemind_c.compression.base import CompressionBase, CompressionInfo
from hivemind_c.compression.codecs import NoCompression, _Codec
from hivemind_c.dht.values import _pack, _unpack

logger = logging.getLogger("hivemind_c.averaging")
METADATA_MAX = 1 << 20  #: bytes, packed: the core's limit
_FLOATS = {"float32": 1, "float16": 2, "bfloat16": 3, "float64": 4}  #: as in csrc/kern/dtype.h
_OTHERS = ("int8", "int16", "int32", "int64", "uint8", "bool")
_VERSION = 1
WATCH_S = 1.0  #: between two looks at a download
_REFUSED_MAX = 16  #: states, as in csrc/core/state/state.h


class LoadedState(NamedTuple):
    """A state from the swarm. The caller owns its tensors and may change them."""

    epoch: int
    metadata: Any
    tensors: List[Any]
    donor: str  #: the peer that gave most of it


class StateSharing:
    """Offers the state of this peer under a prefix, and loads that of the swarm.

    Peers with equal states must announce equal bytes. So metadata holds only values that all of them share, such as the
    learning rate of the epoch, and no times, names or speeds.

    Args:
        node: A Node or a DHT that runs.
        prefix: Name under which states are offered.
        compression: Compression of floating-point tensors. All peers of a run need the same.
        declare_period: Seconds between two announcements of an offer.
    """

    def __init__(
        self, node: Any, prefix: str, *, compression: CompressionBase = NoCompression(), declare_period: float = 30
    ):
        if not declare_period > 0:
            raise ValueError(f"declare_period must be more than 0 seconds, not {declare_period!r}")
        self._node = node.core
        self.prefix, self.compression = prefix, compression
        self._key, self._declare_ms, self._priority = (
            prefix.encode(),
            min(round(declare_period * 1000), 1 << 30) or 1,
            0.0,
        )
        self._refused: Deque[bytes] = collections.deque(maxlen=_REFUSED_MAX // 2)  # digests of states of no use

    def offer(
        self,
        epoch: int,
        tensors: Sequence[Any],
        metadata: Any = None,
        *,
        infos: Optional[Sequence[CompressionInfo]] = None,
        wait: bool = True,
        lineage: bytes = b"",
        n_own: int = 0,
    ) -> Union[bytes, Future]:
        """Offers tensors in place of an earlier offer, and returns the digest that names them.

        Memory of the CPU is lent without a copy. It must not change before another offer or a withdrawal, and before
        all downloads are over. Other tensors are copied once.

        Args:
            epoch: Number of the state, 0 or more.
            tensors: Tensors of the state.
            metadata: Value of types that MessagePack has, up to 1 MiB.
            infos: One CompressionInfo for each tensor, by which an adaptive compression chooses.
            wait: False: return a future of the digest at once.
            lineage: 16 bytes that name the history of the state. Without a majority for one state, a lineage decides.
            n_own: Number of tensors, the last ones, whose values differ among peers of one state. No digest has them.
        """
        if len(lineage) not in (0, 16):
            raise ValueError(f"a lineage must have 16 bytes or none, not {len(lineage)}")
        image = self.image(epoch, tensors, metadata, infos, n_own)
        parts = tuple((part, *kind) for part, kind in zip(image.parts, image.kinds))
        future = self._node.state_offer(
            self._key, epoch, image.metadata, parts, self._priority, self._declare_ms, lineage
        )
        return future.result() if wait else future

    def give(
        self,
        node: Any,
        image: Image,
        lineage: bytes = b"",
        hubs: Tuple[str, ...] = (),
        ticket: bytes = b"",
    ) -> Future:
        """Gives a state to hubs that cannot ask for it as joiners do. Returns a future of the end.

        Args:
            node: The core's node of a trainer that only dials out.
            image: The result of image(). Its memory must not change before the end.
            lineage: As in offer().
            hubs: IDs of hubs that expect it under this ticket. (): the hub that has asked.
            ticket: The ticket.
        """
        parts = tuple((part, *kind) for part, kind in zip(image.parts, image.kinds))
        expected = (hubs, ticket) if hubs else ()
        return node.gift_give(self._key, image.epoch, image.metadata, parts, lineage, *expected)

    def image(
        self,
        epoch: int,
        tensors: Sequence[Any],
        metadata: Any = None,
        infos: Optional[Sequence[CompressionInfo]] = None,
        n_own: int = 0,
    ) -> Image:
        """Returns the state that offer() offers, as bytes.

        Args:
            epoch: As in offer().
            tensors: As in offer(). Memory of the CPU is lent without a copy.
            metadata: As in offer().
            infos: As in offer().
            n_own: As in offer().
        """
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 64:
            raise ValueError(f"an epoch must be an int from 0 up, not {epoch!r}")
        infos = infos or [CompressionInfo.from_tensor(tensor, key=i) for i, tensor in enumerate(tensors)]
        if len(infos) != len(tensors):
            raise ValueError(f"{len(infos)} infos were given for {len(tensors)} tensors: give one for each tensor")
        if not 0 <= n_own <= len(tensors):
            raise ValueError(f"n_own must be a number of tensors from 0 to {len(tensors)}, not {n_own!r}")
        schema = [[_dtype_name(tensor), list(tensor.shape)] for tensor in tensors]
        packed = _pack({"version": _VERSION, "tensors": schema, "metadata": metadata}, 0)
        if len(packed) > METADATA_MAX:
            raise ValueError(
                f"the state's metadata has {len(packed)} bytes when packed, and the limit is {METADATA_MAX}: share "
                "large values as tensors"
            )
        shared = len(tensors) - n_own
        codecs = [_codec(self.compression, info, name) for info, (name, _) in zip(infos[:shared], schema)] + [0] * n_own
        kinds = tuple(
            (codec, _FLOATS.get(name, 0), i >= shared) for i, (codec, (name, _)) in enumerate(zip(codecs, schema))
        )
        return Image(epoch, packed, tuple(_buffer(tensor) for tensor in tensors), kinds)

    def withdraw(self, at_once: bool = False) -> None:
        """Offers nothing any more. It has no effect if nothing was offered.

        Args:
            at_once: Also break off downloads under way.
        """
        error = self._node.state_withdraw(self._key, at_once).exception()
        if error is not None and not isinstance(error, HivemindLookupError):
            raise error

    @property
    def priority(self) -> float:
        """Priority of this donor. Joining peers ask donors with a higher one first."""
        return self._priority

    @priority.setter
    def priority(self, value: float) -> None:
        if not math.isfinite(value):
            raise ValueError(f"a priority must be a finite number, not {value!r}")
        self._priority = float(value)
        error = self._node.state_priority(self._key, self._priority).exception()
        if error is not None and not isinstance(error, HivemindLookupError):
            raise error

    def load(
        self,
        timeout: Optional[float] = None,
        *,
        like: Optional[Sequence[Any]] = None,
        epoch_least: int = 0,
        size_max: int = 0,
        accept: Optional[Callable[[LoadedState], Any]] = None,
        watch: Optional[Callable[[int, int, int, int], None]] = None,
    ) -> LoadedState:
        """Returns the state that a majority of the swarm names, as a LoadedState.

        If a state is too large, or refused, peers that announce it have no vote, and another one is loaded.
        Raises HivemindLookupError if no peer offers a state, HivemindConnectionError if no donor answers, and
        HivemindValueError if each state is refused.

        Args:
            timeout: Longest time in seconds in which nothing of it arrives. None: 600.
            like: Tensors, or objects with shape and dtype, that the state must match.
            epoch_least: Oldest epoch that is accepted.
            size_max: Most bytes that it may take. 0: the memory of this machine that is free.
            accept: A function that raises ValueError to refuse the state that it is given, now and in later loads.
            watch: A function that is called each second with epoch, bytes that are here, of all, and peers that send.
        """
        size_max = size_max or _free_memory()
        here, refusal = list(self._refused), None
        while True:
            future = self._node.state_load(self._key, timeout, size_max, epoch_least, b"".join(here))
            try:
                epoch, packed, donor, buffers, digest, _ = self._watched(future, watch)
            except BaseException as error:
                future.cancel()  # after Ctrl-C: nobody waits for it any more
                if refusal is not None and isinstance(error, HivemindError):
                    raise refusal from None
                raise
            try:
                return self._made(epoch, packed, donor, buffers, digest, like, accept)
            except ValueError as error:
                # without its frames, which would keep the tensors
                refusal = HivemindValueError(str(error))
                logger.warning("%s: refusing the state of swarm epoch %d, from peers: %s", self.prefix, epoch, error)
            del buffers
            here.append(digest)
            if len(here) > _REFUSED_MAX:
                raise refusal

    def _watched(self, load: Future, watch: Optional[Callable[[int, int, int, int], None]]) -> Any:
        """The result of a load."""
        while watch is not None:
            try:
                return load.result(WATCH_S)
            except HivemindTimeoutError:
                if load.done():
                    raise
            try:
                watch(*self._node.state_loading(self._key).result())
            except HivemindLookupError:
                pass  # it has just ended
        return load.result()

    def _made(
        self,
        epoch: int,
        packed: bytes,
        donor: str,
        buffers: Sequence[memoryview],
        digest: bytes,
        like: Optional[Sequence[Any]],
        accept: Optional[Callable[[LoadedState], Any]],
    ) -> LoadedState:
        """The state that these bytes are. ValueError: it is of no use."""
        try:
            schema, metadata = _read(packed, len(buffers))
            tensors = [_tensor(buffer, *kind) for buffer, kind in zip(buffers, schema)]
            state = LoadedState(epoch, metadata, tensors, donor)
            if accept is not None:
                accept(state)
        except ValueError:
            self._refused.append(digest)
            raise
        if like is not None:
            _compare(schema, like)
        return state

    def want(self, number: int) -> Future:
        """Asks donors that share on demand to make an offer. Returns a future of the number under which they do.

        Args:
            number: The number to offer under, if none of them offers under another one.
        """
        return self._node.state_want(self._key, number)

    def look(self, timeout: Optional[float] = None, *, epoch_least: int = 0) -> int:
        """Returns the epoch of the state that load() would download, and downloads nothing. It searches once.

        States that `accept` refused in an earlier load() are not looked at.

        Raises HivemindLookupError if no peer offers such a state.

        Args:
            timeout: Longest time in seconds. None: no limit.
            epoch_least: Oldest epoch that is accepted.
        """
        future = self._node.state_look(self._key, timeout, epoch_least, b"".join(self._refused))
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _free_memory() -> int:
    """Bytes that programs can still take on this machine. 0: not known."""
    try:
        with open("/proc/meminfo") as lines:
            free = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return 0
    return free[0] * 1024 if free else 0


def _dtype_name(tensor: Any) -> str:
    name = str(tensor.dtype).replace("torch.", "")
    if name not in _FLOATS and name not in _OTHERS:
        raise HivemindValueError(
            f"a tensor of {tensor.dtype} cannot be shared: convert it to one of {', '.join((*_FLOATS, *_OTHERS))}"
        )
    return name


def _buffer(tensor: Any) -> Any:
    """Its memory as plain bytes."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _codec(compression: Any, info: CompressionInfo, dtype: str) -> int:
    while isinstance(compression, AdaptiveCompressionBase):
        compression = compression.choose_compression(info)
    if not isinstance(compression, _Codec):
        raise HivemindValueError(
            f"cannot share a state with {type(compression).__name__}: use a compression of hivemind_c, or "
            "NoCompression()"
        )
    return CODECS.index(compression.flat_codec_name or compression.codec_name) if dtype in _FLOATS else 0


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
            if math.prod(max(size, 1) for size in shape) >= 1 << 48:  # torch makes no such tensor, even without values
                raise ValueError("a shape that no tensor has")
    except HivemindError:
        raise
    except Exception as error:
        raise HivemindValueError(f"the swarm's state was not written by this version of hivemind_c: {error}") from None
    return schema, metadata


def _compare(schema: Sequence[Tuple[str, Tuple[int, ...]]], like: Sequence[Any]) -> None:
    wanted = [(str(tensor.dtype).replace("torch.", ""), tuple(tensor.shape)) for tensor in like]
    if len(wanted) != len(schema):
        raise HivemindValueError(
            f"the swarm's state has {len(schema)} tensors, and this peer's {len(wanted)}: train the same model on both"
        )
    for i, (theirs, ours) in enumerate(zip(schema, wanted)):
        if theirs != ours:
            raise HivemindValueError(
                f"tensor {i} of the swarm's state is {theirs[0]} of shape {theirs[1]}, and this peer's {ours[0]} of "
                f"shape {ours[1]}"
            )


def _tensor(buffer: memoryview, name: str, shape: Tuple[int, ...]) -> Any:
    import torch

    dtype = getattr(torch, name)
    size = math.prod(shape) * dtype.itemsize
    if size != buffer.nbytes:
        raise HivemindValueError(
            f"a tensor of the swarm's state has {buffer.nbytes} bytes, and its shape asks for {size}"
        )
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape) if size else torch.empty(shape, dtype=dtype)
