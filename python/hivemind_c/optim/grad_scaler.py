"""Loss scaling for half precision, where an overflow on one peer costs that peer's batch and not the swarm's step."""

from __future__ import annotations

import inspect
import weakref
from typing import Any, Optional

import torch
from torch.amp.grad_scaler import OptState


def _signature() -> inspect.Signature:
    """torch's, but for the device, which is chosen if none is given."""
    torchs = inspect.signature(torch.amp.GradScaler.__init__)
    return torchs.replace(
        parameters=[p.replace(default=None) if p.name == "device" else p for p in torchs.parameters.values()]
    )


def _found_none(state: Any) -> bool:
    return not sum(found.item() for found in state["found_inf_per_device"].values())


def grads_are_finite(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, other: Optional[torch.optim.Optimizer] = None
) -> bool:
    """Unscales the gradients unless the program has done so, and returns True if they are finite.

    Args:
        scaler: A GradScaler of torch, or a hivemind_c.GradScaler.
        optimizer: The optimizer whose gradients are meant.
        other: Another optimizer of the same gradients, for which the program may have unscaled them.
    """
    states = scaler._per_optimizer_states
    if other is not None and id(other) in states and states[id(other)]["stage"] is not OptState.READY:
        optimizer = other
    state = states[id(optimizer)]
    if state["stage"] is OptState.STEPPED:
        raise RuntimeError("step() has already been called since the last update()")
    if state["stage"] is OptState.READY:
        scaler.unscale_(optimizer)
    state["stage"] = OptState.STEPPED
    return _found_none(state)


class GradScaler(torch.amp.GradScaler):
    """The GradScaler of torch for an Optimizer.

    Call scale(loss).backward(), unscale_(optimizer) if needed, step(optimizer) and update(). A batch whose gradients
    overflow is left out of this peer's sum, and the scale falls as in torch. The step uses all other batches and those
    of other peers.

    Args:
        *args: Positional arguments of torch.amp.GradScaler, or of the older torch.cuda.amp.GradScaler.
        **kwargs: Named arguments of torch.amp.GradScaler. The device is chosen if none is given.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        if kwargs.get("device", "") is None:
            del kwargs["device"]
        if args and args[0] is None:
            args = args[1:]
        if args and not isinstance(args[0], (str, torch.device)) or not args and "device" not in kwargs:
            args = ("cuda" if torch.cuda.is_available() else "cpu", *args)
        if isinstance(args[0] if args else None, torch.device):
            args = (args[0].type, *args[1:])
        super().__init__(*args, **kwargs)
        self._keep_sums: "weakref.WeakSet[Any]" = weakref.WeakSet()

    __init__.__signature__ = _signature()  # type: ignore[attr-defined]

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Optional[Any]:
        """Steps the optimizer, unless the gradients overflowed.

        Args:
            optimizer: A hivemind_c.Optimizer, or one of torch.
            *args: Further arguments of its step(). An Optimizer takes none here.
            **kwargs: Further arguments of its step(), such as batch_size.
        """
        if not hasattr(optimizer, "skip_overflown_batch"):  # one of torch's
            return super().step(optimizer, *args, **kwargs)
        if not self.is_enabled():
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise RuntimeError(
                "a closure cannot be used with a GradScaler: call scaler.scale(loss).backward() before "
                "scaler.step(optimizer)"
            )
        return optimizer.step(grad_scaler=self, **kwargs)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides the gradients by the scale. Sums kept in .grad stay scaled, and are only checked.

        Args:
            optimizer: The optimizer whose gradients are meant.
        """
        if not getattr(optimizer, "reuse_grad_buffers", False) or not self.is_enabled():
            super().unscale_(optimizer)
            return
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is not OptState.READY:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update()")
        scale, _ = self._check_scale_growth_tracker("unscale_")
        one = torch.ones((), dtype=torch.float32, device=scale.device)
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, one, torch.zeros_like(one), True)
        state["stage"] = OptState.UNSCALED
        self._keep_sums.add(optimizer)

    def are_grads_finite(self, optimizer: torch.optim.Optimizer, use_cached: bool = False) -> bool:
        """Unscales the gradients if necessary, and returns True if they are finite. An Optimizer calls it in its step.

        Args:
            optimizer: The optimizer whose gradients are meant.
            use_cached: Return the result of an earlier call in this step, if there was one.
        """
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED and use_cached:
            return _found_none(state)
        return grads_are_finite(self, optimizer)

    def update(self, new_scale: Any = None) -> None:
        """Adjusts the scale after a step, and the sums that optimizers keep scaled.

        Args:
            new_scale: The new scale. None: torch chooses it.
        """
        keepers = list(self._keep_sums)
        before = self.get_scale() if keepers else 1.0
        super().update(new_scale)
        after = self.get_scale() if keepers else 1.0
        if after != before:
            for optimizer in keepers:
                optimizer.rescale_sums(after / before)
