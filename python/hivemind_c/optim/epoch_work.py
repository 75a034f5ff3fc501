"""An epoch of an Optimizer in its parts, for those who decide and do it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Dict, List, Optional, Sequence

import _hivemind_c
import torch

from hivemind_c.optim.epoch_end import EpochEnd
from hivemind_c.optim.epoch_ledger import EpochLedger
from hivemind_c.optim.progress_tracker import STANDINGS
from hivemind_c.optim.run_peer import RunPeer
from hivemind_c.optim.setup import ConfigMismatchError
from hivemind_c.optim.setup_watch import SetupWatch


class EpochWork(RunPeer):
    """The part of Optimizer for the beginning, the end and the records of an epoch."""

    ledger: EpochLedger
    setups: SetupWatch
    _metric: List[Any]
    _taken_metrics: Sequence[Any] = ()  # of the swarm epoch that ends

    @abstractmethod
    def join_swarm(self) -> None:
        """Compares this peer with the swarm that it has found."""

    def check_setup(self) -> None:
        """Asks the peers of the run whether this one is set up like them. The first step() asks too.

        Raises ConfigMismatchError if others are there and none is set up alike, unless config_mismatch is "warn".
        """
        self.setups.check()
        self.setups.present()

    def seen(self, machine: _hivemind_c.Epoch) -> Dict[str, Any]:
        """Returns the figures that decisions follow from, for the record.

        Args:
            machine: The machine that decides.
        """
        if not self.record:
            return {}
        now = self.tracker.figures()
        return dict(
            epoch=machine.epoch,
            state=machine.state,
            mark=self.state_averager.lineage.mark,
            swarm=now.epoch,
            peers=now.peers,
            clients=now.clients,
            samples=int(now.samples),
            mine=self.local_samples,
            eta=round(min(now.eta, 1e6), 3),
            standing=STANDINGS[now.standing],
        )

    def report_metric(self, value: Any) -> None:
        """Reports a metric of this step to ReduceLROnPlateau, which uses the mean over the swarm epoch and the swarm.

        Args:
            value: Tensor or number.
        """
        self._metric.append(value.detach() if hasattr(value, "detach") else value)

    def take_metric(self) -> Optional[float]:
        """Returns the mean of the metrics since the last call, or None."""
        self._taken_metrics, self._metric = self._metric, []
        values = [float(value) for value in self._taken_metrics]
        return sum(values) / len(values) if values else None

    def give_metrics_back(self) -> None:
        """Undoes the last take_metric(), because the swarm epoch has not ended."""
        self._metric, self._taken_metrics = [*self._taken_metrics, *self._metric], ()

    def clip_gradients(self) -> Optional[torch.Tensor]:
        """Clips the gradients that the next step takes to max_grad_norm, and calls averaged_grad_hook.

        Returns the norm before clipping, or None without max_grad_norm.
        """
        groups = self.state_averager.inner.param_groups
        parameters, norm = [p for group in groups for p in group["params"] if p.grad is not None], None
        if self.max_grad_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        if self.averaged_grad_hook is not None:
            self.averaged_grad_hook(parameters)
        return norm

    def take_local_gradients(self) -> None:
        """Overridden where several processes are one peer (inside/lead.py): .grad becomes their mean gradient."""

    def gather_sums(self) -> None:
        """Overridden where several processes are one peer (inside/lead.py): their sums become this one's."""

    def drop_sums(self) -> None:
        """Forgets what this peer has summed up."""
        if self.grad_averager is not None:
            self.grad_averager.reset_accumulated_grads_()
        self.state_averager.drop_progress()
        self._local_samples = 0

    def forget_count(self) -> None:
        """With local updates: a swarm epoch begins, whose batches are counted from none."""
        self._local_samples = 0

    def compare_setup(self) -> bool:
        """Compares this peer's setup at the end of a swarm epoch with what it was, and with that of the others.

        Returns True if the group that was to average the state is of no use, because its members step differently.
        Gradients were computed before the change, so their group remains.
        """
        changed = self.setups.renew()
        try:
            self.setups.check_again()
        except ConfigMismatchError:
            self.tracker.withdraw()
            raise
        return changed

    def has_ended(self, end: EpochEnd) -> None:
        """Takes the end of a swarm epoch into the records; the late lane may still work on it.

        Args:
            end: The end.
        """
        self.forget_count()
        self.ledger.end(end)
