"""The anchor of local steps, and the outer optimizer that steps it (docs/design/local-steps.md)."""

from __future__ import annotations

import logging
import math
from typing import Any, Callable, List, Sequence, Tuple

import _hivemind_c
import torch

from hivemind_c.optim.parameters import Parameters, copy_all

logger = logging.getLogger("hivemind_c.optim")

OuterFactory = Callable[[Any], torch.optim.Optimizer]
Range = Tuple[int, int]  #: the first of some values, and how many


class AnchoredParameters(Parameters):
    """Parameters of which `model` is stepped with each batch, and `main` is the anchor, which an outer optimizer steps.

    Args:
        model: The parameters of the model, of float32.
    """

    def __init__(self, model: Sequence[torch.Tensor]):
        other = next((p for p in model if p.dtype is not torch.float32), None)
        if other is not None:
            raise ValueError(
                f"outer_optimizer needs parameters of float32, and one is {other.dtype}: keep them in float32 and "
                "compute in torch.autocast (of a Trainer: precision=\"bf16-mixed\" or \"16-mixed\")"
            )
        super().__init__([{"params": list(model)}], True)
        self._progress: List[Tuple[torch.Tensor, torch.Tensor]] = []  # parameters, and what no anchor has of them
        self._aside: List[torch.Tensor] = []  # the local parameters while the model shows the anchor
        self._base: List[torch.Tensor] = []  # the local parameters of the difference that travels beside batches
        self._has_base = False

    @property
    def is_shown(self) -> bool:
        """True while the model shows the anchor."""
        return bool(self._aside)

    @torch.no_grad()
    def show_anchor(self) -> None:
        """The model shows the anchor until hide_anchor(). Nothing may train meanwhile."""
        self._aside = [p.detach().clone() for p in self.model]
        copy_all([p.detach() for p in self.model], [main.detach() for main in self.main])

    @torch.no_grad()
    def hide_anchor(self) -> None:
        """The model has the local parameters again, unless they were replaced meanwhile."""
        aside, self._aside = self._aside, []
        if aside:
            copy_all([p.detach() for p in self.model], aside)

    @torch.no_grad()
    def local(self) -> List[torch.Tensor]:
        """Returns copies of the local parameters."""
        return [p.detach().clone() for p in self._aside or self.model]

    @torch.no_grad()
    def set_local(self, values: Sequence[torch.Tensor]) -> None:
        """Replaces the local parameters.

        Args:
            values: One tensor for each.
        """
        copy_all(self._aside or [p.detach() for p in self.model], values)

    def pull(self) -> bool:
        """The model steps by itself, so nothing of it is taken over."""
        return False

    @torch.no_grad()
    def keep_all_progress(self) -> None:
        """Remembers all of this peer's progress, before the anchor changes by others' work."""
        pairs = zip(self.model, self.main)
        self._progress = [(p, p.detach().to(main.device) - main.detach()) for p, main in pairs]

    def drop_progress(self) -> None:
        """Makes the model the anchor."""
        self._progress, self._has_base = [], False
        self.push()

    def begin_difference(self) -> None:
        """The difference is taken from the local parameters as they are now."""
        self._has_base = False

    @torch.no_grad()
    def keep_base(self) -> None:
        """A batch is about to step the model while the difference travels: remembers what that was taken from."""
        if self._has_base:
            return
        self._base = self._base or [torch.empty_like(main, requires_grad=False) for main in self.main]
        copy_all(self._base, [p.detach() for p in self.model])
        self._has_base = True

    def difference_of(self, parameters: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Returns the local parameters that the difference was taken from.

        Args:
            parameters: The parameters of the model that are wanted.
        """
        bases = {id(p): base for p, base in zip(self.model, self._base)} if self._has_base else {}
        return [bases.get(id(p), p) for p in parameters]

    @torch.no_grad()
    def keep_progress(self, parameters: Sequence[torch.Tensor], missed: Sequence[Range]) -> None:
        """Remembers this peer's progress since the difference; all of it where the average lacks it.

        Args:
            parameters: The parameters of the model that were averaged, in their order.
            missed: The values without this peer's, counted through all of these parameters.
        """
        anchors = {id(p): main for p, main in zip(self.model, self.main)}
        self._progress, first = [], 0
        for p, base in zip(parameters, self.difference_of(parameters)):
            end = first + p.numel()
            inside = [(max(at, first), min(at + n, end)) for at, n in missed if at < end and at + n > first]
            if inside or base is not p:
                local = p.detach().cpu()
                mine = torch.zeros(p.numel()) if base is p else (local - base).reshape(-1)
                progress = (local - anchors[id(p)]).reshape(-1) if inside else mine
                for begin, until in inside:
                    mine[begin - first : until - first] = progress[begin - first : until - first]
                self._progress.append((p, mine.view(p.shape)))
            first = end
        self._has_base = False

    @torch.no_grad()
    def push(self, force: bool = False) -> bool:
        """Makes the model the anchor, and adds the progress that was kept.

        Args:
            force: Not used: nobody else may write the model.
        """
        progress, self._progress = self._progress, []
        self._aside = []
        copy_all([p.detach() for p in self.model], [main.detach() for main in self.main])
        for p, kept in progress:
            p.add_(kept.to(p.device))
        return True


class OuterStep:
    """Steps the anchor with the gradients in it: SGD in C with the same bits everywhere, all else in torch.

    Args:
        optimizer: The outer optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self._optimizer = optimizer
        self.is_exact = _is_plain_sgd(optimizer)
        if not self.is_exact:
            logger.warning(
                "the outer optimizer %s steps in torch, which may round differently on other processors, so that "
                "anchors drift apart: use torch.optim.SGD with one group, without weight_decay, dampening and "
                "maximize, or only equal machines",
                type(optimizer).__name__,
            )

    @torch.no_grad()
    def step(self) -> None:
        """Steps once. Raises HivemindValueError, and changes nothing, if a value would not be finite."""
        if not self.is_exact:
            self._optimizer.step()
            return
        group = self._optimizer.param_groups[0]
        momentum = float(group["momentum"])
        stepped, new = [], []
        for p in group["params"]:
            if p.grad is None:
                continue
            buffer = self._optimizer.state.get(p, {}).get("momentum_buffer") if momentum else None
            begins = bool(momentum) and buffer is None
            if begins:
                buffer = torch.empty_like(p)
                new.append((p, buffer))
            stepped.append((p.detach(), buffer, p.grad, begins))
        _hivemind_c.outer_step(tuple(stepped), float(group["lr"]), momentum, bool(group["nesterov"]))
        for p, buffer in new:
            self._optimizer.state[p]["momentum_buffer"] = buffer


def _is_plain_sgd(optimizer: torch.optim.Optimizer) -> bool:
    if type(optimizer) is not torch.optim.SGD or len(optimizer.param_groups) != 1:
        return False
    group = optimizer.param_groups[0]
    numbers = all(isinstance(group[name], (int, float)) and math.isfinite(group[name]) for name in ("lr", "momentum"))
    return numbers and not (group["weight_decay"] or group["dampening"] or group.get("maximize"))
