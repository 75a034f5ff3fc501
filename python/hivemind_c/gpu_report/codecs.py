"""Throughput of each codec from Python, as a share of a copy between two places of the device's memory."""

from __future__ import annotations

import json

import _hivemind_c
import torch

from .place import DEVICE, kernels, sizes, values_of
from .turns import in_turn, median, several, spread

TWICE = (
    "scaled_float16",
    "scaled_rows",
    "uniform8",
    "quantile8",
)  # statistics of the whole tensor come first, so encoding reads it twice
SLOWER = "quantile8", "linear4"


def main() -> None:
    ours = kernels()
    for megabytes in sizes():
        n = values_of(megabytes)
        tensor, copy = torch.randn(n, device=DEVICE), torch.empty(n, device=DEVICE)
        for codec in _hivemind_c.CODECS:
            chunk = ours.encode(codec, tensor)
            works = {
                "encode": (lambda: ours.encode(codec, tensor), 1 + (codec in TWICE)),
                "decode": (lambda: ours.decode(chunk, codec, torch.float32, copy), 1),
            }
            for name, (work, passes) in works.items():
                moved = 4 * n * passes + chunk.numel()
                loop, times = several(work, 4)
                other, others = several(lambda: copy.copy_(tensor), 4)
                pairs = in_turn(loop, other, 0.5)
                shares = [moved / (8 * n) * (b / others) / (a / times) for a, b in pairs]
                row = {"row": f"{name} from Python", "codec": codec, "MB": megabytes, **spread("share", shares)}
                ms = median([a / times for a, _ in pairs], 4)
                row.update({"goal": ">= 0.6" if codec in SLOWER else ">= 0.85", "ms": ms})
                row["GB/s"] = round(moved / max(ms, 1e-4) / 1e6)
                print(json.dumps(row), flush=True)
