"""Optimizer: one peer's part in training a model with very large batches, together with a swarm."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Callable, ContextManager, Dict, Iterable, List, Optional, Sequence, Union

import torch

from hivemind_c import _notebook, _stderr
from hivemind_c._signature import names_options, shows_options_of
from hivemind_c.compression import CompressionBase, NoCompression
from hivemind_c.dht.options import limit
from hivemind_c.optim import legacy_arguments, options, step_log
from hivemind_c.optim.anchor import OuterFactory
from hivemind_c.optim.buffer_source import Given
from hivemind_c.optim.builder import averager_options, build, tracker_options
from hivemind_c.optim.company import CHOICES
from hivemind_c.optim.driver import Driver
from hivemind_c.optim.epoch_ledger import EpochLedger
from hivemind_c.optim.epoch_record import EpochRecord, OnEpoch
from hivemind_c.optim.factories import LRScheduler, OptimizerFactory, SchedulerFactory
from hivemind_c.optim.forecast import Forecast
from hivemind_c.optim.grad_averager import GradientAveragerFactory
from hivemind_c.optim.grad_scaler import GradScaler
from hivemind_c.optim.local_steps import LocalSteps, chosen
from hivemind_c.optim.reporter import MetricReports, Reporter
from hivemind_c.optim.run_peer import GradHook
from hivemind_c.optim.schedule import Schedule
from hivemind_c.optim.setup_watch import SetupWatch
from hivemind_c.optim.torch_interface import TorchInterface, hooked_if_watched

logger = logging.getLogger("hivemind_c.optim")


class Optimizer(TorchInterface, MetricReports):
    """Trains one model with a swarm: steps when all peers together have gathered target_batch_size samples.

    Use it in place of the optimizer that it wraps: loss.backward(), step(), zero_grad().
    The step is the one that a single machine would take with that batch.
    docs/reference/optimizer.md shows which option takes effect when.

    Args:
        dht: Node through which peers find each other; it must be running.
        run_id: Name of the run; all its peers give the same name.
        target_batch_size: Samples from all peers for one step of the optimizer. That step ends a swarm epoch.
        batch_size_per_step: Samples in one call of step(). Needed unless each call says step(batch_size=...).
        optimizer: An optimizer of torch, or a function that makes one of parameter groups.
        params: Parameters or parameter groups for that function.
        scheduler: A scheduler of torch, or a function that makes one of the optimizer. It steps once per swarm epoch.
        matchmaking_time: Seconds before the end of a swarm epoch at which this peer begins to look for a group.
        averaging_timeout: Longest time in seconds for the averages of a swarm epoch, the search for a group included.
        allreduce_timeout: Longest time in seconds for a round. None: what the search leaves of averaging_timeout.
        next_chunk_timeout: Seconds that a member may stall a round. None: matchmaking_time, 5 or more.
        load_state_timeout: Longest time in seconds in which nothing of the swarm's state arrives, while it is loaded.
        reuse_grad_buffers: Add gradients up in .grad, so call no zero_grad(). It saves the memory of one gradient.
        offload_optimizer: Keep the optimizer in main memory, in float32. None: with params, and without local updates.
        delay_optimizer_step: Run the step of the optimizer in the background. None: as delay_grad_averaging.
        delay_grad_averaging: Average gradients in the background. They are applied one swarm epoch late.
        delay_state_averaging: Average parameters in the background.
        average_state_every: Swarm epochs from one averaging of the parameters to the next.
        use_local_updates: Step with the gradient of each batch at once, and average parameters instead of gradients.
        outer_optimizer: A function that makes an optimizer of an anchor, which steps it with what local steps changed.
        local_steps: True: use_local_updates with an outer step by SGD. Or a dict of lr, momentum, nesterov and steps.
        overlap: Most of a swarm epoch in which batches go on while its difference travels, 0 to 1. True: half of it.
        client_mode: Only dial out, for a machine that no peer can reach. None: as the DHT.
        auxiliary: Help other peers to average, without training.
        grad_compression: Compression of gradients on the network. None: none; with outer_optimizer as the line needs.
        grad_averager_factory: A function that makes another GradientAverager, such as PowerSGDGradientAverager.
        state_averaging_compression: Compression of parameters on the network while they are averaged.
        load_state_compression: Compression of the state that joining peers download. All peers of a run give the same.
        average_opt_statistics: Names of optimizer statistics to average with the parameters, such as ("exp_avg_sq",).
        extra_tensors: Further tensors to average with the parameters, and to give to joining peers.
        buffers: The module, or a list of its buffers, to average and give to joining peers. None or "local": none.
        averager_opts: Further options of DecentralizedAverager, as a dict.
        tracker_opts: Further options of ProgressTracker, as a dict.
        performance_ema_alpha: Weight of the newest measurement in the moving average of this peer's speed, from 0 to 1.
        shutdown_timeout: Seconds that shutdown() waits for background work. A later result does not reach the model.
        verbose: Log the progress of the swarm and the result of each averaging.
        max_grad_norm: Clip the averaged gradient to this norm; with use_local_updates, that of each batch.
        averaged_grad_hook: A function called with the parameters once their .grad hold the averages, before the step.
        on_epoch: A function called with the EpochRecord of each swarm epoch, in the thread that trains.
        config_mismatch: "error": refuse to train if all other peers that train have another setup. "warn": only warn.
        when_alone: "train": end swarm epochs alone if no other peer trains. "wait": end none. "stop": raise AloneError.
        upload_mbit: Most megabits per second that this peer sends in bulk, all its runs together. None: as its DHT.
        log_memory: Most bytes of averages kept for peers that miss swarm epochs. None: the model's bytes. 0: none.
    """

    @names_options
    def __init__(
        self,
        *,
        dht: Any,
        run_id: str,
        target_batch_size: int,
        batch_size_per_step: Optional[int] = None,
        optimizer: Union[torch.optim.Optimizer, OptimizerFactory],
        params: Optional[Iterable[Any]] = None,
        scheduler: Union[None, LRScheduler, SchedulerFactory] = None,
        matchmaking_time: Optional[float] = 15.0,
        averaging_timeout: Optional[float] = 60.0,
        allreduce_timeout: Optional[float] = None,
        next_chunk_timeout: Optional[float] = None,
        load_state_timeout: Optional[float] = 600.0,
        reuse_grad_buffers: bool = False,
        offload_optimizer: Optional[bool] = None,
        delay_optimizer_step: Optional[bool] = None,
        delay_grad_averaging: bool = False,
        delay_state_averaging: bool = True,
        average_state_every: int = 1,
        use_local_updates: bool = False,
        outer_optimizer: Optional[OuterFactory] = None,
        local_steps: LocalSteps = None,
        overlap: Union[bool, float] = True,
        client_mode: Optional[bool] = None,
        auxiliary: bool = False,
        grad_compression: Optional[CompressionBase] = None,
        grad_averager_factory: Optional[GradientAveragerFactory] = None,
        state_averaging_compression: CompressionBase = NoCompression(),
        load_state_compression: CompressionBase = NoCompression(),
        average_opt_statistics: Sequence[str] = (),
        extra_tensors: Sequence[torch.Tensor] = (),
        buffers: Given = None,
        averager_opts: Optional[Dict[str, Any]] = None,
        tracker_opts: Optional[Dict[str, Any]] = None,
        performance_ema_alpha: float = 0.1,
        shutdown_timeout: float = 5.0,
        verbose: bool = False,
        max_grad_norm: Optional[float] = None,
        averaged_grad_hook: Optional[GradHook] = None,
        on_epoch: Optional[OnEpoch] = None,
        config_mismatch: str = "error",
        when_alone: str = "train",
        upload_mbit: Optional[float] = None,
        log_memory: Optional[int] = None,
    ):
        outer_optimizer, use_local_updates = chosen(local_steps, outer_optimizer, use_local_updates)
        self.dht, self.run_id = options.limited(dht, upload_mbit), options.run_name(run_id)
        self.on_epoch = options.on_epoch(on_epoch)
        self.target_batch_size = options.positive_int(target_batch_size, "target_batch_size")
        self.batch_size_per_step = options.step_size(batch_size_per_step)
        self._set_times(matchmaking_time, averaging_timeout, load_state_timeout)
        when_alone, log_memory = options.choice(when_alone, "when_alone", CHOICES), step_log.log_memory(log_memory)
        self.client_mode, self.auxiliary = options.check_peer(client_mode, auxiliary, dht), bool(auxiliary)
        steps_at_once = use_local_updates and not delay_optimizer_step
        works_on_copy = options.offloads(offload_optimizer, optimizer, params, steps_at_once)
        self.schedule = Schedule(
            use_local_updates=bool(use_local_updates),
            delay_grad_averaging=bool(delay_grad_averaging),
            delay_optimizer_step=bool(delay_grad_averaging if delay_optimizer_step is None else delay_optimizer_step),
            delay_state_averaging=bool(delay_state_averaging) and outer_optimizer is None,
            offload_optimizer=works_on_copy,
            auxiliary=self.auxiliary,
            average_state_every=average_state_every,
            outer=outer_optimizer is not None,
            overlap=options.overlap(overlap) * (outer_optimizer is not None),
        )
        options.check_gradients(self.schedule, reuse_grad_buffers, grad_averager_factory, batch_size_per_step)
        self.reuse_grad_buffers, self.load_state_compression = bool(reuse_grad_buffers), load_state_compression
        self.max_grad_norm, self.averaged_grad_hook = options.norm(max_grad_norm), averaged_grad_hook
        self.shutdown_timeout = limit(shutdown_timeout, "shutdown_timeout") or 0.0
        self.allreduce_timeout, self.next_chunk_timeout = allreduce_timeout, next_chunk_timeout
        self._set_verbose(verbose)
        _notebook.replace(self._is_in_the_way, f"the optimizer of {run_id!r}")
        self.config_mismatch = options.choice(config_mismatch, "config_mismatch", ("error", "warn"))
        build(
            self,
            averager_options(self, averager_opts, allreduce_timeout, next_chunk_timeout),
            dict(
                optimizer=optimizer,
                outer_optimizer=outer_optimizer,
                params=params,
                scheduler=scheduler,
                average_opt_statistics=average_opt_statistics,
                extra_tensors=extra_tensors,
                buffers=buffers,
                compression=options.compression(state_averaging_compression, "state_averaging_compression"),
                state_compression=options.compression(load_state_compression, "load_state_compression"),
            ),
            options.grad_compression(grad_compression, self.schedule),
            grad_averager_factory,
            tracker_options(tracker_opts, performance_ema_alpha),
        )
        self.ledger, self.setups, self._local_samples, self._metric = EpochLedger(self), SetupWatch(self), 0, []
        self.reporter, self._forecast = Reporter(self), Forecast(self)
        self.driver = Driver(self, self.reporter, when_alone, log_memory)
        self.state_averager.count_by(self.driver)
        self._init_as_torch()
        _notebook.made_here(self)

    def _set_times(self, matchmaking: Optional[float], averaging: Optional[float], loading: Optional[float]) -> None:
        self.matchmaking_time = options.seconds(matchmaking, "matchmaking_time", default=15.0)
        averaging = options.as_given(averaging, Optimizer.__init__, "averaging_timeout")
        self.averaging_is_given = isinstance(averaging, options.Given)
        self.averaging_timeout = options.seconds(averaging, "averaging_timeout", default=60.0)
        self.load_state_timeout = options.seconds(loading, "load_state_timeout", default=600.0)
        options.check_times(self.averaging_timeout, self.matchmaking_time)

    def _set_verbose(self, verbose: bool) -> None:
        self.verbose = verbose
        if verbose:
            _stderr.show(logging.INFO)

    def _is_in_the_way(self, other: Any) -> bool:
        """True if the other one trains this run on this DHT."""
        return isinstance(other, Optimizer) and (other.dht, other.run_id) == (self.dht, self.run_id)

    # ---- training ----

    @hooked_if_watched
    def step(
        self,
        closure: Optional[Callable[[], Any]] = None,
        batch_size: Optional[int] = None,
        grad_scaler: Optional[GradScaler] = None,
    ) -> Any:
        """Counts a batch, and ends the swarm epoch if the swarm has enough samples. Returns the loss of the closure.

        Raises errors of background work since the last call, and HivemindPermissionError if the swarm does not admit
        this peer any more.

        Args:
            closure: A function that computes the loss and its gradients. None: the gradients are there already.
            batch_size: Samples in this batch. None: batch_size_per_step.
            grad_scaler: A hivemind_c.GradScaler, for half precision. Its step() gives it.
        """
        self.dht.check_admission()
        loss, given = None, batch_size is not None
        if closure is not None and (self.auxiliary or grad_scaler is not None):
            raise ValueError(
                "step() cannot take a closure here: a closure makes its own gradients; "
                + ("an auxiliary peer has none" if self.auxiliary else "remove grad_scaler")
            )
        batch_size = self._checked_batch_size(batch_size)
        if closure is not None:
            self.expect_batch(batch_size)
            with torch.enable_grad():
                loss = closure()
            self.report_loss(loss)
        elif given and self.grad_averager is not None:
            self.grad_averager.sizes_vary(batch_size)
        self.driver.take()
        self._take_step(batch_size, grad_scaler)
        self.ledger.deliver()
        return loss

    def expect_batch(self, batch_size: int) -> None:
        """Announces the size of the next batch before its backward. It saves memory with reuse_grad_buffers.

        Args:
            batch_size: Number of samples.
        """
        if self.grad_averager is not None:
            self.grad_averager.expect_batch(batch_size)

    def _take_step(self, batch_size: int, grad_scaler: Optional[GradScaler]) -> None:
        adopted = self.driver.hands.adopted
        counts_batches = self.driver.machine.counts_batches
        if not counts_batches:
            self.find_swarm()
            counts_batches = self.driver.machine.counts_batches
        if self.driver.hands.adopted != adopted:  # the gradient is of another model
            self._look_at_lost_batch(grad_scaler)
            self.driver.behind(self._with_others(batch_size))
        elif counts_batches:
            counts = self.auxiliary or self._takes_batch(batch_size, grad_scaler)
            if not counts:
                self.driver.overflow(batch_size, self._own_sums() if self.reuse_grad_buffers else 0)
            self.driver.batch(self._with_others(batch_size if counts else 0))
        else:
            self._look_at_lost_batch(grad_scaler)
            self.driver.batch(self._with_others(batch_size))
        self._forecast.update(self.tracker.figures)

    def _own_sums(self) -> int:
        """Samples of this process in the sums."""
        return self.ledger.samples.sums

    def _with_others(self, samples: int) -> int:
        """Overridden where several processes are one peer (inside/lead.py): with the samples of their batches."""
        return samples

    def _look_at_lost_batch(self, grad_scaler: Optional[GradScaler]) -> None:
        if grad_scaler is not None and not self.auxiliary:
            # the batch counts for nothing, but the scaler's update() asks whether it was looked at
            self._are_grads_finite(grad_scaler)
        if self.reuse_grad_buffers:  # it lies in .grad with the sums
            self.drop_sums()

    def find_swarm(self) -> None:
        """Finds the swarm, before the first batch counts. The first step() does it, too."""
        if self.driver.machine.state != "LOOKING":
            return
        if _notebook.cell() is not None:
            _notebook.drop_unused(lambda other: getattr(other, "run_id", None) == self.run_id)
            # without the peer of an earlier cell, which may have left since this one was made
            self.tracker.fetch_global_progress()
        self.driver.batch(0)

    def join_swarm(self) -> None:
        """Compares this peer with the swarm that it has found. Raises ConfigMismatchError if it must not train."""
        self.check_setup()
        self.record("join", **self.seen(self.driver.machine))
        self.reporter.start()

    def _takes_batch(self, batch_size: int, grad_scaler: Optional[GradScaler]) -> bool:
        """Adds the batch up. False: an overflow, so it counts for nothing."""
        if grad_scaler is not None and not self.skip_overflown_batch(grad_scaler):
            return False
        if self.grad_averager is not None:
            self.grad_averager.accumulate_grads_(batch_size)
        else:
            self._local_samples += batch_size
        return True

    def _checked_batch_size(self, batch_size: Optional[int]) -> int:
        if self.auxiliary:
            if batch_size is not None:
                raise ValueError("an auxiliary peer trains nothing: call step() without a batch size")
            return 0
        if batch_size is None:
            batch_size = self.batch_size_per_step
        elif type(batch_size) is not int:
            batch_size = options.positive_int(batch_size, "batch_size")
        if batch_size is None:
            raise ValueError(
                "the number of samples of this step is unknown: give batch_size_per_step to Optimizer, or batch_size "
                "to step()"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be 1 or more, not {batch_size}")
        return batch_size

    def skip_overflown_batch(self, grad_scaler: GradScaler) -> bool:
        """True if the gradients are finite. If they are not, they count for nothing.

        Args:
            grad_scaler: A hivemind_c.GradScaler.
        """
        if self._are_grads_finite(grad_scaler):
            if self.grad_averager is not None and self.reuse_grad_buffers:
                self.grad_averager.scale = grad_scaler.get_scale()
            return True
        if self.reuse_grad_buffers:
            logger.info(
                "a gradient overflowed: the %d samples that this peer had summed up in .grad are left out",
                self.local_samples,
            )
            self.grad_averager.reset_accumulated_grads_()
        return False

    def _are_grads_finite(self, grad_scaler: GradScaler) -> bool:
        if not isinstance(grad_scaler, GradScaler):
            raise TypeError(
                f"grad_scaler must be a hivemind_c.GradScaler, which knows of swarms, not {type(grad_scaler).__name__}"
            )
        return grad_scaler.are_grads_finite(self)

    def rescale_sums(self, factor: float) -> None:
        """Multiplies sums that are kept scaled, as a GradScaler does when its scale changes.

        Args:
            factor: New scale divided by the old one.
        """
        if self.grad_averager is not None:
            self.grad_averager.rescale_(factor)

    def load_state_from_peers(
        self, wait: bool = True, timeout: Optional[float] = None, epoch_least: Optional[int] = None
    ) -> bool:
        """Replaces model, optimizer, scheduler and epoch by the state of the swarm. False: there is none.

        Without a state they stay as they were. Samples of this epoch and unfinished background work are dropped either
        way.

        Args:
            wait: Must be True, because nothing may train while parameters change.
            timeout: Longest time in seconds in which nothing of it arrives. None: load_state_timeout.
            epoch_least: Oldest epoch whose state is accepted. None: that of the swarm.
        """
        self.state_averager.check_load(wait)
        least = max(self.local_epoch, self.tracker.global_epoch) if epoch_least is None else epoch_least
        return self.driver.load(least, self.load_state_timeout if timeout is None else timeout)

    def is_synchronized_with_peers(self) -> bool:
        """True if this peer is in the epoch of the swarm, or at its very end."""
        return self.driver.machine.state in ("GATHERING", "ENDING") and self.tracker.standing != "behind"

    @property
    def waits_for_company(self) -> bool:
        """True while no epoch ends because no other peer trains (when_alone)."""
        return self.driver.machine.waits_for_company

    @property
    def last_epoch(self) -> Optional[EpochRecord]:
        """The EpochRecord of the latest swarm epoch that is complete, or None."""
        return self.ledger.last

    @property
    def anchor(self) -> List[torch.Tensor]:
        """Copies of the parameters after the latest outer step, in the order of the optimizer's. Equal at all peers."""
        if not self.schedule.outer:
            raise ValueError("there is no anchor without outer_optimizer: the parameters of the model are the state")
        with self.state_averager.state_lock:
            return [main.detach().clone() for main in self.state_averager.parameters.main]

    def use_anchor(self) -> ContextManager[None]:
        """A context in which the model is the anchor, for validation and checkpoints. Afterwards local steps continue.

        No step() may be called in it. Without outer_optimizer it changes nothing.
        """
        return self.state_averager.use_anchor() if self.schedule.outer else contextlib.nullcontext()

    def keep_anchor(self) -> None:
        """Makes the model the anchor at a training's end: steps since the latest outer step are in no average.

        Without outer_optimizer it changes nothing.
        """
        if self.schedule.outer:
            self.driver.settle_round()
            self.state_averager.keep_anchor()

    @property
    def local_progress(self) -> Any:
        """The latest report of this peer, as a LocalTrainingProgress."""
        return self.tracker.local_progress

    @property
    def scheduled_grads(self) -> Any:
        """The control of the gradient averaging for which a group is looked for, or None."""
        return self.driver.rounds.controls[0]

    @property
    def scheduled_state(self) -> Any:
        """The control of the state averaging for which a group is looked for, or None."""
        return self.driver.rounds.controls[1]

    # ---- its end ----

    def is_alive(self) -> bool:
        """True if the Optimizer has not been shut down."""
        return self.state_averager.is_alive()

    def shutdown(self) -> None:
        """Leaves the run. The DHT stays. May be called twice.

        The result of background work reaches the model if it comes within shutdown_timeout.
        """
        self.driver.leave(self.shutdown_timeout)
        self.ledger.deliver_last()
        self.driver.hands.log.close()
        self.reporter.shutdown()
        self.tracker.shutdown()
        self.state_averager.shutdown()
        if self.grad_averager is not None:
            self.grad_averager.shutdown()


class CollaborativeOptimizer(Optimizer):
    """The Optimizer under its older name, with the names that its arguments had: opt, prefix, averaging_expiration.

    Arguments of that time without a counterpart are named in one error, with the replacement.

    Args:
        opt: As optimizer in Optimizer.
        **kwargs: Options of Optimizer, under their older or newer names.
    """

    @shows_options_of(Optimizer, but=("optimizer",))
    def __init__(self, opt: Union[None, torch.optim.Optimizer, OptimizerFactory] = None, **kwargs: Any):
        super().__init__(**legacy_arguments.translate(opt, kwargs, Optimizer.__init__))
