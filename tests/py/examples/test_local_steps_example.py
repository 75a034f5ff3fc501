"""The example of local steps: two peers, a joiner and a kill."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
SMALL = "--options", "--target_batch_size", "1920"  # 30 batches


def run(*words):
    command = [sys.executable, str(ROOT / "examples/local_steps/swarm.py"), *words, *SMALL]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=ENV)


@pytest.mark.timeout(300)
def test_example_survives_a_kill_and_takes_a_joiner():
    done = run("--seconds", "24")
    assert done.returncode == 0, done.stdout + done.stderr
    equal, common = map(int, re.search(r"after (\d+) of (\d+) common epochs", done.stdout).groups())
    assert equal == common > 3
    assert "peer 2 joins" in done.stdout and "peer 1 is killed" in done.stdout
    assert re.search(r"^computed 0\.\d\d of the time$", done.stdout, re.M)


def test_example_refuses_a_swarm_of_one():
    done = run("--peers", "1")
    assert done.returncode == 2 and "give 2 peers or more" in done.stderr
