"""The strategy's part in being one of several ranks of a peer: joining, batches, ends. docs/design/several-gpus.md."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import tempfile
from typing import Any, Iterator, List, Optional

import torch
import torch.distributed as dist

from hivemind_c._lightning import namespaces
from hivemind_c._lightning.patches import Patches
from hivemind_c._lightning.signals import Signals
from hivemind_c.inside.channel import Channel, Message, gloo_group
from hivemind_c.inside.follow import FollowOptimizer
from hivemind_c.inside.halt import Halt
from hivemind_c.inside.lead import END, LEAVE, SYNC, LeadOptimizer
from hivemind_c.inside.watch import Watch
from hivemind_c.optim.progress_tracker import GlobalTrainingProgress

MODEL = "model"


class Ranks:
    """The common part of all ranks while fit runs.

    Args:
        strategy: The HivemindStrategy.
        trainer: Its Trainer.
    """

    def __init__(self, strategy: Any, trainer: Any):
        self._strategy, self._trainer = strategy, trainer
        self._in_hook = self._alone = self._ended = False
        self.skips = False  #: training_step has given no loss for this batch
        self.rank, self.world = strategy.global_rank, strategy.world_size
        group = gloo_group()
        folder = [tempfile.mkdtemp(prefix="hivemind-ranks-") if self.leads else None]
        dist.broadcast_object_list(folder, 0, group=group)
        self.watch = Watch(str(folder[0]), self.rank, self.world)
        self.halt = Halt(str(folder[0]), self.rank, self.world)
        self.signals = Signals(trainer, self.halt)
        self.channel = Channel(self.watch, group)
        strategy.in_fit.set()
        self.lead: Optional[LeadOptimizer] = None
        self.follow: Optional[FollowOptimizer] = None

    @property
    def leads(self) -> bool:
        """True on rank 0, which speaks with the swarm."""
        return self.rank == 0

    @property
    def stepper(self) -> Any:
        """The object that takes the batches of this rank."""
        return self.lead or self.follow

    @property
    def news(self) -> Message:
        """The fields that rank 0 has sent last."""
        return self.stepper.news if self.stepper is not None else {}

    @property
    def progress(self) -> Optional[GlobalTrainingProgress]:
        """The progress of the swarm, as rank 0 has sent it last."""
        figures = self.news.get("figures")
        return GlobalTrainingProgress(*figures) if figures else None

    # ---- a run's beginning ----

    def check(self, module: torch.nn.Module) -> None:
        """Checks that the ranks can be one peer. Raises on all ranks if they cannot.

        Args:
            module: The module.
        """
        if not self.leads and self._strategy._dht is not None:
            raise namespaces.misconfigured(
                self._strategy,
                f"rank {self.rank} has a running dht=, and all ranks are one peer with the DHT of rank 0: leave dht= "
                "out, or make it only where os.environ.get('LOCAL_RANK', '0') == '0'",
            )
        mine = described(module)
        digest = hashlib.sha256(json.dumps(mine).encode()).hexdigest()
        reports = self.channel.report(kind=MODEL, digest=digest)
        if reports is not None:
            odd = [rank for rank, report in enumerate(reports) if report["digest"] != digest]
            self.channel.send(MODEL, odd=odd, model=mine if odd else [])
        else:
            command = self.channel.receive()
            odd = command["odd"]
            if self.rank in odd:
                raise namespaces.misconfigured(self._strategy, self._difference(mine, command["model"]))
        if odd:
            self.watch.check(patience=10.0)

    def _difference(self, mine: List[Any], first: List[Any]) -> str:
        there = next((pair for pair in zip(mine, first) if pair[0] != pair[1]), None)
        how = f"{len(mine)} parameters and buffers, not {len(first)}"
        if there is not None:
            how = " instead of ".join(f"{name!r} of {shape} {dtype}" for name, shape, dtype in there)
        return (
            f"rank {self.rank} has another model than rank 0 ({how}): make the same model on all ranks, whatever the "
            "rank and the random seed"
        )

    def lead_with(self, **options: Any) -> LeadOptimizer:
        """Returns the Optimizer of rank 0.

        Args:
            **options: Options of Optimizer.
        """
        self.lead = LeadOptimizer(self.channel, self._strategy.lightning_module, self._more, **options)
        return self.lead

    def _more(self, asks: int) -> Message:
        asks |= self.signals.asked
        self.signals.take(asks)
        strategy = self._strategy
        return {"asks": asks, "elected": strategy.is_elected, "alone": strategy.is_alone}

    def follow_with(self, optimizer: Any, reuse_grad_buffers: bool) -> Message:
        """Makes the optimizer of another rank, and returns what rank 0 says once it has joined.

        Args:
            optimizer: The optimizer of configure_optimizers.
            reuse_grad_buffers: The option of that name.
        """
        module = self._strategy.lightning_module
        self.follow = FollowOptimizer(
            self.channel, module, optimizer, lambda: self.signals.asked, reuse_grad_buffers
        )
        return self.follow.begin()

    def prepare(self, patches: Patches) -> None:
        """Replaces what Lightning does for several ranks on its own.

        Args:
            patches: Undoes the changes when fit ends.
        """
        trainer = self._trainer
        after_pass = trainer.fit_loop.on_advance_end

        def on_advance_end() -> None:
            self.meet(END)
            after_pass()

        patches.put(trainer.fit_loop, "on_advance_end", on_advance_end)
        log = self._strategy.lightning_module.log

        def checked_log(*args: Any, sync_dist: bool = False, **kwargs: Any) -> None:
            if sync_dist:
                self.may_meet("log(sync_dist=True)")
            log(*args, sync_dist=sync_dist, **kwargs)

        if self.leads:
            patches.put(self._strategy.lightning_module, "log", checked_log)

    # ---- between batches ----

    def step_without_batch(self) -> None:
        """Takes part in a batch for which training_step gave no loss."""
        self.skips = False
        self.stepper.step_without_batch()
        self.after_step()

    def after_step(self) -> None:
        """After `done`: what signals ask of all ranks."""
        if self.follow is not None:
            self.signals.take(self.news["asks"])

    def meet(self, kind: str, whole: bool = False) -> None:
        """Meets the other ranks between two batches.

        Args:
            kind: END or SYNC.
            whole: Broadcast parameters and buffers even if no parameter has changed.
        """
        if self.stepper is None or not self.may_meet(kind):
            return
        if self.lead is not None:
            self.lead.meet(kind, whole)
        elif self.follow is not None:
            self.follow.meet(kind)
        self.after_step()

    def sync(self, whole: bool = False) -> None:
        """Gives all ranks the parameters of rank 0 if those have changed.

        Args:
            whole: Give them in any case, and the buffers.
        """
        self.meet(SYNC, whole)

    @contextlib.contextmanager
    def hook(self) -> Iterator[None]:
        """Within it, on rank 0 alone, no collective may be called."""
        before, self._in_hook = self._in_hook, True
        try:
            yield
        finally:
            self._in_hook = before

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Within it this rank meets nobody, and the others wait for it."""
        self._alone = True
        try:
            yield
        finally:
            self._alone = False

    def may_meet(self, what: str) -> bool:
        """True if the other ranks take part in a collective now. Raises an error in hooks of rank 0.

        Args:
            what: The collective.
        """
        if self._alone:
            return False
        if self._in_hook:
            raise namespaces.misconfigured(
                self._strategy,
                f"{what} was called in a hook around the step of the optimizer, which runs on rank 0 alone, so the "
                "other ranks take no part: call it in on_train_batch_end",
            )
        if not self._ended and self._trainer.state.status == "interrupted":
            error = sys.exc_info()[1]
            if error is not None and type(error).__name__ != "SIGTERMException":
                self.fail(error)
        return not self._ended

    # ---- ends ----

    def fail(self, error: BaseException) -> None:
        """Tells the other ranks why this one ends. From now on it meets nobody.

        Args:
            error: The error.
        """
        if not self._ended:
            self._ended = True
            text = str(error)
            own = text.startswith("rank ")
            self.watch.tell(text if own else f"rank {self.rank}: {type(error).__name__}: {text}")

    def leave(self) -> None:
        """Ends what the ranks have in common."""
        try:
            if self.stepper is not None and not self._ended and self._trainer.state.status != "interrupted":
                self.meet(LEAVE)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            if not self._ended:
                self.watch.leave()
                self._strategy.in_fit.clear()  # else the watch ends this process
            self._ended = True
            if self.follow is not None:
                self.follow.shutdown()
            self.watch.stop()
            self.halt.close()
            with contextlib.suppress(Exception):
                dist.destroy_process_group(self.channel.group)


def described(module: torch.nn.Module) -> List[Any]:
    """Names, shapes and dtypes of the parameters and buffers."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return [[name, list(getattr(t, "shape", ())), str(t.dtype).split(".")[-1]] for name, t in tensors.items()]
