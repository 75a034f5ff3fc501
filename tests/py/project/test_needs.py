"""Old and missing packages: each is refused in one sentence before anything of it is used."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

from hivemind_c import _needs

ROOT = pathlib.Path(__file__).resolve().parents[3]


def python(program, *paths):
    """The last line that a program writes to stderr; it sees these folders and hivemind_c, and no package of this
    environment."""
    path = os.pathsep.join(map(str, (*paths, ROOT / "python")))
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().split("\n")[-1]


def package(folder, name, version):
    """A package of that version whose use is an error."""
    module = name.replace("-", "_")
    (folder / module).mkdir(parents=True)
    (folder / module / "__init__.py").write_text(f"raise AssertionError('{module} was imported')\n")
    (folder / f"{module}-{version}.dist-info").mkdir()
    (folder / f"{module}-{version}.dist-info/METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    return folder


@pytest.mark.parametrize(
    "program",
    [
        "from hivemind_c import Optimizer",
        "import hivemind_c.optim.grad_averager",
        "from hivemind_c import HivemindStrategy",
    ],
)
def test_old_torch_is_refused_before_it_is_imported(program, tmp_path):
    told = python(program, package(tmp_path, "torch", "1.13.1+cu117"))
    assert (
        told == "ImportError: torch 1.13.1+cu117 is too old: hivemind_c needs torch>=2.6; run pip install --upgrade "
        "'torch>=2.6'"
    )


def test_old_numpy_is_refused(tmp_path):
    told = python("import hivemind_c.optim", package(package(tmp_path, "torch", "2.6.0"), "numpy", "1.21.5"))
    assert (
        told
        == "ImportError: numpy 1.21.5 is too old: hivemind_c needs numpy>=1.26; run pip install --upgrade 'numpy>=1.26'"
    )


@pytest.mark.parametrize("name", ["Optimizer", "HivemindStrategy"])
def test_missing_torch_is_named_with_its_remedy(name):
    told = python(f"from hivemind_c import {name}")
    assert (
        told == f"ImportError: hivemind_c.{name} cannot be used: torch is not installed; run pip install 'torch>=2.6'"
    )


def test_progress_needs_no_torch():
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from hivemind_c import ProgressTracker"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}:{packages_of('msgpack')}"},
    )
    assert done.returncode == 0


def packages_of(name):
    """The folder in which that package of this environment lies, among others."""
    return pathlib.Path(importlib.util.find_spec(name).origin).parents[1]


LIGHTNING = """
import sys, types
for name in {imported}:
    module = sys.modules[name] = types.ModuleType(name)
    module.Trainer, module.__version__ = object, "2.0.9"
import hivemind_c.strategy
"""


@pytest.mark.parametrize("name", ["lightning", "pytorch_lightning"])
def test_old_lightning_is_refused(name):
    modules = [name, "lightning.pytorch"] if name == "lightning" else [name]
    pip = name.replace("_", "-")
    told = python(LIGHTNING.format(imported=modules), packages_of("torch"), packages_of("msgpack"))
    assert (
        told
        == f"ImportError: {pip} 2.0.9 is too old: hivemind_c needs {pip}>=2.4; run pip install --upgrade '{pip}>=2.4'"
    )


def test_versions_are_compared_as_numbers():
    assert (
        _needs.too_old("torch", "2.13.0+cpu")
        is _needs.too_old("torch", "2.6")
        is _needs.too_old("torch", "3.0a0+git12")
        is _needs.too_old("torch", None)
        is None
    )
    assert _needs.too_old("torch", "2.5.1") and _needs.too_old("lightning", "1.9.5")


def test_extras_ask_for_the_versions_that_are_checked():
    extras = (ROOT / "pyproject.toml").read_text()
    for name, lowest in _needs.LOWEST.items():
        if name != "pytorch-lightning":
            assert re.search(rf'"{name} >= {".".join(map(str, lowest))}"', extras), f"{name} in pyproject.toml"
