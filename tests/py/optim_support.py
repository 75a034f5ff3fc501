"""What tests of the optimizer share: a small problem, a plain way to train on it, and a swarm's way."""

import torch
from torch import nn

import hivemind_c as hivemind

torch.set_num_threads(1)  # the tests share their machine
FEATURES, CLASSES = 12, 3


def network(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 24), nn.Tanh(), nn.Linear(24, CLASSES)).to(dtype)


def batch(number, size, dtype=torch.float32):
    """The same numbers for the same number, whoever asks."""
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(size, FEATURES, generator=generator)
    return inputs.to(dtype), (inputs[:, :CLASSES] * 3).argmax(1)


def loss_of(model, inputs, targets):
    return nn.functional.cross_entropy(model(inputs).float(), targets)


def backward(model, number, size):
    loss = loss_of(model, *batch(number, size, next(model.parameters()).dtype))
    loss.backward()
    return loss.detach()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
    "adam without foreach": lambda params: torch.optim.Adam(params, lr=0.01, foreach=False),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=0.05),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01, momentum=0.5),
}
SCHEDULERS = {
    "none": None,
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12),
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=13, cycle_momentum=False),
}


def train_plainly(model, optimizer, scheduler=None, *, epochs=12, size=32, first=0):
    """What one machine does with the batches `first`, `first` + 1, ..."""
    for number in range(first, first + epochs):
        optimizer.zero_grad()
        backward(model, number, size)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return model


def make(dht, model, *, optimizer="sgd", scheduler="none", as_factory=False, **options):
    """An Optimizer with this test's usual options."""
    if as_factory or options.get("offload_optimizer"):
        options.update(optimizer=OPTIMIZERS[optimizer], params=model.parameters(), scheduler=SCHEDULERS[scheduler])
        options.setdefault("offload_optimizer", False)
    else:
        options["optimizer"] = OPTIMIZERS[optimizer](model.parameters())
        options["scheduler"] = SCHEDULERS[scheduler] and SCHEDULERS[scheduler](options["optimizer"])
    return hivemind.Optimizer(dht=dht, **{"run_id": "test", "target_batch_size": 32, "batch_size_per_step": 32, **options})


def train(model, optimizer, *, steps=12, size=32, first=0):
    """The same with an Optimizer."""
    for number in range(first, first + steps):
        backward(model, number, size)
        optimizer.step()
        if not optimizer.reuse_grad_buffers:
            optimizer.zero_grad()
    settle(optimizer)
    return model


def settle(optimizer):
    """Takes over what is still under way in the background."""
    optimizer.state_averager.background.take(wait=True)
