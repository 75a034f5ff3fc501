"""Changes around a run, put back after it."""

from __future__ import annotations

import difflib
import inspect
import random
from typing import Any, Callable, Dict, List

import torch

from hivemind_c.optim import GradScaler

# Optimizer's, but the strategy's to set
SET_HERE = {"dht", "run_id", "optimizer", "params", "scheduler", "batch_size_per_step", "averaged_grad_hook"}
_MISSING = object()


class Patches:
    """Attributes of other objects that are replaced for a while."""

    def __init__(self) -> None:
        self._before: List[Any] = []

    @staticmethod
    def nothing(*args: Any, **kwargs: Any) -> None:
        pass

    def put(self, thing: Any, name: str, value: Any) -> None:
        """Replaces an attribute.

        Args:
            thing: The object.
            name: Name of the attribute.
            value: Its value until undo().
        """
        self._before.append((thing, name, thing.__dict__.get(name, _MISSING)))
        thing.__dict__[name] = value  # not setattr: a module would take some of these for its parts

    def put_class(self, thing: Any, kind: type) -> None:
        """Replaces the class of an object.

        Args:
            thing: The object.
            kind: Its class until undo().
        """
        before, thing.__class__ = type(thing), kind
        self.at_end(lambda: setattr(thing, "__class__", before))

    def at_end(self, call: Callable[[], None]) -> None:
        """Calls a function in undo().

        Args:
            call: The function.
        """
        self._before.append((None, "", call))

    def undo(self) -> None:
        """Puts all attributes back, the latest first."""
        while self._before:
            thing, name, value = self._before.pop()
            if thing is None:
                value()
            elif value is _MISSING:
                del thing.__dict__[name]
            else:
                thing.__dict__[name] = value


def known_options(taker: Callable[..., Any], options: Dict[str, Any]) -> Dict[str, Any]:
    """The options, if the taker has them all. TypeError names the nearest that it has."""
    known = set(inspect.signature(taker).parameters) - SET_HERE
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            there = (
                f"; did you mean {near[0]!r}?"
                if near
                else f": it has its own and Optimizer's {', '.join(sorted(known))}"
            )
            raise TypeError(f"HivemindStrategy has no option {name!r}{there}")
    return options


def swarm_scaler(scaler: torch.amp.GradScaler) -> GradScaler:
    """A GradScaler for swarms with another's settings and its scale."""
    made = GradScaler(
        scaler._device,
        init_scale=scaler._init_scale,
        growth_factor=scaler.get_growth_factor(),
        backoff_factor=scaler.get_backoff_factor(),
        growth_interval=scaler.get_growth_interval(),
        enabled=scaler.is_enabled(),
    )
    copy_scale(scaler, made)
    return made


def copy_scale(source: torch.amp.GradScaler, to: torch.amp.GradScaler) -> None:
    """Takes over the scale, and the steps since it changed."""
    if source.is_enabled():
        to.load_state_dict(source.state_dict())


def mark_of(peer_id: str) -> int:
    """A number that differs between peers."""
    return int.from_bytes(peer_id[-8:].encode(), "little")


def change_seeds(peer_id: str) -> None:
    """Mixes the peer's name into the seeds of torch, Python and NumPy."""
    import numpy

    mark = mark_of(peer_id)
    torch.manual_seed((torch.initial_seed() ^ mark) & (1 << 63) - 1)
    random.seed(random.getrandbits(64) ^ mark)
    numpy.random.seed((int(numpy.random.randint(1 << 31)) ^ mark) & 0xFFFFFFFF)
