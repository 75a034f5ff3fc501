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
from hivemind_c.optim.optimizer_state import dump_optimizer_state, initialize_optimizer_state, load_optimizer_state  # noqa: F401  # hivemind has them here
from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")


class TrainingAverager(TrainingStateAverager):
    """Averages parameters, or gradients, or both, and what the optimizer remembers, with other peers.

    opt: one of torch's optimizers, which the program steps itself. average_parameters, average_gradients, average_opt_statistics, extra_tensors: what is averaged.
    What training changes while an averaging is under way stays: the difference that the averaging made is added. The rest are DecentralizedAverager's options.
    Averagings are counted (local_step), and their members bring the counts together.
    """

    @shows_options_of(TrainingStateAverager, but=("optimizer", "params", "delta_rule_averaging", "sync_epoch_when_averaging"))
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
            raise ValueError("this averager has nothing to average: give average_parameters=True or average_gradients=True")
        if kwargs.get("sync_epoch_when_averaging"):
            raise ValueError("sync_epoch_when_averaging is not supported here: members always bring their counts together; remove it")
        self._averages_parameters, self._averages_gradients = bool(average_parameters), bool(average_gradients)
        self._kinds = [TensorRole.PARAMETER] * self._averages_parameters + [TensorRole.GRADIENT] * self._averages_gradients
        self._one_at_a_time = threading.Lock()
        names = [f"{kind.name.lower()} {name}" for kind in self._kinds for name in parameter_names] if parameter_names else None
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
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in main] if self._averages_gradients else []
        return parameters + gradients

    def _roles(self) -> List[TensorRole]:
        return [kind for kind in self._kinds for _ in self.parameters.main]

    def _averages(self) -> Tuple[List[torch.Tensor], List[CompressionInfo]]:
        """Without the gradients, which are no state."""
        tensors, infos = super()._averages()
        n = len(self.parameters.main)
        return (tensors, infos) if not self._averages_gradients else (tensors[:n] + tensors[2 * n :], infos[:n] + infos[2 * n :])

    def get_current_state(self) -> Tuple[Dict[str, Any], List[torch.Tensor], List[CompressionInfo]]:
        """Without the options of the optimizer's groups, which the program sets as it likes: a joiner keeps its own."""
        metadata, tensors, infos = super().get_current_state()
        metadata["optimizer"]["groups"] = [{} for _ in metadata["optimizer"]["groups"]]
        return metadata, tensors, infos

    def load_state_from_peers(self, wait: bool = True, timeout: Optional[float] = None, epoch_least: int = 0) -> bool:  # type: ignore[override]
        with self._one_at_a_time:
            return super().load_state_from_peers(wait, timeout, epoch_least)

    @property
    def opt(self) -> torch.optim.Optimizer:
        return self.optimizer

    def local_tensors(self, replace_none: bool = True) -> Iterator[torch.Tensor]:
        """What is averaged, as it is here now. replace_none: gradients that are not there are given as zeros, and else left out."""
        missing = [] if replace_none or not self._averages_gradients else [p for p in self.parameters.main if p.grad is None]
        live = self._live()
        tensors = [*self._trained(), *(t.detach() for t in self.extra_tensors)] if live is None else live
        first = len(self.parameters.main) if self._averages_parameters else 0
        left_out = {first + index for index, p in enumerate(self.parameters.main) if any(p is one for one in missing)}
        return (tensor for index, tensor in enumerate(tensors) if tensor is not None and index not in left_out)

    @property
    def averaging_in_progress(self) -> bool:
        return self._one_at_a_time.locked()

    @property
    def local_step(self) -> int:
        """How many averagings went well here, or where the state was loaded from."""
        return self.local_epoch

    def step(self, data_lock: Any = None, wait: bool = True, **kwargs: Any) -> Any:  # type: ignore[override]
        """Averages; returns what the members gave to be gathered, or None if it failed (the log tells why), with wait=False a concurrent.futures.Future of that. data_lock: held
        while tensors are read and changed; with wait=False the program holds it from a batch's forward to the optimizer's step. The rest are the options of DecentralizedAverager.step.
        """
        return self._averaged(data_lock, **kwargs) if wait else aside("hivemind_c-training", lambda: self._averaged(data_lock, **kwargs))

    def _averaged(self, data_lock: Any, gather: Any = None, **options: Any) -> Optional[Gathered]:
        with self._one_at_a_time:
            control = self.schedule_step(gather=[self.local_step, gather], **options)
            held = data_lock or contextlib.nullcontext()
            try:
                with held:
                    if not self._made_ready(control):
                        return None
                members = self.average_loaded(control)
            except HivemindError as error:
                logger.warning("%s: averaging failed: %s", self.prefix, error)
                return None
            except BaseException:
                control.cancel()
                raise
            told = {peer: value if isinstance(value, (list, tuple)) and len(value) == 2 else (0, None) for peer, value in members.items()}  # a stranger's
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
