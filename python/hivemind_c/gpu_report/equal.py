"""Every codec's kernels against the CPU's bytes, from Python: encode, decode, residuals, and sums of sixteen chunks."""

from __future__ import annotations

import itertools

import _hivemind_c
import torch

from .place import DEVICE, DTYPES, kernels

LENGTHS = 0, 1, 4097, 100_003, 1_100_000


def values(n: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Normal values with a long tail."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(n, generator=generator) / (torch.rand(n, generator=generator) + 1e-3)).to(dtype)


def of_the_cpu(codec: str, tensor: torch.Tensor, residual: object = None) -> bytes:
    return bytes(_hivemind_c.codec_encode(_hivemind_c.CODECS.index(codec), tensor, residual))


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def main() -> int:
    ours, compared, different = kernels(), 0, []

    def equal(one: bytes, other: bytes, where: object) -> None:
        nonlocal compared
        compared += 1
        if one != other:
            different.append(where)

    for codec, dtype, n in itertools.product(_hivemind_c.CODECS, DTYPES, LENGTHS):
        tensor = values(n, dtype)
        chunk, want = ours.encode(codec, tensor.to(DEVICE)), of_the_cpu(codec, tensor)
        equal(bytes_of(chunk), want, ("encode", codec, dtype, n))
        for into in DTYPES:
            out, there = torch.empty(n, dtype=into), torch.empty(n, dtype=into, device=DEVICE)
            _hivemind_c.codec_decode(want, out)
            ours.decode(chunk, codec, dtype, there)
            equal(bytes_of(there), bytes_of(out), ("decode", codec, dtype, n, into))
    for codec in _hivemind_c.CODECS[1:]:
        tensor, rest = values(5000, torch.bfloat16), values(5000, torch.float32, 1)
        there = rest.to(DEVICE, copy=True)
        chunk = ours.encode(codec, tensor.to(DEVICE), there)
        equal(bytes_of(chunk), of_the_cpu(codec, tensor, rest), ("encode with a residual", codec))
        equal(bytes_of(there), bytes_of(rest), ("residual", codec))
    total, inputs = values(9000, torch.float32), []
    there = total.to(DEVICE, copy=True)
    for i in range(16):
        codec, dtype = _hivemind_c.CODECS[i % len(_hivemind_c.CODECS)], DTYPES[i % 3]
        tensor = values(9000, dtype, i).clamp(-60_000, 60_000)
        inputs.append((ours.encode(codec, tensor.to(DEVICE)), codec, dtype, 0.1 * i))
        _hivemind_c.codec_accumulate(of_the_cpu(codec, tensor), 0.1 * i, total)
    ours.add(there, inputs)
    equal(bytes_of(there), bytes_of(total), "the sum of sixteen chunks")
    for where in different[:20]:
        print("other bytes:", where)
    print(f"{len(different)} of {compared} comparisons differ")
    return bool(different)
