"""Trainers that are killed, stopped and cut off in turn lose no state, and account for every sample."""

import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("upset.py")
SECONDS = 250  #: each of the three upsets comes three times or four


@pytest.mark.long
@pytest.mark.parametrize("peers", [2, 3])
def test_upset_trainers_lose_no_state_and_no_sample(peers, tmp_path):
    command = [sys.executable, PROGRAM, "--peers", str(peers), "--seconds", str(SECONDS), "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 200)
    assert done.returncode == 0, done.stdout + done.stderr
