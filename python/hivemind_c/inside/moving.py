"""Tensors between the ranks of a peer: sums to rank 0, parameters and buffers from it."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from hivemind_c.inside.channel import Channel
from hivemind_c.optim.gradient_sums import GradientSums

PART = 1 << 24  #: elements that are reduced at once: some ranks may bring them from another device
SMALL, PACK = 1 << 20, 1 << 24  #: bytes: smaller tensors travel together, in packs of this size


def group_of(channel: Channel, tensor: torch.Tensor) -> Any:
    """The channel's group for host memory, else the default group, which Lightning has made for the device."""
    return channel.group if tensor.device.type == "cpu" else None


@torch.no_grad()
def reduce_sums(channel: Channel, sums: GradientSums, unit: float, on: str) -> List[bool]:
    """Adds the sums of all ranks up at rank 0. Returns there whether any rank had a gradient, for each parameter.

    Args:
        channel: The channel.
        sums: Sums of this rank. Those of other ranks than 0 are spoilt.
        unit: The unit of the total (GradientSums.flat_sums).
        on: Type of the device of rank 0's sums.
    """
    touched = torch.tensor(sums.touched() if sums.unit is not None else [False] * len(sums.parameters))
    for flat in sums.flat_sums(unit):
        for part in flat.split(PART):  # alike in all ranks, though those of rank 0 are where the sums meet
            here = part if part.device.type == on else part.to(on)
            work = dist.reduce(here, 0, group=group_of(channel, here), async_op=True)
            channel.finish(work, "the reduction of gradients")
    touched = touched.to(torch.uint8)
    work = dist.reduce(touched, 0, op=dist.ReduceOp.MAX, group=channel.group, async_op=True)
    channel.finish(work, "the reduction of gradients")
    return [bool(value) for value in touched.tolist()]


class SharedState:
    """The parameters and buffers of a module, which the other ranks take over from rank 0.

    Args:
        module: The module.
        frozen: Places of the tensors that do not train, as rank 0 knows them. None: this is rank 0.
    """

    def __init__(self, module: torch.nn.Module, frozen: Optional[Iterable[int]] = None):
        self._module = module
        if frozen is None:
            held = enumerate(self._held())
            frozen = (i for i, t in held if isinstance(t, torch.nn.Parameter) and not t.requires_grad)
        self.frozen = set(frozen)

    def _held(self) -> List[torch.Tensor]:
        """Those that can be written, each once."""
        found = {}
        for tensor in (*self._module.parameters(), *self._module.buffers()):
            if tensor.layout is torch.strided and not tensor.is_quantized and tensor.device.type != "meta":
                found.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else (), tensor)
        return [tensor for tensor in found.values() if tensor.numel()]

    def frozen_now(self) -> List[Tuple[int, int]]:
        """Another value once a frozen tensor may have changed."""
        return [(t.data_ptr(), t._version) for i, t in enumerate(self._held()) if i in self.frozen]

    def broadcast(self, channel: Channel, frozen: bool) -> None:
        """Makes the tensors of all ranks those of rank 0, to the bit.

        Args:
            channel: The channel.
            frozen: The frozen ones, too.
        """
        some = (tensor for i, tensor in enumerate(self._held()) if frozen or i not in self.frozen)
        broadcast_state(channel, [_written(tensor.detach()) for tensor in some])


def _written(tensor: torch.Tensor) -> torch.Tensor:
    """The first of elements that lie in the same memory, as expand() makes them."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


@torch.no_grad()
def broadcast_state(channel: Channel, tensors: Sequence[torch.Tensor]) -> None:
    """Makes the tensors of all ranks those of rank 0, to the bit.

    Args:
        channel: The channel.
        tensors: The tensors, alike in all ranks but for their values.
    """
    works = []
    for pack in _packs(tensors):
        if len(pack) == 1 and pack[0].is_contiguous():
            works.append(_broadcast(channel, _bytes(pack[0])))
            continue
        together = torch.cat([_bytes(tensor.contiguous()) for tensor in pack])
        channel.finish(_broadcast(channel, together), "the broadcast of parameters")
        if channel.rank:
            sizes = [tensor.numel() * tensor.element_size() for tensor in pack]
            for tensor, part in zip(pack, together.split(sizes)):
                tensor.copy_(part.clone().view(tensor.dtype).view(tensor.shape))  # a clone is aligned
    for work in works:
        channel.finish(work, "the broadcast of parameters")


def _broadcast(channel: Channel, tensor: torch.Tensor) -> Any:
    return dist.broadcast(tensor, 0, group=group_of(channel, tensor), async_op=True)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)


def _packs(tensors: Iterable[torch.Tensor]) -> List[List[torch.Tensor]]:
    """Large tensors alone, small ones of one device together."""
    packs: List[List[torch.Tensor]] = []
    room: "dict[torch.device, tuple[int, List[torch.Tensor]]]" = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if size >= SMALL and tensor.is_contiguous():
            packs.append([tensor])
            continue
        used, pack = room.get(tensor.device, (PACK, []))
        if used + size > PACK:
            used, pack = 0, []
            packs.append(pack)
        pack.append(tensor)
        room[tensor.device] = used + size, pack
    return packs
