"""Which buffers belong to the state: those of a module that its state_dict() holds, or those that the program names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterable, Iterator, Optional, Set, Tuple, Union

import torch

Given = Union[None, str, torch.nn.Module, Mapping, Iterable[Any]]
Finder = Callable[[], Dict[str, torch.Tensor]]

LOCAL = "local"
AVERAGED = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  #: dtypes of buffers that are averaged
CARRIED = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)  #: of those that joiners get


def finder(given: Given) -> Finder:
    """A function that returns the buffers by name, as they are when it is called.

    A module may exchange its buffers for others of the same names; tensors that are given are always the same.
    """
    if given is None or isinstance(given, str) and given == LOCAL:
        return dict
    if isinstance(given, torch.nn.Module):
        return lambda: persistent(given)
    named = _named(given)
    return lambda: named


def persistent(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """The buffers that state_dict() holds, each once, without those of torchmetrics."""
    seen: Set[int] = set()
    return dict(_walk(module, "", seen))


def _walk(module: torch.nn.Module, prefix: str, seen: Set[int]) -> Iterator[Tuple[str, torch.Tensor]]:
    if id(module) in seen or _is_metric(module):
        return
    seen.add(id(module))
    for name, tensor in module._buffers.items():
        if tensor is not None and name not in module._non_persistent_buffers_set and id(tensor) not in seen:
            seen.add(id(tensor))
            yield prefix + name, tensor
    for name, part in module._modules.items():
        if part is not None:  # a compiled module is named as the module inside it
            yield from _walk(part, prefix if name == "_orig_mod" else f"{prefix}{name}.", seen)


def _is_metric(module: torch.nn.Module) -> bool:
    """True if it is a metric of torchmetrics, whose count is of this peer's data alone."""
    return any(kind.__module__.split(".")[0] == "torchmetrics" for kind in type(module).__mro__)


def _named(given: Any) -> Dict[str, torch.Tensor]:
    if isinstance(given, (str, torch.Tensor)) or not hasattr(given, "__iter__"):
        raise TypeError(
            f"buffers must be a module, or a list of its buffers, not {given!r}: write buffers=model, or "
            'buffers="local" to leave them alone'
        )
    pairs = given.items() if isinstance(given, Mapping) else given
    named: Dict[str, torch.Tensor] = {}
    for index, entry in enumerate(pairs):
        name, tensor = entry if isinstance(entry, tuple) and len(entry) == 2 else (str(index), entry)
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"buffers holds {type(tensor).__name__} where a buffer is expected: give the module, its "
                "named_buffers(), or a list of tensors"
            )
        if name in named:
            raise ValueError(f"buffers has the name {name!r} twice: give each buffer a name of its own")
        if not any(tensor is other for other in named.values()):
            named[name] = tensor
    return named


def as_real(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """The tensor's values as real numbers, in its own memory. None: they are of a kind that cannot travel."""
    kind = torch.nn.parameter.UninitializedTensorMixin
    if isinstance(tensor, kind) or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    tensor = tensor.detach()
    if tensor.is_complex() and not tensor.is_conj():
        tensor = torch.view_as_real(tensor)
    return tensor if tensor.dtype in AVERAGED + CARRIED else None


def few(names: Iterable[str]) -> str:
    """The number of these buffers, and the first two names."""
    names = list(names)
    shown = " and ".join(repr(name) for name in names[:2])
    return f"{len(names)} buffer{'s' * (len(names) > 1)} of the module ({shown}{', ...' * (len(names) > 2)})"


def local_sentence(names: Iterable[str] = ()) -> str:
    """The consequence of leaving these buffers, or those of an unknown module, alone."""
    names = list(names)
    which = few(names) if names else "buffers of the module"
    return (
        f'buffers="local": {which} stay this peer\'s own. They are neither averaged nor given to joining peers, so '
        "equal parameters evaluate differently at each peer"
    )
