"""Checkpoints of many peers that may see the same disk."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from typing import Any, ContextManager, Dict, List, Mapping, Optional, Set

from hivemind_c._lightning.device import Devices
from hivemind_c._lightning.election import Election
from hivemind_c.optim import Optimizer

logger = logging.getLogger("hivemind_c.strategy")

OWN, ELECTED = "own", "elected"


def known(checkpoints: str) -> str:
    if checkpoints not in (OWN, ELECTED):
        raise ValueError(f"checkpoints is one of {OWN!r}, {ELECTED!r}, not {checkpoints!r}")
    return checkpoints


class CheckpointFolders:
    """The folders of a Trainer's ModelCheckpoints.

    The elected peer writes where its program says. Other peers write into folders of their own beside it.

    Args:
        trainer: The Trainer.
        peer_id: ID of this peer, which names its folder.
    """

    def __init__(self, trainer: Any, peer_id: str):
        self._own = f"peer-{peer_id[-8:]}"
        self._said: Dict[Any, str] = {
            callback: callback.dirpath
            for callback in trainer.checkpoint_callbacks
            if getattr(callback, "dirpath", None)
        }

    def choose(self, elected: bool) -> None:
        for callback, dirpath in self._said.items():
            callback.dirpath = dirpath if elected else os.path.join(dirpath, self._own)

    def restore(self) -> None:
        self.choose(True)


def preemption_path(trainer: Any, run_id: str) -> str:
    folders: List[str] = [
        callback.dirpath for callback in trainer.checkpoint_callbacks if getattr(callback, "dirpath", None)
    ]
    return os.path.join(folders[0] if folders else trainer.default_root_dir, f"{run_id}-preempted.ckpt")


class CheckpointWriter(Devices):
    """The part of HivemindStrategy that writes and reads checkpoints."""

    _checkpoints: str
    _run_id: str
    _hive: Optional[Optimizer]
    _election: Optional[Election]
    _written: Set[str]  # checkpoints of this peer that are there

    @property
    def is_elected(self) -> bool:
        """True if this is the one peer that writes shared files. Another peer takes over when it has left."""
        if self._ranks is not None and not self._ranks.leads:
            return bool(self._ranks.news.get("elected"))
        return self._election is not None and self._election.elected

    def _settle(self) -> None:
        """Waits until the result of a delayed step is in the model."""
        if self._hive is not None:
            self._hive.state_averager.background.take(wait=True)

    def lightning_module_state_dict(self) -> Dict[str, Any]:
        """Returns the state of the module, with the result of a delayed step; with local steps, the anchor's."""
        self._settle()
        if self._hive is None or not self._hive.schedule.outer:
            return super().lightning_module_state_dict()  # type: ignore[misc]
        with self._hive.use_anchor():  # the copy shares memory where tensors of the module do
            return copy.deepcopy(super().lightning_module_state_dict())  # type: ignore[misc]

    def meets_nobody(self) -> ContextManager[None]:
        """Returns a context in which this process takes part in no collective of this peer's ranks."""
        return contextlib.nullcontext() if self._ranks is None else self._ranks.alone()

    def ends_alone(self, error: BaseException) -> None:
        """Tells the other ranks of this peer, if there are any, why this one ends.

        Args:
            error: The error.
        """
        if self._ranks is not None:
            self._ranks.fail(error)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Restores the optimizers from a checkpoint.

        Args:
            checkpoint: The checkpoint.
        """
        if self._ranks is not None and not self._ranks.leads:
            self._ranks.follow.forget()  # the state is rank 0's
        else:
            for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"]):
                optimizer.load_state_dict(state)
        if self._ranks is not None:
            self._ranks.sync(whole=True)  # with local steps it has the parameters to go on from

    def save_checkpoint(self, checkpoint: Dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Writes a checkpoint, unless another peer is to write it.

        Args:
            checkpoint: The checkpoint.
            filepath: File to write.
            storage_options: As in Lightning.
        """
        if self._ranks is not None:
            self._ranks.sync()  # rank 0 may have taken a delayed step over
        # which this peer's finder loads again
        if self._writes_all or self.is_elected or os.path.basename(filepath).startswith(".lr_find_"):
            super().save_checkpoint(checkpoint, filepath, storage_options)  # type: ignore[misc]
            self._written.add(str(filepath))

    def remove_checkpoint(self, filepath: Any) -> None:
        """Removes a checkpoint, if this peer may have written it.

        Args:
            filepath: File to remove.
        """
        # of the same name may be what the elected peer wrote on a disk that both see
        if self._writes_all or str(filepath) in self._written:
            super().remove_checkpoint(filepath)  # type: ignore[misc]
            self._written.discard(str(filepath))

    @property
    def _writes_all(self) -> bool:
        return not self._is_fitting or self._checkpoints == OWN

    @property
    def _is_fitting(self) -> bool:
        return self._hive is not None or self._ranks is not None

    def on_exception(self, exception: BaseException) -> None:
        """Writes a checkpoint if the process is to end (SIGTERM), and logs where it is.

        Args:
            exception: The exception that ends training.
        """
        super().on_exception(exception)  # type: ignore[misc]
        if type(exception).__name__ != "SIGTERMException":
            self.ends_alone(exception)
        elif self._is_fitting:
            if not (self._writes_all or self.is_elected):
                logger.log(
                    logging.WARNING if self.global_rank == 0 else logging.DEBUG,
                    "preempted: nothing was written here, because checkpoints='elected' leaves that to another peer; "
                    "start again, and this one takes over the swarm's state"
                )
                return
            trainer = self.lightning_module.trainer
            path = preemption_path(trainer, self._run_id)
            trainer.save_checkpoint(path)
            if self.global_rank:
                return  # rank 0 has written it, and says so
            logger.warning(
                "preempted: where training stood is in %s; go on with trainer.fit(model, ckpt_path=%r)", path, path
            )
