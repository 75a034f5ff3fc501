"""Checkpoints of many peers that may see the same disk."""

from __future__ import annotations

import os
from typing import Any, Dict, List

OWN, ELECTED = "own", "elected"


def known(checkpoints: str) -> str:
    if checkpoints not in (OWN, ELECTED):
        raise ValueError(f"checkpoints is one of {OWN!r}, {ELECTED!r}, not {checkpoints!r}")
    return checkpoints


class Places:
    """Where the ModelCheckpoints of a Trainer write. The elected peer writes where its program says; the others into folders of their own beside it."""

    def __init__(self, trainer: Any, peer_id: str):
        self._own = f"peer-{peer_id[-8:]}"
        self._said: Dict[Any, str] = {callback: callback.dirpath for callback in trainer.checkpoint_callbacks if getattr(callback, "dirpath", None)}

    def choose(self, elected: bool) -> None:
        for callback, dirpath in self._said.items():
            callback.dirpath = dirpath if elected else os.path.join(dirpath, self._own)

    def restore(self) -> None:
        self.choose(True)


def preemption_path(trainer: Any, run_id: str) -> str:
    folders: List[str] = [callback.dirpath for callback in trainer.checkpoint_callbacks if getattr(callback, "dirpath", None)]
    return os.path.join(folders[0] if folders else trainer.default_root_dir, f"{run_id}-preempted.ckpt")
