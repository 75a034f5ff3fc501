"""What adding up gradients costs a micro-step of a small transformer on a GPU: one JSON object a line. The averager has no network here."""

import json
from types import SimpleNamespace

import small  # noqa: F401  (puts the small module in the place of the whole one)
import torch

from hivemind_c.optim.grad_averager import GradientAverager


def row(dtype: torch.dtype, reuse: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).to(device="cuda", dtype=dtype)
    averager = GradientAverager(model.parameters(), dht=SimpleNamespace(client_mode=False), prefix="micro", reuse_grad_buffers=reuse, start=False)
    tokens = torch.randn(8, 256, 768, device="cuda", dtype=dtype)

    def step(counted: bool) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if not reuse:
            model.zero_grad()
        begin.record()
        model(tokens).square().mean().backward()
        if counted:
            averager.accumulate_grads_(8)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    for _ in range(5):
        step(True), step(False)
    extra = []
    for _ in range(20):
        a, b, c, d = step(True), step(False), step(False), step(True)
        extra += [a / b - 1, d / c - 1]
    extra.sort()
    print(json.dumps({"row": "micro-step", "dtype": str(dtype), "reuse_grad_buffers": reuse, "extra": round(extra[20], 4), "low": round(extra[8], 4), "high": round(extra[32], 4)}))


if __name__ == "__main__":
    for dtype in (torch.float32, torch.bfloat16):
        for reuse in (False, True):
            row(dtype, reuse)
