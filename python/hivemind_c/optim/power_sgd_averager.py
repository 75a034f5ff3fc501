"""Gradients averaged as products of two narrow matrices: PowerSGD (Vogels et al., arXiv 1905.13727), for slow links."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterable, List, Optional, Sequence

import torch

from hivemind_c._lowrank import LowRank
from hivemind_c._signature import shows_options_of
from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.averaging.averager import made_apart
from hivemind_c.compression import CompressionBase, CompressionInfo, NoCompression, TensorRole
from hivemind_c.dht import get_dht_time
from hivemind_c.optim.grad_averager import GradientAverager, outcome_of

Q_SECONDS = 5.0  #: to find those who have the same P again; they are all on the point of it


def _check_waits(wait: bool) -> None:
    if not wait:
        raise ValueError(
            "PowerSGD does not support wait=False: its second round waits for the first; remove wait=False, or call "
            "it in a thread"
        )


class PowerSGDGradientAverager(GradientAverager):
    """A GradientAverager that sends low-rank factors of large gradients, and keeps the error for the next round.

    A round has two averagings: first the factor P and all tensors that are not factored, then the factor Q among
    members that hold the same average of P. docs/reference/compression.md explains them. For an Optimizer write
    `grad_averager_factory=functools.partial(PowerSGDGradientAverager, averager_rank=32)`. All peers of a run give the
    same averager_rank and min_compression_ratio.

    Args:
        parameters: Parameters whose gradients are averaged, in float32.
        averager_rank: Rank of the factors, 1 or more. A higher rank is more exact and sends more.
        dht: A DHT that runs.
        prefix: Name of the averaging. Peers with the same prefix average together.
        min_compression_ratio: Least part by which a tensor must shrink to be factored, from 0 to 1.
        on_device: Factor gradients on their GPU. Replicas are equal to the bit only if all GPUs round alike.
        averaged_grads: Tensors in host memory that receive the averages.
        **kwargs: Further options of GradientAverager.
    """

    averages_once = False

    @shows_options_of(GradientAverager)
    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        averager_rank: int,
        *,
        dht: Any,
        prefix: str,
        min_compression_ratio: float = 0.5,
        on_device: bool = False,
        averaged_grads: Optional[Sequence[torch.Tensor]] = None,
        **kwargs: Any,
    ):
        self.rank, self.min_compression_ratio, self.works_on_gpus = averager_rank, min_compression_ratio, on_device
        self._round = self._next = 0  # the round under way, and the one after it unless told otherwise
        self._qs: Optional[DecentralizedAverager] = None
        super().__init__(parameters, dht=dht, prefix=prefix, averaged_grads=averaged_grads or (), **kwargs)

    def _join(
        self,
        dht: Any,
        tensors: List[torch.Tensor],
        *,
        prefix: str,
        compression: CompressionBase = NoCompression(),
        **kwargs: Any,
    ) -> None:
        if any(t.dtype is not torch.float32 for t in tensors):
            raise ValueError("PowerSGD works in float32: use another gradient averager for parameters in float64")
        self._low = LowRank(tensors, self.rank, self.min_compression_ratio)
        ps, qs = self._low.buffers
        super()._join(
            dht,
            ps + [t for i, t in enumerate(tensors) if i not in self._low.indices],
            prefix=prefix,
            compression=compression,
            **kwargs,
        )
        if qs and not self.auxiliary:
            infos = [CompressionInfo.from_tensor(t, key=i, role=TensorRole.GRADIENT) for i, t in enumerate(qs)]
            with made_apart(False):  # who takes part in its rounds is known from the first round's group
                self._qs = DecentralizedAverager(
                    qs,
                    dht,
                    prefix=f"{prefix}_q",
                    compression=compression,
                    tensor_infos=infos,
                    **{**kwargs, "allow_state_sharing": False},
                )

    def schedule_step(
        self, scheduled_time: Optional[float] = None, *, epoch: Optional[int] = None, **kwargs: Any
    ) -> Any:
        """Begins to look for a group, and returns a control for step(control=...).

        Args:
            scheduled_time: Moment in get_dht_time() by which the group is to be complete.
            epoch: Number of the round, from which all members derive the same random numbers. None: the next one.
            **kwargs: Options of DecentralizedAverager.step.
        """
        self._round = self._next if epoch is None else epoch
        return super().schedule_step(scheduled_time, epoch=self._round, **kwargs)

    def _begun(self, weight: float, control: Any, timeout: Optional[float], wait: bool, options: Dict[str, Any]) -> Any:
        _check_waits(wait)
        return super()._begun(weight, control, timeout, wait, options)

    def average_loaded(
        self, weight: float, *, control: Any = None, timeout: Optional[float] = None, wait: bool = True, **kwargs: Any
    ) -> Any:
        """Runs both averagings of the mean that load_accumulators_into_averager_() prepared.

        Args:
            weight: Weight of this peer.
            control: Control from schedule_step(). None: look for a group now.
            timeout: Longest time in seconds. None: no limit.
            wait: Must be True, because the second averaging waits for the first.
            **kwargs: Options of schedule_step(), if no control is given.
        """
        _check_waits(wait)
        if control is None:
            control = self.schedule_step(timeout=timeout, **kwargs)
        if self.auxiliary:
            return super().average_loaded(0.0, control=control, timeout=timeout)
        number = self._round
        try:
            if self._low.indices:
                self._low.encode(number, self._averaged)
            members = super().average_loaded(weight, control=control, timeout=timeout)
            if self._qs is not None and not self._is_empty(weight):
                self._second(number, weight, control)
            if self._low.indices and self._is_empty(weight):
                self._low.abort(number)
            self._next = number + 1
            return members
        except BaseException:
            if self._low.indices:
                self._low.abort(number)
            raise

    @torch.no_grad()
    def _second(self, number: int, weight: float, control: Any) -> None:
        ps, _ = self._low.buffers
        same = hashlib.blake2b(digest_size=16)
        for p in ps:
            same.update(memoryview(p.cpu().numpy()).cast("B"))
        qs = self._low.middle(number, ps)
        left = control.get_timeout()
        step = DecentralizedAverager.step(
            self._qs,
            weight=weight,
            wait=False,
            epoch=f"{number}/{same.hexdigest()}",
            scheduled_time=get_dht_time() + min(Q_SECONDS, left or Q_SECONDS),
            timeout=left,
        )
        outcome_of(step)
        self.stamp, self.rounds = (self.stamp, step.stamp), [*self.rounds, step]
        if not self._is_empty(weight):
            self._low.decode(number, qs)

    def _is_empty(self, weight: float) -> bool:
        """True if nobody had a gradient in this round: it is made again in the same swarm epoch."""
        return not weight and self.was_alone()

    def present_setup(self, setup: bytes) -> None:
        """Sets what members of a group must have in common, for both averagings.

        Args:
            setup: As in DecentralizedAverager.present_setup.
        """
        super().present_setup(setup)
        if self._qs is not None:
            self._qs.present_setup(setup)

    def shutdown(self) -> None:
        """Stops both averagers. May be called twice."""
        if self._qs is not None:
            self._qs.shutdown()
        super().shutdown()

    def state_dict(self) -> Dict[str, Any]:
        """Returns the errors kept for the next round. They are part of the checkpoint of an Optimizer."""
        return self._low.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restores the result of state_dict().

        Args:
            state: Result of state_dict().
        """
        self._low.load_state_dict(state)
