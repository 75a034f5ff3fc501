"""The parts of TrainingStateAverager, and what they find in it, each in a file of its own."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import Any, Dict, List, Optional, Sequence

import torch

from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.averaging.control import Gathered, StepControl
from hivemind_c.optim.background import Background
from hivemind_c.optim.buffers import Buffers
from hivemind_c.optim.epoch_counter import EpochCounter
from hivemind_c.optim.lineage import Lineage
from hivemind_c.optim.parameters import Parameters
from hivemind_c.optim.state_offers import StateOffers


class _StateParts(EpochCounter, DecentralizedAverager):
    """An averager with the fields and actions of a TrainingStateAverager, which sets and writes them."""

    parameters: Parameters
    optimizer: torch.optim.Optimizer
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
