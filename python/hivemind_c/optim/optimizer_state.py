"""The state of one of torch's optimizers as plain values and a list of tensors."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch

Path = Tuple[Any, ...]


def initialize_optimizer_state_(opt: torch.optim.Optimizer) -> None:
    """Makes an optimizer remember what it would after its first step, by a step with zero gradients. Parameters and the
    gradients that are there stay as they are.
    """
    params = [p for group in opt.param_groups for p in group["params"] if p.requires_grad]
    before = [(p.detach().clone(), p.grad) for p in params]
    for p in params:
        p.grad = torch.zeros_like(p)
    try:
        opt.step()
    finally:
        with torch.no_grad():
            for p, (value, grad) in zip(params, before):
                p.copy_(value)  # weight decay changes a parameter without a gradient, too
                p.grad = grad


initialize_optimizer_state = initialize_optimizer_state_


def _leaves(value: Any, path: Path = ()) -> List[Tuple[Path, Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else None
    if inner is None:
        return [(path, value)]
    return [leaf for key, item in sorted(inner, key=lambda pair: str(pair[0])) for leaf in _leaves(item, (*path, key))]


def dump_optimizer_state(opt: torch.optim.Optimizer) -> Tuple[List[Dict[str, Any]], List[torch.Tensor]]:
    """(one dict for each value of the state, copies of its tensors on the host). A dict says {"type": "value", "value":
    ...} or {"type": "tensor", "index": ...}.
    """
    flat, tensors = [], []
    for _, value in _leaves(opt.state_dict()):
        if isinstance(value, torch.Tensor):
            flat.append({"type": "tensor", "index": len(tensors)})
            tensors.append(value.detach().cpu().clone())
        else:
            flat.append({"type": "value", "value": value})
    return flat, tensors


def _rebuilt(value: Any, path: Path, given: Dict[Path, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _rebuilt(item, (*path, key), given) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_rebuilt(item, (*path, index), given) for index, item in enumerate(value))
    return given[path]


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, flat_metadata: Sequence[Dict[str, Any]], flat_tensors: Sequence[torch.Tensor]
) -> None:
    """Puts the optimizer into a state that dump_optimizer_state gave. ValueError, and nothing has changed: it is of
    another kind of optimizer, or of one that has not begun its state while that had (initialize_optimizer_state_ begins
    it)."""
    state = optimizer.state_dict()
    leaves = _leaves(state)
    if len(leaves) != len(flat_metadata):
        raise ValueError(
            f"the state has {len(flat_metadata)} values and this optimizer {len(leaves)}: use the same kind for the "
            "same parameters, and call initialize_optimizer_state_ on it first"
        )
    given: Dict[Path, Any] = {}
    for (path, mine), entry in zip(leaves, flat_metadata):
        theirs = flat_tensors[entry["index"]] if entry["type"] == "tensor" else entry["value"]
        if (
            isinstance(mine, torch.Tensor) != isinstance(theirs, torch.Tensor)
            or isinstance(mine, torch.Tensor)
            and mine.shape != theirs.shape
        ):
            raise ValueError(
                f"the state is of another optimizer: its value for {'.'.join(map(str, path))} is of another kind or "
                "shape"
            )
        given[path] = theirs.clone() if isinstance(theirs, torch.Tensor) else theirs
    optimizer.load_state_dict(_rebuilt(state, (), given))


__all__ = ["dump_optimizer_state", "initialize_optimizer_state", "initialize_optimizer_state_", "load_optimizer_state"]
