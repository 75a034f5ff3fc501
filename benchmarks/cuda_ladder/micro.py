"""The cost of adding up gradients for a micro-step of a small transformer on a GPU: one JSON object a line. The averager has no network here."""

import json
from types import SimpleNamespace

import small  # noqa: F401  (puts the small module in the place of the whole one)
import torch
from turns import Work, in_turn, spent, spread

from hivemind_c.optim.grad_averager import GradientAverager


def row(dtype: torch.dtype, reuse: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).to(device="cuda", dtype=dtype)
    averager = GradientAverager(model.parameters(), dht=SimpleNamespace(client_mode=False), prefix="micro", reuse_grad_buffers=reuse, start=False)
    tokens = torch.randn(8, 256, 768, device="cuda", dtype=dtype)

    def step(counted: bool) -> None:
        model(tokens).square().mean().backward()
        if counted:
            averager.accumulate_grads_(8)

    def timed(work: Work) -> float:
        if not reuse:
            model.zero_grad()
        return spent(work)

    pairs = in_turn(lambda: step(True), lambda: step(False), timed)
    print(json.dumps({"row": "micro-step", "dtype": str(dtype), "reuse_grad_buffers": reuse, **spread("extra", [a / b - 1 for a, b in pairs], 4), "goal": "<= 0.02"}))


if __name__ == "__main__":
    for dtype in (torch.float32, torch.bfloat16):
        for reuse in (False, True):
            row(dtype, reuse)
