"""DiLoCoOptimizer: local steps with an outer optimizer under the names and arguments of OpenDiLoCo."""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, Optional, Union

import torch

from hivemind_c._signature import shows_options_of
from hivemind_c.optim.anchor import OuterFactory
from hivemind_c.optim.factories import LRScheduler, OptimizerFactory, SchedulerFactory, make_scheduler
from hivemind_c.optim.grad_scaler import grads_are_finite
from hivemind_c.optim.optimizer import Optimizer
from hivemind_c.optim.options import positive_int

logger = logging.getLogger("hivemind_c.optim")
#: options that OpenDiLoCo's programs give, and what makes them needless here
NEEDLESS = {
    "all_reduce_strategy": "the samples of all peers end an epoch, so no peer waits for the steps of another one",
    "timeout_waiting_for_peers": "the samples of all peers end an epoch, so no peer waits for the steps of another one",
    "state_averaging_compression": "anchors are equal to the bit, so no state is averaged",
    "load_state_compression": "anchors are equal to the bit, so joiners load them exactly",
}


class DiLoCoOptimizer(Optimizer):
    """The Optimizer with local steps and an outer optimizer, with OpenDiLoCo's arguments.

    A swarm epoch has num_inner_steps x batch_size x expected_peers samples of all peers together. All peers give the
    same three numbers, or the same target_batch_size.

    Args:
        batch_size: Samples in one call of step().
        num_inner_steps: Batches of each of the expected peers between two outer steps.
        outer_optimizer: A function that makes the optimizer of the anchor, such as SGD with Nesterov momentum.
        inner_optimizer: An optimizer of torch, or a function that makes one of params. It steps with each batch.
        expected_peers: Peers that you expect. With more of them an epoch is shorter, and with fewer it is longer.
        target_batch_size: Samples of a swarm epoch, in place of the product.
        scheduler: A scheduler of the inner optimizer, or a function that makes one. It counts inner steps.
        all_reduce_strategy: Accepted for compatibility; has no effect.
        timeout_waiting_for_peers: Accepted for compatibility; has no effect.
        **kwargs: Further options of Optimizer, such as params, grad_compression or matchmaking_time.
    """

    @shows_options_of(Optimizer, but=("optimizer", "batch_size_per_step", "use_local_updates", "local_steps"))
    def __init__(
        self,
        *,
        batch_size: int,
        num_inner_steps: int,
        outer_optimizer: OuterFactory,
        inner_optimizer: Union[torch.optim.Optimizer, OptimizerFactory],
        expected_peers: int = 1,
        target_batch_size: Optional[int] = None,
        scheduler: Union[None, LRScheduler, SchedulerFactory] = None,
        all_reduce_strategy: Any = None,
        timeout_waiting_for_peers: Optional[float] = None,
        **kwargs: Any,
    ):
        batch_size = positive_int(batch_size, "batch_size")
        steps, peers = positive_int(num_inner_steps, "num_inner_steps"), positive_int(expected_peers, "expected_peers")
        given = dict(all_reduce_strategy=all_reduce_strategy, timeout_waiting_for_peers=timeout_waiting_for_peers)
        _drop_needless(given, kwargs)
        super().__init__(
            target_batch_size=steps * batch_size * peers if target_batch_size is None else target_batch_size,
            batch_size_per_step=batch_size,
            optimizer=inner_optimizer,
            outer_optimizer=outer_optimizer,
            use_local_updates=True,
            scheduler=None if scheduler is None else _of_inner_steps(scheduler, steps),
            **kwargs,
        )

    @property
    def inner_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that steps with each batch."""
        return self.state_averager.inner

    def step(
        self,
        closure: Optional[Callable[[], Any]] = None,
        batch_size: Optional[int] = None,
        scaler: Optional[torch.amp.GradScaler] = None,
    ) -> Any:
        """Steps the inner optimizer, and ends the swarm epoch if the swarm has enough samples. Returns the loss.

        Args:
            closure: A function that computes the loss and its gradients. None: the gradients are there already.
            batch_size: Samples in this batch. None: that of the Optimizer.
            scaler: The GradScaler of the loss. The program calls its update() after the step, and not its step().
        """
        if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
            raise TypeError(f"scaler must be a GradScaler, like torch.amp.GradScaler(), not {scaler!r}")
        scales = scaler is not None and scaler.is_enabled()
        return super().step(closure, batch_size, scaler if scales else None)  # type: ignore[arg-type]

    step.hooked = True  # type: ignore[attr-defined]  # by the Optimizer's own

    def _are_grads_finite(self, grad_scaler: Any) -> bool:
        """The program may have divided the gradients by the scale, for the inner optimizer or for this object."""
        return grads_are_finite(grad_scaler, self.inner_optimizer, self)


def _drop_needless(given: Dict[str, Any], options: Dict[str, Any]) -> None:
    named = [name for name, value in given.items() if value is not None]
    named += [name for name in NEEDLESS if options.pop(name, None) is not None]
    for name in named:
        logger.info("DiLoCoOptimizer: no effect of %s, because %s", name, NEEDLESS[name])


class _InnerSteps:
    """A scheduler that makes all steps of a swarm epoch at its end.

    Args:
        scheduler: The scheduler of the program.
        steps: Of a swarm epoch.
    """

    def __init__(self, scheduler: LRScheduler, steps: int):
        self._schedulers, self._steps = (scheduler,), steps
        self.state_dict, self.load_state_dict = scheduler.state_dict, scheduler.load_state_dict
        self.get_last_lr = scheduler.get_last_lr

    def step(self) -> None:
        """Makes them."""
        for _ in range(self._steps):
            self._schedulers[0].step()


def _of_inner_steps(scheduler: Any, steps: int) -> Callable[[torch.optim.Optimizer], Any]:
    def make(inner: torch.optim.Optimizer) -> Any:
        made = make_scheduler(scheduler, inner, False)
        is_plateau = isinstance(made, torch.optim.lr_scheduler.ReduceLROnPlateau)  # which is refused
        return made if is_plateau else _InnerSteps(made, steps)

    return make
