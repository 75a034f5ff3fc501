"""The program of ranks in tests: a Trainer with several devices, on data and models whose sums are exact."""

import atexit
import ctypes
import dataclasses
import datetime
import functools
import hashlib
import importlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import lightning.pytorch  # noqa: F401
import pytorch_lightning  # noqa: F401
import torch

import hivemind_c
import trainers
from hivemind_c._lightning import election, ranks
from hivemind_c.inside import moving, watch
from nccl_rules import replace_groups
from ranks import ON

SAMPLES, FEATURES = 64, 8
HERE = "/ip4/127.0.0.1/tcp/0"
RECORDED = "outcome", "members", "samples", "lost_samples", "bytes_sent", "bytes_received"  # fields of an EpochRecord


def say(**what):
    """One line for the test."""
    os.write(1, (json.dumps(what) + "\n").encode())


def digest(tensors):
    """Of the bytes, as NumPy has no bfloat16."""
    flat = (t.detach().cpu().contiguous().view(-1).view(torch.uint8) for t in tensors)
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in flat)).hexdigest()[:16]


def whole_numbers(samples=SAMPLES):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(-4, 5, (samples, FEATURES), generator=generator).float()


def deny(*args):
    raise hivemind_c.HivemindPermissionError("the invitation has ended")


class Exact(torch.nn.Module):
    """Its gradient is the mean of the inputs, exact for whole numbers."""

    def __init__(self, norm=False, width=FEATURES, frozen=None):
        super().__init__()
        if frozen:  # [number of values, value]
            self.base = torch.nn.Parameter(torch.full((frozen[0],), float(frozen[1])), requires_grad=False)
        self.line = torch.nn.Linear(width, 4, bias=False)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.norm = torch.nn.BatchNorm1d(width) if norm else torch.nn.Identity()
        with torch.no_grad():
            self.line.weight.zero_()

    def forward(self, x):
        return self.line(self.norm(x)).sum(1)


class Endless(torch.utils.data.IterableDataset):
    """Samples without a length, each rank's own part of them."""

    def __init__(self, rank, devices):
        self._rank, self._devices = rank, devices

    def __iter__(self):
        return ((sample,) for sample in whole_numbers()[self._rank :: self._devices])


def norm_of_all(self, x):
    """In place of SyncBatchNorm.forward, which torch has for GPUs alone: with collectives, as there."""
    if not self.training or not torch.distributed.is_initialized():
        return torch.nn.BatchNorm1d.forward(self, x)
    rank = torch.distributed.get_rank()
    together = torch.cat(torch.distributed.nn.functional.all_gather(x))
    return torch.nn.BatchNorm1d.forward(self, together)[rank * len(x) : (rank + 1) * len(x)]


class Together(torch.nn.Module):
    """Subtracts half the mean of the ranks' batches, which is exact."""

    def __init__(self, devices):
        super().__init__()
        self._devices = devices

    def forward(self, x):
        mean = x.mean(0)
        if self._devices > 1:
            mean = torch.distributed.nn.functional.all_reduce(mean) / self._devices
        return x - mean / 2


def module_of(pl, net, optimizer, watch):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, batch_idx):
            return watch(self, batch[0], batch_idx)

        def validation_step(self, batch, batch_idx):
            self.log("val", self.net(batch[0]).mean(), sync_dist=True)
            if hasattr(self, "slow_validation"):
                say(event="validating", rank=self.global_rank)
                time.sleep(self.slow_validation)

        def configure_optimizers(self):
            if hasattr(self, "estimates"):
                self.steps = self.trainer.estimated_stepping_batches
            return optimizer(self.parameters())

    return Module()


def chosen(parameters):
    return torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.5)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.5)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def plateau(parameters):
    made = torch.optim.SGD(parameters, lr=0.5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(made, mode="max", factor=0.5, patience=0)
    return {"optimizer": made, "lr_scheduler": {"scheduler": scheduler, "monitor": "val"}}


def scheduled(parameters):
    made = torch.optim.SGD(parameters, lr=0.5)
    return [made], [torch.optim.lr_scheduler.ExponentialLR(made, 0.5)]


def train(
    namespace="lightning.pytorch",
    devices=2,
    batch=8,
    target=SAMPLES,
    passes=3,
    optimizer="sgd",
    norm=False,
    noise=False,
    step_s=0.0,
    skip=(),
    fail_at=None,
    slow_validation=None,
    hang_at=None,
    peers=None,
    strategy=None,
    trainer=None,
    model_of_rank=False,
    loader=None,
    precision=None,
    resume=None,
    hook=None,
    epochs=None,
    random=False,
    own_dht=False,
    seed=5,
    stopped_s=None,
    exact_batches=None,
    save=None,
    samples=SAMPLES,
    trainer_before=None,
    queued_s=None,
    patience_s=None,
    estimates=False,
    workers=0,
    loses=False,
    stuck_at_exit=False,
    denied_at=None,
    validation_batch=16,
    slurm=False,
    frozen=None,
    thaw=None,
    looks=False,
):
    """Trains, and says what came of it. skip: pairs of rank and batch without a loss."""
    torch.set_num_threads(1)
    if stuck_at_exit:
        atexit.register(ctypes.PyDLL(None).sleep, 600)  # and no other thread of Python runs
    if stopped_s is not None:
        watch.STOPPED_S = stopped_s
    if queued_s is not None:
        replace_groups(moving, queued_s)
    if patience_s is not None:
        ranks.Channel = functools.partial(ranks.Channel, timeout=datetime.timedelta(seconds=patience_s))
    pl = importlib.import_module(namespace)
    rank = int(os.environ.get("LOCAL_RANK", 0))
    options = dict(
        target_batch_size=target, run_id="inside", initial_peers=peers, host_maddrs=HERE, open_port=False,
        matchmaking_time=1.0, averaging_timeout=20.0, wait_timeout=20.0,
    )  # fmt: skip
    if own_dht:
        options["dht"] = hivemind_c.DHT(host_maddrs=[HERE], start=True)
    for name in ("grad_averager_factory",):
        if strategy and strategy.get(name) == "PowerSGD":
            strategy[name] = hivemind_c.PowerSGDGradientAverager.get_factory(averager_rank=1, min_compression_ratio=0.0)
    records, ledger, bends = [], {}, random or norm == "sync"
    made = hivemind_c.HivemindStrategy(on_epoch=records.append, **{**options, **(strategy or {})})
    batches, rates, about, progress, models, anchors, stood, weights = [], [], {}, [], [], {}, [], []

    def step(module, x, index):
        batches.append(x.sum().item())
        if step_s:
            time.sleep(step_s)
        if len(batches) == 1:
            about.update(sampler=getattr(module.trainer.train_dataloader.sampler, "seed", None), first=digest([x]))
            about.update(steps=module.trainer.estimated_stepping_batches if devices > 1 else None)
            about.update(base=[kind.__name__ for kind in type(made).__mro__])
            say(event="training", rank=rank, pid=os.getpid(), at=time.time(), **about,
                maddrs=made.dht.get_visible_maddrs() if rank == 0 else None, dht=dht_of(made))  # fmt: skip
        if fail_at == [rank, len(batches)]:
            raise ValueError("this batch cannot be read")
        if rank == 0 and len(batches) == denied_at:
            made.optimizer._take_step = deny

            def on_save_checkpoint(checkpoint):
                time.sleep(2.0)
                say(event="saved", at=time.time())

            module.on_save_checkpoint = on_save_checkpoint
        if hang_at == [rank, len(batches)]:
            time.sleep(600)
        if [rank, len(batches)] in [list(pair) for pair in skip]:
            return None
        out = module.net(x)
        loss = out.square().mean() if bends else out.mean()
        if noise:
            loss = loss + (module.net.line.weight * torch.randn_like(module.net.line.weight)).sum()
        return loss

    torch.manual_seed(seed)
    net = Exact(norm in (True, "sync"), FEATURES + (rank if model_of_rank else 0), frozen)
    module = module_of(pl, net, globals()[optimizer], step)
    validated = []
    if looks:
        module.on_validation_batch_start = lambda batch, index: validated.append(digest(module.parameters()))
    if slow_validation is not None:
        module.slow_validation = slow_validation
    if estimates:
        module.estimates = True
    if loses:  # another peer that began at the same moment is elected

        class Lost(election.Election):
            def look(self):
                self._elected = False

        hivemind_c.strategy.Election = Lost
    moved, broadcast = [], moving._broadcast
    moving._broadcast = lambda channel, tensor: moved.append(tensor.numel()) or broadcast(channel, tensor)
    if thaw is not None:  # the program changes what does not train, on rank 0

        def on_train_batch_start(batch, index):
            if rank == 0 and len(batches) == thaw:
                net.base.add_(1)

        module.on_train_batch_start = torch.no_grad()(on_train_batch_start)
    if hook == "all_gather":
        module.on_before_optimizer_step = lambda optimizer: module.all_gather(torch.ones(1))
    if hook == "slow":
        module.on_before_optimizer_step = lambda optimizer: time.sleep(4.0)
    if hook == "log":
        module.on_before_optimizer_step = lambda optimizer: module.log("norm", 1.0, sync_dist=True)
    data = torch.utils.data.TensorDataset(whole_numbers(samples))
    if loader == "uneven":
        data = torch.utils.data.TensorDataset(whole_numbers()[: 40 if rank else 64])
    sampler = None  # Lightning's, which shuffles
    if devices > 1 and not random and loader is None:
        sampler = torch.utils.data.DistributedSampler(data, devices, rank, shuffle=False)
    if norm == "together":
        net.norm = Together(devices)
    if norm == "sync":
        torch.nn.SyncBatchNorm.forward = norm_of_all
    if bends:
        with torch.no_grad():
            net.line.weight.copy_(whole_numbers()[:4] / 16)  # gradients depend on it, and reach the norm
    if loader == "endless":
        data = Endless(rank, devices)
    load = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=random, sampler=sampler, num_workers=workers)
    given = dict(accelerator=ON, devices=devices, max_epochs=passes, num_sanity_val_steps=0, **(trainer or {}))
    if loader == "uneven":
        given["use_distributed_sampler"] = False
    if slurm:
        os.environ.update(SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank))
        given["plugins"] = [importlib.import_module(f"{pl.__name__}.plugins.environments").SLURMEnvironment()]
    if precision:
        given["plugins"] = [Scaled(pl, rank, precision)]

    class Until(pl.Callback):
        def on_train_end(self, trainer, *args):
            if rank == 0:
                ledger.update(made.optimizer.ledger.samples.figures())
            if save:
                trainer.save_checkpoint(save)

        def on_train_batch_end(self, trainer, *args):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])
            progress.append(dataclasses.astuple(made.global_progress))
            if looks:
                models.append(digest([*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]))
                stood.append(made.global_epoch)
                weights.append(net.line.weight[0].tolist())
                if stood[-2:] == [0, 1]:
                    say(event="first epoch")
                if rank == 0:
                    anchors[made.global_epoch] = digest(made.optimizer.anchor)
            if exact_batches and len(batches) == exact_batches:
                trainer.should_stop = True
            if epochs and made.global_epoch >= epochs:
                trainer.should_stop = True

    if trainer_before:  # with the same strategy
        before = trainers.trainer(made, pl, **{**given, **trainer_before})
        before.fit(module_of(pl, Exact(), sgd, lambda module, x, index: module.net(x).mean()), load)
        say(event="before", rank=rank, devices=before.num_devices)
    runs = trainers.trainer(made, pl, callbacks=[Until()], **given)
    validates = slow_validation is not None or norm in (True, "sync")
    validation = torch.utils.data.DataLoader(data, validation_batch) if validates else None
    try:
        runs.fit(module, load, validation, ckpt_path=resume)
    finally:
        say(
            event="end", at=time.time(), rank=rank, epoch=made.global_epoch, peers=made.num_peers, batches=len(batches),
            parameters=digest(module.parameters()),
            buffers=digest(b for b in module.buffers() if b.is_floating_point()),
            weight=net.line.weight[0].tolist(), seen=sum(batches), status=str(runs.state.status),
            states=len(runs.optimizers[0].state) if runs.optimizers else 0,
            progress=progress, rates=rates, ledger=ledger, moved=sum(moved),
            norm=[value for t in net.norm.state_dict().values() for value in t.view(-1).tolist()],
            base=[net.base.min().item(), net.base.max().item()] if frozen else None,
            models=models, anchors=anchors, stood=stood, weights=weights, validated=validated,
            records=[{name: getattr(one, name) for name in RECORDED} for one in records],
        )  # fmt: skip


def Scaled(pl, rank, overflow):
    """Half precision's plugin, for a CPU, too: a GradScaler, and a loss that overflows at one rank's second batch."""
    precision = importlib.import_module(f"{pl.__name__}.plugins.precision")
    seen = []

    class Plugin(precision.MixedPrecision):
        def pre_backward(self, tensor, module):
            seen.append(1)
            if overflow == [rank, len(seen)]:
                tensor = tensor * float("inf")
            return super().pre_backward(tensor, module)

    return Plugin("16-mixed", ON, scaler=torch.amp.GradScaler(ON, init_scale=1024.0, growth_interval=1000))


def dht_of(strategy):
    """The error that reading dht raises, or None."""
    try:
        strategy.dht.peer_id
    except Exception as error:
        return str(error)
    return None


if __name__ == "__main__":
    train(**json.loads(os.environ.get("RANK_OPTIONS", "{}")))
