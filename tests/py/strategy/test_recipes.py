"""The loop that the pages show for a program without the Trainer, as written there and in the ways that the text
names: it trains as plain torch does."""

import pathlib
import re

import pytest
import torch
from trainers import data, fit, lightning, same, small

from hivemind_c import HivemindStrategy

pytestmark = pytest.mark.filterwarnings("ignore")
HERE = "/ip4/127.0.0.1/tcp/0"
DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
LOOP, STRATEGY = (DOCS / "howto/plain-loop.md").read_text(), (DOCS / "reference/strategy.md").read_text()
EPOCHS = 3


def blocks(page):
    """The programs of a page."""
    return re.findall(r"```python\n(.*?)```", page, re.S)


class Repeated:
    """A DataLoader's batches, all of them several times."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for _ in range(EPOCHS):
            yield from self.loader


def problem():
    return dict(
        torch=torch,
        model=small().net,
        loader=data(batch=64, shuffle=False),
        loss_function=torch.nn.functional.cross_entropy,
    )


def plainly():
    """Plain torch's result."""
    names = problem()
    optimizer = torch.optim.AdamW(names["model"].parameters())
    for x, y in Repeated(names["loader"]):
        names["loss_function"](names["model"](x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return names["model"]


def as_shown(program, **names):
    """Runs a program of the guide; the names that it has made. There are no peers, the target is one batch, the data
    come several times."""
    program = program.replace("target_batch_size=4096", "target_batch_size=64").replace(
        "in loader:", "in Repeated(loader):"
    )
    names.update(Repeated=Repeated, peers=())
    try:
        exec(program, names)
    finally:
        if "optimizer" in names:
            names["optimizer"].shutdown()
        if "dht" in names:
            names["dht"].shutdown()
    return names


def test_the_loop_for_fabric_runs_as_it_is_shown():
    (program,) = blocks(LOOP)
    made = as_shown(program, **problem())
    assert made["optimizer"].local_epoch == EPOCHS and type(made["fabric"]).__name__ == "Fabric"
    assert same(plainly(), made["model"])


def test_the_same_loop_runs_without_fabric():
    (program,) = blocks(LOOP)
    lines = [
        line
        for line in program.replace("fabric.backward(loss)", "loss.backward()").split("\n")
        if "abric" not in line or "without Fabric" in line
    ]
    made = as_shown("\n".join(lines), **problem())
    assert made["optimizer"].local_epoch == EPOCHS and "fabric" not in made
    assert same(plainly(), made["model"])


def test_accelerate_runs_the_loop_as_the_guide_says():
    from accelerate import Accelerator

    assert (
        "`model, loader = accelerator.prepare(model, loader)`, then the loop above with `accelerator.backward(loss)`"
        in LOOP
    )
    (program,) = blocks(LOOP)
    lines = program.replace("fabric.backward", "accelerator.backward").split("\n")
    lines = [
        "model, loader = accelerator.prepare(model, loader)" if "setup_module" in line else line
        for line in lines
        if not re.search(r"Fabric\(|import Fabric|setup_data", line)
    ]
    made = as_shown("\n".join(lines), accelerator=Accelerator(cpu=True), **problem())
    assert made["optimizer"].local_epoch == EPOCHS
    assert same(plainly(), made["model"])


def test_callback_on_the_page_stops_a_trainer_with_the_swarm():
    (program,) = [block for block in blocks(STRATEGY) if "class StopAt" in block]
    names = {"L": lightning()}
    exec(program.replace("10_000", "5"), names)
    _, made = fit(HivemindStrategy(16, host_maddrs=HERE), max_epochs=50, callbacks=[names["StopAt"]()])
    assert made.strategy.global_epoch == 5
