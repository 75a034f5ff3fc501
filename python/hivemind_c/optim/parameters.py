"""The model's parameters, and those that the optimizer works on: the same, or copies in the host's memory."""

from __future__ import annotations

import logging
import math
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import torch

from hivemind_c import cuda

logger = logging.getLogger("hivemind_c.optim")

HALVES = (torch.float16, torch.bfloat16)
APART = 16  # elements: each view begins at a multiple, so that kernels read it 16 bytes at a time
LANDING = 1 << 25  # elements that are brought from CUDA in another dtype at once: page-locked memory


def flat_views(
    like: Sequence[torch.Tensor], device: Any = None, halves: bool = False, pin: bool = False
) -> List[torch.Tensor]:
    """Zeros in the shapes of `like`, lying one after the other, with small gaps, in one piece of memory for each dtype
    and device.

    Half-precision tensors become float32 unless halves is true. pin: page-locked, for copies to and from CUDA."""
    kinds = [
        (
            torch.float32 if t.dtype in HALVES and not halves else t.dtype,
            t.device if device is None else torch.device(device),
        )
        for t in like
    ]
    flats, used = {}, {}
    for kind in dict.fromkeys(kinds):
        size = sum(_room(t) for t, k in zip(like, kinds) if k == kind)
        flats[kind] = torch.zeros(
            size, dtype=kind[0], device=kind[1], pin_memory=pin and kind[1].type == "cpu" and torch.cuda.is_available()
        )
        used[kind] = 0
    views = []
    for t, kind in zip(like, kinds):
        views.append(flats[kind][used[kind] : used[kind] + t.numel()].view(t.shape))
        used[kind] += _room(t)
    return views


def _room(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() // APART) * APART


@torch.no_grad()
def copy_all(to: Sequence[torch.Tensor], source: Sequence[torch.Tensor]) -> None:
    """to[i] = source[i]; between the host and a CUDA device all at once, and done when this returns."""
    straight, landing = [], []
    for t, s in zip(to, source):
        (landing if t.device.type == "cpu" and s.device.type == "cuda" and t.dtype != s.dtype else straight).append(
            (t, s)
        )
    for copied in copy_soon(*_unzipped(straight)):
        copied.synchronize()
    while landing:
        landing = _land_some(landing)


def _unzipped(pairs: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
    return [to for to, _ in pairs], [source for _, source in pairs]


def _land_some(pairs: List[Tuple[torch.Tensor, torch.Tensor]]) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """Brings the first ones from CUDA as they are and converts them here, where torch would take memory of the GPU for
    that; what is left.
    """
    n, size = 0, 0
    while n < len(pairs) and (n == 0 or size + pairs[n][1].numel() <= LANDING):
        size += pairs[n][1].numel()
        n += 1
    to, source = _unzipped(pairs[:n])
    here = [torch.empty(s.shape, dtype=s.dtype, pin_memory=True) for s in source]
    for copied in copy_soon(here, source):
        copied.synchronize()
    torch._foreach_copy_(to, here)
    return pairs[n:]


@torch.no_grad()
def copy_soon(to: Sequence[torch.Tensor], source: Sequence[torch.Tensor]) -> List[Any]:
    """The same without waiting for CUDA: what has to be waited for before either side is touched outside the current
    stream.
    """
    if to:
        torch._foreach_copy_(list(to), [_as_it_crosses(t, s) for t, s in zip(to, source)], non_blocking=True)
    devices = {t.device for t in (*to, *source) if t.device.type == "cuda"}
    return [torch.cuda.current_stream(device).record_event() for device in devices]


def _as_it_crosses(to: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """The source; on its way to CUDA in another dtype, rounded on the host into page-locked memory, because torch
    would take memory that is not page-locked, and wait for the copy.
    """
    if to.device.type != "cuda" or source.device.type != "cpu" or to.dtype == source.dtype:
        return source
    return torch.empty(source.shape, dtype=to.dtype, pin_memory=True).copy_(source)


def add_up(sums: List[torch.Tensor], grads: List[torch.Tensor], weight: float) -> None:
    """sums += weight * grads. Where dtypes differ, torch adds tensor by tensor, and kernels in one launch."""
    mixed = any(grad.dtype != total.dtype for grad, total in zip(grads, sums))
    if (
        mixed
        and all(total.dtype is torch.float32 for total in sums)
        and cuda.averages(grads)
        and len({grad.device for grad in grads}) == 1
    ):
        if cuda.attempt(grads[0], lambda kernels: kernels.accumulate(weight, grads, sums) or True):
            return
    torch._foreach_add_(sums, grads, alpha=weight)


@torch.no_grad()
def all_finite(tensors: Sequence[torch.Tensor]) -> bool:
    largest: Dict[torch.device, List[torch.Tensor]] = {}
    full = [t for t in tensors if t.numel()]
    here = [t for t in full if t.device.type == "cpu"]
    if not all(math.isfinite(_sum(t)) or bool(t.isfinite().all()) for t in here):
        return False
    away = [t for t in full if t.device.type != "cpu"]
    for norm in torch._foreach_norm(away, math.inf) if away else []:
        largest.setdefault(norm.device, []).append(norm.to(torch.float64))
    return all(torch.stack(norms).isfinite().all().item() for norms in largest.values())  # a device is waited for once


def _sum(tensor: torch.Tensor) -> float:
    """Of values that are not all finite it is not finite either; the converse need not hold. On a processor it is what
    torch does fastest: 20 times faster than their norm.
    """
    return float(tensor.sum(dtype=torch.float32 if tensor.dtype in HALVES else None))


def param_groups(params: Iterable[Any]) -> List[Dict[str, Any]]:
    """The arguments of torch's optimizers (tensors, pairs of a name and a tensor, groups) as groups of tensors."""
    if isinstance(params, torch.Tensor):
        raise TypeError("params must be a list of parameters, not one parameter: write params=[parameter]")
    given = list(params)
    if not given:
        raise ValueError(
            "params is empty: model.parameters() is a generator and can be read only once; call model.parameters() "
            "again"
        )
    groups = given if isinstance(given[0], dict) else [{"params": given}]
    result = []
    for group in groups:
        if not isinstance(group, dict) or "params" not in group:
            raise TypeError(f"a parameter group must be a dict with 'params', not {group!r}")
        inside = [group["params"]] if isinstance(group["params"], torch.Tensor) else list(group["params"])
        tensors = [entry[1] if isinstance(entry, tuple) else entry for entry in inside]
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(
                    f"params holds {type(tensor).__name__} where parameters are expected: give model.parameters() or "
                    "parameter groups"
                )
        result.append({**group, "params": tensors})
    return result


def count(tensors: Iterable[torch.Tensor]) -> int:
    return sum(math.prod(t.shape) for t in tensors)


class Parameters:
    """model: the user's parameters. main: what the optimizer changes, the same tensors unless offload is true; then
    they are float32 (float64 for float64) in the host's memory, and `groups` refers to them."""

    def __init__(self, groups: List[Dict[str, Any]], offload: bool):
        self.model: List[torch.Tensor] = [p for group in groups for p in group["params"]]
        if len({id(p) for p in self.model}) != len(self.model):
            raise ValueError("a parameter occurs twice: give each parameter once, in one group")
        self.offload, self.groups, self.main = offload, groups, self.model
        self._copying: List[Any] = []
        self._told_of_late_ones = False
        frozen = count(p for p in self.model if not p.requires_grad)
        if 2 * frozen > count(self.model):
            logger.warning(
                "%d of the %d values in the optimizer do not require gradients, and yet each averaging of the state "
                "sends them, and each joining peer downloads them: if all peers load the same ones, give the optimizer "
                "only [p for p in model.parameters() if p.requires_grad], on all peers",
                frozen,
                count(self.model),
            )
        if not offload:
            return
        pin = any(p.device.type == "cuda" for p in self.model)
        views = flat_views(self.model, device="cpu", pin=pin)
        copy_all(views, [p.detach() for p in self.model])
        self.main = [torch.nn.Parameter(view, requires_grad=p.requires_grad) for view, p in zip(views, self.model)]
        rest = iter(self.main)
        self.groups = [{**group, "params": [next(rest) for _ in group["params"]]} for group in groups]
        self._versions = self._seen()

    def trainable(self) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
        """Those that get gradients: the model's, and the optimizer's."""
        return [p for p in self.model if p.requires_grad], [
            main for p, main in zip(self.model, self.main) if p.requires_grad
        ]

    def split(self, averaged: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
        """The tensors on which the optimizer works: one for each of these parameters of the model, and those of all
        others, whose gradients nobody averages. By identity: which ones require gradients may have changed since the
        averager was made, and its list has not."""
        rest = {id(p): main for p, main in zip(self.model, self.main)}
        own = [rest.pop(id(p)) for p in averaged]
        late = sum(p.requires_grad and id(p) in rest for p in self.model)
        if late and not self._told_of_late_ones:
            self._told_of_late_ones = True
            logger.warning(
                "%d parameters did not require gradients when the Optimizer was made and do now: their gradients are "
                "not averaged, so they are not trained. Let all parameters "
                "require gradients when the Optimizer is made, and freeze some afterwards with requires_grad_(False)",
                late,
            )
        return own, list(rest.values())

    @torch.no_grad()
    def lend_gradients(self) -> None:
        """Copies the model's gradients to where the optimizer looks for them."""
        if not self.offload:
            return
        wanted = [(p, main) for p, main in zip(self.model, self.main) if p.grad is not None]
        missing = [main for _, main in wanted if main.grad is None]
        for main, grad in zip(
            missing,
            flat_views([main.detach() for main in missing], pin=any(p.device.type == "cuda" for p in self.model)),
        ):
            main.grad = grad
        for p, main in zip(self.model, self.main):
            if p.grad is None:
                main.grad = None
        copy_all([main.grad for _, main in wanted], [p.grad for p, _ in wanted])

    def _seen(self) -> List[int]:
        return [p._version for p in self.model]

    @torch.no_grad()
    def pull(self) -> bool:
        """Takes over what somebody else wrote into the model, like model.load_state_dict(); a copy that is only more
        exact stays.
        """
        if not self.offload or self._versions == self._seen():
            return False
        for p, main, version in zip(self.model, self.main, self._versions):
            if p._version != version:
                self.settle()
                here = p.detach().to(main.device)
                main.copy_(torch.where(main.to(p.dtype) == here, main, here.to(main.dtype)))
        self._versions = self._seen()
        return True

    def push(self, force: bool = False) -> bool:
        """Writes what the optimizer made into the model, unless somebody else has written there and it is not forced:
        then that counts (False).
        """
        if not self.offload:
            return True
        if not force and self.pull():
            return False
        self._copying = copy_soon([p.detach() for p in self.model], [main.detach() for main in self.main])
        self._versions = self._seen()
        return True

    def keep_all_progress(self) -> None:
        """Another state comes: nothing of the model stays."""

    def settle(self) -> None:
        """Waits until copies into the model are over: before main changes again."""
        while self._copying:
            self._copying.pop().synchronize()


class Group(dict):
    """A parameter group of the inner optimizer that shows the parameters of the model.

    Args:
        group: The group.
        params: The parameters to show.
    """

    def __init__(self, group: Dict[str, Any], params: List[torch.Tensor]):
        super().__init__(group, params=params)
        self._group = group

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key != "params":
            self._group[key] = value
