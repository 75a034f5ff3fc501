"""Rounds of two peers in this process, over loopback: one has its tensors on the device, the other on the host.

Both must hold the same bits afterwards, under every codec.
The time of a round says little, because both peers share this machine's processors.
"""

from __future__ import annotations

import json
import time
from typing import List, Sequence

import torch

from hivemind_c import DHT, DecentralizedAverager
from hivemind_c.compression import codecs

from .place import DEVICE, STAND_IN

SHAPES = [(1000, 500), (1,), (7, 5, 3), (70_001,), (4000,), (2_000_003,)]
DTYPES = [torch.float32, torch.float32, torch.float16, torch.float32, torch.bfloat16, torch.float32]
PATIENCE = 30.0  # seconds of one round


def tensors(seed: int, device: str) -> List[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = SHAPES[:-1] if STAND_IN else SHAPES
    return [torch.randn(shape, generator=generator).to(dtype).to(device) for shape, dtype in zip(shapes, DTYPES)]


def averaged(averagers: Sequence[DecentralizedAverager]) -> float:
    """Seconds of a round in which all take part; its error if it failed."""
    start = time.perf_counter()
    controls = [one.step(wait=False, timeout=PATIENCE, expected=len(averagers)) for one in averagers]
    for control in controls:
        if len(control.result(PATIENCE + 5)) != len(averagers):
            raise SystemExit("a round ended without one of the two peers")
    return time.perf_counter() - start


def main() -> int:
    different = 0
    first = DHT(start=True)
    second = DHT(first.get_visible_maddrs(), start=True)
    try:
        for codec in codecs.BUILT_IN:
            there, here = tensors(1, DEVICE), tensors(2, "cpu")
            options = {"prefix": codec.__name__, "compression": codec(), "start": True, "min_matchmaking_time": 15}
            pair = [DecentralizedAverager(there, first, **options), DecentralizedAverager(here, second, **options)]
            try:
                took = [averaged(pair) for _ in range(2)]
            finally:
                for one in pair:
                    one.shutdown()
            same = all(torch.equal(one.cpu(), other) for one, other in zip(there, here))
            different += not same
            size = sum(tensor.numel() * tensor.element_size() for tensor in here)
            row = {"row": "rounds of two peers over loopback", "codec": codec.codec_name, "MB": round(size / 1e6, 1)}
            print(json.dumps({**row, "seconds": round(min(took), 3), "same bits": same}), flush=True)
    finally:
        second.shutdown()
        first.shutdown()
    print(f"{different} of {len(codecs.BUILT_IN)} codecs gave different bits")
    return bool(different)
