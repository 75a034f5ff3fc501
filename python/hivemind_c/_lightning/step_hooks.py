"""Lightning's hooks around a step of the optimizer, with the averaged gradient instead of each batch's."""

from __future__ import annotations

import contextlib
from typing import Any, Dict

from hivemind_c._lightning import namespaces
from hivemind_c.optim.setup_fields import number


def after_closure(strategy: Any, model: Any, optimizer: Any) -> None:
    """In the precision plugin: what Lightning does before a step of the optimizer is done before the swarm's, by
    ClipAveraged.
    """
    plugin = strategy.precision_plugin
    if strategy._finder.at_work:
        type(plugin)._after_closure(plugin, model, optimizer)
    elif strategy._offload and strategy.optimizer is not None:
        # the averages are in the optimizer's copies, and perhaps in another thread
        call_hooks(strategy)


def call_hooks(strategy: Any) -> None:
    module = strategy.lightning_module
    with _alone(strategy):
        for call in ("_call_callback_hooks", "_call_lightning_module_hook"):
            namespaces.part(strategy._names[0], f"trainer.call.{call}")(
                module.trainer, "on_before_optimizer_step", strategy.optimizer
            )


class ClipAveraged:
    """Lightning's hook and its gradient clipping, as Optimizer calls them with averaged gradients.

    Args:
        strategy: The HivemindStrategy.
    """

    def __init__(self, strategy: Any):
        self._strategy = strategy

    def __call__(self, parameters: Any) -> None:
        strategy, module = self._strategy, self._strategy.lightning_module
        if not strategy._offload:
            call_hooks(strategy)
        with _alone(strategy):
            module.configure_gradient_clipping(
                strategy.optimizer.opt,
                gradient_clip_val=module.trainer.gradient_clip_val,
                gradient_clip_algorithm=module.trainer.gradient_clip_algorithm,
            )

    @property
    def setup(self) -> Dict[str, Any]:
        """The settings that must be alike at all peers."""
        trainer = self._strategy.lightning_module.trainer
        if not trainer.gradient_clip_val:
            return {}
        algorithm = getattr(trainer.gradient_clip_algorithm, "value", trainer.gradient_clip_algorithm) or "norm"
        return {"gradient_clip_val": f"{number(trainer.gradient_clip_val)} by {algorithm}"}


def _alone(strategy: Any) -> Any:
    """The hooks run on one rank, where no collective may be called."""
    return strategy._ranks.hook() if strategy._ranks is not None else contextlib.nullcontext()
