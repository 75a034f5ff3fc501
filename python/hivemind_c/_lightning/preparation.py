"""Changes in the module, the precision plugin and the callbacks that last as long as fit does."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import torch

from hivemind_c._lightning import global_steps, namespaces, schedulers, step_hooks
from hivemind_c._lightning.patches import Patches, copy_scale, swarm_scaler
from hivemind_c.optim import GradScaler

logger = logging.getLogger("hivemind_c.strategy")


def prepare(strategy: Any, trainer: Any, patches: Patches) -> None:
    """Makes the changes.

    Args:
        strategy: The HivemindStrategy.
        trainer: Its Trainer.
        patches: Undoes the changes when fit ends.
    """
    plugin, module = strategy.precision_plugin, strategy.lightning_module
    patches.put(plugin, "_after_closure", partial(step_hooks.after_closure, strategy))
    patches.put(module, "lr_scheduler_step", schedulers.lr_scheduler_step(strategy, strategy.lr_scheduler_configs))
    for callback in trainer.callbacks:
        if global_steps.is_kind(callback, "WeightAveraging"):
            patches.put(callback, "on_train_batch_end", global_steps.after_global_steps(strategy, callback))
    scaler = getattr(plugin, "scaler", None)
    if isinstance(scaler, torch.amp.GradScaler) and not isinstance(scaler, GradScaler):
        swarms = swarm_scaler(scaler)
        patches.put(plugin, "scaler", swarms)
        patches.at_end(partial(copy_scale, swarms, scaler))
    if strategy._reuse_grad_buffers:
        if (
            type(module).optimizer_zero_grad
            is not namespaces.part(strategy._names[0], "LightningModule").optimizer_zero_grad
        ):
            logger.warning(
                "reuse_grad_buffers: the module's own optimizer_zero_grad is not called while the swarm sums "
                "gradients up in .grad"
            )
        # the Trainer calls the second before it begins, and before validation
        for name in ("optimizer_zero_grad", "zero_grad"):
            patches.put(module, name, patches.nothing)
    strategy._signals.prepare(patches)
    if strategy._ranks is not None:
        strategy._ranks.prepare(patches)
