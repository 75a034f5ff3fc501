"""The optimizer and scheduler from a user's argument: an object of torch, or a function that makes one."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import torch

from hivemind_c.optim.parameters import Parameters, param_groups

LRScheduler = torch.optim.lr_scheduler.LRScheduler
OptimizerFactory = Callable[[List[Dict[str, Any]]], torch.optim.Optimizer]
SchedulerFactory = Callable[[torch.optim.Optimizer], LRScheduler]


def make_optimizer(
    optimizer: Any, params: Optional[Iterable[Any]], offload: bool
) -> Tuple[Parameters, torch.optim.Optimizer]:
    """Returns the parameters and the optimizer that a user's arguments describe.

    Args:
        optimizer: An optimizer of torch, or a function that makes one of parameter groups.
        params: Parameters or parameter groups for that function.
        offload: Let the optimizer, then a function, work on float32 copies in host memory.
    """
    if isinstance(optimizer, torch.optim.Optimizer):
        if params is not None:
            raise ValueError(
                "params cannot be combined with an optimizer object, which already has its parameters: remove params, "
                "or give optimizer=lambda params: ..."
            )
        if offload:
            raise ValueError(
                "offload_optimizer needs a function that makes the optimizer: it works on copies of the parameters; "
                "give "
                "params=model.parameters() and optimizer=lambda params: "
                f"torch.optim.{type(optimizer).__name__}(params, ...)"
            )
        return Parameters(optimizer.param_groups, False), optimizer
    if not callable(optimizer):
        raise TypeError(
            f"optimizer must be one of torch's, or a function that makes one from parameters, not {optimizer!r}"
        )
    if params is None:
        raise ValueError(
            "params is missing: an optimizer that is a function needs the parameters; give params=model.parameters()"
        )
    parameters = Parameters(param_groups(params), offload)
    return parameters, made_by(optimizer, parameters, "optimizer")


def made_by(factory: OptimizerFactory, parameters: Parameters, option: str) -> torch.optim.Optimizer:
    """Returns the optimizer that a user's function makes.

    Args:
        factory: The function.
        parameters: The parameters, whose groups it gets.
        option: The option that gave the function.
    """
    made = factory(parameters.groups)
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"the function given as {option} must return one of torch's, not {made!r}")
    inside = [id(p) for group in made.param_groups for p in group["params"]]
    if inside != [id(p) for p in parameters.main]:
        raise ValueError(
            f"the function given as {option} must use all parameters that it receives, in their order: lambda params: "
            "torch.optim.SGD(params, ...)"
        )
    return made


def make_scheduler(scheduler: Any, optimizer: torch.optim.Optimizer, offload: bool) -> Any:
    """Returns the scheduler that a user's argument describes, or None.

    Args:
        scheduler: A scheduler of torch, or a function that makes one of the optimizer.
        optimizer: The optimizer that it belongs to.
        offload: True if the optimizer works on copies.
    """
    if scheduler is None or isinstance(scheduler, (LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)):
        if scheduler is not None and scheduler.optimizer is not optimizer:
            raise ValueError(
                "the scheduler belongs to another optimizer"
                + (", because offload_optimizer makes its own" if offload else "")
                + f": give scheduler=lambda optimizer: torch.optim.lr_scheduler.{type(scheduler).__name__}(optimizer, "
                "...)"
            )
        return scheduler
    if not callable(scheduler):
        raise TypeError(
            f"scheduler must be one of torch's, or a function that makes one from an optimizer, not {scheduler!r}"
        )
    made = scheduler(optimizer)
    if not hasattr(made, "step") or not hasattr(made, "state_dict"):
        raise TypeError(f"the function given as scheduler must return one of torch's, not {made!r}")
    return made
