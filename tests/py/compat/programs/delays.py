"""Optimizer with every delay, a scheduler, compressions and PowerSGD, alone in its swarm."""

from functools import partial

import torch

import hivemind
from hivemind import Float16Compression, SizeAdaptiveCompression, Uniform8BitQuantization
from hivemind.optim.power_sgd_averager import PowerSGDGradientAverager
from hivemind.optim.state_averager import LRSchedulerBase

dht = hivemind.DHT(start=True)
COMPRESSION = SizeAdaptiveCompression(
    threshold=2**16 + 1, less=Float16Compression(), greater_equal=Uniform8BitQuantization()
)
WAYS = {
    "plain": {},
    "state": dict(delay_state_averaging=True),
    "step": dict(delay_state_averaging=True, delay_optimizer_step=True, offload_optimizer=True),
    "gradients": dict(
        delay_state_averaging=True, delay_optimizer_step=True, delay_grad_averaging=True, offload_optimizer=True
    ),
    "local": dict(use_local_updates=True, average_state_every=2),
    "reused": dict(reuse_grad_buffers=True),
    "powersgd": dict(
        grad_averager_factory=partial(PowerSGDGradientAverager, averager_rank=2, min_compression_ratio=0.5)
    ),
}


def scheduler(optimizer) -> LRSchedulerBase:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)


for way, options in WAYS.items():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id=f"delays_{way}",
        target_batch_size=32,
        batch_size_per_step=16,
        params=model.parameters(),
        optimizer=lambda params: torch.optim.Adam(params, lr=0.05),
        scheduler=scheduler,
        grad_compression=COMPRESSION,
        state_averaging_compression=Float16Compression(),
        matchmaking_time=1.0,
        averaging_timeout=10.0,
        **options,
    )
    first = None
    for number in range(20):
        x = torch.randn(16, 16)
        loss = torch.nn.functional.mse_loss(model(x), x[:, :1])
        loss.backward()
        optimizer.step()
        if not options.get("reuse_grad_buffers"):
            optimizer.zero_grad()
        first = first or loss.item()
    assert loss.item() < first, way
    assert optimizer.local_epoch == 10, way
    assert optimizer.delay_grad_averaging == options.get(
        "delay_grad_averaging", False
    ) and optimizer.offload_optimizer == (way != "local"), way
    assert optimizer.tracker.global_progress.num_peers == 1 and optimizer.state_averager.parameter_names is None
    restored = optimizer.state_dict()
    optimizer.load_state_dict(restored)
    optimizer.shutdown()
dht.shutdown()
