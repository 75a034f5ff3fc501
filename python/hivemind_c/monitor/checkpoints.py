"""The swarm's state, saved at intervals by whoever watches: the same that joiners get, so it is one that a majority of
the peers names.
"""

from __future__ import annotations

import logging
import os
import pathlib
import threading
from typing import Any, Optional

from hivemind_c import HivemindError
from hivemind_c._log import begin
from hivemind_c.monitor.gather import Snapshot

logger = logging.getLogger("hivemind_c.monitor")
PATIENCE_S = 600.0


def save(dht: Any, run_id: str, folder: pathlib.Path) -> pathlib.Path:
    """Loads the state and writes it into folder, whole or not at all. Raises HivemindError if no state came."""
    import torch

    from hivemind_c.averaging.state import StateSharing

    loaded = StateSharing(dht, f"{run_id}_state_averager").load(PATIENCE_S)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run_id}-{loaded.epoch}.pt"
    draft = path.with_suffix(".part")
    torch.save({"run_id": run_id, "epoch": loaded.epoch, "metadata": loaded.metadata, "tensors": loaded.tensors}, draft)
    os.replace(draft, path)
    return path


def load_checkpoint(saved: Any, model: Any) -> int:
    """Puts a saved state, torch.load(path, weights_only=True), into a model: its parameters in the order of
    model.parameters(), as the optimizer got them. Returns the epoch. ValueError, and nothing has changed: it is another
    model's."""
    import torch

    parameters = list(model.parameters())
    tensors = saved["tensors"][: saved["metadata"]["parameters"]]
    if [p.shape for p in parameters] != [t.shape for t in tensors]:
        raise ValueError("cannot write a checkpoint: the state is another model's, with parameters of other shapes")
    with torch.no_grad():
        for parameter, tensor in zip(parameters, tensors):
            parameter.copy_(tensor)
    return int(saved["epoch"])


class Saver:
    """Saves every so many epochs, in a thread, so that watching goes on meanwhile."""

    def __init__(self, dht: Any, run_id: str, every: int, folder: str):
        import torch  # noqa: F401  told at once if it is missing, not in an hour

        self._dht, self._run_id, self._every, self._folder = dht, run_id, every, pathlib.Path(folder)
        self._thread: Optional[threading.Thread] = None
        self._last: Optional[int] = None

    def look(self, now: Snapshot) -> None:
        turn = now.epoch // self._every
        if self._last is None:
            self._last = turn  # of a run that is watched from its middle the next one is the first
        if turn > self._last and (self._thread is None or not self._thread.is_alive()):
            self._last = turn
            self._thread = begin("hivemind_c checkpoint", self._save)

    def _save(self) -> None:
        try:
            logger.info("the swarm's state is saved in %s", save(self._dht, self._run_id, self._folder))
        except (HivemindError, OSError) as error:
            logger.warning("no checkpoint was written, will retry: %s", error)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(5)
