"""HivemindStrategy: Lightning's Trainer as one peer of a swarm. docs/reference/strategy.md tells how to use it."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Callable, Dict, Optional, Union

from hivemind_c import _invitation, _needs

_needs.demand("hivemind_c.HivemindStrategy", "torch", "numpy")  # before a module imports them

import torch

from hivemind_c._lightning import (
    bootstrap,
    checkpoint_files,
    global_steps,
    module_buffers,
    namespaces,
    not_admitted,
    optimizers,
    preparation,
    requirements,
    run_end,
    samplers,
    step_hooks,
)
from hivemind_c._lightning.election import Election
from hivemind_c._lightning.local_steps import AnchorWatcher, with_outer_step
from hivemind_c._lightning.patches import SET_HERE, Patches, change_seeds, known_options
from hivemind_c._lightning.ranks import Ranks
from hivemind_c._lightning.sample_counter import CountingIterator, SampleCounter, is_dataloader_iter
from hivemind_c._lightning.schedulers import HiveMindScheduler
from hivemind_c._lightning.signals import Signals
from hivemind_c._lightning.swarm import Speed, SwarmProgressBar, figures, log_epochs
from hivemind_c._signature import shows_options_of
from hivemind_c.dht import DHT
from hivemind_c.dht.options import limit
from hivemind_c.node import Addresses
from hivemind_c.optim import EpochRecord, Optimizer
from hivemind_c.optim.local_steps import LocalSteps
from hivemind_c.optim.options import as_given

__all__ = ["CollaborativeStrategy", "HiveMindScheduler", "HivemindStrategy", "SwarmProgressBar"]

logger = logging.getLogger("hivemind_c.strategy")


class HivemindStrategy(AnchorWatcher):
    """Makes a Lightning Trainer one peer of a swarm.

    Trainer(strategy=HivemindStrategy(target_batch_size=4096))

    All peers together gather target_batch_size samples, average their gradients and take one step: a swarm epoch.
    docs/reference/strategy.md describes checkpoints, schedulers and the rest.

    Args:
        target_batch_size: Samples from all peers for one step of the optimizer: a swarm epoch.
        run_id: Name of the run; all its peers give the same name.
        batch_size: Samples in one batch of this peer. None: counted in each batch.
        delay_state_averaging: Average parameters in the background, so that training does not pause for it.
        delay_optimizer_step: Run the step of the optimizer in the background. None: as delay_grad_averaging.
        delay_grad_averaging: Average gradients in the background. They are applied one swarm epoch late.
        offload_optimizer: Keep the optimizer in main memory, in float32. None: True if the optimizer's step is delayed.
        reuse_grad_buffers: Add gradients up in .grad, without a copy. The module's zero_grad does nothing then.
        scheduler_fn: A function that makes the scheduler of the optimizer; with offload the only way to give one.
        matchmaking_time: Seconds before a swarm epoch's end at which the search for a group begins. Internet: 10 to 15.
        averaging_timeout: Longest time in seconds for the averages of a swarm epoch, the search for a group included.
        verbose: Log the progress of the swarm and the result of each averaging.
        averager_opts: Further options of DecentralizedAverager, as a dict.
        host_maddrs: Where to listen, such as "/ip4/0.0.0.0/tcp/31337". None: every interface, a free TCP port.
        initial_peers: Addresses of other peers, a list or a string with commas. None: the variable INITIAL_PEERS.
        use_ipfs: Accepted for compatibility; its only effect is a message in the log.
        wait_timeout: Seconds to wait for an answer of another peer in the DHT.
        bootstrap_timeout: Seconds to wait for the initial peers before training begins alone. None: as wait_timeout.
        use_relay: Accepted for compatibility; has no effect.
        use_auto_relay: Accepted for compatibility; its only effect is a message in the log.
        identity_path: File with the key, and so the name, of this peer, made if missing. None: a new key.
        announce_maddrs: Addresses to give to other peers instead of host_maddrs, for a port that is forwarded.
        client_mode: Only dial out, for a machine that no peer can reach.
        open_port: Ask this machine's router to open the port (NAT-PMP, UPnP), if this machine's address is private.
        swarm_key: Key of a closed swarm, a path or its text. None: the variable HIVEMIND_SWARM_KEY, if it is set.
        invite: Invitation to a closed swarm, a text or a path, which is read again. None: the variable INVITE, if set.
        closed: It is an error if there is neither a swarm key nor an invitation. False: the swarm is open then.
        dht: A hivemind_c.DHT that is running. It stays when fit ends. None: one of its own.
        checkpoints: "own": all peers write, all but the elected one into subfolders. "elected": only the elected one.
        buffers: "average": average the buffers of the module's state_dict with its parameters. "local": average none.
        reseed: Change the random seeds of peers that join, so that peers read the data in different orders.
        checkpoint_io: Lightning's CheckpointIO that writes and reads checkpoints. None: the Trainer's.
        local_steps: True: local steps with an outer step each epoch. Or a dict of lr, momentum, nesterov and steps.
        **optimizer_kwargs: Other options of hivemind_c.Optimizer, such as grad_compression or max_grad_norm.
    """

    strategy_name = "hivemind"
    INITIAL_PEERS_ENV = "PL_INITIAL_PEERS"  #: read beside INITIAL_PEERS

    @shows_options_of(Optimizer, but={*SET_HERE, "auxiliary"})
    def __init__(
        self,
        target_batch_size: int,
        run_id: str = "lightning_run",
        batch_size: Optional[int] = None,
        delay_state_averaging: bool = False,
        delay_optimizer_step: Optional[bool] = None,
        delay_grad_averaging: bool = False,
        offload_optimizer: Optional[bool] = None,
        reuse_grad_buffers: bool = False,
        scheduler_fn: Optional[Callable[[torch.optim.Optimizer], Any]] = None,
        matchmaking_time: float = 5.0,
        averaging_timeout: float = 30.0,
        verbose: bool = False,
        averager_opts: Optional[Dict[str, Any]] = None,
        host_maddrs: Addresses = None,
        initial_peers: Addresses = None,
        use_ipfs: bool = False,
        wait_timeout: float = 3.0,
        bootstrap_timeout: Optional[float] = None,
        use_relay: bool = True,
        use_auto_relay: bool = False,
        identity_path: Union[str, os.PathLike, None] = None,
        *,
        announce_maddrs: Addresses = None,
        client_mode: bool = False,
        open_port: bool = True,
        swarm_key: _invitation.SecretOrPath = None,
        invite: _invitation.SecretOrPath = None,
        closed: bool = False,
        dht: Optional[DHT] = None,
        checkpoints: str = checkpoint_files.OWN,
        buffers: str = "average",
        reseed: bool = True,
        checkpoint_io: Any = None,
        local_steps: LocalSteps = None,
        **optimizer_kwargs: Any,
    ):
        super().__init__(checkpoint_io=checkpoint_io)
        requirements.check_optimizer(self, optimizer_kwargs)
        delayed = delay_grad_averaging if delay_optimizer_step is None else delay_optimizer_step
        self._offload = bool(delayed if offload_optimizer is None else offload_optimizer)
        self._scheduler_fn, self._reuse_grad_buffers = scheduler_fn, reuse_grad_buffers
        self._run_id, self._batch_size, self._reseed = run_id, batch_size, reseed
        self._checkpoints, self._buffers = checkpoint_files.known(checkpoints), module_buffers.known(buffers)
        self._optimizer_options = dict(
            target_batch_size=target_batch_size,
            run_id=run_id,
            delay_state_averaging=delay_state_averaging,
            delay_optimizer_step=delay_optimizer_step,
            delay_grad_averaging=delay_grad_averaging,
            offload_optimizer=self._offload,
            reuse_grad_buffers=reuse_grad_buffers,
            matchmaking_time=matchmaking_time,
            averaging_timeout=as_given(averaging_timeout, HivemindStrategy.__init__, "averaging_timeout"),
            verbose=verbose,
            averager_opts=averager_opts,
            **known_options(Optimizer, with_outer_step(local_steps, optimizer_kwargs)),
        )
        if client_mode:
            self._optimizer_options["client_mode"] = True
        patience = limit(bootstrap_timeout, "bootstrap_timeout")
        self._patience = wait_timeout if patience is None else patience
        self._peers = bootstrap.initial_peers(initial_peers)
        self._dht_options = dict(
            host_maddrs=host_maddrs,
            announce_maddrs=announce_maddrs,
            identity_path=identity_path,
            client_mode=client_mode,
            open_port=open_port,
            wait_timeout=wait_timeout,
            **_invitation.kept(swarm_key, invite, closed),
            use_ipfs=use_ipfs,
            use_auto_relay=use_auto_relay,
        )
        self._dht, self._own_dht = dht, dht is None
        self._hive: Optional[Optimizer] = None
        self._election: Optional[Election] = None
        self._checkpoint_folders: Optional[checkpoint_files.CheckpointFolders] = None
        self._written = set()
        self._last_progress: Any = None
        self._last_record: Optional[EpochRecord] = None
        self._last_epoch = self._samples = 0
        self.first_epoch = 0  #: where this peer was before the first batch of fit
        self._batch: Optional[int] = batch_size
        self._patches = Patches()
        self._shown = contextlib.ExitStack()  # open while the model shows the anchor

    # ---- what users ask ----

    @property
    def dht(self) -> DHT:
        """This peer in the DHT, on rank 0. It starts with fit, or when this property is read."""
        if self.global_rank:
            raise namespaces.misconfigured(
                self,
                f"rank {self.global_rank} has no DHT, because all ranks are one peer and rank 0 speaks for it: look at "
                "dht where trainer.is_global_zero is true",
            )
        if self._dht is None:
            self._dht = bootstrap.start(self._peers, self._patience, **self._dht_options)
            if not self._peers and not self._dht.client_mode:
                bootstrap.invite(self._dht)
        return self._dht

    @property
    def optimizer(self) -> Optional[Optimizer]:
        """The swarm's optimizer, around that of configure_optimizers, on rank 0 while fit runs."""
        return self._hive

    @property
    def global_progress(self) -> Any:
        """The progress of the swarm as a GlobalTrainingProgress. None: before the first fit.

        With several ranks it is what rank 0 has sent after the last batch, and so alike on all of them.
        """
        if self._ranks is not None:
            self._last_progress = self._ranks.progress or self._last_progress
        elif self._hive is not None:
            self._last_progress = self._hive.tracker.global_progress
        return self._last_progress

    @property
    def is_alone(self) -> bool:
        """True while no epoch ends because no other peer trains, as when_alone="wait" asks for."""
        told = self._ranks is not None and bool(self._ranks.news.get("alone"))
        return told if self._hive is None else self._hive.waits_for_company

    @property
    def num_peers(self) -> int:
        """The number of peers of this run, with this one."""
        progress = self.global_progress
        return progress.num_peers if progress is not None else 1

    @property
    def global_epoch(self) -> int:
        """The number of optimizer steps of the swarm, as far as this peer has taken part."""
        if self._hive is not None:
            self._last_epoch = self._hive.local_epoch
        elif self._ranks is not None:
            self._last_epoch = self._ranks.news.get("epoch", self._last_epoch)
        return self._last_epoch

    @property
    def last_epoch(self) -> Optional[EpochRecord]:
        """The EpochRecord of the latest swarm epoch that is complete, or None. It stays after fit."""
        return self._last_record

    # ---- a run's beginning ----

    @property
    def _target(self) -> int:
        return self._optimizer_options["target_batch_size"]

    @property
    def optimizers(self) -> Any:
        """The optimizers of the Trainer: the swarm's optimizer while fit runs."""
        return super().optimizers

    @optimizers.setter
    def optimizers(self, given: Any) -> None:
        if self._hive is not None and any(optimizer is not self._hive for optimizer in given):
            raise namespaces.misconfigured(
                self,
                "trainer.optimizers cannot be replaced while the swarm trains with the one of configure_optimizers: "
                "return the other one from configure_optimizers",
            )
        super(HivemindStrategy, type(self)).optimizers.fset(self, given)  # type: ignore[attr-defined]

    def connect(self, model: Any) -> None:
        """Called by Lightning when the Trainer gets its module.

        Args:
            model: The module.
        """
        super().connect(model)  # type: ignore[misc]
        trainer = model.trainer
        if trainer.state.fn == "fit":
            self._patches.put_class(
                trainer, global_steps.estimates_global_steps(self, trainer, self._target, self._batch_size)
            )

    def setup(self, trainer: Any) -> None:
        """Called by Lightning before training: checks the Trainer and joins the swarm.

        Args:
            trainer: The Trainer.
        """
        if trainer.state.fn != "fit":
            super().setup(trainer)  # type: ignore[misc]
            return
        if self.has_ranks:
            self._ranks = Ranks(self, trainer)
        self._signals = Signals(trainer) if self._ranks is None else self._ranks.signals
        try:
            requirements.check_training(self, trainer, self._target)
            apart = self._offload or self._reuse_grad_buffers or bool(self._optimizer_options.get("use_local_updates"))
            requirements.check_rate_finder(self, trainer, self._target, apart)
            if self._ranks is not None:
                self._ranks.check(self.lightning_module)
            super().setup(trainer)  # type: ignore[misc]
            self._join(trainer)
        except BaseException as error:
            self.ends_alone(error)
            self._leave()
            raise

    def _join(self, trainer: Any) -> None:
        arguments = requirements.optimizer_and_scheduler(self, self._offload, self._scheduler_fn)
        if self._ranks is not None and not self._ranks.leads:
            told = self._ranks.follow_with(self.optimizers[0], self._reuse_grad_buffers)
            self._peer_id, reseeds = told["peer_id"], told["reseeds"]
        else:
            reseeds = self._join_swarm(trainer, arguments)
        self._speed, self._counter, self._samples = Speed(), SampleCounter(self), 0
        self._finder = global_steps.RateFinder(trainer, self._target, self._patches)
        self._dense_gradients = optimizers.DenseGradients(self.lightning_module)
        preparation.prepare(self, trainer, self._patches)
        if self._checkpoints == checkpoint_files.OWN:
            self._checkpoint_folders = checkpoint_files.CheckpointFolders(trainer, self._peer_id)
            self._checkpoint_folders.choose(self.is_elected)
        if reseeds:
            change_seeds(self._peer_id)
            samplers.change_seed(self, trainer, self._peer_id, self._patches)

    def _join_swarm(self, trainer: Any, arguments: Dict[str, Any]) -> bool:
        """Joins the swarm. True if this peer, with all its ranks, changes its random seeds."""
        dht = self.dht
        self._peer_id, self._election = dht.peer_id, Election(dht, self._run_id)
        options = {**self._optimizer_options, "averaged_grad_hook": step_hooks.ClipAveraged(self)}
        options["on_epoch"] = log_epochs(self, trainer, options.get("on_epoch"))
        options["buffers"] = module_buffers.chosen(self._buffers, self.lightning_module)
        made = Optimizer if self._ranks is None else self._ranks.lead_with
        hive = self._hive = made(dht=dht, **arguments, **options)
        hive.check_setup()  # before training begins
        optimizers.pass_for_inner(hive)
        self.optimizers = [hive]
        self._election.look()  # of two that started at one moment, one has given way by now
        reseeds = self._reseed and not self.is_elected
        if self._ranks is not None:
            self._ranks.lead.begin(peer_id=dht.peer_id, reseeds=reseeds)
        return reseeds

    # ---- a step ----

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Called by Lightning for each batch: counts its samples, and logs figures of the swarm.

        Args:
            *args: Arguments of the module's training_step.
            **kwargs: Named arguments of the module's training_step.
        """
        given = [*args, *kwargs.values()]
        taken = CountingIterator(given[0], self._counter) if given and is_dataloader_iter(given[0]) else None
        if taken is not None:
            args, kwargs = (taken, *given[1:]), {}
        elif self._batch_size is None:
            self._batch = self._counter.count(given[0]) if given else 1
        if taken is None:
            self._stepper.expect_batch(self._batch)
        output = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if taken is not None and self._batch_size is None:
            self._batch = taken.samples or self._batch  # 0: the batch was taken in advance, and counted then
        if self._ranks is not None:
            self._ranks.skips = output is None
        module = self.lightning_module
        if (module.trainer.global_step + 1) % max(1, module.trainer.log_every_n_steps) == 0:
            for name, value in figures(self.global_progress, self._speed).items():
                module.log(name, value, on_step=True, on_epoch=False, batch_size=1)
        return output

    def batch_to_device(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Called by Lightning for each batch before training_step.

        Args:
            batch: The batch.
            *args: Further arguments of Lightning.
            **kwargs: Further named arguments of Lightning.
        """
        batch = super().batch_to_device(batch, *args, **kwargs)  # type: ignore[misc]
        if self._is_fitting and self.lightning_module.trainer.training:
            self._finder.gather(lambda: self._batch_size or self._counter.count(batch))
        return batch

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        """Called by Lightning after each batch: counts the batch, and steps when the swarm has enough samples.

        Args:
            optimizer: The optimizer.
            closure: A function that runs training_step and backward.
            model: The module.
            **kwargs: Further arguments of Lightning.
        """
        loss, ranks = closure(), self._ranks
        if loss is None:  # training_step gave none: this batch has no gradients, and does not count
            if ranks is not None:
                ranks.step_without_batch()
            return None
        if self._finder.at_work:
            return super().optimizer_step(self._hive.opt, lambda: loss, model, **kwargs)  # type: ignore[misc]
        self._dense_gradients.convert()
        self._stepper.report_loss(loss)
        epoch = self.global_epoch
        if not self._samples:
            self.first_epoch = epoch
        self._samples += self._batch
        kwargs["batch_size"] = self._batch
        optimizer = getattr(ranks, "follow", None) or optimizer
        with not_admitted.saves_checkpoint(self, model):
            result = super().optimizer_step(optimizer, lambda: loss, model, **kwargs)  # type: ignore[misc]
        if ranks is not None:
            ranks.after_step()
        if self._checkpoint_folders is not None and self.global_epoch != epoch:
            self._checkpoint_folders.choose(self.is_elected)
        return result

    @property
    def _stepper(self) -> Any:
        """The optimizer that takes the batches of this process."""
        return self._hive if self._ranks is None else self._ranks.stepper

    # ---- a run's end ----

    def teardown(self) -> None:
        """Called by Lightning after training: leaves the swarm, and undoes changes to the Trainer."""
        self._leave()
        super().teardown()  # type: ignore[misc]

    def _leave(self) -> None:
        """Says goodbye, and puts back what was changed for the run."""
        hive, ranks = self._hive, self._ranks
        self._shown.close()
        if hive is not None:
            # a delayed step clips by step_hooks, and so needs _hive until it is over
            hive.state_averager.background.settle()
            self._last_progress = self.global_progress
            self._hive = None
            hive.shutdown()  # takes its outcome over, and tells what went wrong in it
            self._last_epoch = hive.local_epoch
            hive.keep_anchor()
            run_end.say_if_nothing_was_stepped(self)
        if ranks is not None:
            ranks.leave()
            self._last_epoch, self._last_progress, self._ranks = self.global_epoch, self.global_progress, None
        self._signals = None
        if self._election is not None:
            self._election.shutdown()
            self._election = None
        if self._dht is not None and self._own_dht:
            self._dht.shutdown()
            self._dht = None
        if self._checkpoint_folders is not None:
            self._checkpoint_folders.restore()
            self._checkpoint_folders = None
        self._patches.undo()

    # ---- pickle and copy ----

    def __getstate__(self) -> Dict[str, Any]:
        if self._hive is not None or self._dht is not None and self._own_dht:
            raise TypeError(
                "HivemindStrategy cannot be pickled or copied: it is a running peer of a swarm; do it before fit, or "
                "after fit has returned"
            )
        inner = [getattr(optimizer, "opt", optimizer) for optimizer in self.optimizers]
        # not shared by copies
        own = dict(_of_trainer=dict(self._of_trainer), _written=set(self._written), _patches=Patches(), in_fit=None)
        # of the last fit
        there = {
            name: value for name, value in vars(self).items() if name not in ("_counter", "_finder", "_dense_gradients")
        }
        own["_shown"] = contextlib.ExitStack()
        return {**there, **own, "_optimizers": inner, "_lightning_optimizers": [], "lr_scheduler_configs": []}


class CollaborativeStrategy(HivemindStrategy):
    """The HivemindStrategy under its older name."""


def _register() -> None:
    """LightningCLI's class_path, and isinstance, in every Lightning that the program has; registry.py does the same for
    those imported later.
    """
    for name in namespaces.imported():
        namespaces.part(name, "strategies.Strategy").register(HivemindStrategy)


_register()
