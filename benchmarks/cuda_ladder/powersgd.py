"""PowerSGD on a GPU against its own matrix products: one JSON object a line. Time by CUDA's events, the two in turn (A-B-B-A)."""

import json

import small  # noqa: F401  (puts the small module in the place of the whole one)
import torch
from turns import in_turn, median, spread

from hivemind_c._lowrank import LowRank

SHAPES = [(4096, 1024)] * 4 + [(1024, 4096)] * 4 + [(1024, 1024)] * 16


def row(rank: int) -> None:
    grads = [torch.randn(shape, device="cuda") for shape in SHAPES]
    out, low, number = [torch.empty_like(g) for g in grads], LowRank(grads, rank, 0.0), [0]
    sketches = [torch.randn(rank, g.shape[1], device="cuda") for g in grads]
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
    print(json.dumps({"row": "PowerSGD / its products", "rank": rank, **spread("ratio", [a / b for a, b in pairs]), "goal": "<= 1.3", "ms": median([a for a, _ in pairs])}))


if __name__ == "__main__":
    for rank in (4, 32):
        row(rank)
