"""Gradients that backward adds up in .grad itself, each batch weighted by its size."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch


class ReusedBuffers:
    """Weights the gradients that backward adds to .grad by the size of their batch.

    If the size is known before, a gradient is weighted at once. Otherwise it is kept, and its sum is corrected
    afterwards, which takes the memory of one more gradient (sizes_vary).

    Args:
        parameters: The parameters.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]):
        self.sizes_vary = True
        self.anchor: Optional[int] = None  # the size of the first batch, which has weight 1
        self._expected: Optional[int] = None
        self._factor = 1.0
        self._fresh: Dict[int, List[torch.Tensor]] = {}
        self._hooks = [
            p.register_hook(_hook(weakref.ref(self), i)) for i, p in enumerate(parameters) if p.requires_grad
        ]

    def expect(self, batch_size: int) -> None:
        """Announces the size of the next batch.

        Args:
            batch_size: Number of samples.
        """
        self._expected, self._factor = batch_size, 1.0 if self.anchor is None else batch_size / self.anchor

    def is_expected(self, batch_size: int) -> bool:
        """True if the next batch was announced with this size.

        Args:
            batch_size: Number of samples.
        """
        return self._expected == batch_size

    def on_gradient(self, index: int, grad: torch.Tensor) -> Optional[torch.Tensor]:
        """Returns the value to add to .grad in place of a gradient, or None to add the gradient itself.

        Args:
            index: Index of the parameter.
            grad: The gradient.
        """
        if self._expected is None and self.sizes_vary and self.anchor is not None:
            self._fresh.setdefault(index, []).append(grad)
        return None if self._factor == 1 else grad * self._factor

    @torch.no_grad()
    def weigh(self, batch_size: int, sums: Sequence[torch.Tensor]) -> float:
        """Returns the weight of a batch that is in the sums. It is batch_size / anchor if that was possible.

        Args:
            batch_size: Number of samples.
            sums: The sums.
        """
        self.anchor = self.anchor or batch_size
        there, wanted, fresh = self._factor, batch_size / self.anchor, self._fresh
        self.forget()
        if there == wanted or not fresh:
            return there
        for index, grads in fresh.items():
            for grad in grads:
                sums[index].add_(grad, alpha=wanted - there)
        return wanted

    def forget(self) -> None:
        """Drops the announced size, and the kept gradients of a batch."""
        self._expected, self._factor, self._fresh = None, 1.0, {}

    def reset(self) -> None:
        """Begins new sums."""
        self.anchor = None
        self.forget()

    def remove(self) -> None:
        """Removes the hooks from the parameters."""
        for hook in self._hooks:
            hook.remove()
        self.forget()


def _hook(owner: "weakref.ref[ReusedBuffers]", index: int) -> Callable[[torch.Tensor], Any]:
    def hook(grad: torch.Tensor) -> Optional[torch.Tensor]:
        there = owner()
        return None if there is None else there.on_gradient(index, grad)

    return hook
