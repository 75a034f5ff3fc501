"""The other ranks of a peer: they add gradients up, report to rank 0, and obey. docs/design/several-gpus.md."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import torch

from hivemind_c.inside.channel import LOSSES_MAX, Channel, Message
from hivemind_c.inside.losses import LateLosses
from hivemind_c.inside.moving import SharedState, reduce_sums
from hivemind_c.optim.grad_scaler import GradScaler
from hivemind_c.optim.gradient_sums import GradientSums


class FollowOptimizer:
    """Takes the place of an optimizer in a step. It steps nothing: rank 0 does.

    Args:
        channel: Channel to rank 0.
        module: The model, whose parameters and buffers come from rank 0.
        optimizer: The optimizer of torch that rank 0 steps. Its learning rates are set here.
        asks: A function that returns for what a signal asks this rank (signals.py), a sum of its causes.
        reuse_grad_buffers: Keep the sums in .grad.
    """

    def __init__(
        self,
        channel: Channel,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        asks: Callable[[], int],
        reuse_grad_buffers: bool = False,
    ):
        self._channel, self._module, self.opt, self._asks = channel, module, optimizer, asks
        self.reuse_grad_buffers = reuse_grad_buffers
        trainable = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._sums, self._losses, self._lost = GradientSums(trainable, reuse_grad_buffers), LateLosses(), 0
        self._state = SharedState(module, ())
        self.news: Message = {}  #: the fields of the last `done`

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """The groups of the optimizer."""
        return self.opt.param_groups

    @property
    def local_epoch(self) -> int:
        """The epoch of this peer."""
        return int(self.news.get("epoch", 0))

    def begin(self) -> Message:
        """Waits until rank 0 has joined, and returns what it says of that."""
        command = self._channel.receive()
        self._state = SharedState(self._module, command["frozen"])
        self._take_news(command)
        return command

    def expect_batch(self, batch_size: int) -> None:
        """Announces the size of the next batch before its backward.

        Args:
            batch_size: Number of samples.
        """
        self._sums.expect_batch(batch_size)

    def report_loss(self, value: Any) -> None:
        """Sends the loss of this batch to rank 0, with a later report if it is on a GPU.

        Args:
            value: A tensor.
        """
        self._losses.add(value)

    def step(
        self,
        closure: Optional[Callable[[], Any]] = None,
        batch_size: Optional[int] = None,
        grad_scaler: Optional[GradScaler] = None,
    ) -> Any:
        """Adds the gradients up, and does what rank 0 says. Returns the loss of the closure.

        Args:
            closure: A function that computes the loss and its gradients. None: the gradients are there already.
            batch_size: Samples in this batch.
            grad_scaler: A hivemind_c.GradScaler, for half precision.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if grad_scaler is None or grad_scaler.are_grads_finite(self):  # type: ignore[arg-type]
            if grad_scaler is not None and self.reuse_grad_buffers:
                self._sums.scale = grad_scaler.get_scale()
            self._sums.sizes_vary(batch_size)
            self._sums.accumulate_grads_(int(batch_size or 1))
        else:
            self._lost += int(batch_size or 1)
            if self.reuse_grad_buffers:
                self._lost += self._sums.local_samples_accumulated
                self._sums.reset_accumulated_grads_()
        self.meet("batch")
        return loss

    def skip_overflown_batch(self, grad_scaler: GradScaler) -> bool:
        """True if the gradients are finite. A hivemind_c.GradScaler knows by this method that step() takes it.

        Args:
            grad_scaler: A hivemind_c.GradScaler.
        """
        return grad_scaler.are_grads_finite(self, use_cached=True)  # type: ignore[arg-type]

    def rescale_sums(self, factor: float) -> None:
        """Multiplies sums that are kept scaled, as a GradScaler does when its scale changes.

        Args:
            factor: New scale divided by the old one.
        """
        self._sums.rescale_(factor)

    def step_without_batch(self) -> None:
        """As step(), where this rank has no gradient."""
        self.meet("batch")

    def forget(self) -> None:
        """Drops the sums, as all ranks do when a checkpoint is loaded."""
        self._sums.reset_accumulated_grads_()

    def meet(self, kind: str) -> None:
        """Reports to rank 0, and obeys until it says `done`.

        Args:
            kind: Kind of the report.
        """
        channel, sums = self._channel, self._sums
        channel.report(
            kind=kind,
            pending=sums.local_samples_accumulated,
            losses=self._losses.take(LOSSES_MAX),
            lost=self._lost,
            asks=self._asks(),
        )
        self._lost = 0
        while True:
            command = channel.receive()
            if command["name"] == "reduce":
                reduce_sums(channel, sums, command["unit"], command["on"])
                sums.reset_accumulated_grads_()
            elif command["name"] == "drop":
                sums.reset_accumulated_grads_()
            elif command["name"] == "take":
                self._state.broadcast(channel, command["frozen"])
            else:
                self._take_news(command)
                return

    def _take_news(self, command: Message) -> None:
        self.news = command
        for group, rate in zip(self.opt.param_groups, command["rates"]):
            if "lr" in group:
                if isinstance(group["lr"], torch.Tensor):
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate

    def shutdown(self) -> None:
        """Removes the hooks of the sums."""
        self._sums.remove_hooks()
