"""Demands of HivemindStrategy on a program; where it is not so, Lightning's exception tells what to write instead."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch

from hivemind_c._lightning import optimizers, schedulers
from hivemind_c._lightning.global_steps import is_kind
from hivemind_c._lightning.namespaces import misconfigured


def check_optimizer(strategy: Any, options: Dict[str, Any]) -> None:
    """The Optimizer's options: no Trainer can be what these ask for."""
    if options.get("auxiliary"):
        raise misconfigured(
            strategy,
            "an auxiliary peer trains nothing, and a Trainer trains: call step() of "
            "hivemind_c.Optimizer(auxiliary=True) again and again instead (docs/reference/optimizer.md)",
        )


def check_training(strategy: Any, trainer: Any, target: int) -> None:
    """The Trainer and the module: what the swarm does is not done by them as well."""
    accumulating = any(type(callback).__name__ == "GradientAccumulationScheduler" for callback in trainer.callbacks)
    if trainer.accumulate_grad_batches != 1 or accumulating:
        raise misconfigured(
            strategy,
            "accumulate_grad_batches is what the swarm does: gradients add up over all peers until target_batch_size "
            "samples are there. "
            f"Leave it out and choose target_batch_size instead ({target} now)",
        )
    if not strategy.lightning_module.automatic_optimization:
        raise misconfigured(
            strategy,
            "manual optimization cannot be used with HivemindStrategy, because it would step before the swarm has "
            "gathered its samples: "
            "leave automatic_optimization at True, or write the loop yourself around hivemind_c.Optimizer "
            "(docs/reference/strategy.md)",
        )
    if any(is_kind(callback, "BaseFinetuning") for callback in trainer.callbacks):
        raise misconfigured(
            strategy,
            "callbacks like BackboneFinetuning give the optimizer more parameters while it trains, and all peers must "
            "have the same ones from the start: leave the callback out, "
            "return all parameters from configure_optimizers, and freeze some of them with requires_grad_(False) in "
            "on_train_start",
        )


def check_rate_finder(strategy: Any, trainer: Any, target: int, apart: bool) -> None:
    """apart: gradients are not where the optimizer of this peer alone would look for them."""
    apart = apart or strategy.has_ranks
    if apart and any(is_kind(callback, "LearningRateFinder") for callback in trainer.callbacks):
        raise misconfigured(
            strategy,
            "the learning-rate finder cannot be used with offload_optimizer, delays, reuse_grad_buffers, "
            "use_local_updates or several devices: find the rate without the strategy, with "
            f"Trainer(accumulate_grad_batches=N) for N batches of {target} samples together, and give it to "
            "configure_optimizers",
        )


def optimizer_and_scheduler(
    strategy: Any, offload: bool, scheduler_fn: Optional[Callable[[torch.optim.Optimizer], Any]]
) -> Dict[str, Any]:
    """The result of configure_optimizers, as arguments of hivemind_c.Optimizer."""
    # Lightning's, for none
    there = sum(type(optimizer).__name__ != "_MockOptimizer" for optimizer in strategy.optimizers)
    if there != 1:
        raise misconfigured(
            strategy,
            f"HivemindStrategy works with one optimizer, and configure_optimizers returned {there}: put the "
            "parameters into groups of one optimizer "
            "([{'params': ..., 'lr': ...}, ...]), or use hivemind_c.Optimizer, one with a run_id of its own for each",
        )
    optimizer, configs = strategy.optimizers[0], strategy.lr_scheduler_configs
    optimizers.check(strategy, optimizer)
    if configs and scheduler_fn:
        raise misconfigured(
            strategy, "there are two schedulers, scheduler_fn and that of configure_optimizers: leave one out"
        )
    if configs and offload:
        example = type(configs[0].scheduler).__name__
        raise misconfigured(
            strategy,
            "with offload_optimizer, which delay_optimizer_step and delay_grad_averaging bring along, the optimizer "
            "is made again for copies of the "
            "parameters, and a scheduler from configure_optimizers would belong to the old one: return the optimizer "
            "alone, and write "
            f"HivemindStrategy(scheduler_fn=lambda optimizer: torch.optim.lr_scheduler.{example}(optimizer, ...))",
        )
    if offload:
        return dict(
            optimizer=optimizers.factory(strategy, optimizer), params=optimizer.param_groups, scheduler=scheduler_fn
        )
    try:
        return dict(optimizer=optimizer, scheduler=scheduler_fn or schedulers.of_swarm(strategy, configs))
    except ValueError as error:
        raise misconfigured(strategy, str(error)) from None
