"""AnchoredStateAverager: the state of a peer that makes local steps, which is the anchor and the outer optimizer's."""

from __future__ import annotations

import contextlib
import copy
import logging
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch

from hivemind_c.compression import CompressionInfo
from hivemind_c.optim.anchor import AnchoredParameters, OuterFactory, OuterStep, Range
from hivemind_c.optim.factories import make_optimizer, made_by
from hivemind_c.optim.parameters import all_finite, copy_all
from hivemind_c.optim.state_averager import TrainingStateAverager
from hivemind_c.optim.statistics import alike, describe

logger = logging.getLogger("hivemind_c.optim")
HELD, BESIDE, SNAPSHOT = 12, 4, 8  #: bytes a parameter, with momentum; beside: while batches go on


class AnchoredStateAverager(TrainingStateAverager):
    """Steps the model with each batch and the anchor at an epoch's end, and shares the anchor with joining peers.

    Args:
        outer_optimizer: A function that makes the outer optimizer of the anchor's parameter groups.
        **kwargs: Options of TrainingStateAverager; optimizer is the inner one.
    """

    parameters: AnchoredParameters

    def __init__(self, *, outer_optimizer: OuterFactory, **kwargs: Any):
        self._make_outer = outer_optimizer
        super().__init__(offload_optimizer=True, **kwargs)
        self._outer = OuterStep(self.optimizer)
        values = sum(p.numel() for p in self.parameters.main)
        logger.info(
            "local steps: anchor, momentum and difference of %d parameters take %.3g MB of main memory, batches while "
            "a difference travels %.3g MB, and a snapshot for joining peers %.3g MB",
            values,
            values * HELD / 1e6,
            values * BESIDE / 1e6,
            values * SNAPSHOT / 1e6,
        )

    def _make(self, optimizer: Any, params: Optional[Iterable[Any]], offload: bool) -> None:
        model, self.inner = make_optimizer(optimizer, params, False)
        self.parameters = AnchoredParameters(model.model)
        self.optimizer = made_by(self._make_outer, self.parameters, "outer_optimizer")

    def _make_scheduler(self, scheduler: Any, offload: bool) -> Any:
        return super()._make_scheduler(scheduler, False)

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """The groups of the inner optimizer."""
        return self.inner.param_groups

    # ---- steps ----

    def step_inner(self, beside: bool = False) -> None:
        """Steps the model with the gradients in it.

        Args:
            beside: A difference travels meanwhile.
        """
        with self.state_lock:
            if beside:
                self.parameters.keep_base()
            self.inner.step()

    def step_optimizer(self, grad_scaler: Any = None) -> None:
        """Steps the anchor with the differences in it.

        Args:
            grad_scaler: Not used: no difference is scaled.
        """
        with self.state_lock:
            self._outer.step()

    def keep_progress(self, parameters: Sequence[torch.Tensor], missed: Sequence[Range]) -> None:
        """Remembers this peer's progress where an average lacks it, before the anchor steps.

        Args:
            parameters: The parameters of the model that were averaged, in their order.
            missed: The values without this peer's, counted through all of these parameters.
        """
        self.parameters.keep_progress(parameters, missed)

    def keep_all_progress(self) -> None:
        """Remembers what this peer's batches changed, of parameters and buffers, before a step of others."""
        self.parameters.keep_all_progress()
        self.buffers.take_last()

    @torch.no_grad()
    def drop_progress(self) -> None:
        """The model becomes the anchor, and statistics of the inner optimizer that are not finite begin anew."""
        with self.state_lock:
            self.parameters.drop_progress()
            for p, state in list(self.inner.state.items()):
                tensors = [value for value in state.values() if isinstance(value, torch.Tensor)]
                if not all_finite([tensor for tensor in tensors if tensor.is_floating_point()]):
                    self.inner.state[p] = {}

    def apply_buffers(self, averaged: bool) -> None:
        """Takes the buffers of an epoch's end over, which travel with the difference.

        Args:
            averaged: Write the averages into the module. False: there are none.
        """
        if averaged:
            self.buffers.apply()
        else:
            self.buffers.drop()

    # ---- the model as the anchor ----

    @contextlib.contextmanager
    def use_anchor(self) -> Iterator[None]:
        """A context in which the model is the anchor, with the buffers that belong to it."""
        if self.parameters.is_shown:
            yield
            return
        with self.state_lock:
            self.parameters.show_anchor()
            buffers = self.buffers.show_last()
        try:
            yield
        finally:
            with self.state_lock:
                self.parameters.hide_anchor()
                self.buffers.put_back(buffers)

    def keep_anchor(self) -> None:
        """The model becomes the anchor, with the buffers that belong to it: the latest local steps are lost."""
        with self.state_lock:
            self.parameters.drop_progress()
            self.buffers.show_last()

    # ---- states and checkpoints ----

    def get_current_state(self) -> Tuple[Dict[str, Any], List[torch.Tensor], List[CompressionInfo]]:
        """Returns (metadata, tensors, infos) of anchor and outer optimizer for a joining peer."""
        metadata, tensors, infos = super().get_current_state()
        if self.scheduler is not None:  # the rates are its work, so they go with it
            metadata["inner"] = describe(self.inner)["groups"]
        return metadata, tensors, infos

    @torch.no_grad()
    def set_current_state(self, metadata: Dict[str, Any], tensors: Sequence[torch.Tensor]) -> None:
        """Replaces the anchor by one from a peer. The model stays as far ahead; so does the inner optimizer's state.

        Raises ValueError, and changes nothing, if it is not a state of this training.

        Args:
            metadata: Metadata from get_current_state() of the peer.
            tensors: Tensors from get_current_state() of the peer.
        """
        super().set_current_state(metadata, tensors)
        groups = metadata.get("inner")
        if self.scheduler is None or not isinstance(groups, (list, tuple)):
            return
        for mine, theirs in zip(self.inner.param_groups, groups):
            for name, value in theirs.items() if isinstance(theirs, dict) else ():
                if name in mine and name != "params" and alike(mine[name], value):
                    mine[name] = value

    def _more_to_save(self) -> Dict[str, Any]:
        return {"outer": self.optimizer.state_dict(), "local": self.parameters.local()}

    def _load_more(self, more: Dict[str, Any]) -> None:
        if "outer" not in more:  # of a run without an anchor: the model is where this one begins
            copy_all([p.detach() for p in self.parameters.main], [p.detach() for p in self.parameters.model])
            return
        self.optimizer.load_state_dict(copy.deepcopy(more["outer"]))
        self.parameters.set_local(more["local"])
