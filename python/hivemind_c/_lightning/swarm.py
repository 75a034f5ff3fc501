"""The swarm as a Trainer's user sees it: three metrics, and a progress bar."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from hivemind_c._lightning import namespaces
from hivemind_c.optim.epoch_record import EpochRecord, OnEpoch
from hivemind_c.optim.load_progress import Repeating
from hivemind_c.optim.speed import Speed

# for type checkers both base classes at once, so that the Trainer of either Lightning accepts the callback
if TYPE_CHECKING:
    import lightning.pytorch.callbacks
    import pytorch_lightning.callbacks

    class Base(  # type: ignore[misc]
        lightning.pytorch.callbacks.TQDMProgressBar, pytorch_lightning.callbacks.TQDMProgressBar
    ):
        pass

else:
    Base = object


def figures(progress: Any, speed: Speed) -> Dict[str, float]:
    return {
        "num_peers": float(progress.num_peers),
        "global_epoch": float(progress.epoch),
        "swarm_samples_per_second": speed.look(progress),
    }


def log_epochs(strategy: Any, trainer: Any, then: Optional[OnEpoch]) -> OnEpoch:
    """A function that gives the EpochRecord of each swarm epoch to strategy, program and the Trainer's loggers.

    Args:
        strategy: The HivemindStrategy.
        trainer: Its Trainer.
        then: Function of the program. None: there is none.
    """

    def on_epoch(record: EpochRecord) -> None:
        strategy._last_record = record
        known = {f"hivemind/{name}": float(value) for name, value in record.numbers().items() if value is not None}
        for logger in trainer.loggers:
            logger.log_metrics(known, step=trainer.fit_loop.epoch_loop._batches_that_stepped)
        if then is not None:
            then(record)

    return on_epoch


def gathered(samples: int, target: int) -> str:
    """For people: peers train on while the swarm averages, so the estimate of its samples may exceed the target."""
    return f"{min(samples, target)}/{target} samples"


def _loading(trainer: Any) -> Any:
    """The download of the state that is under way, or the steps that are repeated. None: neither is."""
    optimizer = getattr(trainer.strategy, "optimizer", None)
    return None if optimizer is None else optimizer.ledger.load_progress.now


class SwarmProgressBar(namespaces.EitherLightning, Base):
    """The progress bar of Lightning with figures of the swarm.

    Use it as Trainer(strategy=HivemindStrategy(...), callbacks=[SwarmProgressBar()]). It shows
    - swarm: samples of all peers for the next step, and the samples that a step needs
    - global_epoch: swarm epochs so far, which are steps of the optimizer; the epoch at the left is Lightning's
    - peers: peers of the run, with this one
    - eta: seconds to the next step
    - loads: how far the download of the swarm's state is, while there is one
    - repeats: the swarm epoch whose step this peer makes again, while it catches up by averages that others keep

    Args:
        refresh_rate: Batches between two updates of the bar. 0: no bar.
        process_position: Lines by which the bar is moved down.
        leave: Leave the bar of each of Lightning's epochs on the screen.
    """

    _base = "callbacks.TQDMProgressBar"

    def __init__(self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False):
        options = {"leave": leave} if leave else {}  # Lightning 2.1 has no such option
        super().__init__(refresh_rate, process_position, **options)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Called by Lightning before training.

        Args:
            trainer: The Trainer.
            pl_module: The module.
            stage: Name of the stage, such as "fit".
        """
        namespaces.settle(self, self._base, trainer)
        super().setup(trainer, pl_module, stage)  # type: ignore[misc]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Called by Lightning when training begins.

        Args:
            trainer: The Trainer.
            pl_module: The module.
        """
        super().on_train_start(trainer, pl_module)  # type: ignore[misc]
        if (optimizer := getattr(trainer.strategy, "optimizer", None)) is not None:
            bar = self.train_progress_bar  # type: ignore[attr-defined]
            optimizer.ledger.load_progress.show = lambda: bar.set_postfix(self.get_metrics(trainer, pl_module))

    def get_metrics(self, trainer: Any, pl_module: Any) -> Dict[str, Any]:
        """Returns the figures to show, by name.

        Args:
            trainer: The Trainer.
            pl_module: The module.
        """
        items = super().get_metrics(trainer, pl_module)  # type: ignore[misc]
        progress = getattr(trainer.strategy, "global_progress", None)
        if progress is not None:
            eta = max(0.0, progress.eta_next_epoch - time.time())
            items["swarm"] = gathered(progress.samples_accumulated, progress.target_batch_size)
            items["global_epoch"], items["peers"] = progress.epoch, progress.num_peers
            items["eta"] = f"{eta:.0f}s" if eta < 1e6 else "?"
            if getattr(trainer.strategy, "is_alone", False):
                items["alone"] = "waits for another trainer"
            if (loading := _loading(trainer)) is not None:
                items["repeats" if isinstance(loading, Repeating) else "loads"] = str(loading)
        return items
