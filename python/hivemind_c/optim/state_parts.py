"""The parts of TrainingStateAverager, and what they find in it, each in a file of its own."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import torch

from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.averaging.control import Gathered, StepControl
from hivemind_c.optim.background import Background
from hivemind_c.optim.buffers import Buffers
from hivemind_c.optim.epoch_counter import EpochCounter
from hivemind_c.optim.factories import make_optimizer, make_scheduler
from hivemind_c.optim.lineage import Lineage
from hivemind_c.optim.parameters import Parameters
from hivemind_c.optim.state_offers import StateOffers


class _StateParts(EpochCounter, DecentralizedAverager):
    """An averager with the fields and actions of a TrainingStateAverager, which sets and writes them."""

    parameters: Parameters
    optimizer: torch.optim.Optimizer
    inner: torch.optim.Optimizer
    scheduler: Any
    buffers: Buffers
    extra_tensors: List[torch.Tensor]
    background: Background
    lineage: Lineage
    offers: StateOffers
    state_lock: threading.RLock
    offload_optimizer: bool
    custom_gradients: bool
    delta_rule_averaging: bool
    sync_epoch_when_averaging: bool
    share_averages: bool
    loaded: bool
    averages_the_model_in_place: bool

    @abstractmethod
    def step_optimizer(self, grad_scaler: Any = None) -> None: ...
    @abstractmethod
    def step_scheduler(self, metric: Optional[float] = None) -> None: ...
    @abstractmethod
    def load_state_into_averager_(self) -> bool: ...
    @abstractmethod
    def update_model(self) -> None: ...
    @abstractmethod
    def schedule_step(self, scheduled_time: Optional[float] = None, **kwargs: Any) -> StepControl: ...
    @abstractmethod
    def average_loaded(self, control: StepControl, timeout: Optional[float] = None) -> Gathered: ...
    @abstractmethod
    def set_current_state(self, metadata: Dict[str, Any], tensors: Sequence[torch.Tensor]) -> None: ...

    # ---- overridden where batches step apart from the state (anchored_state.py) ----

    def _make(self, optimizer: Any, params: Optional[Iterable[Any]], offload: bool) -> None:
        self.parameters, self.optimizer = make_optimizer(optimizer, params, offload)
        self.inner = self.optimizer  #: the one that the program's groups, scheduler and local steps belong to

    def _make_scheduler(self, scheduler: Any, offload: bool) -> Any:
        return make_scheduler(scheduler, self.inner, offload)

    def step_inner(self) -> None:
        """Steps the model with the gradients of a batch, lent to the optimizer."""
        self.step_optimizer()
        self.parameters.push()

    def keep_progress(self, parameters: Sequence[torch.Tensor], missed: Sequence[Tuple[int, int]]) -> None:
        """Nothing here is ahead of the state, so nothing is kept (anchored_state.py has what is).

        Args:
            parameters: The parameters of the model that were averaged, in their order.
            missed: The values whose average lacks this peer's, counted through all of these parameters.
        """

    def keep_all_progress(self) -> None:
        """The same, before a step of others."""

    def drop_progress(self) -> None:
        """Nothing here is ahead of the state, so nothing is dropped."""
