"""Lightning's features that count steps of the optimizer, where the Trainer counts this peer's batches: their steps are
swarm epochs here.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

from hivemind_c._lightning.sample_counter import say


def is_kind(thing: Any, name: str) -> bool:
    """True if a class of that name, of either Lightning, is among the thing's."""
    return any(kind.__name__ == name for kind in type(thing).__mro__)


def batches_per_step(target: int, samples: int) -> int:
    """The number of batches in a step of a peer without others."""
    return max(1, math.ceil(target / samples))


def samples_per_batch(trainer: Any, given: Optional[int]) -> Optional[int]:
    """As the strategy's option or the data loader says it; None: neither does."""
    loader = trainer.train_dataloader
    for size in (
        given,
        getattr(loader, "batch_size", None),
        getattr(getattr(loader, "batch_sampler", None), "batch_size", None),
    ):
        if isinstance(size, int) and size > 0:
            return size
    return None


def estimates_global_steps(strategy: Any, trainer: Any, target: int, given: Optional[int]) -> type:
    """The Trainer's class, but its estimated_stepping_batches counts global steps of this peer alone."""
    kind = type(trainer)
    said = []

    def estimated(self: Any) -> Any:
        batches = kind.estimated_stepping_batches.fget(self)  # type: ignore[attr-defined]
        samples = samples_per_batch(self, given)
        known = isinstance(batches, int) and batches >= 0 and samples is not None
        ranks = self.world_size  # of one peer, each with a batch of its own
        steps = batches
        if known and samples is not None:
            steps = max(1, batches // batches_per_step(target, samples * ranks))
        if not said:
            said.append(True)
            number = (
                f"{steps} global steps, as many as this peer makes alone"
                if known
                else "this peer's batches, because the samples in one are not known"
            )
            say(
                strategy,
                f"trainer.estimated_stepping_batches gives {number}: other peers' samples bring more steps in the "
                "same time, so give schedulers a number that all peers agree on",
            )
        return steps

    return type(
        kind.__name__, (kind,), {"estimated_stepping_batches": property(estimated), "__module__": kind.__module__}
    )


class _GlobalStepTrainer:
    """A Trainer whose global_step is that of the swarm."""

    def __init__(self, trainer: Any, global_step: int):
        self._trainer, self.global_step = trainer, global_step

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_trainer"], name)


def after_global_steps(strategy: Any, callback: Any) -> Any:
    """on_train_batch_end of a WeightAveraging callback, which looks for a new step of the optimizer: it sees the
    swarm's.
    """
    original = callback.on_train_batch_end
    base: "list[int]" = []

    def on_train_batch_end(trainer: Any, *args: Any, **kwargs: Any) -> None:
        if not base:  # after a checkpoint of Lightning alone, steps are counted on from it
            base.append(max(0, callback._latest_update_step - strategy.first_epoch))
        original(_GlobalStepTrainer(trainer, base[0] + strategy.global_epoch), *args, **kwargs)

    return on_train_batch_end


class RateFinder:
    """The learning-rate finder of Lightning, which steps the optimizer of this peer alone.

    Its steps use gradients of target_batch_size samples. No other peer sees them, and the finder restores the weights.

    Args:
        trainer: The Trainer.
        target: Samples of one step.
        patches: Undoes changes when fit ends.
    """

    def __init__(self, trainer: Any, target: int, patches: Any):
        self._trainer, self._target, self._patches = trainer, target, patches
        self._was: Optional[int] = None

    @property
    def at_work(self) -> bool:
        return any(type(callback).__name__ == "_LRCallback" for callback in self._trainer.callbacks)

    def gather(self, samples: Callable[[], int]) -> None:
        """Called before each batch: lets Lightning add up as many batches as a step needs while the finder is at work.

        Args:
            samples: A function that counts the samples of this batch.
        """
        if self._was is None and self.at_work:
            needed = batches_per_step(self._target, samples())
            self._was, self._trainer.accumulate_grad_batches = self._trainer.accumulate_grad_batches, needed
            self._patches.at_end(self.end)
        elif self._was is not None and not self.at_work:
            self.end()

    def end(self) -> None:
        if self._was is not None:
            self._trainer.accumulate_grad_batches, self._was = self._was, None
