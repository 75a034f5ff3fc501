"""The codecs on a GPU, where one is: tensors are encoded where they lie, and only encoded bytes cross the bus.

Nothing here has to be called: what takes CUDA tensors asks for these kernels and goes by the host's memory where they
are not. ``why_not()`` tells why that is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

import _hivemind_c
from _hivemind_c import HivemindError, HivemindUnsupportedError, HivemindValueError

from hivemind_c import _nvrtc
from hivemind_c.compression import arrays

logger = logging.getLogger("hivemind_c.cuda")
T = TypeVar("T")

_LIBRARY = os.path.join(os.path.dirname(__file__), "libhivemind_cuda.so")
_DTYPES = {"float32": 1, "float16": 2, "bfloat16": 3}
_lock = threading.Lock()
_opened: Dict[int, Tuple[Optional["Kernels"], Optional[HivemindError]]] = {}


class Kernels:
    """The kernels of one GPU. They run on the current stream of the tensors' device, and nothing waits for them.

    Args:
        index: Index of the GPU.
        library: File of the library with the kernels.
    """

    def __init__(self, index: int = 0, library: str = _LIBRARY):
        if not os.path.exists(library):
            raise HivemindUnsupportedError(
                f"no GPU can be used: {os.path.basename(library)} is missing from this installation; install "
                "hivemind_c again"
            )
        self._gpu, note, is_warning = _hivemind_c.cuda_open(library, index, _nvrtc.compilers(), _nvrtc.cache())
        if note:
            logger.log(logging.WARNING if is_warning else logging.INFO, "%s", note)

    @staticmethod
    def takes(tensor: Any) -> bool:
        if not arrays.is_tensor(tensor):
            return False
        torch = sys.modules["torch"]
        return tensor.dtype in (torch.float32, torch.float16, torch.bfloat16) and tensor.layout is torch.strided

    def encode(self, codec: str, tensor: Any, residual: Any = None) -> Any:
        """The chunk of a tensor, as bytes on its device; the same bytes that the CPU makes of it. residual: float32
        there, as in compress().
        """
        import torch

        plain = tensor.detach().contiguous()
        number = _hivemind_c.CODECS.index(codec)
        kind, width = _DTYPES[arrays.dtype_name(plain.dtype)], arrays.row_width(plain.shape)
        size, scratch = _hivemind_c.cuda_room(self._gpu, number, kind, plain.numel(), width)
        room = torch.empty(size + scratch + 512, dtype=torch.uint8, device=plain.device)
        chunk = _cut(room, size)
        rest = _cut(room[chunk.storage_offset() + size :], scratch)
        _hivemind_c.cuda_encode(self._gpu, number, plain, chunk, rest, residual, width)
        return chunk

    def check(self, chunk: Any, codec: str, dtype: Any, count: int, finite: bool = False, width: int = 0) -> Any:
        """One int32 on the device: 0 when the chunk is whole, else a place in _hivemind_c.STATUSES. width: of the
        tensor's rows, 0 if it has one.
        """
        import torch

        number, kind = _hivemind_c.CODECS.index(codec), _DTYPES[arrays.dtype_name(dtype)]
        _, scratch = _hivemind_c.cuda_room(self._gpu, number, kind, count)
        verdict = torch.empty(4, dtype=torch.uint8, device=chunk.device)
        room = torch.empty(scratch + 256, dtype=torch.uint8, device=chunk.device)
        _hivemind_c.cuda_check(self._gpu, chunk, number, kind, count, finite, verdict, _cut(room, scratch), width)
        return verdict.view(torch.int32)

    def decode(self, chunk: Any, codec: str, dtype: Any, out: Any, verdict: Any = None) -> None:
        """Into out, contiguous on the device; not at all where the verdict is not 0. Without a verdict the chunk must
        be known to be whole.
        """
        number, kind = _hivemind_c.CODECS.index(codec), _DTYPES[arrays.dtype_name(dtype)]
        _hivemind_c.cuda_decode(
            self._gpu,
            chunk,
            number,
            kind,
            out.numel(),
            out.detach(),
            None if verdict is None else verdict.view(chunk.dtype),
            arrays.row_width(out.shape),
        )

    def add(self, total: Any, chunks: Sequence[Tuple[Any, str, Any, float]]) -> None:
        """total += weight * values, in one pass for up to 16 checked (chunk, codec, dtype, weight)."""
        inputs = [
            (chunk, _hivemind_c.CODECS.index(codec), _DTYPES[arrays.dtype_name(dtype)], weight)
            for chunk, codec, dtype, weight in chunks
        ]
        _hivemind_c.cuda_add(self._gpu, total, inputs)

    def all_finite(self, tensor: Any) -> Any:
        """A bool on the device."""
        import torch

        flag = torch.zeros(4, dtype=torch.uint8, device=tensor.device)
        _hivemind_c.cuda_finite(self._gpu, tensor.detach().contiguous(), flag)
        return flag.view(torch.int32)[0] == 0

    def accumulate(self, weight: float, tensors: Sequence[Any], sums: Sequence[Any]) -> None:
        """sums[i] += weight * tensors[i] for any number of contiguous tensors: one launch for each thousand of a dtype.
        Sums are float32.
        """
        kinds: Dict[Any, Tuple[List[Any], List[Any]]] = {}
        for tensor, total in zip(tensors, sums):
            of_kind = kinds.setdefault(tensor.dtype, ([], []))
            of_kind[0].append(tensor.detach() if tensor.requires_grad else tensor)
            of_kind[1].append(total.detach() if total.requires_grad else total)
        for some, totals in kinds.values():
            _hivemind_c.cuda_accumulate(self._gpu, weight, some, totals)

    def stage(self, codec: str, dtype: Any, chunk_values: int, slots: int = 3, pinned_most: int = 1 << 28) -> "Stage":
        return Stage(
            _hivemind_c.cuda_stage(
                self._gpu,
                _hivemind_c.CODECS.index(codec),
                _DTYPES[arrays.dtype_name(dtype)],
                chunk_values,
                slots,
                pinned_most,
            )
        )


class Transfers:
    """The way in which tensors of one GPU take part in rounds in place. Averagers give it to C beside the tensors.

    Args:
        kernels: Kernels of the GPU.
        chunk_values: Values in one chunk.
        slots: Chunks under way at once.
        pinned_most: Most bytes of page-locked memory.
    """

    def __init__(self, kernels: Kernels, chunk_values: int, slots: int = 4, pinned_most: int = 1 << 28):
        self.inner = _hivemind_c.cuda_transfers(kernels._gpu, chunk_values, slots, pinned_most)

    def follow(self, tensor: Any) -> None:
        """Makes later work of rounds come after all that is on the current stream of the tensor's device."""
        _hivemind_c.cuda_follow(self.inner, tensor.detach())

    def why(self) -> Optional[str]:
        """The first error of the GPU in a round; None: there was none."""
        return _hivemind_c.cuda_why(self.inner)


class Stage:
    """A ring of chunks between one GPU and page-locked memory: one is encoded, one is copied, and one is sent.

    Args:
        inner: The ring in C.
    """

    def __init__(self, inner: Any):
        self._inner = inner

    def send(self, tensor: Any, take: Callable[[int, bytes], Any]) -> None:
        """Calls take(index, bytes) for each chunk in order."""
        _hivemind_c.cuda_send(self._inner, tensor.detach(), take)

    def receive(self, out: Any, bring: Callable[[int], bytes]) -> None:
        """Fills out with the chunks bring(index). Each is checked before it counts."""
        _hivemind_c.cuda_receive(self._inner, out.detach(), bring)


def _cut(room: Any, size: int) -> Any:
    """`size` bytes of room from its first multiple of 256 on."""
    start = -room.data_ptr() % 256
    return room[start : start + size]


# ---- which GPUs have them ----


def _open(index: int) -> Tuple[Optional[Kernels], Optional[HivemindError]]:
    with _lock:
        if index not in _opened:
            try:
                _opened[index] = Kernels(index), None
            except HivemindError as error:
                _opened[index] = None, error
        return _opened[index]


def why_not(index: int = 0) -> Optional[str]:
    """Why the kernels cannot be used on this GPU, as one sentence; None when they can."""
    error = _open(index)[1]
    return None if error is None else str(error)


def kernels_for(tensor: Any) -> Optional[Kernels]:
    """Those of the tensor's device, if it is a GPU's and they can be used."""
    if not arrays.is_tensor(tensor) or tensor.device.type != "cuda" or sys.modules["torch"].version.hip:
        return None
    return _open(tensor.device.index or 0)[0] if Kernels.takes(tensor) else None


def attempt(tensor: Any, work: Callable[[Kernels], T]) -> Optional[T]:
    """The result of work with the kernels for the tensor; None where there are none.

    An error of CUDA's is told once, in a warning, and ends their use on that GPU: the caller goes by the host's memory.
    """
    kernels = kernels_for(tensor)
    if kernels is None:
        return None
    try:
        return work(kernels)
    except HivemindValueError:
        raise
    except HivemindError as error:
        give_up(tensor, error)
        return None


def give_up(tensor: Any, error: HivemindError) -> None:
    """Nobody uses the kernels of this tensor's GPU from now on; told in one warning."""
    index = tensor.device.index or 0
    with _lock:
        first = _opened.get(index, (None, None))[1] is None
        _opened[index] = None, error
    if first:
        logger.warning(
            "stopped using the kernels on %s, tensors now go through the host's memory: %s", tensor.device, error
        )


def transfers_for(tensor: Any, chunk_values: int) -> Optional[Transfers]:
    """One for tensors like this one, if it is a GPU's and has the kernels."""
    return attempt(tensor, lambda kernels: Transfers(kernels, chunk_values))


def averages(tensors: Sequence[Any]) -> bool:
    """Whether rounds can work on all of these where they lie, on GPUs. Asked of the gradients at every batch: each
    device is looked up once.
    """
    have: Dict[Any, bool] = {}
    for tensor in tensors:
        if not Kernels.takes(tensor) or not tensor.is_contiguous():
            return False
        if tensor.device not in have:
            have[tensor.device] = kernels_for(tensor) is not None
        if not have[tensor.device]:
            return False
    return True


def compressed(codec: str, tensor: Any) -> Optional[bytes]:
    """The chunk of a CUDA tensor, of which nothing but these bytes is copied to the host; None where that cannot be."""
    return attempt(tensor, lambda kernels: kernels.encode(codec, tensor).cpu().numpy().tobytes())
