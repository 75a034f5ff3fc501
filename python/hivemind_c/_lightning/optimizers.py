"""The optimizer of configure_optimizers: whether a swarm can step it, how it is made again, and how the swarm's
optimizer passes for it.
"""

from __future__ import annotations

import inspect
import logging
from collections import OrderedDict, defaultdict
from typing import Any, Callable, Dict, List

import torch

from hivemind_c._lightning.namespaces import misconfigured

logger = logging.getLogger("hivemind_c.strategy")
HOOKED = "step", "state_dict", "load_state_dict"
HOOKS = [f"_optimizer_{name}_{when}_hooks" for name in HOOKED for when in ("pre", "post")]


def check(strategy: Any, optimizer: torch.optim.Optimizer) -> None:
    """MisconfigurationException: the swarm cannot step this optimizer, or cannot average its parameters."""
    names = {id(p): name for name, p in strategy.lightning_module.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p in parameters:
        if not p.is_floating_point():
            kind = str(p.dtype).split(".")[-1]
            remedy = (
                "keep its real and its imaginary part as two parameters"
                if p.is_complex()
                else "make it a buffer (register_buffer), or keep it out of the optimizer"
            )
            raise misconfigured(
                strategy,
                f"the parameter {names.get(id(p), '?')!r} is {kind}, and a swarm averages real numbers only: {remedy}",
            )
    if not any(p.requires_grad for p in parameters):
        raise misconfigured(
            strategy,
            "no parameter in the optimizer requires a gradient, so there is nothing to train: call "
            "requires_grad_(True) before fit on those to be trained",
        )
    kind = type(optimizer).__name__
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise misconfigured(
            strategy,
            "SparseAdam steps with sparse gradients only, and a swarm averages dense ones: return torch.optim.Adam "
            "from configure_optimizers instead",
        )
    if isinstance(optimizer, torch.optim.LBFGS) or _needs_closure(optimizer):
        raise misconfigured(
            strategy,
            f"{kind} computes the loss again within its step, and a swarm steps with gradients that all peers have "
            "averaged: return an optimizer from configure_optimizers "
            "that steps with the gradients it has, such as torch.optim.AdamW",
        )


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    """True if the step of such an optimizer, with one tiny parameter, fails without a closure and works with one."""
    kind, calls = type(optimizer), []

    def closure() -> torch.Tensor:
        calls.append(True)
        return torch.zeros((), requires_grad=True)

    def works(*given: Any) -> bool:
        tiny = kind.__new__(kind)
        tiny.__dict__.update({name: value for name, value in optimizer.__dict__.items() if name != "step"})
        tiny.__dict__.update({name: OrderedDict() for name in HOOKS if name in tiny.__dict__})
        p = torch.nn.Parameter(torch.zeros(2, 2))
        p.grad = torch.zeros(2, 2)
        tiny.state, tiny.param_groups = defaultdict(dict), [{**optimizer.param_groups[0], "params": [p]}]
        try:
            kind.step(tiny, *given)
        except Exception:
            return False
        return True

    return not works() and works(closure) and bool(calls)


def factory(strategy: Any, optimizer: torch.optim.Optimizer) -> Callable[[List[Dict[str, Any]]], torch.optim.Optimizer]:
    """A function that makes such an optimizer again, for other parameters in the same groups, with its hooks."""
    kind = type(optimizer)
    known = inspect.signature(kind.__init__).parameters
    defaults = {name: value for name, value in optimizer.defaults.items() if name in known}
    missing = [
        p.name
        for p in list(known.values())[2:]
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in defaults
    ]
    if missing:
        raise misconfigured(
            strategy,
            f"offload_optimizer makes the optimizer again, and {kind.__name__} does not keep its argument "
            f"{missing[0]!r}: put it into the optimizer's defaults "
            "(super().__init__(params, defaults)), or give offload_optimizer=False without delays",
        )

    def make(groups: List[Dict[str, Any]]) -> torch.optim.Optimizer:
        made = kind(groups, **defaults)
        for name in HOOKS:
            if getattr(optimizer, name, None):
                getattr(made, name).update(getattr(optimizer, name))
        return made

    return make


def pass_for_inner(hive: Any) -> None:
    """Makes the swarm's optimizer an instance of the class of the optimizer inside, as Lightning does with its own
    wrapper. LearningRateMonitor and others log under its name, and find it where they look for the optimizer that a
    scheduler has. Public names that are unknown here, such as methods of its own, are the inner optimizer's."""
    kind, own = type(hive.opt), type(hive)

    def of_inner(name: str) -> property:
        return property(lambda self: getattr(self.opt, name))

    def unknown(self: Any, name: str) -> Any:
        if name.startswith("_") or "state_averager" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.opt, name)

    def is_same(self: Any, other: Any) -> bool:
        return other is self or other is self.__dict__["state_averager"].optimizer

    shown = {name: of_inner(name) for name in dir(kind) if not name.startswith("_") and not hasattr(own, name)}
    hive.__class__ = type(
        kind.__name__, (own, kind), {**shown, "__getattr__": unknown, "__eq__": is_same, "__hash__": object.__hash__}
    )


class DenseGradients:
    """Makes sparse gradients dense, with one warning, because a swarm averages dense ones.

    Args:
        module: The module whose gradients are meant.
    """

    def __init__(self, module: torch.nn.Module):
        self._module, self._said = module, False
        self._may_be = any(getattr(part, "sparse", False) is True for part in module.modules())

    def convert(self) -> None:
        if not self._may_be:
            return
        for name, p in self._module.named_parameters():
            if p.grad is not None and p.grad.layout is not torch.strided:
                p.grad = p.grad.to_dense()
                if not self._said:
                    self._said = True
                    logger.warning(
                        "the gradient of %r is sparse and is made dense, because a swarm averages dense ones: give "
                        "sparse=False to the layer",
                        name,
                    )
