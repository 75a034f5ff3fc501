"""The module's buffers, such as the running statistics of a batch norm, as a part of the state.

Floating-point buffers are averaged with the state, weighted by samples, and joining peers get the last average. Joining
peers get integer and bool buffers as their donor has them. No mark of a replica (lineage.py) depends on a buffer.
docs/reference/buffers.md has the rules.
"""

from __future__ import annotations

import logging
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from hivemind_c.compression import CompressionInfo, TensorRole
from hivemind_c.optim.buffer_source import AVERAGED, Given, as_real, few, finder, local_sentence
from hivemind_c.optim.parameters import copy_all, flat_views

logger = logging.getLogger("hivemind_c.optim")

LARGEST = 1e24  #: magnitude of a value that may be averaged; beyond are masks of -inf and of the lowest number
NAMES_MAX = 16384  #: buffers of a state from a peer: as many as a state may have tensors
Described = Dict[str, Any]


def _usable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.abs() <= LARGEST if tensor.is_floating_point() else torch.ones_like(tensor, dtype=torch.bool)


class Buffers:
    """Takes buffers from the module, averages them beside the parameters, and writes them back.

    Args:
        given: A module, pairs of a name and a tensor, tensors, or None for no buffers.
        but: Tensors that are averaged in another way.
    """

    def __init__(self, given: Given, but: Sequence[torch.Tensor] = ()):
        self._find, self._said = finder(given), set()
        if isinstance(given, str):
            self._say("local", local_sentence())
        found, elsewhere = self._find(), {tensor.data_ptr() for tensor in but}
        self._known = set(found)
        real = {name: as_real(tensor) for name, tensor in found.items()}
        unfit = [name for name, tensor in real.items() if tensor is None]
        if unfit:
            self._say("unfit", f"{few(unfit)} cannot travel, by dtype or layout: they stay this peer's own")
        real = {name: t for name, t in real.items() if t is not None and not (t.numel() and t.data_ptr() in elsewhere)}
        self._names = [name for name, tensor in real.items() if tensor.dtype in AVERAGED]
        self._carried = {name: tensor.cpu().clone() for name, tensor in real.items() if tensor.dtype not in AVERAGED}
        live = [real[name] for name in self._names]
        pin = any(tensor.device.type == "cuda" for tensor in live)
        #: what rounds average; what was taken of the module for it; what the swarm, or this peer alone, had last
        self.averages, self._taken, self._last = (flat_views(live, device="cpu", pin=pin) for _ in range(3))
        copy_all(self._last, live)
        self._here = [False] * len(live)  # of _names, whether the module's is in _taken
        self._is_taken = self._is_shared = False  # the second: _last is the swarm's
        self._weight = 1.0
        self.are_spoilt = False  #: whether a buffer that was made ready is not finite any more
        self.samples: Optional[int] = None  # since the last average; None: nobody counts them

    def __bool__(self) -> bool:
        return bool(self._names or self._carried)

    def bytes_in_state(self, align: int) -> int:
        """Most bytes that these buffers take in a state.

        Args:
            align: Bytes that each tensor takes besides its values.
        """
        return sum(t.numel() * max(t.element_size(), 4) + align for t in (*self._last, *self._carried.values()))

    def summary(self) -> str:
        """Returns the number of averaged buffers and of their values, as text."""
        return f"{len(self._names)} with {sum(t.numel() for t in self._last)} values" if self._names else "none"

    # ---- averaging ----

    @torch.no_grad()
    def take(self, samples: Optional[int] = None, alone: bool = False) -> None:
        """Copies the buffers of the module, in the thread that trains, before training continues.

        Args:
            samples: Samples that they have seen in the swarm epoch that ends. None: not known.
            alone: True if no other peer trains, so that this peer's buffers are the swarm's.
        """
        live = self._live()
        if not self:
            return
        self._here = [tensor is not None for tensor in live]
        copy_all(*_pairs(self._taken, live))
        if samples is not None:
            self.samples = 0 if alone else (self.samples or 0) + samples
        self._is_shared &= not alone
        self._is_taken = True

    @torch.no_grad()
    def take_last(self) -> None:
        """Takes the last average in place of the module's: the next one lacks what the module changed since."""
        self._here = [tensor is not None for tensor in self._live()]
        copy_all(self._taken, self._last)
        self._is_taken = True

    def give_back(self, samples: int) -> None:
        """Forgets what was taken at the end of a swarm epoch that has not ended: its samples are counted again then.

        Args:
            samples: Samples that take() was given.
        """
        if self._is_taken and self.samples is not None:
            self.samples -= samples
        self.drop()

    @torch.no_grad()
    def load(self) -> None:
        """Makes what was taken, or else what there is now, ready for a round."""
        if not self._is_taken:
            self.take()
        self._weight = 1.0 if self.samples is None else float(self.samples)
        self.are_spoilt = False
        for average, taken, last, here in zip(self.averages, self._taken, self._last, self._here):
            usable = _usable(taken) if here else torch.zeros_like(taken, dtype=torch.bool)
            average.copy_(torch.where(usable, taken, last))
            if here and not (usable | ~_usable(last)).all():
                self._weight, self.are_spoilt = 0.0, True
                self._say(
                    "spoilt",
                    "a buffer of the module is not finite any more: this peer counts for nothing in this averaging "
                    "of the state, and takes the others' buffers",
                )
            average.masked_fill_(~_usable(average), 0.0)

    def weigh(self, control: Any) -> None:
        """Gives a round its weight: the samples that this peer's buffers have seen since the last average.

        Args:
            control: Control of the round.
        """
        if self._names and (self.samples is not None or not self._weight):
            control.weight = self._weight

    @torch.no_grad()
    def apply(self) -> None:
        """Writes the averages into the module. A value that changed meanwhile changes by what averaging changed."""
        if not self:
            return
        live = self._live()
        now = [torch.empty_like(taken) for taken in self._taken]
        copy_all(*_pairs(now, live))
        for i, (average, taken, last) in enumerate(zip(self.averages, self._taken, self._last)):
            averaged = _usable(taken) | _usable(last)  # else it is a mask's, and each peer has its own
            if live[i] is not None and self._here[i]:
                _write(live[i], torch.where(averaged, _moved(now[i], taken, average), now[i]))
            last.copy_(torch.where(averaged, average, last))
        self.samples = None if self.samples is None else 0
        self._is_shared, self._is_taken = True, False

    @torch.no_grad()
    def show_last(self) -> List[Tuple[torch.Tensor, torch.Tensor]]:
        """Writes the last average into the module, if there is one. Returns what was there, for put_back()."""
        if not self._is_shared:
            return []
        before = []
        for tensor, last in zip(self._live(), self._last):
            if tensor is not None:
                before.append((tensor, tensor.clone()))
                now = tensor.to(last.device, last.dtype)
                _write(tensor, torch.where(_usable(last) & _usable(now), last, now).to(tensor.device))
        return before

    @torch.no_grad()
    def put_back(self, before: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Writes into the module what show_last() has found there.

        Args:
            before: Result of show_last().
        """
        for tensor, values in before:
            _write(tensor, values)

    def drop(self) -> None:
        """Forgets what was taken, because the round failed or the state is another one."""
        self._is_taken = False

    # ---- for joining peers ----

    @torch.no_grad()
    def offer(self) -> Tuple[Optional[Described], List[torch.Tensor], List[torch.Tensor]]:
        """Returns a description, the averaged buffers and the carried ones, for a joining peer.

        The averaged ones are those of the last average, which all its members have alike, or the module's if there is
        none. The carried ones are the module's.
        """
        if not self:
            return None, [], []
        found = self._find()
        if not self._is_shared:
            for last, tensor in zip(self._last, self._live()):
                if tensor is not None:
                    _renew(last, tensor.to(last.device, last.dtype))
        for name, copy in self._carried.items():
            if (tensor := self._fitting(found, name, copy)) is not None:
                copy.copy_(tensor)
        described = {"averaged": list(self._names), "carried": list(self._carried)}
        return described, list(self._last), list(self._carried.values())

    def split(self, metadata: Any, tensors: Sequence[Any]) -> Tuple[Sequence[Any], Dict[str, torch.Tensor]]:
        """Returns the tensors of a state without its buffers, and these by name. Older states have none.

        Raises ValueError if the description is damaged.

        Args:
            metadata: Metadata of the state.
            tensors: Tensors of the state.
        """
        described = metadata.get("buffers") if isinstance(metadata, dict) else None
        if described is None:
            return tensors, {}
        names: List[Any] = []
        for key in ("averaged", "carried"):
            part = described.get(key) if isinstance(described, dict) else None
            names += part if isinstance(part, (list, tuple)) else [None]
        n = len(tensors) - len(names)
        if n < 0 or len(names) > NAMES_MAX or not all(isinstance(name, str) for name in names):
            raise ValueError("the state from a peer is damaged: its buffers are not described")
        return tensors[:n], dict(zip(names, tensors[n:]))

    @torch.no_grad()
    def replace(self, given: Dict[str, torch.Tensor]) -> None:
        """Takes over the buffers of a state. Those that it lacks, or has in another shape, stay.

        Args:
            given: Buffers by name.
        """
        if not self:
            return
        found, missing = self._find(), []
        for name, copy in (*zip(self._names, self._last), *self._carried.items()):
            theirs, mine = given.get(name), self._fitting(found, name, copy)
            if theirs is None or theirs.shape != copy.shape or theirs.is_floating_point() != copy.is_floating_point():
                missing.append(name)
            else:
                _renew(copy, theirs.to(copy.dtype))
                if mine is not None:
                    _write(mine, copy.to(mine.device))
        if missing:
            self._say("missing", f"the state from a peer lacks {few(missing)}: this peer keeps its own")
        self._is_shared = not any(name in self._names for name in missing)
        self.restart()

    def restart(self) -> None:
        """Counts samples from now on: the module has other buffers than those before."""
        self.samples = None if self.samples is None else 0
        self._is_taken = False

    def forget(self) -> None:
        """Offers what the module has, which the program has restored from a checkpoint."""
        self._is_shared = False
        self.restart()

    # ---- the module ----

    def _live(self) -> List[Optional[torch.Tensor]]:
        """The module's tensors of _names; None for one that is gone or has another shape."""
        found = self._find()
        late = [name for name in found if name not in self._known]
        if late:
            self._say("late", f"{few(late)} came after the optimizer was made: they stay this peer's own")
        return [self._fitting(found, name, last) for name, last in zip(self._names, self._last)]

    def _fitting(self, found: Dict[str, torch.Tensor], name: str, like: torch.Tensor) -> Optional[torch.Tensor]:
        tensor = as_real(found[name]) if name in found else None
        if tensor is not None and tensor.shape == like.shape and tensor.is_floating_point() == like.is_floating_point():
            return tensor
        self._say(
            "shape",
            f"the buffer {name!r} is gone or has another shape or kind than when the optimizer was made: it is this "
            "peer's own from now on; change buffers in place to have them averaged",
        )
        return None

    def _say(self, what: str, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            logger.warning("%s", text)


def infos_of(tensors: Sequence[torch.Tensor]) -> List[CompressionInfo]:
    """For tensors of buffers, which count as statistics of the optimizer: small variances must not become zero."""
    return [
        CompressionInfo.from_tensor(tensor, key=f"buffer {i}", role=TensorRole.OPTIMIZER)
        for i, tensor in enumerate(tensors)
    ]


def _renew(copy: torch.Tensor, values: torch.Tensor) -> None:
    """Takes the values over, but none that is not finite in place of a number."""
    copy.copy_(torch.where(_usable(values) | ~_usable(copy), values, copy))


def _pairs(
    copies: Sequence[torch.Tensor], live: Sequence[Optional[torch.Tensor]]
) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
    both = [(copy, tensor) for copy, tensor in zip(copies, live) if tensor is not None]
    return [copy for copy, _ in both], [tensor for _, tensor in both]


def _moved(now: torch.Tensor, before: torch.Tensor, average: torch.Tensor) -> torch.Tensor:
    """The average where nothing has changed since, to the bit; elsewhere the difference that averaging made is added.

    A variance fades while it is averaged, and the difference could make it negative: it becomes no less than both what
    it is here and the average."""
    moved = now + (average - before)
    if average.numel() and average.min() >= 0 and before.min() >= 0:
        moved = torch.maximum(moved, torch.minimum(now, average))
    return torch.where((now != before) & _usable(now) & _usable(before), moved, average)


def _write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Copies values, into the first of elements that lie in the same memory, as expand() makes them."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
        if size > 1 and stride == 0:
            tensor, values = tensor.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    tensor.copy_(values)
