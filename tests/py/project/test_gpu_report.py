"""The report of a machine with a GPU, checked where there is none: `make gpu`, the installed module, the notebook."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from support import eventually, makes, module_of

ROOT = Path(__file__).resolve().parents[3]
LADDER = ROOT / "benchmarks/cuda_ladder"


@pytest.fixture(scope="module")
def gpu():
    """scripts/gpu.py as a module."""
    return module_of(ROOT / "scripts/gpu.py")


@pytest.fixture
def tree(gpu, tmp_path, monkeypatch):
    """A machine with a GPU, as far as the choice of commands goes."""
    monkeypatch.setattr(gpu.machine, "capability", lambda: "9.0")
    monkeypatch.setattr(gpu.machine, "count", lambda: 2)
    made = gpu.Tree(tmp_path, False, None)
    monkeypatch.setattr(made, "is_whole", lambda: True)
    return made


def commands(gpu, tree):
    """{step: its command line, or what it lacks}"""
    return {
        step.name: " ".join(getattr(step.command(), "args", ["missing", str(step.command())]))
        for steps in gpu.parts(tree).values()
        for step in steps
    }


# ---- parts and limits ----


def test_parts_and_all_of_it_end_in_time(gpu, tree):
    parts = gpu.parts(tree)
    limits = {name: sum(step.limit for step in steps) for name, steps in parts.items()}
    assert tuple(limits) == gpu.PARTS == ("correct", "rounds", "kernels", "training", "sanitizer", "inside")
    assert max(limits.values()) <= 540, limits
    known = {}
    for steps in parts.values():
        for i, step in enumerate(steps):
            assert known.setdefault(step.name, step.limit) == step.limit, f"two steps are called {step.name}"
            assert set(step.needs) <= {before.name for before in steps[:i]}, step.name
    assert sum(known.values()) <= 2100, "a step of several parts runs once"


def test_every_check_and_row_is_a_step(gpu, tree):
    lines = commands(gpu, tree)
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        assert f"--tool {tool} --error-exitcode 3" in lines[tool] and lines[tool].endswith("cuda_check quick")
    assert lines["rows"].endswith("cuda_rows 512 100 25") and lines["ladder"].endswith("cuda_ladder")
    for name in ("codecs", "casts", "powersgd", "micro", "blockwise", "offload", "rounds"):
        assert lines[name].endswith(f"-m hivemind_c.gpu_report.row {name}")
        ast.parse((ROOT / f"python/hivemind_c/gpu_report/{name}.py").read_text())
    makefile = (ROOT / "csrc/Makefile").read_text()
    assert all(f"cuda_{name}" in makefile and (LADDER / f"{name}.c").exists() for name in ("check", "rows"))
    assert not any(line.startswith("missing") for line in lines.values())


def test_steps_choose_exactly_the_gpu_tests(gpu, tree):
    lines = commands(gpu, tree)

    def chosen(step):
        choice, *files = re.search(r" -k (.+?) (tests/\S+)$", lines[step]).groups()
        line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-k", choice, *files]
        done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
        return {name.split("::")[1] for name in done.stdout.splitlines() if "::" in name}, (ROOT / files[0]).read_text()

    for step in ("tests of the codecs", "rounds over gRPC"):
        names, source = chosen(step)
        in_a_place = re.findall(r"^def (test_\w+)\(place", source, re.M)
        assert len(in_a_place) > 5 and set(in_a_place) <= {name.split("[")[0] for name in names if "[gpu" in name}
        assert set(re.findall(r"^def (test_on_a_gpu_\w+)", source, re.M)) <= names
        assert not [name for name in names if "stand-in" in name or "lost" in name or "failed" in name]


def test_report_tells_that_ranks_need_two_gpus(gpu, tree, tmp_path, monkeypatch):
    command = tree.ranks()
    assert command.args[-1] == "tests/py/inside" and command.env["RANKS_ON"] == "cuda" and command.is_pytest
    monkeypatch.setattr(gpu.machine, "count", lambda: 1)
    report = gpu.Report(tmp_path, "make gpu")
    runner = gpu.Runner(report, ROOT)
    runner.part("inside", gpu.parts(gpu.Tree(tmp_path, False, None))["inside"])
    assert "| ranks | two GPUs: this machine has 1 |" in (tmp_path / "report.md").read_text()
    assert runner.ended == {"machine": "ok", "ranks": "not run"} and not runner.failed


@pytest.mark.parametrize("visible, count", [(None, 2), ("0,1,2", 2), ("1", 1), ("", 0)])
def test_gpus_are_those_that_programs_see(gpu, monkeypatch, visible, count):
    monkeypatch.undo()
    monkeypatch.setattr(gpu.machine, "said", lambda *command: "0\n1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu.machine.count() == count


def test_missing_packages_are_named_and_no_failure(gpu, tree, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("pytest", "lightning") else found(name)
    )
    report = gpu.Report(tmp_path, "make gpu")
    runner = gpu.Runner(report, ROOT)
    runner.ended = {"libraries": "ok"}
    runner.part("correct", [step for step in gpu.parts(tree)["correct"] if step.name.startswith("tests of")])
    assert {"not compared": "tests of the codecs", "missing": "pytest"} in report.missing and not runner.failed
    assert "| tests of the codecs | pytest |" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "lightning" else found(name))
    assert tree.tests("x.py", gpu="x", stand_in="x", needs=["lightning"]) == gpu.Missing("lightning")
    monkeypatch.setattr(tree, "is_whole", lambda: False)
    assert "whole extension" in tree.tests("x.py", gpu="x", stand_in="x", network=True).what


# ---- steps ----


def python(gpu, code, **options):
    return lambda: gpu.Command([sys.executable, "-c", code], **options)


def test_step_that_hangs_is_ended_and_the_next_one_runs(gpu, tmp_path):
    """It is ended with all that it started; the report is whole before the next step begins."""
    report, seen = gpu.Report(tmp_path, "make gpu"), []
    runner = gpu.Runner(report, ROOT)
    hangs = (
        "import subprocess, time\n"
        "print(subprocess.Popen(['sleep', '600']).pid, flush=True)\nprint('last words', flush=True)\ntime.sleep(600)"
    )

    def second():
        seen.append(json.loads((tmp_path / "report.json").read_text())["steps"])
        assert "last words" in (tmp_path / "report.md").read_text()
        return python(gpu, 'print(\'{"row": "encode", "share": 0.5, "goal": ">= 0.85"}\')')()

    start = time.monotonic()
    steps = [gpu.Step("hangs", 2, python(gpu, hangs)), gpu.Step("second", 20, second)]
    steps += [
        gpu.Step("third", 20, python(gpu, ""), ("hangs",)),
        gpu.Step("fourth", 20, lambda: gpu.Command(["/no/such"])),
    ]
    runner.part("correct", steps)
    assert time.monotonic() - start < 30
    assert [step["step"] for step in seen[0]] == ["hangs"] and "limit of 2 s" in seen[0][0]["how"]
    child = int((tmp_path / "logs/hangs.log").read_text().split()[0])
    assert eventually(lambda: is_over(child)), "the step's child still runs"
    told = json.loads((tmp_path / "report.json").read_text())
    assert [step["how"] for step in told["steps"][1:]] == ["ok", "not run", "failed with status 127"]
    assert [failure["step"] for failure in told["failures"]] == ["hangs", "fourth"] and runner.failed
    assert told["rows"][0]["met"] is False and told["goals"] == {"met": 0, "all": 1}, "a missed goal is no failure"


def is_over(pid):
    stat = Path("/proc", str(pid), "stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def test_report_that_is_ended_ends_its_step(tmp_path):
    """A machine is lent for a time: SIGTERM to the report leaves no step running."""
    hangs = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    program = (
        f"import pathlib, sys\nsys.path.insert(0, {str(ROOT / 'scripts')!r})\nimport gpu\n"
        f"step = gpu.Step('hangs', 300, lambda: gpu.Command([sys.executable, '-c', {hangs!r}]))\n"
        "gpu.end_on_sigterm()\n"
        f"report = gpu.Report(pathlib.Path({str(tmp_path)!r}), 'make gpu')\n"
        "gpu.Runner(report, gpu.ROOT).part('correct', [step])\n"
    )
    running = subprocess.Popen([sys.executable, "-c", program])
    log = tmp_path / "logs/hangs.log"
    assert eventually(lambda: log.exists() and log.read_text().strip())
    running.terminate()
    assert running.wait(30) == 143
    assert eventually(lambda: is_over(int(log.read_text())))


def test_pytest_that_ran_no_test_has_failed(gpu, tmp_path):
    report = gpu.Report(tmp_path, "make gpu")
    said = "print('SKIPPED [2] tests/py/x.py:7: no GPU here'); print('2 skipped in 0.1s')"
    gpu.Runner(report, ROOT).part("correct", [gpu.Step("tests", 20, python(gpu, said, is_pytest=True))])
    assert report.failures[0]["how"] == "failed: no test ran"
    assert {"not compared": "tests: tests/py/x.py:7", "missing": "no GPU here"} in report.missing


# ---- figures ----

OF_HARDWARE = [
    {"device": "NVIDIA H100 80GB HBM3", "compute": "9.0"},
    {
        "row": "encode",
        "codec": "none",
        "MB": 512,
        "share": 0.85,
        "low": 0.836,
        "high": 0.863,
        "goal": ">= 0.85",
        "ms": 0.4,
    },
    {"row": "encode", "codec": "linear4", "MB": 25, "share": 0.428, "goal": ">= 0.60", "ms": 0.0276},
    {"row": "to pinned memory", "codec": "none", "MB": 512, "share": 0.956, "goal": ">= 0.90", "plain copy ms": 9.282},
    {"row": "to pinned memory", "codec": "none", "MB": 512, "share": 0.967, "goal": ">= 0.90", "plain copy ms": 9.299},
    {"row": "transfers out", "codec": "float16", "MB": 512, "threads": 1, "ms": 141.928},
    {"row": "transfers out", "codec": "float16", "MB": 512, "threads": 4, "ms": 38.773},
]


def test_figures_stand_beside_their_goals(gpu, tmp_path):
    report = gpu.Report(tmp_path, "make gpu")
    step = gpu.Step("rows", 20, python(gpu, "\n".join(f"print({json.dumps(row)!r})" for row in OF_HARDWARE)))
    gpu.Runner(report, ROOT).part("kernels", [step])
    text = (tmp_path / "report.md").read_text()
    assert "0 of 1 steps failed, and 3 of 5 performance goals are met." in text
    assert "| none | 512 | 0.4 | 0.85 | 0.836 to 0.863 | >= 0.85 | met |" in text
    assert "| linear4 | 25 | 0.0276 | 0.428 |  | >= 0.60 | **missed** |" in text
    device_part = text.split("### A round's device part")[1]
    assert "| float16 | 512 | 38.773 | 9.282 | 4.177 |  | <= 1.1 | **missed** |" in device_part
    told = json.loads((tmp_path / "report.json").read_text())
    assert len(told["rows"]) == 7 and told["rows"][-1]["row"] == "a round's device part"


def test_each_measurement_prints_its_goal():
    """The goals of the programs in C and in Python."""
    text = (LADDER / "rows.c").read_text()
    assert {"0.85", "0.6", "0.8", "0.9"} == set(re.findall(r"(?:GOAL_\w+|\?|:) (0\.\d+)\b", text))
    folder = ROOT / "python/hivemind_c/gpu_report"
    goals = {path.stem: set(re.findall(r'"([<>]= [\d.]+)"', path.read_text())) for path in folder.glob("*.py")}
    assert {name: found for name, found in goals.items() if found} == {
        "codecs": {">= 0.85", ">= 0.6"},
        "casts": {">= 1"},
        "powersgd": {"<= 1.3"},
        "micro": {"<= 0.02"},
        "blockwise": {">= 1"},
        "report": {"<= 1.1"},
    }


# ---- over stand-ins ----


def test_rehearsal_runs_all_that_needs_no_gpu(tmp_path):
    """`make gpu` itself: builds the small module, and runs the codecs' tests and each measurement over a stand-in."""
    line = [
        "make",
        "-s",
        "gpu",
        f"PYTHON={sys.executable}",
        "REHEARSE=1",
        f"RESULTS={tmp_path}",
        "PART=correct rounds kernels",
    ]
    clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    clean["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(line, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=300)
    told = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == 0, done.stdout + done.stderr + str(told["failures"])
    steps = {step["step"]: step for step in told["steps"]}
    ran = {name for name, step in steps.items() if step["how"] == "ok"}
    assert ran == {
        *("machine", "build", "module", "libraries", "equal bytes", "tests of the codecs", "tests of PowerSGD"),
        *("sums and copies", "simulated rounds"),
    }
    (rounds,) = [row for row in told["rows"] if row["row"] == "rounds in the simulator"]
    assert rounds["rounds"] == 300 and rounds["failed"] == 0 and rounds["on a device"] > 300
    assert re.fullmatch(r"0 of [1-9]\d+ comparisons differ", steps["equal bytes"]["result"])
    assert re.match(r"[1-9]\d* passed", steps["tests of the codecs"]["result"])
    assert {one["not compared"] for one in told["missing"]} == {
        *("check", "rows", "ladder", "rounds over gRPC", "rounds", "trainings"),
    }
    assert told["machine"]["torch"] and told["machine"]["CPU"] and "rehearsal" in (tmp_path / "report.md").read_text()


def test_each_measurement_runs_over_the_stand_in(tmp_path):
    makes("cuda-stand-in")
    program = (
        "import sys\nfrom hivemind_c.gpu_report import row\n"
        "for name in row.ROWS:\n    print('BEGIN', name, row.main(name), flush=True)"
    )
    stand_in = str(ROOT / "csrc/build/rel/libhivemind_cuda_stand_in.so")
    env = {**os.environ, "HIVEMIND_GPU_STAND_IN": stand_in, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    kinds = {row.get("row", row.get("missing")) for row in found}
    assert {"encode from Python", "decode from Python", "casts of torch", "PowerSGD / its products"} <= kinds
    assert {"a step that does not average", "rounds of two peers over loopback"} <= kinds
    assert "bitsandbytes" in kinds or "quantize against bitsandbytes" in kinds
    assert all(row["same bits"] for row in found if row.get("row") == "rounds of two peers over loopback")
    assert re.findall(r"BEGIN \w+ (\w+)", done.stdout) == ["0"] * 8


def test_without_a_gpu_one_sentence_says_why(tmp_path):
    """Of the installed module, and of `make gpu`."""
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}
    for line in (["-m", "hivemind_c.gpu_report"], [str(ROOT / "scripts/gpu.py")]):
        command = [sys.executable, *line, "--results", str(tmp_path / "none")]
        done = subprocess.run(command, env=hidden, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
        assert re.match(r"(no GPU can be used|there is no GPU number 0)[:,]? .*; ?\S+", done.stderr)
    assert not (tmp_path / "none").exists()


# ---- the notebook ----


def test_notebook_is_valid_and_makes_the_report():
    notebook = nbformat.read(ROOT / "examples/gpu_report.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    plain = ["\n".join(re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in source.splitlines()) for source in code]
    for source in plain:
        ast.parse(source)
    assert any("pip install" in source for source in code) and any("hivemind_c.gpu_report" in source for source in code)
    template = (ROOT / ".github/ISSUE_TEMPLATE/gpu_report.md").read_text()
    assert "examples/gpu_report.ipynb" in template and "report.json" in template
