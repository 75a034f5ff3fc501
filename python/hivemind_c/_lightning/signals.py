"""SIGTERM, and the signal by which Slurm announces a requeue: a peer obeys between two batches, all ranks at the same.

Lightning's own handlers save or broadcast within the handler: in the middle of a step, and where no other rank may take
part.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Any, Iterator, Optional

from hivemind_c._lightning import namespaces
from hivemind_c._lightning.patches import Patches
from hivemind_c.inside.halt import Halt

STOP, REQUEUE = 1, 2  #: causes; both: their sum


class Signals:
    """The signals of one process while fit runs.

    Args:
        trainer: The Trainer.
        halt: Where ranks interrupt a validation. None: there is one device.
    """

    def __init__(self, trainer: Any, halt: Optional[Halt] = None):
        self._trainer, self.halt = trainer, halt
        self.asked = 0  #: what signals have asked of this process, a sum of causes
        self._due = False  # a requeue, after this batch
        self._requeued = False  # once in a fit: Slurm sends the signal to each rank
        self._signum: Any = None  # of that signal, as its handler takes it

    def prepare(self, patches: Patches) -> None:
        """Replaces Lightning's handlers.

        Args:
            patches: Undoes the changes when fit ends.
        """
        connector, loop = self._trainer._signal_connector, self._trainer.fit_loop.epoch_loop
        patches.put(connector, "_slurm_sigusr_handler_fn", self._on_requeue)
        if self.halt is not None:  # on one device Lightning's own remembers it until the batch is over
            patches.put(connector, "_sigterm_notifier_fn", self._on_sigterm)
        if self.halt is not None and hasattr(loop, "_broadcast_sigterm_tensor"):  # since 2.5.2, in each batch
            patches.put(loop, "_broadcast_sigterm_tensor", Patches.nothing)
        after_batch = loop.on_advance_end

        def on_advance_end(*args: Any) -> None:
            if self.halt is None:
                self.take(self.asked)
            if self._due:
                self._requeue()
            after_batch(*args)

        patches.put(loop, "on_advance_end", on_advance_end)

    def _on_sigterm(self, signum: Any, frame: Any) -> None:
        self.asked |= STOP

    def _on_requeue(self, signum: Any, frame: Any) -> None:
        self._signum = signum
        if not self._requeued:
            self.asked |= REQUEUE

    def take(self, asks: int) -> None:
        """Takes what signals ask of this peer, to be done after this batch.

        Args:
            asks: A sum of causes, alike on all ranks.
        """
        if asks & STOP:
            self._trainer._signal_connector.received_sigterm = True  # Lightning raises its SIGTERMException
        self._due = bool(asks & REQUEUE) and not self._requeued

    def _requeue(self) -> None:
        """Writes a checkpoint and lets Slurm requeue the job, as Lightning does. All ranks call it."""
        self._due, self._requeued = False, self.halt is not None
        self.asked &= ~REQUEUE
        connector, signum = self._trainer._signal_connector, self._signum or signal.SIGUSR1
        type(connector)._slurm_sigusr_handler_fn(connector, signum, None)

    @contextlib.contextmanager
    def in_validation(self) -> Iterator[None]:
        """Around a batch of a validation: obeys before it, or after the last one."""
        is_last = self._trainer.fit_loop.epoch_loop.val_loop.batch_progress.is_last_batch
        if self._trainer.received_sigterm:  # on all ranks: Lightning raises its exception after this batch
            yield
            return
        self._obey(self.asked if self.halt is None else self.halt.before_batch(is_last, self.asked))
        yield
        if is_last and self.halt is not None:
            self._obey(self.halt.after_last_batch())

    def _obey(self, cause: int) -> None:
        if cause & REQUEUE and not self._requeued:
            self._requeue()
        if cause & STOP:
            self.take(STOP)
            raise namespaces.part(self._trainer.strategy._names[0], "utilities.exceptions.SIGTERMException")
