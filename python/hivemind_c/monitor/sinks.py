"""Where else figures go: TensorBoard, Weights & Biases. A point for each epoch, when it has ended."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, Optional

from hivemind_c.monitor.gather import Snapshot

Write = Callable[[int, Dict[str, float]], None]


class Missing(ImportError):
    """A package that a sink needs is not installed; the text says what to do."""


def figures(now: Snapshot) -> Dict[str, float]:
    known: Dict[str, Optional[float]] = {
        "loss": now.loss,
        "samples_per_second": now.speed,
        "peers": now.num_peers,
        "total_samples": now.total,
    }
    return {name: float(value) for name, value in known.items() if value is not None}


class Sinks:
    """Hands on each epoch's figures once."""

    def __init__(self) -> None:
        self._write: List[Write] = []
        self._close: List[Callable[[], None]] = []
        self._epoch: Optional[int] = None

    def add(self, write: Write, close: Callable[[], None]) -> None:
        self._write.append(write)
        self._close.append(close)

    def tensorboard(self, folder: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise Missing(
                f"--tensorboard needs torch and tensorboard ({error}): pip install torch tensorboard"
            ) from None
        writer = SummaryWriter(folder)

        def write(epoch: int, known: Dict[str, float]) -> None:
            for name, value in known.items():
                writer.add_scalar(name, value, epoch)
            writer.flush()

        self.add(write, writer.close)

    def wandb(self, project: str, run_id: str, wandb: Any = None) -> None:
        if wandb is None:
            try:
                wandb = importlib.import_module("wandb")
            except ImportError:
                raise Missing(
                    "--wandb_project needs wandb, which is not installed: pip install wandb, then wandb login"
                ) from None
        run = wandb.init(project=project, name=run_id)
        self.add(lambda epoch, known: run.log(known, step=epoch), run.finish)

    def look(self, now: Snapshot) -> None:
        if self._epoch != now.epoch and now.num_peers and now.whole:
            self._epoch = now.epoch
            for write in self._write:
                write(now.epoch, figures(now))

    def close(self) -> None:
        for close in self._close:
            close()
