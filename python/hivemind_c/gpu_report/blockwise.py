"""``blockwise8`` against bitsandbytes' blockwise quantization, blocks of 4,096.

Ours writes a whole chunk, with its checksum; theirs writes codes and the largest values alone.
"""

from __future__ import annotations

import json

import torch
from bitsandbytes import functional as theirs  # if it is missing, row.py says so

from .place import DEVICE, kernels, sizes, values_of
from .turns import Work, in_turn, median, spread


def row(name: str, ours: Work, others: Work) -> dict:
    pairs = in_turn(ours, others, 1.0)
    return {
        "row": name,
        **spread("times as fast", [b / a for a, b in pairs]),
        "goal": ">= 1",
        "ms": median([a for a, _ in pairs], 4),
    }


def main() -> None:
    ours = kernels()
    for megabytes in sizes():
        for dtype in (torch.float32, torch.bfloat16):
            tensor = torch.randn(values_of(megabytes), device=DEVICE).to(dtype)
            chunk, out = ours.encode("blockwise8", tensor), torch.empty_like(tensor)
            codes, state = theirs.quantize_blockwise(tensor, blocksize=4096)
            about = {"MB of float32": megabytes, "dtype": str(dtype)}
            works = {
                "quantize": (
                    lambda: ours.encode("blockwise8", tensor),
                    lambda: theirs.quantize_blockwise(tensor, blocksize=4096),
                ),
                "dequantize": (
                    lambda: ours.decode(chunk, "blockwise8", dtype, out),
                    lambda: theirs.dequantize_blockwise(codes, state, out=out),
                ),
            }
            for name, (mine, other) in works.items():
                print(json.dumps({**row(f"{name} against bitsandbytes", mine, other), **about}), flush=True)
