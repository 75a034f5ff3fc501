"""BLOCKWISE8 against bitsandbytes' blockwise quantisation, blocks of 4,096: one JSON object a line. Time by CUDA's events, in turn (A-B-B-A).

Ours writes a whole chunk, with its checksum; theirs codes and absmax alone. Where bitsandbytes is not installed, the row says so."""

import json

import small  # noqa: F401  (puts the small module in the place of the whole one)
import torch
from turns import Work, in_turn, median, spread

from hivemind_c import cuda

try:
    from bitsandbytes import functional as theirs
except ImportError as error:
    theirs, missing = None, str(error)


def row(name: str, ours: Work, others: Work) -> dict:
    pairs = in_turn(ours, others)
    return {"row": name, **spread("times as fast", [b / a for a, b in pairs]), "goal": ">= 1.5", "ms": median([a for a, _ in pairs], 4)}


def main() -> None:
    if theirs is None:
        print(json.dumps({"row": "bitsandbytes", "skipped": missing}))
        return
    kernels = cuda.Kernels(0)
    for megabytes in (512, 25):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = torch.randn(megabytes * 1_000_000 // 4, device="cuda").to(dtype)
            chunk = kernels.encode("blockwise8", tensor)
            codes, state = theirs.quantize_blockwise(tensor, blocksize=4096)
            out = torch.empty_like(tensor)
            what = {"MB of float32": megabytes, "dtype": str(dtype)}
            encode = row("quantise against bitsandbytes", lambda: kernels.encode("blockwise8", tensor), lambda: theirs.quantize_blockwise(tensor, blocksize=4096))
            decode = row("dequantise against bitsandbytes", lambda: kernels.decode(chunk, "blockwise8", dtype, out), lambda: theirs.dequantize_blockwise(codes, state, out=out))
            print(json.dumps({**encode, **what}), json.dumps({**decode, **what}), sep="\n", flush=True)


if __name__ == "__main__":
    main()
