"""RunPeer: the options, the averagers and the tracker of an Optimizer, which its parts work with."""

from __future__ import annotations

import logging
from typing import Any, Callable, List, Optional

import torch

from hivemind_c._record import Recorder
from hivemind_c.compression import CompressionBase
from hivemind_c.optim.epoch_record import OnEpoch
from hivemind_c.optim.plan_options import PlanOptions
from hivemind_c.optim.progress_tracker import ProgressTracker
from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")

GradHook = Callable[[List[torch.Tensor]], None]


class RunPeer(PlanOptions):
    """The part of Optimizer that its other parts see: one peer of a run."""

    dht: Any
    run_id: str
    target_batch_size: int
    batch_size_per_step: Optional[int]
    matchmaking_time: float
    averaging_timeout: float
    averaging_is_given: bool  # else rounds of differences may take what the line needs
    load_state_timeout: float
    shutdown_timeout: float
    client_mode: bool
    auxiliary: bool
    reuse_grad_buffers: bool
    load_state_compression: CompressionBase
    max_grad_norm: Optional[float]
    averaged_grad_hook: Optional[GradHook]
    on_epoch: Optional[OnEpoch]
    config_mismatch: str
    verbose: bool
    codec: str
    narrow_codec: str  # of averages that came under narrow codecs
    state_averager: TrainingStateAverager
    tracker: ProgressTracker
    ledger: Any
    _local_samples: int  # of this epoch, with local updates

    @property
    def record(self) -> Recorder:
        """Writes what this peer decides, if HIVEMIND_RECORD names a folder."""
        return self.state_averager.record

    @property
    def local_epoch(self) -> int:
        """The swarm epoch of this peer."""
        return self.state_averager.local_epoch

    @property
    def local_samples(self) -> int:
        """Samples of this peer in this swarm epoch."""
        if self.schedule.outer:
            return self.ledger.samples.sums
        return self.grad_averager.local_samples_accumulated if self.grad_averager is not None else self._local_samples

    @property
    def status_loglevel(self) -> int:
        """Level of lines about progress: INFO with verbose, else DEBUG."""
        return logging.INFO if self.verbose else logging.DEBUG

    def say(self, text: str, *args: Any) -> None:
        """Logs a line about progress at status_loglevel.

        Args:
            text: Format of the line.
            *args: Values for the format.
        """
        logger.log(self.status_loglevel, text, *args)
