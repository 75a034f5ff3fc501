"""scripts/pythons.py, which tries the one extension on other interpreters: it never passes without having tried any."""

import os
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "scripts/pythons.py"


def run(*arguments, **env):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, **env}
    )


def test_pythons_fail_if_there_is_no_other_python(tmp_path):
    done = run(PATH=str(tmp_path))
    assert done.returncode == 1
    assert (
        "no other Python was found" in done.stderr
        and "python3.12" in done.stderr
        and "nothing was tested" in done.stderr
    )


def test_pythons_fail_if_a_named_program_is_no_python(tmp_path):
    (tmp_path / "python3.12").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3.12").chmod(0o755)
    for name in (tmp_path / "python3.12", tmp_path / "missing"):
        done = run(str(name))
        assert done.returncode == 1 and f"{name} is no Python" in done.stderr
