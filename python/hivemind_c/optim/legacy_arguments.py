"""The arguments of CollaborativeOptimizer, as hivemind 0.10 had them."""

from __future__ import annotations

import difflib
import inspect
import logging
from typing import Any, Callable, Dict, Set

from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.compression import NoCompression
from hivemind_c.compression.base import SerializedTensor, compression_of
from hivemind_c.optim.grad_averager import GradientAverager
from hivemind_c.optim.progress_tracker import ProgressTracker

logger = logging.getLogger("hivemind_c.optim")

RENAMED = {"prefix": "run_id", "averaging_expiration": "matchmaking_time", "throughput": "bandwidth"}
COMPRESSIONS = ("compression", "compression_type")  #: one for gradients and parameters
NO_EFFECT = (
    "step_tolerance",
    "averaging_step_duration",
    "statistics_expiration",
    "start",
    "average_gradients",
    "average_parameters",
)


def _options(taker: Callable[..., Any]) -> Set[str]:
    return {
        name
        for name, p in inspect.signature(taker).parameters.items()
        if name != "self" and p.kind is not p.VAR_KEYWORD
    }


def _compression(value: Any) -> Any:
    """The compression that a number of CompressionType means, or None; others as they are."""
    if value is None:
        return NoCompression()
    return compression_of(SerializedTensor(compression=value)) if isinstance(value, int) else value


def translate(opt: Any, given: Dict[str, Any], taker: Callable[..., Any]) -> Dict[str, Any]:
    """Returns the arguments of CollaborativeOptimizer as those of Optimizer. Raises TypeError for unknown ones.

    Args:
        opt: The optimizer, or None.
        given: The arguments by name.
        taker: Optimizer.__init__.
    """
    known, of_averagers, of_tracker = map(_options, (taker, DecentralizedAverager.__init__, ProgressTracker.__init__))
    averagers, tracker = dict(given.get("averager_opts") or {}), dict(given.get("tracker_opts") or {})
    made: Dict[str, Any] = {} if opt is None else {"optimizer": opt}
    for old, value in given.items():
        name = RENAMED.get(old, old)
        if name in ("averager_opts", "tracker_opts"):
            continue
        if name in COMPRESSIONS:
            made.update(grad_compression=_compression(value), state_averaging_compression=_compression(value))
        elif name == "accumulate_grads_on":
            made.update(
                {}
                if value is None
                else {"grad_averager_factory": GradientAverager.get_factory(accumulate_grads_on=value)}
            )
        elif name in NO_EFFECT:
            logger.warning("CollaborativeOptimizer: no effect of %s; leave it out", name)
        elif name in known:
            made[name] = value
        elif name in of_tracker:
            tracker[name] = value
        elif name in of_averagers:
            averagers[name] = value
        else:
            near = difflib.get_close_matches(
                name, {*known, *RENAMED, *of_averagers, *of_tracker, *COMPRESSIONS, "opt"}, 1
            )
            raise TypeError(
                f"CollaborativeOptimizer: there is no option {name!r}; "
                + (f"did you mean {near[0]!r}?" if near else "docs/reference/options.md lists those of Optimizer")
            )
    made.update({name: value for name, value in (("averager_opts", averagers), ("tracker_opts", tracker)) if value})
    return made
