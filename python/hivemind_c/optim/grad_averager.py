"""GradientAverager: the gradients that this peer adds up in a swarm epoch, and their average over the swarm."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch

from hivemind_c import cuda
from hivemind_c._signature import shows_options_of
from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.compression import AdaptiveCompressionBase, CompressionBase, CompressionInfo, NoCompression, TensorRole
from hivemind_c.optim.gradient_sums import Counts, GradientSums
from hivemind_c.optim.parameters import all_finite, copy_all, flat_views

logger = logging.getLogger("hivemind_c.optim")


def outcome_of(control: Any, timeout: Optional[float] = None) -> Any:
    """Waits for an averaging; who is interrupted meanwhile, by Ctrl-C, wants it no more."""
    try:
        return control.result(timeout)
    except BaseException:
        control.cancel()
        raise


class UncompressedKey(AdaptiveCompressionBase):
    """The compression that the user chose, but none for one tensor that must arrive exactly.

    Args:
        key: Key of that tensor.
        rest: Compression of all other tensors.
    """

    def __init__(self, key: str, rest: CompressionBase):
        self.key, self.rest, self.exact = key, rest, NoCompression()

    def choose_compression(self, info: CompressionInfo) -> CompressionBase:
        return self.exact if info.key == self.key else self.rest


class GradientAverager(GradientSums, DecentralizedAverager):
    """Adds up gradients batch by batch, weighted by batch size, and averages their mean with other peers.

    Call accumulate_grads_(batch_size) after each backward, and step() at a swarm epoch's end. Then use the averages by
    `with use_averaged_gradients(): optimizer.step()`, or from the tensors given as averaged_grads.

    Args:
        parameters: Parameters whose gradients are averaged.
        dht: A DHT that runs.
        prefix: Name of the averaging. Peers with the same prefix average together.
        reuse_grad_buffers: Keep the sum in .grad, so do not set it to zero. Call expect_batch() if batch sizes differ.
        accumulate_grads_on: Device for the sums. None: that of the parameters.
        client_mode: Only dial out. None: as the DHT.
        warn: Warn once if step() finds unused averages, or if gradients are added to sums already averaged.
        averaged_grads: Tensors in host memory that receive the averages.
        in_place: Average the sums where they are, if the device allows it. Add no gradients during step(wait=False).
        start: Start at once. False: run_in_background() starts it.
        **kwargs: Further options of DecentralizedAverager.
    """

    _on_demand = False  # gradients are no state
    stamp: Any = 0  #: of the last averages: alike in peers that have the same, to the bit; 0, or 0 in it: made alone
    rounds: Sequence[Any] = ()  #: the StepControls of the last averaging that succeeded
    averages_once = True  #: whether one round of this averager makes the average
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
            raise ValueError(
                "with reuse_grad_buffers the sums are where the gradients are: leave accumulate_grads_on out"
            )
        self._begin_sums(parameters, reuse_grad_buffers, accumulate_grads_on, warn)
        on_gpus = (
            self.works_on_gpus
            and not averaged_grads
            and all(v.dtype is torch.float32 for v in self._views)
            and cuda.averages(self._views)
        )
        in_place = in_place and (
            on_gpus or all(v.device.type == "cpu" and v.dtype in (torch.float32, torch.float64) for v in self._views)
        )
        if averaged_grads:
            self._averaged = list(averaged_grads)
            if (
                in_place
                and not reuse_grad_buffers
                and all(a.dtype == v.dtype for a, v in zip(self._averaged, self._views))
            ):
                self._views = self._averaged
        elif in_place:
            self._averaged = self._views
        else:
            self._averaged = flat_views(self._views, device="cpu", pin=True)
        if [tuple(t.shape) for t in self._averaged] != [tuple(p.shape) for p in self.parameters]:
            raise ValueError("averaged_grads must have the shapes of the parameters, one for each")
        self._new_averaged_grads = False  # what step() made and nobody has used
        self._summed: Optional[Tuple[float, Counts]] = None  # the sums of the prepared mean, by which it was divided
        self._metric = torch.zeros(2)  # the metric if there is one, and whether there is
        self._join(dht, self._averaged, prefix=prefix, client_mode=client_mode, start=start, **kwargs)

    def _join(
        self, dht: Any, tensors: List[torch.Tensor], *, compression: CompressionBase = NoCompression(), **kwargs: Any
    ) -> None:
        """Becomes a DecentralizedAverager of these tensors and the metric."""
        infos = [CompressionInfo.from_tensor(t, key=i, role=TensorRole.GRADIENT) for i, t in enumerate(tensors)]
        infos.append(CompressionInfo.from_tensor(self._metric, key="metric"))
        DecentralizedAverager.__init__(
            self,
            [*tensors, self._metric],
            dht,
            tensor_infos=infos,
            compression=UncompressedKey("metric", compression),
            **kwargs,
        )

    @classmethod
    def get_factory(cls, **kwargs: Any) -> GradientAveragerFactory:
        """Returns a function that makes an averager with these options, for Optimizer(grad_averager_factory=...).

        Args:
            **kwargs: Options of this class.
        """
        return lambda *args, **more: cls(*args, **{**kwargs, **more})

    def shutdown(self) -> None:
        """Stops the averager and removes its hooks from the parameters. May be called twice."""
        self.remove_hooks()
        super().shutdown()

    # ---- averaging ----

    def schedule_step(self, scheduled_time: Optional[float] = None, **kwargs: Any) -> Any:
        """Begins to look for a group, and returns a control for step(control=...).

        Args:
            scheduled_time: Moment in get_dht_time() by which the group is to be complete.
            **kwargs: Options of DecentralizedAverager.step.
        """
        return DecentralizedAverager.step(
            self, scheduled_time=scheduled_time, wait=False, require_trigger=True, **kwargs
        )

    def step(
        self,
        weight: Optional[float] = None,
        reset_accumulators: bool = True,
        control: Any = None,
        timeout: Optional[float] = None,
        wait: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Averages the mean of the added gradients, and begins a new sum. Returns {peer_id: value} of the members.

        Raises HivemindError if the round failed. Values that were not averaged are then the mean of this peer. A step
        that is refused at once leaves the sums as they are.

        Args:
            weight: Weight of this peer. None: the number of its samples.
            reset_accumulators: Begin a new sum after the averages were taken.
            control: Control from schedule_step(). None: look for a group now.
            timeout: Longest time in seconds for the step. None: no limit.
            wait: False: return the control at once.
            **kwargs: Options of schedule_step(), if no control is given.
        """
        if weight is None:
            weight = self.local_samples_accumulated
        control = self._begun(weight, control, timeout, wait, kwargs)
        if self._new_averaged_grads:
            self._warn(
                "the averages of the last step() were not used: step with them within use_averaged_gradients(), or "
                "call notify_used_averaged_gradients()"
            )
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
        """The control of a step that looks for its group: the given one, or a new one. If it cannot be
        made, an error is raised, and nothing has been touched.
        """
        if control is None:
            weight = 0.0 if self.auxiliary else float(weight)
            control = self.schedule_step(weight=weight, timeout=timeout, **options)
        else:
            self._given(weight, control, options)
        control.check_begun()
        return control

    def _given(self, weight: float, control: Any, options: Dict[str, Any]) -> Any:
        """A control that was made before, with this weight."""
        if options:
            raise ValueError(f"{', '.join(options)}: give this to schedule_step, which made the control")
        control.check_unused(self)
        control.weight = 0.0 if self.auxiliary else float(weight)
        return control

    def average_loaded(
        self, weight: float, *, control: Any = None, timeout: Optional[float] = None, wait: bool = True, **kwargs: Any
    ) -> Any:
        """Averages the mean that load_accumulators_into_averager_() prepared. Arguments as in step().

        Args:
            weight: Weight of this peer.
            control: Control from schedule_step(). None: look for a group now.
            timeout: Longest time in seconds. None: no limit.
            wait: False: return the control at once.
            **kwargs: Options of schedule_step(), if no control is given.
        """
        if control is None:
            control = self._begun(weight, None, timeout, wait, kwargs)
        else:  # it may have ended, which its outcome says
            self._given(weight, control, kwargs)
        control.allow_allreduce()
        if not wait:
            return control
        return self.take_averages(control, timeout)

    def take_averages(self, control: Any, timeout: Optional[float] = None) -> Any:
        """Waits for an averaging of average_loaded(wait=False). Returns its members.

        Args:
            control: Its control.
            timeout: Longest time in seconds. None: no limit.
        """
        members = outcome_of(control, timeout)
        self.stamp, self.rounds = control.stamp, [control]
        return members

    @torch.no_grad()
    def load_accumulators_into_averager_(self, metric: Optional[float] = None) -> None:
        """Prepares the mean of the added gradients for averaging.

        Args:
            metric: Value to average beside them, such as the loss. None: this peer has none.
        """
        self._metric[0], self._metric[1] = metric or 0.0, float(metric is not None)
        self._summed = None
        if self._averaged is not self._views:
            copy_all(self._averaged, self._views)
        if self.local_samples_accumulated == 0:
            torch._foreach_zero_(self._averaged)
            return
        anchors = (
            self._weights if self.reuse_grad_buffers else self.local_samples_accumulated / self._anchor
        ) * self.scale
        if anchors != 1:
            torch._foreach_mul_(self._averaged, 1 / anchors)
        if self._averaged is self._views:  # they hold a mean from now on
            self._summed = anchors, self.counts
            self.counts = 1, self.local_samples_accumulated, 1.0, 1.0

    @torch.no_grad()
    def unload_accumulators_(self) -> None:
        """Undoes load_accumulators_into_averager_(), if no other peer took part in the averaging."""
        if self._summed is not None:
            anchors, self.counts = self._summed
            torch._foreach_mul_(self._views, anchors)
        self._summed = None

    def was_alone(self) -> bool:
        """True if the last averages are this peer's own, as with min_group_size=1 in a round without others."""
        return not all(self.stamp) if isinstance(self.stamp, tuple) else not self.stamp

    def drop_if_not_finite(self) -> bool:
        """Sets the prepared mean to zero if it holds a NaN or Inf. True if it did."""
        if all_finite(self._averaged):
            return False
        torch._foreach_zero_(self._averaged)
        return True

    def averaged_metric(self) -> Optional[float]:
        """Returns the mean of the metrics of those members that had one, or None."""
        value, there = self._metric.tolist()
        return value / there if there > 0 else None

    @property
    def averaged_grads(self) -> List[torch.Tensor]:
        """The tensors that receive the averages."""
        return self._averaged

    @contextlib.contextmanager
    def use_averaged_gradients(
        self,
        only: Optional[Sequence[bool]] = None,
        of: Optional[Sequence[torch.Tensor]] = None,
        without: Sequence[torch.Tensor] = (),
    ) -> Iterator[None]:
        """A context in which the .grad of the parameters are the averages. Afterwards they are as before.

        Args:
            only: One bool for each parameter: .grad is None where it is False. None: all.
            of: Copies of the parameters that receive the averages instead of the parameters.
            without: Further parameters whose .grad is None in the context.
        """
        parameters = self.parameters if of is None else of
        before = [(p, p.grad) for p in (*parameters, *without)]
        try:
            for p in without:
                p.grad = None
            for i, (p, averaged) in enumerate(zip(parameters, self._averaged)):
                same = averaged.dtype == p.dtype and averaged.device == p.device
                p.grad = (
                    None
                    if only is not None and not only[i]
                    else averaged
                    if same
                    else averaged.to(device=p.device, dtype=p.dtype)
                )
            yield
        finally:
            for p, grad in before:
                p.grad = grad
        self.notify_used_averaged_gradients()

    def notify_used_averaged_gradients(self) -> None:
        """Records that the last averages were used. Sums kept in .grad are set to zero."""
        self._new_averaged_grads = False
        if self._to_zero:
            self.reset_accumulated_grads_()

GradientAveragerFactory = Callable[..., GradientAverager]
