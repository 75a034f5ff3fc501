"""GradientSums: the gradients that one process adds up in a swarm epoch, weighted by batch size."""

from __future__ import annotations

import logging
from typing import Any, Iterable, List, Optional, Tuple

import torch

from hivemind_c.optim.parameters import add_up, flat_views
from hivemind_c.optim.reused_buffers import ReusedBuffers

Counts = Tuple[int, Optional[int], float, float]
logger = logging.getLogger("hivemind_c.optim")


class GradientSums:
    """Adds up gradients batch by batch. Call accumulate_grads_(batch_size) after each backward.

    Args:
        parameters: Parameters whose gradients are added up.
        reuse_grad_buffers: Keep the sum in .grad, so do not set it to zero. Call expect_batch() if batch sizes differ.
        accumulate_grads_on: Device for the sums. None: that of the parameters.
        warn: Warn once if gradients are added to sums already averaged.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        reuse_grad_buffers: bool = False,
        accumulate_grads_on: Any = None,
        warn: bool = True,
    ):
        self._begin_sums(parameters, reuse_grad_buffers, accumulate_grads_on, warn)

    def _begin_sums(
        self, parameters: Iterable[torch.Tensor], reuse_grad_buffers: bool, accumulate_grads_on: Any, warn: bool
    ) -> None:
        self.parameters = list(parameters)
        if not self.parameters or not all(isinstance(p, torch.Tensor) for p in self.parameters):
            raise ValueError("parameters must be a list of at least one tensor")
        self.reuse_grad_buffers, self.warn, self._warned = reuse_grad_buffers, warn, set()  # texts
        self._views = flat_views(self.parameters, device=accumulate_grads_on, halves=reuse_grad_buffers)
        self._reused = ReusedBuffers(self.parameters if reuse_grad_buffers else ())
        if reuse_grad_buffers:
            self._lend()
        self.local_samples_accumulated = self.local_times_accumulated = 0
        self._anchor: Optional[int] = None
        self._weights = 0.0  # of the batches in the sums, where one of the anchor's size has 1
        self.scale = 1.0  #: of a GradScaler, by which sums kept in .grad are too large
        self._touched = [False] * len(self.parameters)
        self._averaged_sums = False  # what step() has averaged and not reset
        self._to_zero = False  # sums in .grad that step() has reset, but for the averages in them

    def _lend(self) -> None:
        for p, view in zip(self.parameters, self._views):
            p.grad = view

    def accumulate_grads_(self, batch_size: int) -> None:
        """Adds the gradients in the parameters to the sums.

        Args:
            batch_size: Number of samples of which the gradients are the mean.
        """
        if self._averaged_sums:
            self._averaged_sums = False
            self._warn(
                "gradients are added to sums that were averaged already: call reset_accumulated_grads_() after it, or "
                "step() without reset_accumulators=False"
            )
        grads = [p.grad for p in self.parameters]
        if self.reuse_grad_buffers:
            self._count_reused(grads, batch_size)
        else:
            self._add(grads, batch_size)
        self.local_samples_accumulated += batch_size
        self.local_times_accumulated += 1

    def _count_reused(self, grads: List[Optional[torch.Tensor]], batch_size: int) -> None:
        if self._to_zero:
            raise ValueError(
                "with reuse_grad_buffers the averages of the last step() lie in .grad, and a batch was added to them "
                "there: before the next backward, step with them "
                "within use_averaged_gradients(), or call notify_used_averaged_gradients() when they are used or not "
                "wanted"
            )
        for grad, view in zip(grads, self._views):
            if grad is not view:
                raise ValueError(
                    "with reuse_grad_buffers gradients are added up in .grad, and somebody has replaced them there: "
                    "do not call zero_grad(), "
                    "of the optimizer or of the model, or remove reuse_grad_buffers"
                )
        self._reused.anchor = self._anchor
        weight = self._reused.weigh(batch_size, self._views)
        self._anchor = self._reused.anchor
        if weight * self._anchor != batch_size:
            self._warn(
                f"a batch of {batch_size} samples weighs as much as the first one of {self._anchor}, because its size "
                "was not known when it was added up in .grad: "
                "call expect_batch() before the backward of each batch, or remove reuse_grad_buffers"
            )
        self._weights += weight

    def expect_batch(self, batch_size: int) -> None:
        """Announces the size of the next batch before its backward.

        With reuse_grad_buffers this saves the memory of one more gradient if batches differ in size.

        Args:
            batch_size: Number of samples.
        """
        self._reused.anchor = self._anchor
        self._reused.expect(batch_size)

    def sizes_vary(self, batch_size: Optional[int] = None) -> None:
        """Prepares for batches whose size is known only after their backward.

        With reuse_grad_buffers the averager then keeps what a backward adds until the size is known.

        Args:
            batch_size: Size of a batch. If expect_batch() announced it, nothing changes.
        """
        if batch_size is None or not self._reused.is_expected(batch_size):
            self._reused.sizes_vary = True

    def sizes_are_equal(self) -> None:
        """Announces that all batches have one size, so that reuse_grad_buffers needs no further memory."""
        self._reused.sizes_vary = False

    @torch.no_grad()
    def _add(self, grads: List[Optional[torch.Tensor]], batch_size: int) -> None:
        views: List[torch.Tensor] = self._views
        if any(grad is None for grad in grads):
            if self._anchor is None:
                torch._foreach_zero_([view for view, grad in zip(views, grads) if grad is None])
            self._touched = [was or grad is not None for was, grad in zip(self._touched, grads)]
            views = [view for view, grad in zip(views, grads) if grad is not None]
            grads = [grad for grad in grads if grad is not None]
        elif not all(self._touched):
            self._touched = [True] * len(views)
        if not grads:
            self._anchor = self._anchor or batch_size
        elif self._anchor is None:
            torch._foreach_copy_(views, grads)
            self._anchor = batch_size
        elif any(grad.device != view.device for grad, view in zip(grads, views)):
            torch._foreach_add_(
                views, [grad.to(view.device) for grad, view in zip(grads, views)], alpha=batch_size / self._anchor
            )
        else:
            add_up(views, grads, batch_size / self._anchor)

    @torch.no_grad()
    def rescale_(self, factor: float) -> None:
        """Multiplies the sums, as a GradScaler does when its scale changes.

        Args:
            factor: New scale divided by the old one.
        """
        torch._foreach_mul_(self._views, factor)
        self.scale *= factor

    @torch.no_grad()
    def reset_accumulated_grads_(self) -> None:
        """Drops the sums and the number of samples in them."""
        self._begin_anew()
        if self.reuse_grad_buffers:
            torch._foreach_zero_(self._views)
            self._lend()

    def _begin_anew(self) -> None:
        """Begins new sums: the next gradients are copied over the sums, unless those are kept in .grad."""
        self.local_samples_accumulated = self.local_times_accumulated = 0
        self._anchor, self.scale, self._weights = None, 1.0, 0.0
        self._reused.reset()
        self._touched = [False] * len(self.parameters)
        self._averaged_sums = self._to_zero = False

    @property
    def counts(self) -> Counts:
        """Batches, the samples that have weight 1, the scale and the weights of the sums."""
        return self.local_times_accumulated, self._anchor, self.scale, self._weights

    @counts.setter
    def counts(self, counts: Counts) -> None:
        self.local_times_accumulated, self._anchor, self.scale, self._weights = counts

    def remove_hooks(self) -> None:
        """Removes the hooks of the sums from the parameters. May be called twice."""
        self._reused.remove()

    def touched(self) -> List[bool]:
        """Returns for each parameter whether it had a gradient since the last reset."""
        return [True] * len(self._touched) if self.reuse_grad_buffers else list(self._touched)

    # ---- several processes as one peer ----

    @property
    def unit(self) -> Optional[float]:
        """The worth of a one in the sums: samples times gradient. None: the sums hold no gradient."""
        return None if self._anchor is None else self._anchor / self.scale

    @property
    def device_type(self) -> str:
        """The type of the device where the sums are."""
        return self._views[0].device.type

    @torch.no_grad()
    def write_mean(self) -> None:
        """Makes .grad the mean of what was added. A parameter without a gradient has none."""
        mean = self.local_samples_accumulated / (self.unit or 1.0)
        for p, view, touched in zip(self.parameters, self._views, self._touched):
            p.grad = (view / mean).to(p.dtype) if touched else None

    @torch.no_grad()
    def flat_sums(self, unit: float) -> List[torch.Tensor]:
        """Returns the sums as whole pieces of memory, in another unit. They are zero where nothing was added.

        Args:
            unit: The unit.
        """
        if self.unit is None:
            torch._foreach_zero_(self._views)
        elif self.unit != unit:
            torch._foreach_mul_(self._views, self.unit / unit)
        return flats_of(self._views)

    def take_over(self, samples: int, unit: float, touched: List[bool]) -> None:
        """Counts what other processes have added to the flat sums.

        Args:
            samples: Samples of the others.
            unit: The unit of the sums.
            touched: Of each parameter, whether a process had a gradient for it.
        """
        if self._anchor is None:
            self._anchor, self.scale = 1, 1 / unit
        self.local_samples_accumulated += samples
        self._weights += samples / self._anchor
        self._touched = [mine or theirs for mine, theirs in zip(self._touched, touched)]

    def _warn(self, text: str) -> None:
        if self.warn and text not in self._warned:
            self._warned.add(text)
            logger.warning(text)


def flats_of(views: List[torch.Tensor]) -> List[torch.Tensor]:
    """The pieces of memory that flat_views() made for these views, in their order."""
    there = {}
    for view in views:
        storage = view.untyped_storage()
        there.setdefault(storage.data_ptr(), view.new_empty(0).set_(storage) if view.numel() else None)
    return [flat for flat in there.values() if flat is not None]
