"""TrainingStateAverager: parameters, optimizer, scheduler and epoch, averaged and shared with the swarm."""

from __future__ import annotations

import logging
import threading
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import _hivemind_c
import torch

from hivemind_c import cuda
from hivemind_c._record import Recorder
from hivemind_c._signature import shows_options_of
from hivemind_c.averaging import DecentralizedAverager
from hivemind_c.compression import CompressionInfo, NoCompression, TensorRole
from hivemind_c.optim.background import Background
from hivemind_c.optim.buffer_source import Given
from hivemind_c.optim.buffers import Buffers, infos_of
from hivemind_c.optim.checkpoints import Checkpoints
from hivemind_c.optim.epoch_counter import OwnEpoch
from hivemind_c.optim.factories import LRScheduler, OptimizerFactory, SchedulerFactory
from hivemind_c.optim.grad_averager import UncompressedKey, outcome_of
from hivemind_c.optim.lineage import Lineage
from hivemind_c.optim.manual_steps import ManualSteps

# hivemind has them here
from hivemind_c.optim.optimizer_state import (  # noqa: F401
    dump_optimizer_state,
    initialize_optimizer_state_,
    load_optimizer_state,
)
from hivemind_c.optim.parameters import Group, all_finite, copy_all, flat_views
from hivemind_c.optim.state_checks import StateChecks
from hivemind_c.optim.state_loading import StateLoading
from hivemind_c.optim.state_offers import StateOffers
from hivemind_c.optim.scheduler_end import SchedulerEnd
from hivemind_c.optim.statistics import describe, describe_scheduler, probe, restore, restore_scheduler, statistics_of
from hivemind_c.optim.uncompressed import infos_of_state, is_lossy, uncompressed_statistics

logger = logging.getLogger("hivemind_c.optim")

# types by the names that hivemind has for them here
LRSchedulerBase = LRScheduler
TorchOptimizer = torch.optim.Optimizer
Parameters = Iterable[torch.Tensor]
ParamGroups = Iterable[Dict[str, Any]]


class TrainingStateAverager(ManualSteps, Checkpoints, StateChecks, StateLoading):
    """Steps optimizer and scheduler, averages their state with other peers, and shares it with joining peers.

    An Optimizer has one. A program that has no Optimizer calls step() itself.

    Args:
        dht: A DHT that runs.
        optimizer: An optimizer of torch, or a function that makes one of parameter groups.
        params: Parameters or parameter groups for that function.
        scheduler: A scheduler of torch, or a function that makes one of the optimizer.
        initialize_optimizer: Accepted without effect.
        offload_optimizer: Let the optimizer, then a function, work on float32 copies in host memory.
        custom_gradients: Take gradients from the parameters of the optimizer, where the program has put them.
        reuse_tensors: Average parameters in place, without a copy. None: as offload_optimizer.
        delta_rule_averaging: Add the difference that averaging made, so that training can continue meanwhile.
        performance_ema_alpha: Accepted without effect.
        sync_epoch_when_averaging: Let each averaging by step() bring local_epoch to that of the other members.
        parameter_names: Names of the parameters, by which an adaptive compression chooses. None: their indices.
        average_opt_statistics: Names of optimizer statistics to average, such as ("exp_avg_sq",).
        extra_tensors: Further floating-point tensors to average and share.
        buffers: The module whose buffers are averaged and shared, or a list of them. None: no buffers.
        status_loglevel: Accepted without effect.
        **kwargs: Options of DecentralizedAverager, such as prefix and start.
    """

    _on_demand = False  # StateOffers decides when
    _told_of_no_metric = False  # a metric may come less often than epochs end

    @shows_options_of(DecentralizedAverager, but=("averaged_tensors", "tensor_infos"))
    def __init__(
        self,
        *,
        dht: Any,
        optimizer: Union[torch.optim.Optimizer, OptimizerFactory],
        params: Optional[Iterable[Any]] = None,
        scheduler: Union[None, LRScheduler, SchedulerFactory] = None,
        initialize_optimizer: Optional[bool] = None,
        offload_optimizer: bool = False,
        custom_gradients: bool = False,
        reuse_tensors: Optional[bool] = None,
        delta_rule_averaging: bool = False,
        performance_ema_alpha: float = 0.1,
        sync_epoch_when_averaging: bool = False,
        parameter_names: Optional[Sequence[str]] = None,
        average_opt_statistics: Sequence[str] = (),
        extra_tensors: Sequence[torch.Tensor] = (),
        buffers: Given = None,
        status_loglevel: int = logging.DEBUG,
        **kwargs: Any,
    ):
        self._make(optimizer, params, offload_optimizer)
        self.scheduler = self._make_scheduler(scheduler, offload_optimizer)
        self._scheduler_end = SchedulerEnd()
        self.offload_optimizer, self.custom_gradients = offload_optimizer, custom_gradients
        self.sync_epoch_when_averaging, self.delta_rule_averaging = sync_epoch_when_averaging, delta_rule_averaging
        self.extra_tensors = list(extra_tensors)
        for tensor in self.extra_tensors:
            if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
                raise ValueError(
                    "extra_tensors must be floating-point tensors, like a batch norm's running_mean; others cannot be "
                    "averaged"
                )
        self.buffers = Buffers(buffers, but=self.extra_tensors)
        self.parameter_names, self.performance_ema_alpha = parameter_names, performance_ema_alpha
        self.reuse_tensors = bool(offload_optimizer if reuse_tensors is None else reuse_tensors)
        names = (average_opt_statistics,) if isinstance(average_opt_statistics, str) else tuple(average_opt_statistics)
        self.opt_keys_for_averaging, self.status_loglevel = names, status_loglevel
        probed, self._whole = probe(self.optimizer, names)
        self._statistics = [(index, name) for index, name, _ in probed]
        self.background = Background("hivemind_c optimizer")
        # held while the state is changed or read; the second name is hivemind's
        self.state_lock = self.lock_optimizer = threading.RLock()
        self._counter: Any = OwnEpoch()
        self.lineage = Lineage(self._tensors_of_mark, self._whole_state)
        self.tensors_to_average, infos = self._to_average(
            probed, offload_optimizer if reuse_tensors is None else reuse_tensors, parameter_names
        )
        self._before: List[torch.Tensor] = []
        self._taken: List[bool] = []  # of tensors_to_average, whether this peer had it when it was loaded
        self.loaded = False  # what is to be averaged, or has been, is in the averager's tensors
        self.offers = StateOffers(self)
        self.share_averages = False  # what is offered to joiners is the last average instead of the state in use
        chosen = {
            name: uncompressed_statistics(kwargs[name])
            for name in ("compression", "state_compression")
            if name in kwargs
        }
        # which replica is averaged, and so whether all were alike
        self._mark_digits = torch.zeros(_hivemind_c.MARK_DIGITS)
        infos.append(CompressionInfo.from_tensor(self._mark_digits, key="lineage"))
        chosen["compression"] = UncompressedKey("lineage", chosen.get("compression", NoCompression()))
        averages = self.buffers.averages
        if averages:  # which differ among equal replicas: no chunk of others, nor of the mark, holds values of theirs
            self._sections = (len(infos) - 1, len(infos))
        infos += infos_of(averages)
        self._compared = len(self.tensors_to_average)
        super().__init__(
            [*self.tensors_to_average, self._mark_digits, *averages], dht, tensor_infos=infos, **{**kwargs, **chosen}
        )
        role = "auxiliary" if self.auxiliary else "client" if self.client_mode else "trainer"
        #: of what is decided about this state
        self.record = Recorder(dht.peer_id, str(self.prefix).replace("_state_averager", ""), role)
        #: parameters lose precision in each average
        self.is_compressed_with_loss = not self._tensors.as_they_are
        own = bool(self.extra_tensors)  # which differ where replicas are alike
        self._exact = (
            not own and self._tensors.as_they_are and all(t.dtype is not torch.float64 for t in self.tensors_to_average)
        )

    def _to_average(
        self, probed: Sequence[Tuple[int, str, torch.Tensor]], reuse: bool, names: Optional[Sequence[str]]
    ) -> Tuple[List[torch.Tensor], list]:
        main = self._trained()
        self._n_trained = len(main)
        plain = all(p.device.type == "cpu" and p.dtype in (torch.float32, torch.float64) for p in main)
        reuse = (
            reuse
            and not self.delta_rule_averaging
            and (plain or all(p.dtype is torch.float32 for p in main) and cuda.averages(main))
        )
        self._in_place = reuse
        #: True if averages are written where the model's parameters are, which changes no version of theirs
        self.averages_the_model_in_place = reuse and not self.offload_optimizer
        pin = any(p.device.type == "cuda" for p in (*self.parameters.model, *self.extra_tensors))
        tensors = (main if reuse else flat_views(main, device="cpu", pin=pin)) + flat_views(
            [tensor for _, _, tensor in probed] + self.extra_tensors, device="cpu", pin=pin
        )
        keys = (
            list(names or range(len(main)))
            + [f"{name} of {index}" for index, name, _ in probed]
            + [f"extra {i}" for i in range(len(self.extra_tensors))]
        )
        roles = (
            self._roles() + [TensorRole.OPTIMIZER] * len(probed) + [TensorRole.UNSPECIFIED] * len(self.extra_tensors)
        )
        return tensors, [
            CompressionInfo.from_tensor(tensor, key=key, role=role) for tensor, key, role in zip(tensors, keys, roles)
        ]

    def _trained(self) -> List[torch.Tensor]:
        """The averaged part of the trained values: the parameters."""
        return [p.detach() for p in self.parameters.main]

    def _roles(self) -> List[TensorRole]:
        return [TensorRole.PARAMETER] * len(self.parameters.main)

    @property
    def pending_updates(self) -> bool:
        """True while a step runs in the background."""
        return self.background.busy

    @property
    def main_parameters(self) -> List[torch.Tensor]:
        """The parameters of the model."""
        return self.parameters.model

    @property
    def param_groups(self) -> List[Dict[str, Any]]:
        """The groups of the optimizer, with the parameters of the model."""
        if not self.parameters.offload:
            return self.optimizer.param_groups
        rest = iter(self.parameters.model)
        return [Group(group, [next(rest) for _ in group["params"]]) for group in self.optimizer.param_groups]

    # ---- one thing each; the Optimizer decides when ----

    def step_optimizer(self, grad_scaler: Any = None) -> None:
        """Steps the optimizer with the gradients in its parameters.

        Args:
            grad_scaler: GradScaler that unscales the gradients, and skips the step if one overflowed.
        """
        with self.state_lock:
            self.parameters.pull()
            self.parameters.settle()
            if grad_scaler is not None:
                grad_scaler.step(self.optimizer)  # which unscales, and leaves the step out if a gradient overflowed
            else:
                self.optimizer.step()

    def step_scheduler(self, metric: Optional[float] = None) -> None:
        """Steps the scheduler by one swarm epoch.

        Args:
            metric: Value for ReduceLROnPlateau, which is not stepped without one.
        """
        if self.scheduler is None:
            return
        with self.state_lock:
            if not isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
                self.scheduler.step()
                self._scheduler_end.look(self.scheduler)
            elif metric is not None:
                self.scheduler.step(metric)
            elif not self._told_of_no_metric:
                self._told_of_no_metric = True
                logger.warning(
                    "skipping a step of ReduceLROnPlateau: this swarm epoch has no metric; "
                    "call optimizer.report_metric(loss)"
                )

    @torch.no_grad()
    def load_state_into_averager_(self) -> bool:
        """Copies the state that is to be averaged. False: the optimizer has none of the statistics yet.

        A statistic that this peer lacks, of a layer that it has not used yet, counts as zeros, as torch begins it.
        After the first average it counts as that average: zeros in each round would draw those of other peers down.
        """
        live = self._live()
        if live is None:
            return False
        self._taken = [tensor is not None for tensor in live]
        pairs = [
            (averaged, tensor)
            for averaged, tensor in zip(self.tensors_to_average, live)
            if tensor is not None and averaged.data_ptr() != tensor.data_ptr()
        ]
        copy_all([averaged for averaged, _ in pairs], [tensor for _, tensor in pairs])
        self.buffers.load()
        self._mark_digits.copy_(torch.tensor(self.lineage.digits_to_average()))
        if self.delta_rule_averaging:
            self._before = self._before or [torch.empty_like(averaged) for averaged in self.tensors_to_average]
            copy_all(self._before, self.tensors_to_average)
        self.loaded = True
        return True

    @torch.no_grad()
    def apply_averaged_state_(self) -> None:
        """Writes averages into parameters and statistics, but not into statistics that this peer lacks.

        With delta_rule_averaging it adds the difference that averaging made. torch begins a statistic as a whole, so a
        part of one is not written.
        """
        with self.state_lock:
            live = self._live() if self.loaded else None
            self.loaded = False
            if live is None:
                self.buffers.drop()
                return
            self.buffers.apply()
            self.lineage.is_rounded = False
            self.parameters.settle()
            there = [
                (i, tensor) for i, (tensor, taken) in enumerate(zip(live, self._taken)) if taken and tensor is not None
            ]
            if self.delta_rule_averaging:
                floors = self._floors(there)
                # what averages are stays as it is, for joiners
                torch._foreach_sub_(self._before, self.tensors_to_average)
                torch._foreach_sub_(
                    [tensor for _, tensor in there], [self._before[i].to(tensor.device) for i, tensor in there]
                )
                for tensor, floor in floors:
                    torch.maximum(tensor, floor, out=tensor)
                self._heal(there)
                return
            pairs = [
                (self.tensors_to_average[i], tensor)
                for i, tensor in there
                if self.tensors_to_average[i].data_ptr() != tensor.data_ptr()
            ]
            copy_all([tensor for _, tensor in pairs], [averaged for averaged, _ in pairs])

    def _heal(self, there: Sequence[Tuple[int, torch.Tensor]]) -> None:
        """Writes the averages where values are not finite: adding a difference would leave them so for ever."""
        for i, tensor in there:
            if not all_finite([tensor]):
                averaged = self.tensors_to_average[i].to(tensor.device, tensor.dtype)
                tensor.copy_(torch.where(tensor.isfinite(), tensor, averaged))

    def _floors(self, there: Sequence[Tuple[int, torch.Tensor]]) -> List[Tuple[torch.Tensor, torch.Tensor]]:
        """Variances (of gradients, of a batch norm) fade while they are averaged, and with the difference added would
        become less than nothing: none becomes less than both what it is here and the average."""
        found = []
        for i, tensor in there:
            averaged, before = self.tensors_to_average[i], self._before[i]
            if i >= self._n_trained and averaged.numel() and averaged.min() >= 0 and before.min() >= 0:
                found.append((tensor, torch.minimum(tensor, averaged.to(tensor.device, tensor.dtype))))
        return found

    def push(self) -> None:
        """Copies the result of the optimizer into the model. Call it in the thread that trains."""
        with self.state_lock:
            self.parameters.push()

    def update_model(self) -> None:
        """Copies averages and the result of the optimizer into the model. Call it in the thread that trains."""
        self.apply_averaged_state_()
        self.push()

    def _live(self) -> Optional[List[Optional[torch.Tensor]]]:
        """The tensors that tensors_to_average average; None where the optimizer has not begun that state, and None
        for all if it has begun none.
        """
        states = [
            self.optimizer.state.get(self.parameters.main[index], {}).get(name) for index, name in self._statistics
        ]
        if states and all(state is None for state in states):
            return None
        return [*self._trained(), *states, *(t.detach() for t in self.extra_tensors)]

    # ---- with others ----

    def schedule_step(self, scheduled_time: Optional[float] = None, **kwargs: Any) -> Any:
        """Begins to look for a group, and returns a control for step(averaging_control=...) or average_loaded().

        Args:
            scheduled_time: Moment in get_dht_time() by which the group is to be complete.
            **kwargs: Options of DecentralizedAverager.step.
        """
        if self.sync_epoch_when_averaging and kwargs.setdefault("gather", self.local_epoch) != self.local_epoch:
            raise ValueError(
                "gather cannot be combined with sync_epoch_when_averaging: members exchange their epochs there; "
                "remove gather"
            )
        return DecentralizedAverager.step(
            self, scheduled_time=scheduled_time, wait=False, require_trigger=True, **kwargs
        )

    def average_loaded(self, control: Any, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Averages the copies that load_state_into_averager_() took, and returns {peer_id: value} of the members.

        Raises HivemindError if the round failed. apply_averaged_state_() then writes nothing.

        Args:
            control: Control from schedule_step().
            timeout: Longest time in seconds to wait. None: no limit.
        """
        control.check_unused(self)
        if not self.auxiliary:
            self.buffers.weigh(control)
        control.allow_allreduce()
        try:
            return outcome_of(control, timeout)
        except BaseException:
            self.loaded = False
            raise

    def follow(self, control: Any) -> None:
        """Moves the mark of a state that no Optimizer drives: its average was of other replicas, too.

        Args:
            control: Control of the round, which succeeded.
        """
        self.lineage.follow((control.details(0),), self.were_alike())

    def forget_taken(self) -> None:
        """The copies that load_state_into_averager_() took are of no use any more."""
        self.loaded = False

    def offer_averages(self, only: bool) -> None:
        """Chooses what is offered to joiners.

        Args:
            only: The last average, in place of the state in use.
        """
        self.share_averages = only

    @property
    def is_kept(self) -> int:
        """Whether the replica is to the bit what it was, after a round that failed.

        1: it is; 0: only if the members' replicas were alike; -1: it is not.
        """
        written = self._in_place and self.is_averaged_in_part
        exact = self._exact and isinstance(self._state_compression, NoCompression) and not self.has_changed
        return 1 if not written else 0 if exact else -1

    def were_alike(self) -> bool:
        """Whether all that was averaged with the state, which succeeded, was this replica, but for roundings.

        The marks that came with it say so, and so do its values, because a member may give another state under the
        right marks. If all values of each member are in it, peers that missed the round hold the same replica.
        """
        # a chunk of its own comes back as it was, and weights would hide another mark from the rounding
        digits = self._mark_digits if self.buffers.averages else self._mark_digits.round()
        return self._exact and not self.has_changed and digits.tolist() == self.lineage.digits()

    # ---- giving it to others and taking it from them ----

    def get_current_state(self) -> Tuple[Dict[str, Any], List[torch.Tensor], List[CompressionInfo]]:
        """Returns (metadata, tensors, infos) for a joining peer. The tensors are copies."""
        with self.state_lock:
            described = describe(self.optimizer)
            if self.share_averages:  # of what the optimizer remembers only what is averaged is equal on all peers
                described.update(numbers=[], tensors=[list(entry) for entry in self._statistics])
                tensors, infos = self._averages()
            else:
                statistics = statistics_of(self.optimizer)
                main = [p.detach() for p in self.parameters.main]
                tensors = main + [s.tensor for s in statistics] + self.extra_tensors
                infos = infos_of_state(tensors, len(main), len(self.extra_tensors))
            metadata = {
                "epoch": self.local_epoch,
                "parameters": len(self.parameters.main),
                "optimizer": described,
                "scheduler": describe_scheduler(self.scheduler),
            }
            metadata.update(lineage=self._state_lineage(), **({"setup": self._setup} if self._setup else {}))
            described, averaged, carried = self.buffers.offer()
            if described is not None:
                metadata["buffers"] = described
                infos += infos_of((*averaged, *carried))
            self._n_own = len(carried)
            return metadata, [tensor.detach().clone() for tensor in (*tensors, *averaged, *carried)], infos

    def _averages(self) -> Tuple[List[torch.Tensor], List[CompressionInfo]]:
        """Those of the state."""
        return self.tensors_to_average, list(self._tensors.infos[: len(self.tensors_to_average)])

    def _state_lineage(self) -> bytes:
        return b"" if self.share_averages else self.lineage.mark

    @torch.no_grad()
    def set_current_state(self, metadata: Dict[str, Any], tensors: Sequence[torch.Tensor]) -> None:
        """Replaces the state by one from a peer.

        Raises ValueError, and changes nothing, if it is not a state of this training.

        Args:
            metadata: Metadata from get_current_state() of the peer.
            tensors: Tensors from get_current_state() of the peer.
        """
        if metadata is not self._checked:
            self._check_state(metadata, tensors)
        tensors, buffers = self.buffers.split(metadata, tensors)
        main, extra = [p.detach() for p in self.parameters.main], [t.detach() for t in self.extra_tensors]
        n, epoch = len(main), metadata["epoch"]
        middle, last = tensors[n : len(tensors) - len(extra)], tensors[len(tensors) - len(extra) :]
        self.offers.check_setup(metadata.get("setup"))
        with self.state_lock:
            restore(self.optimizer, metadata.get("optimizer"), middle, self._whole)
            restore_scheduler(self.scheduler, metadata.get("scheduler"))
            self.parameters.settle()
            self.parameters.keep_all_progress()
            copy_all((*main, *extra), (*tensors[:n], *last))
            self.buffers.replace(buffers)
            self.loaded = False
            self.lineage.is_rounded = is_lossy(self._state_compression, infos_of_state(tensors, n, len(extra)))
            if not self._counter.is_adopting:
                self.local_epoch = epoch
                self.lineage.restart(metadata.get("lineage"))
            self.parameters.push(force=True)
