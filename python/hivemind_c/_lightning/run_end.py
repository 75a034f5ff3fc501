"""The end of a fit: a warning if no step of the swarm came in it."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("hivemind_c.strategy")


def say_if_nothing_was_stepped(strategy: Any) -> None:
    """Warns if the weights are those from before fit, although batches were trained on.

    Args:
        strategy: The HivemindStrategy, which has left the swarm.
    """
    options = strategy._optimizer_options
    steps_each_batch = options.get("use_local_updates") and options.get("outer_optimizer") is None
    stepped = strategy._last_epoch != strategy.first_epoch or steps_each_batch
    if strategy._samples and not stepped and strategy.lightning_module.trainer.state.status != "interrupted":
        logger.warning(
            "fit has ended before the swarm's next step, so the weights are those from before fit: this peer has "
            "gathered %d samples, and target_batch_size is %d; train longer, "
            "or choose a smaller target_batch_size",
            strategy._samples,
            strategy._target,
        )
