"""The script for a machine with a GPU, checked where there is none: the script's parts and its choice of tests."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LADDER = ROOT / "benchmarks/cuda_ladder"


def steps():
    """The names of the tests that run.sh would run."""
    told = subprocess.run(
        ["bash", LADDER / "run.sh"], env={**os.environ, "DRY": "1"}, capture_output=True, text=True, timeout=120
    )
    assert told.returncode == 0 and not told.stderr, told.stderr
    return dict(line.split(": ", 1) for line in told.stdout.splitlines())


def test_gpu_script_runs_checks_rows_and_sanitizers():
    parts = steps()
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        assert f"--tool {tool} --error-exitcode 3" in parts[tool] and "cuda_check quick" in parts[tool]
    assert {
        "build",
        "check",
        "small",
        "python",
        "lowrank",
        "without-network",
        "rows",
        "ladder",
        "powersgd",
        "micro",
        "bitsandbytes_row",
        "goals",
    } <= set(parts)
    for command in parts.values():
        for path in re.findall(r"\b(?:benchmarks|tests)/[\w/]+\.py\b", command):
            ast.parse((ROOT / path).read_text(), path)
    makefile = (ROOT / "csrc/Makefile").read_text()
    assert all(name in makefile for name in ("cuda_check", "cuda_rows", "cuda_ladder"))
    assert all((LADDER / name).exists() for name in ("check.c", "rows.c", "ladder.cu"))


def test_each_row_is_printed_beside_its_goal(tmp_path):
    """The programs print goals; of what they print a table is made."""
    programs = {
        name: (LADDER / name).read_text() for name in ("rows.c", "powersgd.py", "micro.py", "bitsandbytes_row.py")
    }
    for call in (
        'row("encode", ',
        'row("decode", ',
        'row("accumulate 8", ',
        'row("accumulation of 500 tensors", ',
        "stage_row(&j, ",
    ):
        assert call in programs["rows.c"]
    numbers = {
        name: set(re.findall(r"(?:GOAL_\w+|\?|:) (0\.\d+)\b|goal\W+[<>]= ([\d.]+)", text))
        for name, text in programs.items()
    }
    found = {name: {one or other for one, other in some} for name, some in numbers.items()}
    assert found == {
        "rows.c": {"0.85", "0.6", "0.8", "0.9"},
        "powersgd.py": {"1.3"},
        "micro.py": {"0.02"},
        "bitsandbytes_row.py": {"1.5"},
    }
    (tmp_path / "rows.log").write_text(
        '{"device": "some GPU", "compute": "9.0"}\n{"row": "encode", "codec": "none", "MB": 512, "share": 0.86, '
        '"low": 0.8, "goal": ">= 0.85", "ms": 1.5}\n'
        '{"row": "decode", "codec": "linear4", "MB": 25, "share": 0.59, "goal": ">= 0.60"}\n{"row": "transfers out", '
        '"codec": "none", "ms": 3}\n'
    )
    (tmp_path / "micro.log").write_text(
        '{"row": "micro-step", "dtype": "torch.float32", "extra": 0.0312, "goal": "<= 0.02"}\nsome warning\n'
    )
    done = subprocess.run(
        [sys.executable, LADDER / "goals.py", tmp_path], capture_output=True, text=True, check=True, timeout=60
    )
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        "MISSED 0.0312 goal <= 0.02 micro-step: dtype torch.float32",
        "met 0.86 goal >= 0.85 encode: codec none, MB 512",
        "MISSED 0.59 goal >= 0.60 decode: codec linear4, MB 25",
        "1 of 3 goals met",
    ]


def collected(command, files):
    """The tests that a step's -k chooses of these files."""
    choice = re.search(r" -k (.+?) tests/", command).group(1)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-k", choice, *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return [line for line in done.stdout.splitlines() if "::" in line], done.stdout


def test_gpu_script_chooses_exactly_the_gpu_tests():
    parts = steps()
    names, told = collected(parts["python"], ["tests/py/compression/test_cuda.py"])
    source = (ROOT / "tests/py/compression/test_cuda.py").read_text()
    of_place = re.findall(r"^def (test_\w+)\(place", source, re.M)
    assert len(of_place) > 5 and {f"{name}[gpu]" for name in of_place} <= {name.split("::")[1] for name in names}, told
    assert set(re.findall(r"^def (test_on_a_gpu_\w+)", source, re.M)) <= {name.split("::")[1] for name in names}
    assert not [name for name in names if "stand-in" in name or "lost" in name]
    files = [word for word in shlex.split(parts["without-network"]) if word.startswith("tests/")]
    names, told = collected(parts["without-network"], files)
    assert len(files) == 2 and all(any(name.startswith(file) for name in names) for file in files), told
    assert not [name for name in names if "stand-in" in name]
