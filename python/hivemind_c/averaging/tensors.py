"""The memory that a round reads and writes: the caller's own where it can be lent, copies on the host elsewhere."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import _hivemind_c
from _hivemind_c import HivemindError, HivemindValueError

from hivemind_c import cuda
from hivemind_c.compression import arrays
from hivemind_c.compression.adaptive import AdaptiveCompressionBase
from hivemind_c.compression.base import CompressionBase, CompressionInfo
from hivemind_c.compression.codecs import BUILT_IN, NoCompression, _Codec

CHUNK_VALUES_MAX = (1 << 20) - 8  #: HV_RUN_CHUNK_MAX of csrc/core/round/run.h


def codec_of(compression: Any, info: CompressionInfo) -> int:
    """The core's codec for one tensor."""
    return _hivemind_c.CODECS.index(_chosen(compression, info).codec_name)


def _narrow_codec_of(compression: Any, info: CompressionInfo) -> int:
    """The codec under which a member may send it instead; 0: there is none."""
    narrow = _chosen(compression, info).narrow
    return _hivemind_c.CODECS.index(narrow.codec_name) if narrow is not None else 0


def _chosen(compression: Any, info: CompressionInfo) -> _Codec:
    chosen = compression
    while isinstance(chosen, AdaptiveCompressionBase):
        chosen = chosen.choose_compression(info)
    if not isinstance(chosen, CompressionBase):
        raise TypeError(f"compression must be an instance, for example Float16Compression(), not {chosen!r}")
    if not isinstance(chosen, _Codec):
        names = ", ".join(one.__name__ for one in BUILT_IN)
        raise HivemindValueError(
            f"{type(chosen).__name__} cannot be used for averaging: rounds run without Python; choose one of {names}, "
            "or an adaptive compression made of them"
        )
    return chosen


def _hold(tensor: Any) -> Any:
    """Something that keeps torch from moving the memory of a tensor (resize_) while it is lent."""
    import torch

    return tensor.detach().reshape(-1).view(torch.uint8).numpy() if tensor.numel() else None


def _span(tensor: Any) -> Optional[Tuple[str, int, int]]:
    """(device, begin, end) of a tensor's memory; None: it has none, or has gaps in it, where another may lie."""
    if not arrays.is_tensor(tensor):
        begin, size, device = tensor.__array_interface__["data"][0], tensor.nbytes, "cpu"
        return (device, begin, begin + size) if size else None
    reach = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    if not tensor.numel() or tensor.numel() != reach:
        return None
    begin, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    if tensor.device.type not in ("cpu", "cuda"):
        size = 1  # an address there may be a handle: it tells who lies at the same place, not who lies next
    return str(tensor.device), begin, begin + size


def check_apart(tensors: Sequence[Any]) -> None:
    """That no memory is given twice: each of its averages would be written over the other's, in another order at each
    member.
    """
    found = ((_span(tensor), i) for i, tensor in enumerate(tensors))
    spans = sorted((span, i) for span, i in found if span is not None)
    for ((device, _, end), i), ((next_device, begin, _), j) in zip(spans, spans[1:]):
        if device == next_device and begin < end:
            first, second = sorted((i, j))
            raise HivemindValueError(
                f"averaged_tensors[{first}] and averaged_tensors[{second}] lie in the same memory, as tied weights "
                "do: give each tensor once, and the whole tensor instead of overlapping views"
            )


class LentTensors:
    """The tensors of one averager, and the memory of each that C uses: on the host, on a GPU, or a copy on the host.

    Args:
        tensors: The tensors.
        compression: Compression on the network.
        infos: One CompressionInfo for each tensor. None: made from the tensors.
        chunk_values: Values in the largest chunk of a round, for tensors on GPUs. 0: those are copied to the host.
        apart: Indices of tensors that share no chunk with the tensor before, whose averages are then exact if alike.
    """

    def __init__(
        self,
        tensors: Sequence[Any],
        compression: CompressionBase,
        infos: Optional[Sequence[CompressionInfo]] = None,
        chunk_values: int = 0,
        apart: Sequence[int] = (),
    ):
        self._apart = frozenset(apart)
        self.tensors: Tuple[Any, ...] = tuple(tensors)
        if infos is not None and len(infos) != len(self.tensors):
            raise HivemindValueError(
                f"tensor_infos has {len(infos)} entries for {len(self.tensors)} tensors: give one for each tensor"
            )
        self.infos = (
            tuple(infos)
            if infos is not None
            else tuple(CompressionInfo.from_tensor(one, key=i) for i, one in enumerate(self.tensors))
        )
        self._codecs = [codec_of(compression, info) for info in self.infos]
        self._narrow = [_narrow_codec_of(compression, info) for info in self.infos]
        self._chunk_values = chunk_values
        self._transfers_by_device: Dict[Any, Optional[cuda.Transfers]] = {}
        self._holds: List[Any] = []
        self._lend_all()
        check_apart(self.tensors)
        self._addresses = [self._address(tensor) for tensor in self.tensors]

    @property
    def as_they_are(self) -> bool:
        """Whether all values travel uncompressed."""
        return all(_hivemind_c.CODECS[codec] == NoCompression.codec_name for codec in self._codecs)

    def _lend_all(self) -> None:
        self._by = [self._transfers(tensor) for tensor in self.tensors]
        self._lent = [self._lend(i, tensor) for i, tensor in enumerate(self.tensors)]

    def _transfers(self, tensor: Any) -> Optional[cuda.Transfers]:
        if not self._chunk_values or not arrays.is_tensor(tensor) or not cuda.averages([tensor]):
            return None
        if tensor.device not in self._transfers_by_device:
            self._transfers_by_device[tensor.device] = cuda.transfers_for(tensor, self._chunk_values)
        return self._transfers_by_device[tensor.device]

    def _lend(self, i: int, tensor: Any) -> Any:
        if not arrays.is_tensor(tensor):
            return tensor
        if tensor.layout != _strided() or not tensor.is_floating_point():
            raise HivemindValueError(
                f"averaged_tensors[{i}] is a {tensor.layout} tensor of {tensor.dtype}: only dense floating tensors "
                "can be averaged"
            )
        if self._by[i] is not None:
            return tensor.detach()
        if tensor.device.type != "cpu":
            return _host_twin(tensor)
        if tensor.is_contiguous():
            self._holds.append(_hold(tensor))
        return tensor.detach()

    @property
    def loans(self) -> List[Tuple[Any, int, Any, bool, int]]:
        """(memory, codec, how it is reached when it is a GPU's, whether it is apart, narrow codec or 0)"""
        return [
            (lent, codec, transfers and transfers.inner, i in self._apart, narrow)
            for i, (lent, codec, transfers, narrow) in enumerate(zip(self._lent, self._codecs, self._by, self._narrow))
        ]

    def ready(self) -> None:
        """Makes work of the program on its streams come before the next round."""
        for tensor, transfers in self._on_gpus():
            try:
                transfers.follow(tensor)
            except HivemindError:
                pass  # the GPU has failed, and its transfers says so in the round

    def broken(self) -> bool:
        """Whether a GPU has failed in a round: then its tensors are lent as copies on the host from now on. Told in one
        warning.
        """
        failed = [(tensor, why) for tensor, transfers in self._on_gpus() for why in [transfers.why()] if why]
        for tensor, why in failed:
            cuda.give_up(tensor, HivemindError(why))
            self._transfers_by_device[tensor.device] = None
        if failed:
            self._lend_all()
        return bool(failed)

    def _on_gpus(self) -> List[Tuple[Any, cuda.Transfers]]:
        """One tensor of each."""
        some = {
            tensor.device: (tensor, transfers)
            for tensor, transfers in zip(self.tensors, self._by)
            if transfers is not None
        }
        return list(some.values())

    @property
    def staged(self) -> bool:
        """Whether some live on another device, so that rounds work on copies."""
        return any(lent is not tensor and lent.device != tensor.device for lent, tensor in self._pairs())

    def _pairs(self) -> List[Tuple[Any, Any]]:
        return [(lent, tensor) for lent, tensor in zip(self._lent, self.tensors) if arrays.is_tensor(tensor)]

    def to_host(self) -> None:
        self._copy(lambda host, tensor: host.copy_(tensor.detach(), non_blocking=True))

    def from_host(self) -> None:
        self._copy(lambda host, tensor: tensor.detach().copy_(host, non_blocking=True))

    def _copy(self, copy: Any) -> None:
        devices = set()
        for lent, tensor in self._pairs():
            if lent.device != tensor.device:
                copy(lent, tensor)
                devices.add(tensor.device)
        for device in devices:
            _wait_for(device)

    @staticmethod
    def _address(tensor: Any) -> Tuple[int, Tuple[int, ...]]:
        where = tensor.data_ptr() if arrays.is_tensor(tensor) else tensor.__array_interface__["data"][0]
        return where, tuple(tensor.shape)

    def exchanged(self) -> Optional[HivemindValueError]:
        """The fault if a tensor is not any more the one that was lent: rounds write where it lay."""
        for i, (tensor, address) in enumerate(zip(self.tensors, self._addresses)):
            if self._address(tensor) != address:
                return HivemindValueError(
                    f"averaged_tensors[{i}] has been resized, or its memory exchanged, since the averager was made: "
                    "change tensors in place, or make a new averager"
                )
        return None

    def check(self) -> None:
        """That the tensors are still those that were lent."""
        if (error := self.exchanged()) is not None:
            raise error


def _strided() -> Any:
    import torch

    return torch.strided


def _host_twin(tensor: Any) -> Any:
    import torch

    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.device.type == "cuda")


def _wait_for(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()
