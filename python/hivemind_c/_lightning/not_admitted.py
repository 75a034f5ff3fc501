"""The end of a fit whose closed swarm does not admit this peer any more: a checkpoint, then the error."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any, Iterator

from _hivemind_c import HivemindPermissionError


@contextlib.contextmanager
def saves_checkpoint(strategy: Any, model: Any) -> Iterator[None]:
    """Writes a checkpoint if the step within raises HivemindPermissionError, and names it in the error.

    Args:
        strategy: The HivemindStrategy.
        model: Its module.
    """
    try:
        yield
    except HivemindPermissionError as error:
        trainer = strategy.lightning_module.trainer
        path = pathlib.Path(trainer.default_root_dir) / f"not-admitted-{str(strategy.dht.peer_id)[-8:]}.ckpt"
        with strategy.meets_nobody():  # other ranks wait until it is written, and end once they know
            trainer.save_checkpoint(path)
        error.args = (f"{error}; a checkpoint is in {path}",)
        raise
