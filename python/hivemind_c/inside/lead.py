"""Rank 0's Optimizer: counts the samples of all ranks, and commands the others. docs/design/several-gpus.md."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any, Callable, List, Optional

import torch

from hivemind_c.inside.channel import Channel, Message
from hivemind_c.inside.errors import PeerError
from hivemind_c.inside.moving import SharedState, reduce_sums
from hivemind_c.optim.grad_scaler import GradScaler
from hivemind_c.optim.gradient_sums import GradientSums
from hivemind_c.optim.optimizer import Optimizer

BATCH, END, SYNC, LEAVE = "batch", "end", "sync", "leave"  #: kinds of reports
MISMATCH = (
    "rank {rank} {what} while rank {other} {others}: give every rank as many batches in each pass over the data, as a "
    "DistributedSampler does, or set limit_train_batches"
)
WHAT = {
    BATCH: "trains on a batch",
    END: "has no more batches in this pass",
    SYNC: "saves or validates",
    LEAVE: "has ended fit",
}


class LeadOptimizer(Optimizer):
    """An Optimizer for the first of several ranks that are one peer.

    Args:
        channel: Channel to the other ranks.
        module: The model, whose parameters and buffers the other ranks receive.
        more: A function that returns the fields of `done` that the program knows, and takes what signals ask of ranks.
        **options: Options of Optimizer.
    """

    def __init__(self, channel: Channel, module: torch.nn.Module, more: Callable[[int], Message], **options: Any):
        self._channel, self._state, self._more = channel, SharedState(module), more
        self._pending = 0  # samples in the sums of the other ranks
        self._came = 0  # those of their latest batches
        self._open = False  # the others wait for commands
        self._skips = self._must_drop = False
        self._taken: Any = None  # what _state_now() was at the last `take`
        self._frozen: Any = None  # and what frozen_now() was
        self._progress: List[float] = []
        self.news: Message = {}  #: the fields of the last `done`
        super().__init__(**options)
        trainable, _ = self.state_averager.parameters.trainable()
        self._sums = GradientSums(trainable) if self.schedule.use_local_updates else self.grad_averager

    # ---- with the other ranks ----

    def begin(self, **fields: Any) -> None:
        """Tells the others that this peer has joined.

        Args:
            **fields: Fields of `joined` besides those of `done`.
        """
        if self.state_averager.averages_the_model_in_place:  # which changes no version
            self._state.frozen.clear()
        self._channel.send("joined", **fields, frozen=sorted(self._state.frozen), **self._news(0))

    def meet(self, kind: str, whole: bool = False) -> None:
        """Meets the others between two batches: they take parameters over if those have changed.

        Args:
            kind: SYNC, END or LEAVE.
            whole: Parameters and buffers are taken over in any case.
        """
        asks = self._take_reports(kind)
        if whole:
            self._taken = None
        self.driver.summed(self._with_others(0))
        self._conclude(asks)

    def step_without_batch(self) -> None:
        """As step(), where this rank has no gradient."""
        self._skips = True
        try:
            self.step()
        finally:
            self._skips = False

    def _take_reports(self, kind: str) -> int:
        """Takes the reports of all ranks, and returns what signals ask of them: a sum of causes."""
        reports = self._channel.report(kind=kind) or []
        self._open = True
        for rank, report in enumerate(reports):
            if report["kind"] != kind:
                first, second = (0, rank) if kind == END else (rank, 0)
                raise PeerError(
                    MISMATCH.format(
                        rank=first,
                        what=WHAT[reports[first]["kind"]],
                        other=second,
                        others=WHAT[reports[second]["kind"]],
                    )
                )
        others = reports[1:]
        self._count_others(sum(report["pending"] for report in others), sum(report["lost"] for report in others))
        if self._must_drop:
            self.driver.summed(0, behind=self._with_others(0))
            self._drop_others()
        for report in others:
            for loss in report["losses"]:
                self.report_loss(loss)
        return functools.reduce(operator.or_, (report["asks"] for report in others), 0)

    def _count_others(self, pending: int, lost: int) -> None:
        came = pending - self._pending
        self._pending = pending
        fell = min(max(-came, 0), lost)  # sums that lay in .grad with an overflow
        self._came += max(came, 0)
        if lost:
            self.driver.overflow(lost - fell, fell)

    def _conclude(self, asks: int) -> None:
        now = self._state_now()
        if now != self._taken or self.schedule.use_local_updates:
            before, self._frozen = self._frozen, self._state.frozen_now()
            self._taken, frozen = now, self._frozen != before
            self._channel.send("take", frozen=frozen)
            self._state.broadcast(self._channel, frozen)
        self._channel.send("done", **self._news(asks))
        self._open = False

    def _state_now(self) -> Any:
        """Another value once the model may have changed: optimizers that write to .data change no version."""
        versions = sum(p._version for p in self.state_averager.parameters.model)
        return versions, self.local_epoch, self.state_averager.background.waiting

    def _news(self, asks: int) -> Message:
        if self.is_alive():
            self._progress = list(dataclasses.astuple(self.tracker.global_progress))
        rates = [float(group.get("lr", 0.0)) for group in self.param_groups]
        self.news = {"epoch": self.local_epoch, "rates": rates, "figures": self._progress, **self._more(asks)}
        return self.news

    # ---- in place of Optimizer's ----

    @property
    def local_samples(self) -> int:
        """Samples of all ranks in this epoch."""
        return super().local_samples + self._pending

    def _checked_batch_size(self, batch_size: Optional[int]) -> int:
        return 0 if self._skips else super()._checked_batch_size(batch_size)

    def _take_step(self, batch_size: int, grad_scaler: Optional[GradScaler]) -> None:
        asks = self._take_reports(BATCH)
        super()._take_step(batch_size, grad_scaler)
        if self.schedule.use_local_updates:  # no later step takes gradients of this batch
            self._sums.reset_accumulated_grads_()
            self._drop_others()
        self._conclude(asks)

    def _own_sums(self) -> int:
        return self.ledger.samples.sums - (self._pending - self._came)

    def _with_others(self, samples: int) -> int:
        came, self._came = self._came, 0
        return samples + came

    def _takes_batch(self, batch_size: int, grad_scaler: Optional[GradScaler]) -> bool:
        if self._skips:
            return True
        if not self.schedule.use_local_updates:
            return super()._takes_batch(batch_size, grad_scaler)
        if grad_scaler is not None and not self.skip_overflown_batch(grad_scaler):
            return False
        self._sums.accumulate_grads_(batch_size)
        return True

    def take_local_gradients(self) -> None:
        """With local updates: .grad becomes the mean gradient of the ranks' batches."""
        self.gather_sums()
        self._local_samples += self._sums.local_samples_accumulated
        self._sums.write_mean()
        self._sums.reset_accumulated_grads_()

    def skip_overflown_batch(self, grad_scaler: GradScaler) -> bool:
        """True if the gradients of this rank are finite. If they are not, they count for nothing.

        Args:
            grad_scaler: A hivemind_c.GradScaler.
        """
        pending, self._pending = self._pending, 0  # the others' sums stay
        try:
            return super().skip_overflown_batch(grad_scaler)
        finally:
            self._pending = pending

    def gather_sums(self) -> None:
        """The sums of the other ranks are added to this rank's."""
        if not self._pending:
            return
        unit, on = self._sums.unit or 1.0, self._sums.device_type
        self._channel.send("reduce", unit=unit, on=on)
        touched = reduce_sums(self._channel, self._sums, unit, on)
        self._sums.take_over(self._pending, unit, touched)
        self._pending = 0

    def drop_sums(self) -> None:
        """Forgets what all ranks have summed up."""
        super().drop_sums()
        self._drop_others()

    def _drop_others(self) -> None:
        if self._open and self._pending:
            self._channel.send("drop")
        self._must_drop = not self._open  # the program has loaded a state between two batches
        self._pending = 0
