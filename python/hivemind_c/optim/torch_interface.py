"""The interface of torch.optim.Optimizer on an Optimizer: groups, state, checkpoints, zero_grad."""

from __future__ import annotations

import collections
import functools
from typing import Any, Callable, Dict, List

import torch
from torch.optim import optimizer as torchs

from hivemind_c.optim.run_peer import RunPeer


def hooked_if_watched(step: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of step() that runs the hooks and the profiler of torch only if there are any.

    torch wraps the step() of each optimizer for them, which costs as much as all else in a step that only counts a
    batch.

    Args:
        step: The method.
    """
    watched = torch.optim.Optimizer.profile_hook_step(step)

    @functools.wraps(step)
    def quick(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks = (
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or torchs._global_optimizer_pre_hooks
            or torchs._global_optimizer_post_hooks
        )
        return (watched if hooks or torch.autograd._profiler_enabled() else step)(self, *args, **kwargs)

    quick.hooked = True  # type: ignore[attr-defined]  # so that torch does not wrap it once more
    return quick


class InnerState(collections.UserDict):  # type: ignore[type-arg]
    """The state of an inner optimizer, which also answers for "local_epoch", as that of hivemind's Optimizer does.

    That key is none of its items, so programs that go over the states of parameters meet no number.

    Args:
        state: The state itself; writing reaches it.
        local_epoch: The swarm epoch of this peer.
    """

    def __init__(self, state: Dict[Any, Any], local_epoch: int):
        self.data, self._more = state, {"local_epoch": local_epoch}

    def __getitem__(self, key: Any) -> Any:
        return self._more[key] if key in self._more else self.data[key]

    def __contains__(self, key: object) -> bool:
        return key in self._more or key in self.data

    def get(self, key: Any, default: Any = None) -> Any:
        """Returns the state of a parameter, without making one as [] does.

        Args:
            key: A parameter, or "local_epoch".
            default: The answer where there is none.
        """
        return self[key] if key in self else default


class TorchInterface(RunPeer, torch.optim.Optimizer):
    """The part of Optimizer that makes it an optimizer of torch."""

    driver: Any
    ledger: Any

    def _init_as_torch(self) -> None:
        """In place of torch's __init__, whose groups are the inner optimizer's here."""
        self.defaults = self.opt.defaults
        self.__setstate__({})  # torch's hooks

    @property
    def opt(self) -> torch.optim.Optimizer:
        """The inner optimizer."""
        return self.state_averager.inner

    @property
    def state(self) -> Any:
        """The state of the inner optimizer, with the swarm epoch of this peer under "local_epoch"."""
        return InnerState(self.opt.state, self.local_epoch)

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """The groups of the inner optimizer, with the parameters of the model."""
        return self.state_averager.param_groups

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Raises ValueError: all peers have the same parameters from the start.

        Args:
            param_group: Not used.
        """
        raise ValueError(
            "all peers must have the same parameters from the start: give all groups to the optimizer before it is "
            "given to Optimizer"
        )

    def state_dict(self) -> Dict[str, Any]:
        """Returns the state_dict of the inner optimizer, with scheduler, epoch and, if offloaded, exact parameters."""
        self.driver.take(wait=True)
        state_dict = self.state_averager.state_dict()
        if hasattr(self.grad_averager, "state_dict"):
            state_dict["hivemind_c"]["grad_averager"] = self.grad_averager.state_dict()
        if self.schedule.outer:
            samples = self.ledger.samples  # behind the steps that no anchor has
            state_dict["hivemind_c"]["samples"] = samples.sums + samples.in_flight
        return state_dict

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Restores the result of state_dict(). The checkpoint of the model may be loaded before or after it.

        Args:
            state_dict: Result of state_dict().
        """
        self.driver.hands.settle_local_step()
        self.state_averager.load_state_dict(state_dict)
        self.setups.renew()
        self.setups.take_change()  # the checkpoint's own mark says how it came about
        self.ledger.abandon()
        if self.grad_averager is not None:
            self.grad_averager.reset_accumulated_grads_()
            kept = state_dict.get("hivemind_c", {}).get("grad_averager")
            if kept is not None and hasattr(self.grad_averager, "load_state_dict"):
                self.grad_averager.load_state_dict(kept)
        self._local_samples = 0
        if self.schedule.outer:
            self.driver.summed(int(state_dict.get("hivemind_c", {}).get("samples", 0)))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of the model. Samples that were counted stay counted.

        Args:
            set_to_none: Set gradients to None. False: set them to zero.
        """
        if self.reuse_grad_buffers:
            raise ValueError(
                "zero_grad() cannot be used with reuse_grad_buffers: gradients are added up in .grad until the swarm "
                "epoch ends; do not call zero_grad(), "
                "or remove reuse_grad_buffers"
            )
        grads = [p.grad for p in self.state_averager.parameters.model if p.grad is not None]
        if set_to_none:
            for p in self.state_averager.parameters.model:
                p.grad = None
        elif grads:
            with torch.no_grad():
                torch._foreach_zero_(grads)

    def __repr__(self) -> str:
        return f"hivemind_c.Optimizer({self.opt!r}, run_id={self.run_id!r}, epoch {self.state_averager.local_epoch})"
