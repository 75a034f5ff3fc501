"""Several devices where nobody can start the program again: in a notebook, each rank is a fork of the kernel."""

import os
import subprocess
import sys
from pathlib import Path

from ranks import ALONE
from support import HERE

PAGE = (Path(__file__).resolve().parents[3] / "docs/howto/several-gpus.md").read_text()
PROGRAM = PAGE.split("```python\n")[1].split("```")[0]
BEFORE = f'import hivemind_c\nhivemind_c.DHT(host_maddrs=["{HERE}"], start=True).shutdown()\n'
FIGURES = "print('peers', trainer.strategy.num_peers, 'at', trainer.strategy.last_epoch.epoch)"


def typed(program):
    """The output of a program that is typed into an interpreter."""
    about = {**ALONE, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-i", "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280,
        env={**os.environ, **about},
    )  # fmt: skip
    return done.stdout + done.stderr


def test_notebook_forks_ranks_and_gets_the_weights_back():
    trained = "\nmodel = trainer.lightning_module\nprint('trained', model.layer.bias.item() != 0)\n"
    said = typed(PROGRAM + trained + FIGURES)
    assert "`Trainer.fit` stopped: `max_epochs=2` reached" in said and "trained True" in said, said
    assert "rank 0 of 2: swarm epoch 8" in said and "peers 1 at 7" in said, said
    assert "Starting with 2 processes" in said


def test_kernel_that_had_a_node_is_told_to_restart():
    said = typed(BEFORE + PROGRAM)
    assert "this kernel has started a DHT already, which cannot be forked: restart the kernel" in said, said
