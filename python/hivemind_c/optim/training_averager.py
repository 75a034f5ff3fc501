"""TrainingAverager: what an optimizer trains, averaged now and then beside a training loop that knows nothing of it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import threading
from typing import Any, List, Optional, Sequence, Tuple

import torch
from _hivemind_c import HivemindError

from hivemind_c._log import wait_at_end
from hivemind_c.averaging.control import Gathered
from hivemind_c.compression import CompressionInfo, TensorRole
from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")


class TrainingAverager(TrainingStateAverager):
    """Averages parameters, or gradients, or both, and what the optimizer remembers, with other peers.

    opt: one of torch's optimizers, which the program steps itself. average_parameters, average_gradients, average_opt_statistics, extra_tensors: what is averaged.
    What training changes while an averaging is under way stays: the difference that the averaging made is added. The rest are DecentralizedAverager's options.
    """

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
            raise ValueError("there is nothing to average: give average_parameters=True or average_gradients=True")
        self._averages_parameters, self._averages_gradients = bool(average_parameters), bool(average_gradients)
        self._one_at_a_time = threading.Lock()
        names = [f"{kind} {name}" for kind in self._kinds() for name in parameter_names] if parameter_names else None
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

    def _kinds(self) -> List[str]:
        return ["parameter"] * self._averages_parameters + ["gradient"] * self._averages_gradients

    def _trained(self) -> List[torch.Tensor]:
        main = self.parameters.main
        parameters = [p.detach() for p in main] if self._averages_parameters else []
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in main] if self._averages_gradients else []
        return parameters + gradients

    def _roles(self) -> List[TensorRole]:
        n = len(self.parameters.main)
        return [TensorRole.PARAMETER] * n * self._averages_parameters + [TensorRole.GRADIENT] * n * self._averages_gradients

    def _averages(self) -> Tuple[List[torch.Tensor], List[CompressionInfo]]:
        """Without the gradients, which are no state."""
        tensors, infos = super()._averages()
        n = len(self.parameters.main)
        return (tensors, infos) if not self._averages_gradients else (tensors[:n] + tensors[2 * n :], infos[:n] + infos[2 * n :])

    def load_state_into_averager_(self) -> bool:
        """As before; a parameter without a gradient has zeros from then on, where the others' average comes to."""
        for p in self.parameters.main if self._averages_gradients else ():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        return super().load_state_into_averager_()

    @property
    def local_step(self) -> int:
        """How many averagings went well here, or where the state was loaded from."""
        return self.local_epoch

    def step(self, data_lock: Any = None, wait: bool = True, **kwargs: Any) -> Any:  # type: ignore[override]
        """Averages; returns what the members gave to be gathered, or None if it failed (the log tells why), with wait=False a concurrent.futures.Future of that. data_lock: held
        while tensors are read and changed. The rest are the options of DecentralizedAverager.step."""
        if wait:
            return self._averaged(data_lock, kwargs)
        future: "concurrent.futures.Future[Optional[Gathered]]" = concurrent.futures.Future()

        def work() -> None:
            try:
                future.set_result(self._averaged(data_lock, kwargs))
            except BaseException as error:  # it belongs to whoever asks for the result
                future.set_exception(error)

        thread = threading.Thread(target=work, name="hivemind_c-training", daemon=True)
        thread.start()
        wait_at_end(thread)
        return future

    def _averaged(self, data_lock: Any, options: Any) -> Optional[Gathered]:
        with self._one_at_a_time:
            control = self.schedule_step(**options)
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
            with held:
                self.update_model()
                self.local_epoch += 1
                self.share_averages = self._averages_parameters  # which are alike, where what each trains is not
                self.shared.settled(self.local_epoch)
            return members
