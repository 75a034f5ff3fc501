"""PowerSGD on the device against its own matrix products."""

from __future__ import annotations

import json

import torch

from hivemind_c._lowrank import LowRank

from .place import DEVICE, STAND_IN
from .turns import in_turn, median, spread

SHAPES = [(4096, 1024)] * 4 + [(1024, 4096)] * 4 + [(1024, 1024)] * 16


def row(rank: int) -> None:
    shapes = [(rows // 16, columns // 16) for rows, columns in SHAPES] if STAND_IN else SHAPES
    grads = [torch.randn(shape, device=DEVICE) for shape in shapes]
    out, low, number = [torch.empty_like(g) for g in grads], LowRank(grads, rank, 0.0), [0]
    sketches = [torch.randn(rank, g.shape[1], device=DEVICE) for g in grads]
    low._sketch(1)
    low._sketch = lambda round_id: None  # made on the host, beside the training

    def whole() -> None:
        number[0] += 1
        low.encode(number[0], grads)
        low.middle(number[0], low.buffers[0])
        low.decode(number[0], low.buffers[1], out)

    def products() -> None:
        for g, q in zip(grads, sketches):
            p = g @ q.t()
            p @ (p.t() @ g)

    pairs = in_turn(whole, products)
    found = {
        "row": "PowerSGD / its products",
        "rank": rank,
        **spread("ratio", [a / b for a, b in pairs]),
        "goal": "<= 1.3",
    }
    print(json.dumps({**found, "ms": median([a for a, _ in pairs])}), flush=True)


def main() -> None:
    for rank in (4, 32):
        row(rank)
