"""SchedulerEnd: warns if a scheduler has passed the number of steps for which it was made."""

from __future__ import annotations

import logging
from typing import Any, Dict, Iterator

logger = logging.getLogger("hivemind_c.optim")
#: the option with a scheduler's last step, as its state names it, and what the learning rate does after that step
ENDS = {
    "T_max": "the learning rate of CosineAnnealingLR rises again",
    "total_steps": "the learning rate of OneCycleLR stays at its end",
}
DEEPEST = 4  #: schedulers inside schedulers


def states(state: Dict[str, Any], deep: int = DEEPEST) -> Iterator[Dict[str, Any]]:
    """Gives the state of a scheduler, or those of the schedulers that it chains.

    Args:
        state: The result of its state_dict().
        deep: Levels that are looked into.
    """
    inner = state.get("_schedulers")
    if isinstance(inner, (list, tuple)) and deep:
        for one in inner:
            yield from states(one, deep - 1)
    else:
        yield state


class SchedulerEnd:
    """Looks at a scheduler after each of its steps, and warns once."""

    def __init__(self) -> None:
        self._said = False

    def look(self, scheduler: Any) -> None:
        """Warns if the scheduler, or one that it chains, has passed its end.

        Args:
            scheduler: The scheduler.
        """
        if self._said or not hasattr(scheduler, "state_dict"):
            return
        for state in states(scheduler.state_dict()):
            for option, effect in ENDS.items():
                end, last = state.get(option), state.get("last_epoch")
                if isinstance(end, int) and isinstance(last, int) and last > end:
                    self._said = True
                    logger.warning(
                        "a scheduler has passed its %s=%d, so %s: it steps once in each swarm epoch, so give %s the "
                        "samples that all peers will train on, divided by target_batch_size",
                        option,
                        end,
                        effect,
                        option,
                    )
                    return
