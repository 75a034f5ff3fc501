"""Schedulers from configure_optimizers, stepped by swarm epochs."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Dict, List, Sequence

from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

from hivemind_c._lightning.sample_counter import say

logger = logging.getLogger("hivemind_c.strategy")


class SwarmScheduler:
    """The schedulers of the module as one scheduler of the swarm's optimizer.

    A step calls the module's lr_scheduler_step, so its override is called, and any object with step() and state_dict()
    will do. If a callback such as SWA has replaced the scheduler, nothing is stepped.

    Args:
        strategy: The HivemindStrategy.
        configs: Scheduler configurations of Lightning.
    """

    def __init__(self, strategy: Any, configs: Sequence[Any]):
        self._strategy, self._configs, self._said = strategy, list(configs), False
        self._step = strategy.lightning_module.lr_scheduler_step

    @property
    def schedulers(self) -> List[Any]:
        return [config.scheduler for config in self._configs]

    def step(self) -> None:
        there = self._strategy.lr_scheduler_configs
        if any(all(config is not other for other in there) for config in self._configs):
            self._say(
                "the scheduler of configure_optimizers is no longer stepped, because a callback has put another one "
                "in its place, which follows this peer's data alone"
            )
            return
        for scheduler in self.schedulers:
            try:
                self._step(scheduler, None)
            except ValueError as error:
                if not isinstance(scheduler, OneCycleLR):
                    raise
                self._say(
                    f"OneCycleLR has ended, so the learning rate stays as it is: {error}; give it as many total_steps "
                    "as there are swarm epochs"
                )

    def _say(self, text: str) -> None:
        if not self._said:
            self._said = True
            logger.warning(text)

    def state_dict(self) -> Dict[str, Any]:
        states = [scheduler.state_dict() for scheduler in self.schedulers]
        return states[0] if len(states) == 1 else {"_schedulers": states}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        states = state["_schedulers"] if len(self._configs) > 1 else [state]
        for scheduler, one in zip(self.schedulers, states):
            scheduler.load_state_dict(one)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_configs"][0].scheduler, name)


class HiveMindScheduler:
    """A scheduler around a swarm's optimizer that steps once in each swarm epoch, however often its step() is called.

    Args:
        optimizer: A hivemind_c.Optimizer.
        scheduler: A scheduler of torch for the optimizer that it wraps.
    """

    def __init__(self, optimizer: Any, scheduler: Any):
        self._scheduler, self.optimizer, self.current_step = scheduler, optimizer, optimizer.local_epoch

    def __getattr__(self, name: str) -> Any:
        if name == "_scheduler":  # a copy asks before it has one
            raise AttributeError(name)
        return getattr(self._scheduler, name)

    def step(self, metric: Any = None) -> None:
        """Steps the scheduler once for each swarm epoch since the last call.

        Args:
            metric: Value for ReduceLROnPlateau, which is not stepped without one.
        """
        while self.current_step < self.optimizer.local_epoch:
            self.current_step += 1
            if not isinstance(self._scheduler, ReduceLROnPlateau):
                self._scheduler.step()
            elif metric is not None:
                self._scheduler.step(metric)


def of_swarm(strategy: Any, configs: Sequence[Any]) -> Any:
    """The schedulers of configure_optimizers as hivemind_c.Optimizer takes one. ValueError: they cannot be one."""
    if not configs:
        return None
    step = "outer step" if strategy._is_anchored else "step of the optimizer"
    for config in configs:
        if config.frequency != 1:
            logger.warning(
                "the scheduler's frequency %s is left aside: with a swarm a scheduler is stepped once in each global "
                "epoch",
                config.frequency,
            )
        if config.interval == "epoch" and not isinstance(config.scheduler, ReduceLROnPlateau):
            say(
                strategy,
                f"{type(config.scheduler).__name__} steps once in each swarm epoch, which is one {step}, "
                "and not once in each pass over the data: count its "
                "arguments in swarm epochs, and return {'scheduler': ..., 'interval': 'step'} to say that you do",
            )
    if any(isinstance(config.scheduler, ReduceLROnPlateau) for config in configs):
        if len(configs) > 1:
            raise ValueError(
                "ReduceLROnPlateau cannot be used together with another scheduler here: return one of them from "
                "configure_optimizers"
            )
        return configs[0].scheduler
    scheduler = SwarmScheduler(strategy, configs)
    return lambda optimizer: scheduler


def lr_scheduler_step(strategy: Any, configs: Sequence[Any]) -> Any:
    """The function that Lightning calls in place of the module's lr_scheduler_step: the swarm steps its schedulers, and
    Lightning only brings what ReduceLROnPlateau looks at. Of several ranks, rank 0 alone has a scheduler that steps.
    """
    original, swarms = strategy.lightning_module.lr_scheduler_step, [config.scheduler for config in configs]

    def step(scheduler: Any, metric: Any) -> None:
        if all(scheduler is not one for one in swarms):  # a callback's
            original(scheduler, metric)
        elif metric is not None and isinstance(scheduler, ReduceLROnPlateau) and strategy.optimizer is not None:
            strategy.optimizer.report_metric(metric)

    step.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    return step
