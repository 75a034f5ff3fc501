"""Optimizers and schedulers from configure_optimizers, made fit for global epochs."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Callable, Dict, List, Sequence

import torch
from torch.optim.lr_scheduler import ChainedScheduler, ReduceLROnPlateau

logger = logging.getLogger("hivemind_c.strategy")


class FollowsGlobalEpochs:
    """Stands where Lightning looks for a scheduler: it is stepped by the swarm's epochs, and what Lightning asks for does not step it again."""

    def __init__(self, scheduler: Any, optimizer: Any):
        self._scheduler, self.optimizer = scheduler, optimizer

    def step(self, metric: Any = None) -> None:
        if metric is not None and isinstance(self._scheduler, ReduceLROnPlateau):
            self.optimizer.report_metric(metric)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_scheduler"], name)


class HiveMindScheduler(FollowsGlobalEpochs):
    """A scheduler around a swarm's optimizer that steps once in each global epoch, however often its step() is called.

    Args:
        optimizer: A hivemind_c.Optimizer.
        scheduler: A scheduler of torch for the optimizer that it wraps.
    """

    def __init__(self, optimizer: Any, scheduler: Any):
        super().__init__(scheduler, optimizer)
        self.current_step = optimizer.local_epoch

    def step(self, metric: Any = None) -> None:
        while self.current_step < self.optimizer.local_epoch:
            self.current_step += 1
            if not isinstance(self._scheduler, ReduceLROnPlateau):
                self._scheduler.step()
            elif metric is not None:
                self._scheduler.step(metric)


def one_scheduler(configs: Sequence[Any]) -> Any:
    """The schedulers of configure_optimizers as one. ValueError: they cannot be one."""
    schedulers = [config.scheduler for config in configs]
    if not schedulers:
        return None
    for config in configs:
        if config.frequency != 1:
            logger.warning("the scheduler's frequency %s is left aside: with a swarm a scheduler is stepped once in each global epoch", config.frequency)
    if len(schedulers) == 1:
        return schedulers[0]
    if any(isinstance(scheduler, ReduceLROnPlateau) for scheduler in schedulers):
        raise ValueError("ReduceLROnPlateau cannot be used together with another scheduler here: return one of them from configure_optimizers")
    return ChainedScheduler(schedulers)


def factory(optimizer: torch.optim.Optimizer) -> Callable[[List[Dict[str, Any]]], torch.optim.Optimizer]:
    """A function that makes such an optimizer again, for other parameters in the same groups."""
    kind = type(optimizer)
    known = inspect.signature(kind.__init__).parameters
    defaults = {name: value for name, value in optimizer.defaults.items() if name in known}
    return lambda groups: kind(groups, **defaults)
