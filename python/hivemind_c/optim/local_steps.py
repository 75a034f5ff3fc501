"""The option local_steps: local steps with an outer step by SGD, in one argument (docs/design/local-steps.md)."""

from __future__ import annotations

import functools
import math
from typing import Any, Dict, Optional, Tuple, Union

import torch

from hivemind_c._signature import unknown_option
from hivemind_c.optim.anchor import OuterFactory

LocalSteps = Union[None, bool, int, Dict[str, Any]]
#: of the outer step, as a short run of few peers wants them; steps: batches of the average peer in a swarm epoch
DEFAULTS: Dict[str, Any] = {"lr": 0.7, "momentum": 0.5, "nesterov": True, "steps": 50}


def outer_of(local_steps: LocalSteps) -> Optional[OuterFactory]:
    """Returns the function that makes the outer optimizer, or None without local steps.

    Args:
        local_steps: The option.
    """
    if local_steps is None or local_steps is False:
        return None
    rule = _rule(local_steps)
    return functools.partial(torch.optim.SGD, lr=rule["lr"], momentum=rule["momentum"], nesterov=rule["nesterov"])


def chosen(
    local_steps: LocalSteps, outer_optimizer: Optional[OuterFactory], use_local_updates: bool
) -> Tuple[Optional[OuterFactory], bool]:
    """Returns (outer_optimizer, use_local_updates) as local_steps has them.

    Args:
        local_steps: The option.
        outer_optimizer: The option of that name.
        use_local_updates: The option of that name.
    """
    outer = outer_of(local_steps)
    if outer is None:
        return outer_optimizer, bool(use_local_updates)
    if outer_optimizer is not None:
        raise ValueError(
            "local_steps cannot be combined with outer_optimizer, which is another outer step: remove one of them, or "
            "write the rule as local_steps=dict(lr=0.7, momentum=0.5, nesterov=True)"
        )
    return outer, True


def _rule(local_steps: Any) -> Dict[str, Any]:
    if isinstance(local_steps, dict):
        for name in local_steps:
            if name not in DEFAULTS:
                raise unknown_option("local_steps", str(name), DEFAULTS)
        rule = {**DEFAULTS, **local_steps}
        if "momentum" in local_steps and "nesterov" not in local_steps:
            rule["nesterov"] = bool(rule["momentum"])
    elif local_steps is True or isinstance(local_steps, int):
        rule = {**DEFAULTS, "steps": DEFAULTS["steps"] if local_steps is True else local_steps}
    else:
        raise TypeError(
            "local_steps must be True, a number of batches, or a dict of lr, momentum, nesterov and steps, not "
            f"{local_steps!r}"
        )
    _check(rule)
    return rule


def _check(rule: Dict[str, Any]) -> None:
    if isinstance(rule["steps"], bool) or not isinstance(rule["steps"], int) or rule["steps"] < 1:
        raise ValueError(f"local_steps must be a number of batches, 1 or more, not {rule['steps']!r}")
    for name, least_is_allowed in (("lr", False), ("momentum", True)):
        value = rule[name]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or value < 0 or not (value or least_is_allowed):
            least = "0 or more" if least_is_allowed else "more than 0"
            raise ValueError(f"local_steps: {name} must be a number, {least}, not {value!r}")
    if not isinstance(rule["nesterov"], bool):
        raise TypeError(f"local_steps: nesterov must be True or False, not {rule['nesterov']!r}")
    if rule["nesterov"] and not rule["momentum"]:
        raise ValueError("local_steps: nesterov=True needs a momentum above 0: give one, or nesterov=False")
