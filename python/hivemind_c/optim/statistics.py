"""The state of an optimizer and a scheduler as plain numbers and tensors, which are safe to take from a stranger."""

from __future__ import annotations

import itertools
import math
from typing import AbstractSet, Any, Dict, List, NamedTuple, Sequence, Set, Tuple

import torch

Plain = Any  # None, bool, int, float, str, and lists and dicts of them
NAME_MAX, DEPTH_MAX = 128, 8
#: options that say how a device steps, and not what comes out: each peer has its own
HOW = {"capturable", "differentiable", "foreach", "fused"}


class Statistic(NamedTuple):
    """A tensor in an optimizer's state."""

    index: int  #: of the parameter, in the order of the groups
    name: str
    tensor: torch.Tensor


VALUES_MOST, TENSORS_MOST = 4, 16  #: that torch's optimizers remember of a value, and of a parameter, at most


def parameters_of(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def statistics_of(optimizer: torch.optim.Optimizer) -> List[Statistic]:
    """All tensors of its state, in an order that is the same on every peer."""
    found = []
    for index, p in enumerate(parameters_of(optimizer)):
        state = optimizer.state.get(p, {})
        found += [
            Statistic(index, str(name), state[name])
            for name in sorted(state, key=str)
            if isinstance(state[name], torch.Tensor)
        ]
    return found


def state_bytes_most(optimizer: torch.optim.Optimizer) -> int:
    """Most bytes of its statistics at any peer, each of which may begin at a multiple of 64 bytes. 0: not known, as for
    an optimizer that is not one of torch's."""
    of_torch = type(optimizer).__module__.startswith("torch.optim") and not isinstance(optimizer, torch.optim.LBFGS)
    if not of_torch:
        return 0
    params = parameters_of(optimizer)
    most = sum(p.numel() * max(p.element_size(), 4) * VALUES_MOST + 128 * TENSORS_MOST for p in params)
    return max(most, sum(s.tensor.nbytes + 64 for s in statistics_of(optimizer)))


def is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, (bool, int, float, str)):
        return not isinstance(value, int) or abs(value) < 1 << 63
    if depth >= DEPTH_MAX:
        return False
    if isinstance(value, (list, tuple)):
        return all(is_plain(item, depth + 1) for item in value)
    return isinstance(value, dict) and all(
        isinstance(key, (str, int)) and is_plain(item, depth + 1) for key, item in value.items()
    )


def describe(optimizer: torch.optim.Optimizer) -> Dict[str, Plain]:
    """All of it that is no tensor: the options of its groups, and the plain numbers of its state. Peers of one state
    describe it alike.
    """
    groups = [
        {name: value for name, value in group.items() if name not in HOW and name != "params" and is_plain(value)}
        for group in optimizer.param_groups
    ]
    numbers = []
    for index, p in enumerate(parameters_of(optimizer)):
        for name, value in optimizer.state.get(p, {}).items():
            if not isinstance(value, torch.Tensor) and is_plain(value):
                numbers.append([index, str(name), value])
    return {"groups": groups, "numbers": numbers, "tensors": [[s.index, s.name] for s in statistics_of(optimizer)]}


def restore(
    optimizer: torch.optim.Optimizer,
    described: Dict[str, Plain],
    tensors: Sequence[torch.Tensor],
    whole: AbstractSet[str] = frozenset(),
) -> None:
    """Puts it into a described state, with copies of the tensors. whole: the names without which torch takes no
    parameter's state; what is given without some of them joins what is there, and is left out where nothing is.
    ValueError, and nothing has changed: the description is not of such an optimizer."""
    params = parameters_of(optimizer)
    names, numbers, groups = (_list(described, key) for key in ("tensors", "numbers", "groups"))
    if len(names) != len(tensors) or len(groups) != len(optimizer.param_groups):
        raise ValueError(
            "the optimizer's state from a peer has other groups or tensors than it names: use the same optimizer on "
            "all peers"
        )
    state: Dict[int, Dict[str, Any]] = {}
    for (index, name, *value), tensor in itertools.chain(
        zip(map(_entry, names), tensors), zip(map(_entry, numbers), itertools.repeat(None))
    ):
        if not 0 <= index < len(params):
            raise ValueError(
                "the optimizer's state from a peer has more parameters than there are here: train the same model on "
                "all peers"
            )
        state.setdefault(index, {})[name] = tensor.clone() if tensor is not None else value[0]
    for index in [index for index, given in state.items() if not whole <= given.keys()]:
        mine, given = optimizer.state.get(params[index]), state.pop(index)
        if mine:
            state[index] = {**mine, **given}
    own = optimizer.state_dict()
    merged = []
    for mine, theirs in zip(own["param_groups"], groups):
        if not isinstance(theirs, dict):
            raise ValueError("the optimizer's state from a peer is damaged: a group of it is no dictionary")
        merged.append(
            {
                **mine,
                **{
                    key: value
                    for key, value in theirs.items()
                    if key in mine and key not in HOW and alike(mine[key], value)
                },
            }
        )
    optimizer.load_state_dict({"state": state, "param_groups": merged})


def describe_scheduler(scheduler: Any) -> Dict[str, Plain]:
    return (
        {name: value for name, value in scheduler.state_dict().items() if is_plain(value)}
        if scheduler is not None
        else {}
    )


def restore_scheduler(scheduler: Any, described: Any) -> None:
    """Takes over what has the same name and kind here: a peer's functions are never taken."""
    if scheduler is None or not isinstance(described, dict):
        return
    mine = scheduler.state_dict()
    taken = {
        name: value
        for name, value in described.items()
        if name in mine and is_plain(mine[name]) and alike(mine[name], value)
    }
    taken.pop("lr_lambdas", None)  # the insides of functions
    scheduler.load_state_dict({**mine, **taken})


def alike(mine: Any, theirs: Any) -> bool:
    """Whether a stranger's value may stand for this one: of the same kind, and finite where this one is a number."""
    if mine is None or theirs is None:
        return theirs is None or mine is None and isinstance(theirs, (int, float))
    if isinstance(mine, bool) or isinstance(theirs, bool):
        return isinstance(mine, bool) and isinstance(theirs, bool)
    if isinstance(mine, (int, float)):
        return isinstance(theirs, (int, float)) and (math.isfinite(theirs) or not math.isfinite(mine))
    if isinstance(mine, (list, tuple)):
        return isinstance(theirs, (list, tuple)) and len(mine) == len(theirs) and all(map(alike, mine, theirs))
    if isinstance(mine, dict):
        return isinstance(theirs, dict) and all(
            key in mine and alike(mine[key], value) for key, value in theirs.items()
        )
    return isinstance(mine, str) and isinstance(theirs, str) and len(theirs) <= NAME_MAX


def probe(
    optimizer: torch.optim.Optimizer, wanted: Sequence[str]
) -> Tuple[List[Tuple[int, str, torch.Tensor]], Set[str]]:
    """The tensors that the optimizer will keep under these names, as (index, name, an empty tensor without memory),
    found out by a step without numbers; and all the names that it then knows."""
    if not wanted:
        return [], set()
    groups = []
    for group in optimizer.param_groups:
        params = [
            torch.nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), requires_grad=p.requires_grad)
            for p in group["params"]
        ]
        for p in params:
            p.grad = torch.empty_like(p) if p.requires_grad else None
        groups.append({**group, "params": params, **({"fused": None, "foreach": False} if "foreach" in group else {})})
    double = optimizer.__class__.__new__(optimizer.__class__)
    double.__dict__.update(
        {name: value for name, value in optimizer.__dict__.items() if name not in ("state", "param_groups", "step")}
    )
    double.__setstate__({"state": __import__("collections").defaultdict(dict), "param_groups": groups})
    try:
        optimizer.__class__.step(double)
    except Exception as error:
        raise ValueError(
            f"average_opt_statistics: what {type(optimizer).__name__} remembers cannot be determined before its first "
            f"step ({error}): remove average_opt_statistics"
        ) from error
    there = {s.name for s in statistics_of(double)}
    for name in wanted:
        if name not in there:
            known = ", ".join(sorted(there)) or "nothing"
            raise ValueError(
                f"average_opt_statistics: {type(optimizer).__name__} does not remember {name!r}; it remembers {known}"
            )
    found = [
        (s.index, s.name, s.tensor) for s in statistics_of(double) if s.name in wanted and s.tensor.is_floating_point()
    ]
    return found, {str(name) for state in double.state.values() for name in state}


def _list(described: Any, key: str) -> list:
    value = described.get(key) if isinstance(described, dict) else None
    if not isinstance(value, (list, tuple)):
        raise ValueError("the optimizer's state from a peer is damaged: its description is not whole")
    return list(value)


def _entry(entry: Any) -> Sequence[Any]:
    if (
        not isinstance(entry, (list, tuple))
        or not 2 <= len(entry) <= 3
        or not isinstance(entry[0], int)
        or not isinstance(entry[1], str)
        or len(entry[1]) > NAME_MAX
    ):
        raise ValueError("the optimizer's state from a peer is damaged: an entry of it is not an index and a name")
    return entry
