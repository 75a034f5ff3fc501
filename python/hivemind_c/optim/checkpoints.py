"""The part of a TrainingStateAverager that torch.save gets, and how it is restored."""

from __future__ import annotations

import copy
from typing import Any, Dict, List, Tuple

import torch

from hivemind_c.optim.parameters import copy_all
from hivemind_c.optim.state_parts import _StateParts
from hivemind_c.optim.statistics import describe, describe_scheduler, statistics_of


class Checkpoints(_StateParts):
    """The part of TrainingStateAverager that saves its state to a checkpoint, and restores it."""

    def state_dict(self) -> Dict[str, Any]:
        """Returns the state without the model, for torch.save.

        It is the state_dict of the optimizer, with scheduler, swarm epoch and, with offload, exact parameters.
        """
        self.background.take(wait=True)
        with self.state_lock:
            self.parameters.pull()
            more: Dict[str, Any] = {"local_epoch": self.local_epoch}
            if self.scheduler is not None:
                more["scheduler"] = self.scheduler.state_dict()
            if self.parameters.offload:
                more["parameters"] = [p.detach().clone() for p in self.parameters.main]
            more["lineage"] = self.lineage.saved()
            return {**self.inner.state_dict(), "hivemind_c": {**more, **self._more_to_save()}}

    def _tensors_of_mark(self) -> List[torch.Tensor]:
        return [*self.parameters.main, *(statistic.tensor for statistic in statistics_of(self.optimizer))]

    def _whole_state(self) -> Tuple[List[torch.Tensor], Dict[str, Any]]:
        """The tensors behind the mark, and what else makes the next steps."""
        with self.state_lock:
            self.parameters.pull()
            more = {"optimizer": describe(self.optimizer), "scheduler": describe_scheduler(self.scheduler)}
            return self._tensors_of_mark(), more

    def _more_to_save(self) -> Dict[str, Any]:
        return {}

    def _load_more(self, more: Dict[str, Any]) -> None:
        """Overridden by those who save more."""

    @torch.no_grad()
    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Restores the result of state_dict(), or that of an optimizer of torch. The model is restored separately.

        Args:
            state_dict: Result of state_dict().
        """
        self.background.drop()
        more = state_dict.get("hivemind_c", {})
        old_epoch = state_dict.get("state", {}).get("local_epoch")  # where hivemind keeps it
        state = {index: value for index, value in state_dict["state"].items() if index != "local_epoch"}
        with self.state_lock:
            self.inner.load_state_dict(copy.deepcopy({"state": state, "param_groups": state_dict["param_groups"]}))
            if self.scheduler is not None and "scheduler" in more:
                self.scheduler.load_state_dict(copy.deepcopy(more["scheduler"]))
            self.parameters.pull()
            self.parameters.settle()
            if self.parameters.offload and "parameters" in more:
                copy_all([p.detach() for p in self.parameters.main], more["parameters"])
                self.parameters.push(force=True)
            self._load_more(more)
            self.loaded = False
            self.buffers.forget()
            self.lineage.restore(more.get("lineage"))
            self.local_epoch = int(more.get("local_epoch", old_epoch or 0))
