"""SchedulerEnd: warns if a scheduler has passed the number of steps for which it was made."""

from __future__ import annotations

import logging
from typing import Any, Iterator, Tuple

logger = logging.getLogger("hivemind_c.optim")
#: the attribute of a scheduler with its last step, and what its learning rate does after that
ENDS = {
    "CosineAnnealingLR": ("T_max", "the learning rate rises again"),
    "OneCycleLR": ("total_steps", "the learning rate stays at its end"),
    "PolynomialLR": ("total_iters", "the learning rate stays at its end"),
}
DEEPEST = 4  #: schedulers inside schedulers


def parts(scheduler: Any, deep: int = DEEPEST) -> Iterator[Any]:
    """Gives a scheduler, or those that it chains.

    Args:
        scheduler: A scheduler of torch, or several as one.
        deep: Levels that are looked into.
    """
    inner = getattr(scheduler, "schedulers", None) or getattr(scheduler, "_schedulers", None)
    if isinstance(inner, (list, tuple)) and deep:
        for one in inner:
            yield from parts(one, deep - 1)
    else:
        yield scheduler


class SchedulerEnd:
    """Looks at a scheduler after each of its steps, and warns once."""

    def __init__(self) -> None:
        self._said = False

    def look(self, scheduler: Any) -> None:
        """Warns if the scheduler, or one that it chains, has passed its end.

        Args:
            scheduler: The scheduler.
        """
        if self._said:
            return
        for one in parts(scheduler):
            name = type(one).__name__
            option, effect = ENDS.get(name, ("", ""))
            last: Tuple[Any, Any] = getattr(one, option, None), getattr(one, "last_epoch", None)
            if all(isinstance(value, int) for value in last) and last[1] > last[0]:
                self._said = True
                logger.warning(
                    "%s has passed its %s=%d, so %s: a scheduler steps once in each swarm epoch, so give %s the samples "
                    "that all peers will train on, divided by target_batch_size",
                    name,
                    option,
                    last[0],
                    effect,
                    option,
                )
                return
