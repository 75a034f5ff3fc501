"""The output of mypy on programs that use hivemind_c, with torch and Lightning at hand: of the lines that the front
page and the page of the strategy show."""

import os
import re
import subprocess
import sys

import pytest

from test_book import ROOT, blocks

BEFORE = """
from typing import Any
import torch
import {lightning} as L
import hivemind_c
from hivemind_c import DHT, HivemindStrategy, Node, Optimizer, SwarmProgressBar
peers: list[str] = []
model: Any = None
loader: Any = None
loss_function: Any = None
numpy_array: Any = None
"""
MORE = """
strategy = HivemindStrategy(4096, run_id="run", initial_peers=peers, max_grad_norm=1.0,
    grad_compression=hivemind_c.Float16Compression())
trainer = L.Trainer(strategy=strategy, callbacks=[SwarmProgressBar(refresh_rate=5)])
epoch: int = strategy.global_epoch
"""
WRONG = MORE.replace("4096", "'many'") + "epoch = HivemindStrategy(8).run_identity\n"
CONFIG = """
[mypy]
disable_error_code = no-redef
[mypy-hivemind_c.*]
follow_imports = silent
"""


def shown():
    """The pages' Python, but for the block that needs transformers, whose types are no business of ours."""
    for path in ("README.md", "docs/reference/strategy.md", "docs/howto/plain-loop.md"):
        page = ROOT / path
        yield (
            page.name,
            [re.sub(r"import lightning as L\n", "", block) for block in blocks(page) if "transformers" not in block],
        )


@pytest.mark.timeout(900)
def test_mypy_accepts_the_lines_that_the_pages_show(tmp_path):
    (tmp_path / "mypy.ini").write_text(CONFIG)
    programs = {name.split(".")[0].replace("-", "_").lower(): "\n".join(found) for name, found in shown()}
    assert sum("HivemindStrategy(target_batch_size=" in text for text in programs.values()) == 2
    for lightning in ("lightning", "pytorch_lightning"):
        for name, text in {**programs, "more": MORE, "wrong": WRONG}.items():
            (tmp_path / f"{name}_{lightning}.py").write_text(BEFORE.format(lightning=lightning) + text)
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    command = [sys.executable, "-m", "mypy", "--check-untyped-defs", "--cache-dir", str(tmp_path / "cache"), *files]
    said = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(ROOT / "python")}, capture_output=True, text=True
    ).stdout
    found = re.findall(r"^(\w+)\.py:\d+: error: .*\[([\w-]+)\]$", said, re.M)
    wrong = [
        (f"wrong_{lightning}", code)
        for lightning in ("lightning", "pytorch_lightning")
        for code in ("arg-type", "attr-defined")
    ]
    assert sorted(found) == sorted(wrong), said
