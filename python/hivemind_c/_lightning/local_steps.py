"""Local steps under a Trainer: their options, and the anchor as the model of each validation."""

from __future__ import annotations

import contextlib
from typing import Any, Dict

from hivemind_c._lightning.checkpoint_files import CheckpointWriter
from hivemind_c.optim.local_steps import LocalSteps, chosen


def with_outer_step(local_steps: LocalSteps, given: Dict[str, Any]) -> Dict[str, Any]:
    """Returns options of an Optimizer, with those that local_steps stands for.

    Args:
        local_steps: The option of the strategy.
        given: Further options of Optimizer.
    """
    outer, _ = chosen(local_steps, given.get("outer_optimizer"), bool(given.get("use_local_updates")))
    if outer is None:
        return given
    return {**given, "use_local_updates": True, "outer_optimizer": outer}


class AnchorWatcher(CheckpointWriter):
    """The part of HivemindStrategy for local steps with an anchor; without one it does nothing."""

    _optimizer_options: Dict[str, Any]
    _shown: contextlib.ExitStack  # open while the model shows the anchor

    @property
    def _is_anchored(self) -> bool:
        return self._optimizer_options.get("outer_optimizer") is not None

    def on_validation_start(self) -> None:
        """Called by Lightning before validation: with local steps the model is the anchor until it ends."""
        if self._hive is not None:
            self._shown.enter_context(self._hive.use_anchor())
        super().on_validation_start()

    def on_validation_end(self) -> None:
        """Called by Lightning after validation: with local steps the model has the local parameters again."""
        super().on_validation_end()  # type: ignore[misc]
        self._shown.close()
        if self._ranks is not None and self._is_anchored:
            self._ranks.sync(whole=True)
