"""The cost of adding up gradients for a step that does not average: loops of steps in turn, with it and in plain torch.

The model has 200 million parameters and a batch of 16,384 tokens, so that a step takes longer than its launches.
A GPU of less than 40 GB takes a quarter of the batch.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import torch

from hivemind_c.optim.grad_averager import GradientAverager

from .place import DEVICE, STAND_IN, room
from .turns import in_turn, median, several, spread

SECONDS = 5.0


def network(dtype: torch.dtype) -> torch.nn.Module:
    torch.manual_seed(0)
    width, heads, layers = (16, 2, 1) if STAND_IN else (1024, 16, 16)
    layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True, dropout=0.0)
    return torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device=DEVICE, dtype=dtype)


def row(dtype: torch.dtype, reuse: bool) -> None:
    model = network(dtype)
    averager = GradientAverager(
        model.parameters(),
        dht=SimpleNamespace(client_mode=False),
        prefix="micro",
        reuse_grad_buffers=reuse,
        start=False,
    )
    batch, length, width = (2, 4, 16) if STAND_IN else (16 if room() >= 40 else 4, 1024, 1024)
    tokens = torch.randn(batch, length, width, device=DEVICE, dtype=dtype)

    def plain() -> None:
        if not reuse:
            model.zero_grad()
        model(tokens).square().mean().backward()

    def counted() -> None:
        plain()
        averager.accumulate_grads_(batch)

    other, times = several(plain)
    loop = counted if times == 1 else lambda: [counted() for _ in range(times)]
    pairs = in_turn(loop, other, SECONDS)
    found = {
        "row": "a step that does not average",
        "dtype": str(dtype),
        "reuse_grad_buffers": reuse,
        "tokens": batch * length,
    }
    found.update({**spread("extra", [a / b - 1 for a, b in pairs], 4), "goal": "<= 0.02", "steps of a loop": times})
    print(json.dumps({**found, "ms of a plain step": median([b / times for _, b in pairs])}), flush=True)


def main() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for reuse in (False, True):
            row(dtype, reuse)
