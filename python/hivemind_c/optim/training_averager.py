"""TrainingAverager: what an optimizer trains, averaged now and then beside a training loop that knows nothing of it."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from _hivemind_c import HivemindError

from hivemind_c._log import aside
from hivemind_c._signature import shows_options_of
from hivemind_c.averaging.control import Gathered
from hivemind_c.compression import CompressionInfo, TensorRole

# hivemind has them here
from hivemind_c.optim.optimizer_state import (  # noqa: F401
    dump_optimizer_state,
    initialize_optimizer_state,
    load_optimizer_state,
)
from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")


class TrainingAverager(TrainingStateAverager):
    """Averages parameters, gradients or optimizer statistics with other peers, while the program steps the optimizer.

    Changes that training makes during an averaging are kept, because only the difference that averaging made is added.
    local_step counts averagings, and members bring their counts together.

    Args:
        opt: An optimizer of torch, which the program steps itself.
        average_parameters: Average the parameters.
        average_gradients: Average the gradients.
        average_opt_statistics: Names of optimizer statistics to average, such as ("exp_avg_sq",).
        extra_tensors: Floating-point tensors to average, such as the statistics of batch norm.
        parameter_names: Names of the parameters, by which an adaptive compression chooses. None: their indices.
        initialize_optimizer: Accepted without effect.
        **kwargs: Further options of TrainingStateAverager and DecentralizedAverager.
    """

    @shows_options_of(
        TrainingStateAverager, but=("optimizer", "params", "delta_rule_averaging", "sync_epoch_when_averaging")
    )
    def __init__(
        self,
        opt: torch.optim.Optimizer,
        *,
        average_parameters: bool,
        average_gradients: bool,
        average_opt_statistics: Sequence[str] = (),
        extra_tensors: Sequence[torch.Tensor] = (),
        parameter_names: Optional[Sequence[str]] = None,
        initialize_optimizer: bool = True,
        **kwargs: Any,
    ):
        if not (average_parameters or average_gradients or average_opt_statistics or extra_tensors):
            raise ValueError(
                "this averager has nothing to average: give average_parameters=True or average_gradients=True"
            )
        if kwargs.get("sync_epoch_when_averaging"):
            raise ValueError(
                "sync_epoch_when_averaging is not supported here: members always bring their counts together; remove it"
            )
        self._averages_parameters, self._averages_gradients = bool(average_parameters), bool(average_gradients)
        self._kinds = [TensorRole.PARAMETER] * self._averages_parameters + [
            TensorRole.GRADIENT
        ] * self._averages_gradients
        self._one_at_a_time = threading.Lock()
        names = (
            [f"{kind.name.lower()} {name}" for kind in self._kinds for name in parameter_names]
            if parameter_names
            else None
        )
        super().__init__(
            optimizer=opt,
            average_opt_statistics=average_opt_statistics,
            extra_tensors=extra_tensors,
            parameter_names=names,
            delta_rule_averaging=True,
            initialize_optimizer=initialize_optimizer,
            **kwargs,
        )
        self.lineage.kept = False  # replicas differ: each trains as it likes

    def _trained(self) -> List[torch.Tensor]:
        main = self.parameters.main
        parameters = [p.detach() for p in main] if self._averages_parameters else []
        gradients = (
            [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in main]
            if self._averages_gradients
            else []
        )
        return parameters + gradients

    def _roles(self) -> List[TensorRole]:
        return [kind for kind in self._kinds for _ in self.parameters.main]

    def _averages(self) -> Tuple[List[torch.Tensor], List[CompressionInfo]]:
        """Without the gradients, which are no state."""
        tensors, infos = super()._averages()
        n = len(self.parameters.main)
        return (
            (tensors, infos)
            if not self._averages_gradients
            else (tensors[:n] + tensors[2 * n :], infos[:n] + infos[2 * n :])
        )

    def get_current_state(self) -> Tuple[Dict[str, Any], List[torch.Tensor], List[CompressionInfo]]:
        """Returns (metadata, tensors, infos) for a joining peer, without the options of the optimizer's groups.

        The program sets those options itself, so a joining peer keeps its own.
        """
        metadata, tensors, infos = super().get_current_state()
        metadata["optimizer"]["groups"] = [{} for _ in metadata["optimizer"]["groups"]]
        return metadata, tensors, infos

    def load_state_from_peers(  # type: ignore[override]
        self, wait: bool = True, timeout: Optional[float] = None, epoch_least: int = 0
    ) -> bool:
        """Replaces the state by the one that a majority of the swarm offers. False: there is none, and nothing changed.

        Args:
            wait: Must be True, because nothing may train while parameters change.
            timeout: Longest time in seconds to download it. None: no limit.
            epoch_least: Smallest local_step whose state is accepted.
        """
        with self._one_at_a_time:
            return super().load_state_from_peers(wait, timeout, epoch_least)

    @property
    def opt(self) -> torch.optim.Optimizer:
        """The optimizer that was given."""
        return self.optimizer

    def local_tensors(self, replace_none: bool = True) -> Iterator[torch.Tensor]:
        """Yields the tensors that are averaged, as they are now.

        Args:
            replace_none: Yield zeros for missing gradients. False: skip them.
        """
        missing = (
            [] if replace_none or not self._averages_gradients else [p for p in self.parameters.main if p.grad is None]
        )
        live = self._live()
        tensors = [*self._trained(), *(t.detach() for t in self.extra_tensors)] if live is None else live
        first = len(self.parameters.main) if self._averages_parameters else 0
        left_out = {first + index for index, p in enumerate(self.parameters.main) if any(p is one for one in missing)}
        return (tensor for index, tensor in enumerate(tensors) if tensor is not None and index not in left_out)

    @property
    def averaging_in_progress(self) -> bool:
        """True while an averaging runs."""
        return self._one_at_a_time.locked()

    @property
    def local_step(self) -> int:
        """The number of successful averagings, those before a loaded state included."""
        return self.local_epoch

    def step(self, data_lock: Any = None, wait: bool = True, **kwargs: Any) -> Any:  # type: ignore[override]
        """Runs one averaging. Returns {peer_id: value} of the members, or None if it failed, which the log reports.

        Args:
            data_lock: Lock held while tensors are read and changed. With wait=False hold it from forward to step.
            wait: False: return a concurrent.futures.Future at once.
            **kwargs: Options of DecentralizedAverager.step.
        """
        return (
            self._averaged(data_lock, **kwargs)
            if wait
            else aside("hivemind_c-training", lambda: self._averaged(data_lock, **kwargs))
        )

    def _averaged(self, data_lock: Any, gather: Any = None, **options: Any) -> Optional[Gathered]:
        with self._one_at_a_time:
            control = self.schedule_step(gather=[self.local_step, gather], **options)
            held = data_lock or contextlib.nullcontext()
            try:
                with held:
                    if not self._made_ready(control):
                        return None
                members = self.average_loaded(control)
                self.follow(control)
            except HivemindError as error:
                logger.warning("%s: averaging failed: %s", self.prefix, error)
                return None
            except BaseException:
                control.cancel()
                raise
            # a stranger's
            told = {
                peer: value if isinstance(value, (list, tuple)) and len(value) == 2 else (0, None)
                for peer, value in members.items()
            }
            with held:
                self._give_gradients()
                self.update_model()
                self._reach(count for count, _ in told.values())
                self.local_epoch += 1
                self.share_averages = self._averages_parameters  # which are alike, where what each trains is not
                self.offers.begin_epoch(self.local_epoch)
            return {peer: value for peer, (_, value) in told.items()}

    def _give_gradients(self) -> None:
        """Where the program has set them to None, or had none, the average comes to zeros."""
        for p in self.parameters.main if self._averages_gradients else ():
            if p.grad is None and p.requires_grad:
                p.grad = torch.zeros_like(p)
