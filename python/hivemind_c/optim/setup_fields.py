"""The setup of an Optimizer: which of its settings must be alike at all peers, and how each is written.

Learning rates, batch sizes, devices, client mode and data may differ, so they are not in it.
"""

from __future__ import annotations

import hashlib
import types
from typing import Any, Dict, Iterator, List, Set, Tuple

import torch

from hivemind_c.optim.run_peer import RunPeer
from hivemind_c.optim.setup import RunSetup, run_setup
from hivemind_c.optim.statistics import HOW, is_plain

FORMAT = 2  #: grows when what is compared changes, or marks of replicas are made otherwise (2: by SHA-256)
#: of parameter groups: learning rates, and what schedulers keep there
SCHEDULED = {"lr", "initial_lr", "max_lr", "min_lr", "base_lr", "swa_lr", "base_momentum", "max_momentum"}
CYCLED = {"momentum", "betas"}  #: what torch's schedulers change with cycle_momentum
WRAPPERS = ("_orig_mod.", "module.")  #: before a parameter's name where a machine compiles or wraps the model
OWN_NAMES = {"params", "param_names", "name", "swarm"}  #: of a group that say nothing about how it steps
Pair = Tuple[str, Any]


def setup_of(optimizer: RunPeer) -> RunSetup:
    """Returns the setup of an Optimizer as it is now.

    Args:
        optimizer: The Optimizer.
    """
    return run_setup(_pairs(optimizer))


def _pairs(o: RunPeer) -> Iterator[Pair]:
    state, schedule = o.state_averager, o.schedule
    yield "setup", FORMAT
    yield "target_batch_size", o.target_batch_size
    yield "parameters", _described(state.parameters.main, state.parameter_names)
    if schedule.outer:  # also its rate: all step alike
        yield "outer_optimizer", outer_of(state.optimizer)
    yield "optimizer", type(state.inner).__name__
    yield from options_of(state.inner.param_groups, scheduled_by(state.scheduler))
    yield "use_local_updates", schedule.use_local_updates
    yield "delay_grad_averaging", schedule.delay_grad_averaging
    yield "average_state_every", schedule.average_state_every
    yield "average_opt_statistics", ", ".join(state.opt_keys_for_averaging) or "none"
    yield "max_grad_norm", number(o.max_grad_norm)
    yield from getattr(o.averaged_grad_hook, "setup", {}).items()  # of a hook that knows what must be alike
    yield "buffers", state.buffers.summary()
    yield "load_state_compression", type(o.load_state_compression).__name__


def _described(parameters: List[torch.Tensor], names: Any) -> str:
    digest, values = hashlib.blake2b(digest_size=4), 0
    for i, p in enumerate(parameters):
        digest.update(f"{_plain_name(names[i]) if names else ''} {tuple(p.shape)}\n".encode())
        values += p.numel()
    return f"{len(parameters)} with {values} values, digest {digest.hexdigest()}"


def _plain_name(name: Any) -> str:
    text = str(name)
    for wrapper in WRAPPERS:
        text = text.replace(wrapper, "")
    return text


def options_of(groups: List[Dict[str, Any]], but: Set[str]) -> Iterator[Pair]:
    """Yields the options of parameter groups with their values: one value if all groups have it, else each group's.

    Args:
        groups: Parameter groups of an optimizer.
        but: Names of options that a scheduler changes.
    """
    left_out = SCHEDULED | HOW | OWN_NAMES | but
    names = sorted({str(name) for group in groups for name in group if name not in left_out})
    for name in names:
        values = [number(group[name]) if name in group else "absent" for group in groups]
        yield name, values[0] if len(set(values)) == 1 else f"{', '.join(values)} in {len(values)} groups"


def outer_of(optimizer: torch.optim.Optimizer) -> str:
    """Returns an outer optimizer with all options of its groups, as text.

    Args:
        optimizer: The outer optimizer.
    """
    groups = [
        ", ".join(f"{name}={number(group[name])}" for name in sorted(group) if name not in HOW | OWN_NAMES)
        for group in optimizer.param_groups
    ]
    return f"{type(optimizer).__name__}({'; '.join(groups)})"


def option_names(optimizer: RunPeer) -> Set[str]:
    """Returns the fields of an Optimizer's setup that are options of parameter groups.

    Args:
        optimizer: The Optimizer.
    """
    state = optimizer.state_averager
    return {name for name, _ in options_of(state.inner.param_groups, scheduled_by(state.scheduler))}


def number(value: Any) -> str:
    """Returns a value as text that is the same for equal values: 1 and 1.0 are "1".

    Args:
        value: Value of an option.
    """
    if isinstance(value, torch.Tensor):
        value = value.item() if value.numel() == 1 else tuple(value.shape)
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)):
        return format(value, ".9g") if isinstance(value, float) else str(value)
    if isinstance(value, (list, tuple)):
        return f"({', '.join(number(item) for item in value)})"
    return repr(value) if is_plain(value) else type(value).__name__  # an object's repr has its address


def scheduled_by(scheduler: Any) -> Set[str]:
    """Returns the names of options besides learning rates that a scheduler may change.

    torch's own change momentum or betas if they cycle it. Another one may change each option that its code names.

    Args:
        scheduler: The scheduler, or None.
    """
    found: Set[str] = set()
    waiting, seen = [scheduler], set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += list(getattr(one, "_schedulers", ()))
        if getattr(one, "cycle_momentum", False):
            found |= CYCLED
        for owner in type(one).__mro__:
            if owner is not object and not owner.__module__.startswith("torch."):
                for function in vars(owner).values():
                    found |= _words(getattr(function, "__code__", None))
    return found


def _words(code: Any) -> Set[str]:
    """The names and texts in a function's code, its inner functions included."""
    found: Set[str] = set()
    if isinstance(code, types.CodeType):
        found |= set(code.co_names)
        for constant in code.co_consts:
            found |= {constant} if isinstance(constant, str) else _words(constant)
    return found
