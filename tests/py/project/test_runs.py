"""A run of the Python tests ends, whatever a test leaves behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
RUN = """
import sys
sys.path.insert(0, {tests!r})
import conftest
import pytest

conftest.{limit} = 1
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-c", {ini!r}, *sys.argv[1:]], plugins=[conftest]))
"""
LEAVES_A_THREAD = """
import threading
import time

def test_thread_is_left():
    threading.Thread(target=time.sleep, args=(1000,), name="left").start()
"""
HANGS = """
import time

def test_that_hangs():
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    "limit, test, more",
    [("EXIT_S", LEAVES_A_THREAD, []), ("RUN_S", HANGS, ["-n", "1"])],
    ids=["thread at the exit", "test without a limit"],
)
def test_run_that_hangs_is_ended(tmp_path, limit, test, more):
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    program = RUN.format(tests=str(TESTS), limit=limit, ini=str(tmp_path / "pytest.ini"))
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "test_it.py", *more],
        capture_output=True, text=True, timeout=90, env={**os.environ, "PYTEST_XDIST_WORKER": ""},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Timeout (0:00:01)!" in done.stderr and ("1 passed" in done.stdout) == (limit == "EXIT_S"), done.stdout
