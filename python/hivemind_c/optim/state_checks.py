"""Which states a TrainingStateAverager takes: those of its model that are finite, and of a size that fits."""

from __future__ import annotations

from typing import Any, Sequence

from hivemind_c.averaging.state_exchange import PART_ALIGN, check_as_finite, check_finite
from hivemind_c.optim.statistics import state_bytes_most
from hivemind_c.optim.state_parts import _StateParts


class StateChecks(_StateParts):
    """The part of TrainingStateAverager that refuses states of no use, before anything of this peer has changed."""

    def _state_size_max(self) -> int:
        """Most bytes of a state of this model. 0: not known."""
        main, extra = self.parameters.main, self.extra_tensors
        taken = sum(t.numel() * max(t.element_size(), 4) + PART_ALIGN for t in (*main, *extra))
        remembered = state_bytes_most(self.optimizer)
        buffers = max(2 * self.buffers.bytes_in_state(PART_ALIGN), taken // 4)  # the donor may have others
        return taken + remembered + buffers if remembered else 0

    def _check_state(self, metadata: Any, tensors: Sequence[Any]) -> None:
        tensors, _ = self.buffers.split(metadata, tensors)
        main, extra = [p.detach() for p in self.parameters.main], [t.detach() for t in self.extra_tensors]
        n = len(main)
        if not isinstance(metadata, dict) or metadata.get("parameters") != n or len(tensors) < n + len(extra):
            raise ValueError("the state from a peer is of another model: it has another number of tensors")
        middle, last = tensors[n : len(tensors) - len(extra)], tensors[len(tensors) - len(extra) :]
        for own, given in zip((*main, *extra), (*tensors[:n], *last)):
            if tuple(own.shape) != tuple(given.shape):
                raise ValueError(
                    f"the state from a peer is of another model: a tensor in it is {tuple(given.shape)}, and "
                    f"{tuple(own.shape)} here"
                )
        check_finite((*tensors[:n], *middle))
        for own, given in zip(extra, last):
            check_as_finite(own, given)
        epoch = metadata.get("epoch")
        if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 48:
            raise ValueError("the state from a peer is damaged: it has no epoch")
