"""A scheduler that passes its end: one warning that says what to count."""

import logging

import pytest
import torch
from torch.optim import lr_scheduler

from hivemind_c.optim.scheduler_end import SchedulerEnd


def made(kind, **options):
    return kind(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), **options)


def chained():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    warm = lr_scheduler.LinearLR(optimizer, total_iters=2)
    return lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)], [2])


def warnings_of(scheduler, steps, caplog):
    """(step, sentence) of each warning."""
    end, told = SchedulerEnd(), []
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        for step in range(1, steps + 1):
            scheduler.optimizer.step() if hasattr(scheduler, "optimizer") else None
            scheduler.step()
            caplog.clear()
            end.look(scheduler)
            told += [(step, line) for line in caplog.messages]
    return told


@pytest.mark.parametrize(
    "make, first",
    [
        (lambda: made(lr_scheduler.CosineAnnealingLR, T_max=3), 4),
        (chained, 6),
    ],
)
def test_scheduler_past_its_end_warns_once(make, first, caplog):
    ((step, sentence),) = warnings_of(make(), 9, caplog)
    assert step == first and "divided by target_batch_size" in sentence


@pytest.mark.parametrize(
    "make",
    [
        lambda: made(lr_scheduler.CosineAnnealingLR, T_max=9),
        lambda: made(lr_scheduler.CosineAnnealingWarmRestarts, T_0=2),
        lambda: made(lr_scheduler.LinearLR, total_iters=2),
        lambda: made(lr_scheduler.LambdaLR, lr_lambda=lambda step: 1.0),
    ],
)
def test_scheduler_without_an_end_is_quiet(make, caplog):
    assert warnings_of(make(), 9, caplog) == []


def test_optimizer_warns_of_its_scheduler(caplog):
    from hivemind_c import DHT, Optimizer

    weight = torch.zeros(1, requires_grad=True)
    with DHT(start=True) as dht, caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        optimizer = Optimizer(
            dht=dht,
            run_id="scheduler's end",
            target_batch_size=1,
            batch_size_per_step=1,
            optimizer=torch.optim.SGD([weight], lr=0.1),
            scheduler=lambda inner: lr_scheduler.CosineAnnealingLR(inner, T_max=2),
        )
        for _ in range(4):
            weight.sum().backward()
            optimizer.step()
        assert optimizer.local_epoch >= 3
        optimizer.shutdown()
    assert sum("has passed its T_max=2" in line for line in caplog.messages) == 1
