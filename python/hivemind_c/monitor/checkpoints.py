"""The swarm's state, saved at intervals by whoever watches: the same that joiners get, so it is one that a majority of
the peers names.
"""

from __future__ import annotations

import logging
import os
import pathlib
import threading
import time
import urllib.parse
from typing import Any, Optional

from hivemind_c._log import begin
from hivemind_c._text import printable
from hivemind_c.monitor.gather import Snapshot

logger = logging.getLogger("hivemind_c.monitor")
PATIENCE_S = 600.0
RETRY_S = 30.0  #: after a save that failed


def save(dht: Any, run_id: str, folder: pathlib.Path) -> pathlib.Path:
    """Loads the state and writes it into a folder, whole or not at all. Returns the file.

    Raises HivemindError if no state came, and OSError or RuntimeError if torch could not write it.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run. Characters that a name of a file should not have are written as %XX.
        folder: The folder, which is made if it is missing.
    """
    import torch

    from hivemind_c.averaging.state import StateSharing

    loaded = StateSharing(dht, f"{run_id}_state_averager").load(PATIENCE_S)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{urllib.parse.quote(run_id, safe='')}-{loaded.epoch}.pt"
    draft = path.with_suffix(".part")
    about = {"run_id": run_id, "epoch": loaded.epoch, "metadata": loaded.metadata, "tensors": loaded.tensors}
    try:
        torch.save(about, draft)
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
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
        self._last: Optional[int] = None  # the turn of the latest checkpoint
        self._again = 0.0  # when a save that failed is tried again

    def look(self, now: Snapshot) -> None:
        turn = now.epoch // self._every
        if self._last is None:
            self._last = turn  # of a run that is watched from its middle the next one is the first
        is_free = self._thread is None or not self._thread.is_alive()
        if turn > self._last and is_free and time.monotonic() >= self._again:
            self._thread = begin("hivemind_c checkpoint", lambda: self._save(turn))

    def _save(self, turn: int) -> None:
        try:
            logger.info("the swarm's state is saved in %s", save(self._dht, self._run_id, self._folder))
            self._last = turn
        except Exception as error:  # no state came, the disk is full, torch cannot write
            self._again = time.monotonic() + RETRY_S
            text = printable(str(error)) or type(error).__name__
            logger.warning("no checkpoint was written in %s, will retry in %g s: %s", self._folder, RETRY_S, text)

    def close(self) -> None:
        if self._thread is not None:
            self._thread.join(5)
