"""Our codecs of 16 and 8 bits against torch's own casts on the device: encoding and decoding of float32.

Ours write a whole chunk, with its checksum; torch's write codes alone.
``uniform8`` finds its scale itself, as torch's dynamic form does.
"""

from __future__ import annotations

import json
from typing import Callable, Dict, Tuple

import torch

from .place import DEVICE, kernels, sizes, values_of
from .turns import Work, in_turn, median, several, spread

Pair = Tuple[Work, Work]  # to the codes, and back


def halves(dtype: torch.dtype) -> Callable[[torch.Tensor, torch.Tensor], Pair]:
    def pair(tensor: torch.Tensor, out: torch.Tensor) -> Pair:
        codes = tensor.to(dtype)
        return lambda: tensor.to(dtype), lambda: out.copy_(codes)

    return pair


def per_tensor(tensor: torch.Tensor, out: torch.Tensor) -> Pair:
    """torch.quantize_per_tensor_dynamic; on a device that lacks it, the range and torch.quantize_per_tensor."""
    try:
        codes = torch.quantize_per_tensor_dynamic(tensor, torch.quint8, False)
        return lambda: torch.quantize_per_tensor_dynamic(tensor, torch.quint8, False), codes.dequantize
    except (RuntimeError, NotImplementedError):
        codes = torch.quantize_per_tensor(tensor, 0.05, 128, torch.quint8)

    def whole() -> torch.Tensor:
        low, high = torch.aminmax(tensor)
        scale = (high - low) / 255
        return torch.quantize_per_tensor(tensor, scale, torch.full((), 128, device=tensor.device), torch.quint8)

    whole()
    return whole, codes.dequantize


THEIRS: Dict[str, Tuple[str, Callable[[torch.Tensor, torch.Tensor], Pair]]] = {
    "float16": ("tensor.half()", halves(torch.float16)),
    "bfloat16": ("tensor.bfloat16()", halves(torch.bfloat16)),
    "uniform8": ("torch.quantize_per_tensor", per_tensor),
}


def main() -> None:
    ours = kernels()
    for megabytes in sizes():
        tensor = torch.randn(values_of(megabytes), device=DEVICE)
        out = torch.empty_like(tensor)
        for codec, (name, pair) in THEIRS.items():
            try:
                there, back = pair(tensor, out)
            except (RuntimeError, NotImplementedError) as error:
                print(json.dumps({"missing": f"{name} on this device: {str(error).splitlines()[0]}"}), flush=True)
                continue
            chunk = ours.encode(codec, tensor)
            works = {
                "encode": (lambda: ours.encode(codec, tensor), there),
                "decode": (lambda: ours.decode(chunk, codec, torch.float32, out), back),
            }
            for what, (mine, theirs) in works.items():
                (loop, times), (other, others) = several(mine, 4), several(theirs, 4)
                pairs = [(a / times, b / others) for a, b in in_turn(loop, other, 1.0)]
                row = {"row": "casts of torch", "what": what, "codec": codec, "against": name, "MB": megabytes}
                row.update(
                    {
                        **spread("times as fast", [b / a for a, b in pairs]),
                        "goal": ">= 1",
                        "ms": median([a for a, _ in pairs], 4),
                    }
                )
                print(json.dumps(row), flush=True)
