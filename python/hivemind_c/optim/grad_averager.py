"""The gradients of an epoch: what this peer adds up, and their average over the swarm."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence

import torch

from hivemind_c import cuda
from hivemind_c._signature import shows_options_of
from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.compression import AdaptiveCompressionBase, CompressionBase, CompressionInfo, NoCompression, TensorRole
from hivemind_c.optim.parameters import add_up, all_finite, copy_all, flat_views
from hivemind_c.optim.reused_buffers import ReusedBuffers

logger = logging.getLogger("hivemind_c.optim")


def outcome_of(control: Any, timeout: Optional[float] = None) -> Any:
    """Waits for an averaging; who is interrupted meanwhile, by Ctrl-C, wants it no more."""
    try:
        return control.result(timeout)
    except BaseException:
        control.cancel()
        raise


class UncompressedKey(AdaptiveCompressionBase):
    """What the user chose, but for one tensor that travels beside the others and is to arrive exactly."""

    def __init__(self, key: str, rest: CompressionBase):
        self.key, self.rest, self.exact = key, rest, NoCompression()

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        return self.exact if info.key == self.key else self.rest


class GradientAverager(DecentralizedAverager):
    """Adds up gradients batch by batch, weighted by their batch sizes, and averages their mean with other peers.

    ``accumulate_grads_(batch_size)`` after each backward; at the end of an epoch ``step()``, then either
    ``with use_averaged_gradients(): optimizer.step()`` or the tensors given as ``averaged_grads``.

    reuse_grad_buffers: the sum is kept in the parameters' own ``.grad``, which nobody may set to zero then. Batches of different size need expect_batch() before
    their backward, or else the memory of one more gradient until accumulate_grads_ (sizes_are_equal: nothing is kept). accumulate_grads_on: the
    device for the sums, by default the parameters'. averaged_grads: where averages are to be, in the host's memory.
    in_place: sums may be averaged where they are, in the host's memory or on a GPU that has the kernels (docs/CUDA.md); otherwise a copy is averaged
    in the host's memory, and the sums stay. In place, nothing may be added up while a step(wait=False) is under way.
    warn: a warning where step() finds that the averages before were not used, or accumulate_grads_ that sums already averaged were not reset; each once.
    """

    _on_demand = False  # gradients are no state
    stamp: Any = 0  #: of the last averages: alike in peers that have the same, to the bit; 0, or 0 in it: made alone
    works_on_gpus = True  #: whether sums on a GPU may be averaged there

    @shows_options_of(DecentralizedAverager, but=("averaged_tensors", "tensor_infos"))
    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        dht: Any,
        prefix: str,
        reuse_grad_buffers: bool = False,
        accumulate_grads_on: Any = None,
        client_mode: Optional[bool] = None,
        warn: bool = True,
        averaged_grads: Sequence[torch.Tensor] = (),
        in_place: bool = True,
        start: bool = True,
        **kwargs: Any,
    ):
        if reuse_grad_buffers and accumulate_grads_on is not None:
            raise ValueError("with reuse_grad_buffers the sums are where the gradients are: leave accumulate_grads_on out")
        self.parameters = list(parameters)
        if not self.parameters or not all(isinstance(p, torch.Tensor) for p in self.parameters):
            raise ValueError("parameters must be a list of at least one tensor")
        self.reuse_grad_buffers, self.warn, self._warned = reuse_grad_buffers, warn, set()  # texts
        self._views = flat_views(self.parameters, device=accumulate_grads_on, halves=reuse_grad_buffers)
        self._reused = ReusedBuffers(self.parameters if reuse_grad_buffers else ())
        if reuse_grad_buffers:
            self._lend()
        on_gpus = self.works_on_gpus and not averaged_grads and all(v.dtype is torch.float32 for v in self._views) and cuda.averages(self._views)
        in_place = in_place and (on_gpus or all(v.device.type == "cpu" and v.dtype in (torch.float32, torch.float64) for v in self._views))
        if averaged_grads:
            self._averaged = list(averaged_grads)
            if in_place and not reuse_grad_buffers and all(a.dtype == v.dtype for a, v in zip(self._averaged, self._views)):
                self._views = self._averaged
        elif in_place:
            self._averaged = self._views
        else:
            self._averaged = flat_views(self._views, device="cpu", pin=True)
        if [tuple(t.shape) for t in self._averaged] != [tuple(p.shape) for p in self.parameters]:
            raise ValueError("averaged_grads must have the shapes of the parameters, one for each")
        self.local_samples_accumulated = self.local_times_accumulated = 0
        self._anchor: Optional[int] = None
        self._weights = 0.0  # of the batches in the sums, where one of the anchor's size has 1
        self.scale = 1.0  #: of a GradScaler, by which sums kept in .grad are too large
        self._touched = [False] * len(self.parameters)
        self._new_averaged_grads = self._averaged_sums = False  # what step() made and nobody has used; what it has averaged and not reset
        self._to_zero = False  # sums in .grad that step() has reset, but for the averages in them
        self._metric = torch.zeros(2)  # the metric if there is one, and whether there is
        self._join(dht, self._averaged, prefix=prefix, client_mode=client_mode, start=start, **kwargs)

    def _join(self, dht: Any, tensors: List[torch.Tensor], *, compression: CompressionBase = NoCompression(), **kwargs: Any) -> None:
        """Becomes a DecentralizedAverager of these tensors and the metric."""
        infos = [CompressionInfo.from_tensor(t, key=i, role=TensorRole.GRADIENT) for i, t in enumerate(tensors)]
        infos.append(CompressionInfo.from_tensor(self._metric, key="metric"))
        super().__init__([*tensors, self._metric], dht, tensor_infos=infos, compression=UncompressedKey("metric", compression), **kwargs)

    @classmethod
    def get_factory(cls, **kwargs: Any) -> GradientAveragerFactory:
        """A factory with these options, for Optimizer(grad_averager_factory=...)."""
        return lambda *args, **more: cls(*args, **{**kwargs, **more})

    # ---- adding up ----

    def _lend(self) -> None:
        for p, view in zip(self.parameters, self._views):
            p.grad = view

    def accumulate_grads_(self, batch_size: int) -> None:
        """Adds the gradients that lie in the parameters, as the mean over batch_size samples."""
        if self._averaged_sums:
            self._averaged_sums = False
            self._warn("gradients are added to sums that were averaged already: call reset_accumulated_grads_() after it, or step() without reset_accumulators=False")
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
                "with reuse_grad_buffers the averages of the last step() lie in .grad, and a batch was added to them there: before the next backward, step with them "
                "within use_averaged_gradients(), or call notify_used_averaged_gradients() when they are used or not wanted"
            )
        for grad, view in zip(grads, self._views):
            if grad is not view:
                raise ValueError(
                    "with reuse_grad_buffers gradients are added up in .grad, and somebody has replaced them there: do not call zero_grad(), "
                    "of the optimizer or of the model, or remove reuse_grad_buffers"
                )
        self._reused.anchor = self._anchor
        weight = self._reused.weigh(batch_size, self._views)
        self._anchor = self._reused.anchor
        if weight * self._anchor != batch_size:
            self._warn(
                f"a batch of {batch_size} samples weighs as much as the first one of {self._anchor}, because its size was not known when it was added up in .grad: "
                "call expect_batch() before the backward of each batch, or remove reuse_grad_buffers"
            )
        self._weights += weight

    def expect_batch(self, batch_size: int) -> None:
        """The next backward is of so many samples. With reuse_grad_buffers it then needs no further memory where batches differ in size."""
        self._reused.anchor = self._anchor
        self._reused.expect(batch_size)

    def sizes_vary(self, batch_size: Optional[int] = None) -> None:
        """Sizes of batches become known after their backward, unless this one was expected: with reuse_grad_buffers what a backward adds is kept until then."""
        if batch_size is None or not self._reused.is_expected(batch_size):
            self._reused.sizes_vary = True

    def sizes_are_equal(self) -> None:
        """All batches are equally large, until sizes_vary() says otherwise: with reuse_grad_buffers nothing is kept."""
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
            torch._foreach_add_(views, [grad.to(view.device) for grad, view in zip(grads, views)], alpha=batch_size / self._anchor)
        else:
            add_up(views, grads, batch_size / self._anchor)

    @torch.no_grad()
    def rescale_(self, factor: float) -> None:
        """Multiplies the sums: what a GradScaler that keeps scaled sums in .grad does when its scale changes."""
        torch._foreach_mul_(self._views, factor)
        self.scale *= factor

    @torch.no_grad()
    def reset_accumulated_grads_(self) -> None:
        """Forgets the sums, and the samples behind them."""
        self._begin_anew()
        if self.reuse_grad_buffers:
            torch._foreach_zero_(self._views)
            self._lend()

    def _begin_anew(self) -> None:
        """The next gradients are the first: they are copied over what is in the sums, unless those are kept in .grad."""
        self.local_samples_accumulated = self.local_times_accumulated = 0
        self._anchor, self.scale, self._weights = None, 1.0, 0.0
        self._reused.reset()
        self._touched = [False] * len(self.parameters)
        self._averaged_sums = self._to_zero = False

    def shutdown(self) -> None:
        self._reused.remove()
        super().shutdown()

    # ---- averaging ----

    def schedule_step(self, scheduled_time: Optional[float] = None, **kwargs: Any) -> Any:
        """Begins to look for a group now, so that it stands at scheduled_time; hand the outcome to step(control=...)."""
        return DecentralizedAverager.step(self, scheduled_time=scheduled_time, wait=False, require_trigger=True, **kwargs)

    def step(
        self,
        weight: Optional[float] = None,
        reset_accumulators: bool = True,
        control: Any = None,
        timeout: Optional[float] = None,
        wait: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Averages the mean of what was added up, weighted by its samples, and begins a new sum. Returns what the members gave to be gathered, by peer ID; raises
        HivemindError if it failed. wait=False: the control, whose result() is that. A step that is refused (its arguments, or BUSY) leaves
        the sums as they are; after one that has failed, what was not averaged is this peer's own mean."""
        if weight is None:
            weight = self.local_samples_accumulated
        control = self._begun(weight, control, timeout, wait, kwargs)
        if self._new_averaged_grads:
            self._warn("the averages of the last step() were not used: step with them within use_averaged_gradients(), or call notify_used_averaged_gradients()")
        try:
            self.load_accumulators_into_averager_()
            self._new_averaged_grads = self._averaged_sums = True
            if reset_accumulators and self._averaged is not self._views:
                self.reset_accumulated_grads_()
            elif reset_accumulators:  # the averages come to where the sums are
                self._begin_anew()
                self._to_zero = self.reuse_grad_buffers
            return self.average_loaded(weight, control=control, timeout=timeout, wait=wait)
        except BaseException:
            control.cancel()  # if it is not over, the others need not wait for it
            raise

    def _begun(self, weight: float, control: Any, timeout: Optional[float], wait: bool, options: Dict[str, Any]) -> Any:
        """The control of a step that looks for its group: the given one, or a new one. What speaks against it is raised, and nothing has been touched then."""
        weight = 0.0 if self.auxiliary else float(weight)
        if control is None:
            control = self.schedule_step(weight=weight, timeout=timeout, **options)
        elif options:
            raise ValueError(f"{', '.join(options)}: give this to schedule_step, which made the control")
        else:
            control.check_unused(self)
            control.weight = weight
        control.check_begun()
        return control

    def average_loaded(self, weight: float, *, control: Any = None, timeout: Optional[float] = None, wait: bool = True, **kwargs: Any) -> Any:
        """Averages what load_accumulators_into_averager_ made ready."""
        control = self._begun(weight, control, timeout, wait, kwargs)
        control.allow_allreduce()
        if not wait:
            return control
        members = outcome_of(control, timeout)
        self.stamp = control.stamp
        return members

    @torch.no_grad()
    def load_accumulators_into_averager_(self, metric: Optional[float] = None) -> None:
        """Makes the mean of what was added up ready for averaging (the sums themselves where they are averaged in place), and a metric."""
        self._metric[0], self._metric[1] = metric or 0.0, float(metric is not None)
        if self._averaged is not self._views:
            copy_all(self._averaged, self._views)
        if self.local_samples_accumulated == 0:
            torch._foreach_zero_(self._averaged)
            return
        anchors = (self._weights if self.reuse_grad_buffers else self.local_samples_accumulated / self._anchor) * self.scale
        if anchors != 1:
            torch._foreach_mul_(self._averaged, 1 / anchors)
        if self._averaged is self._views:  # they hold a mean from now on
            self.local_times_accumulated, self._anchor, self.scale, self._weights = 1, self.local_samples_accumulated, 1.0, 1.0

    def was_alone(self) -> bool:
        """Whether the last averages are this peer's own: with min_group_size=1 a round in which nobody else is goes well."""
        return not all(self.stamp) if isinstance(self.stamp, tuple) else not self.stamp

    def drop_if_not_finite(self) -> bool:
        """Sets what is ready for averaging to zero if there is a NaN or Inf in it, and tells whether it did."""
        if all_finite(self._averaged):
            return False
        torch._foreach_zero_(self._averaged)
        return True

    def averaged_metric(self) -> Optional[float]:
        """The mean of the metrics of those members that had one."""
        value, there = self._metric.tolist()
        return value / there if there > 0 else None

    @property
    def averaged_grads(self) -> List[torch.Tensor]:
        return self._averaged

    def touched(self) -> List[bool]:
        """For each parameter whether a gradient came since the reset."""
        return [True] * len(self._touched) if self.reuse_grad_buffers else list(self._touched)

    @contextlib.contextmanager
    def use_averaged_gradients(
        self, only: Optional[Sequence[bool]] = None, of: Optional[Sequence[torch.Tensor]] = None, without: Sequence[torch.Tensor] = ()
    ) -> Iterator[None]:
        """Within it the .grad of the parameters, or of their copies `of`, are the averages (None where `only` is false), and those of `without` None. Then they are what
        they were."""
        parameters = self.parameters if of is None else of
        before = [(p, p.grad) for p in (*parameters, *without)]
        try:
            for p in without:
                p.grad = None
            for i, (p, averaged) in enumerate(zip(parameters, self._averaged)):
                same = averaged.dtype == p.dtype and averaged.device == p.device
                p.grad = None if only is not None and not only[i] else averaged if same else averaged.to(device=p.device, dtype=p.dtype)
            yield
        finally:
            for p, grad in before:
                p.grad = grad
        self.notify_used_averaged_gradients()

    def notify_used_averaged_gradients(self) -> None:
        """Tells that the last averages were used; sums kept in .grad begin at zero from then on."""
        self._new_averaged_grads = False
        if self._to_zero:
            self.reset_accumulated_grads_()

    def _warn(self, text: str) -> None:
        if self.warn and text not in self._warned:
            self._warned.add(text)
            logger.warning(text)


GradientAveragerFactory = Callable[..., GradientAverager]
