"""A step of an offloaded optimizer: a bfloat16 model on the device, its float32 copies in the host's memory.

Beside it, the same step written in plain torch: pageable copies, tensor by tensor.
Both are wall time, because the host does most of the work.
"""

from __future__ import annotations

import json
import time
from typing import List

import torch

from hivemind_c.optim.parameters import Parameters

from .place import DEVICE, STAND_IN
from .turns import Work, in_turn, median, spread


def tensors() -> List[torch.nn.Parameter]:
    """About 100 million parameters, as a model has them: matrices with a bias each."""
    torch.manual_seed(0)
    width, pairs = (64, 4) if STAND_IN else (2048, 24)
    shapes = [(width, width), (width,)] * pairs
    made = [torch.nn.Parameter(torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)) for shape in shapes]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    return made


def adam(parameters: List[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4, fused=True)


def waited(work: Work) -> float:
    """Milliseconds of wall time, until the device is done too."""
    if not STAND_IN:
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if not STAND_IN:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    offloaded = Parameters([{"params": tensors()}], offload=True)
    optimizer = adam(offloaded.main)
    model = tensors()
    main_ones = [torch.nn.Parameter(p.detach().cpu().float()) for p in model]
    for one in main_ones:
        one.grad = torch.zeros_like(one)
    plain_optimizer = adam(main_ones)

    def ours() -> None:
        offloaded.settle()
        offloaded.lend_gradients()
        optimizer.step()
        offloaded.push()

    @torch.no_grad()
    def plain() -> None:
        for one, p in zip(main_ones, model):
            one.grad.copy_(p.grad)
        plain_optimizer.step()
        for one, p in zip(main_ones, model):
            p.copy_(one)

    pairs = in_turn(ours, plain, 15.0, waited)
    offloaded.settle()
    same = all(torch.equal(one.detach(), other.detach()) for one, other in zip(offloaded.main, main_ones))
    found = {"row": "an offloaded step of a bfloat16 model / plain torch", "parameters": sum(p.numel() for p in model)}
    found.update(spread("ratio", [a / b for a, b in pairs]))
    print(
        json.dumps(
            {
                **found,
                "ms": median([a for a, _ in pairs]),
                "plain ms": median([b for _, b in pairs]),
                "same values": same,
            }
        )
    )
    if not same:
        raise SystemExit("the offloaded step and plain torch's end with different values")
