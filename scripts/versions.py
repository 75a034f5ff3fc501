"""Do the optimizer and the strategy work with other versions of torch, NumPy and Lightning? Runs their tests in an environment of its own.

scripts/versions.py [--python PYTHON] lowest|newest|REQUIREMENT...: "lowest" installs exactly what the extras of pyproject.toml ask for at least, "newest"
what pip finds last, and requirements such as "torch==2.6.0 lightning==2.4.0" what they name. PYTHON is the interpreter of that environment.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = "torch", "numpy", "lightning"
FILES = "project/test_needs", "compression/test_compression", "optim/test_optim_alone", "optim/test_optim_averager", "strategy/test_strategy"
TESTS = [f"tests/py/{name}.py" for name in FILES]
TOOLS = "pytest", "pytest-timeout", "msgpack", "pydantic"  # as requirements.txt pins them
POWER_SGD = "tests/py/strategy/test_strategy.py::test_the_optimizer_gets_the_option[grad_averager_factory]"
HAS_POWER_SGD = "import sys, torch; sys.exit(tuple(map(int, torch.__version__.split('.')[:2])) < (2, 10))"  # its library needs that
SHOW = "import sys, torch, numpy, lightning; print('versions: Python', sys.version.split()[0], 'torch', torch.__version__, 'numpy', numpy.__version__, 'lightning', lightning.__version__)"


def lowest():
    """["torch==2.6.0", ...]: the lower ends of the extras."""
    text = (ROOT / "pyproject.toml").read_text()
    return [f"{name}==" + re.search(f'"{name} >= ([0-9.]+)"', text)[1] + ".*" for name in NAMES]


def requirements(words):
    """The requirements for pip: all of NAMES, beside pytorch-lightning in Lightning's version."""
    asked = lowest() if words == ["lowest"] else list(NAMES) if words == ["newest"] else words
    asked += [name for name in NAMES if not any(re.match(rf"{name}\b", one) for one in asked)]
    return asked + [one.replace("lightning", "pytorch-lightning") for one in asked if one.startswith("lightning")]


def main():
    parser = argparse.ArgumentParser(prog="versions")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("words", nargs="+", metavar="lowest|newest|REQUIREMENT")
    options = parser.parse_args()
    if not list((ROOT / "python").glob("_hivemind_c.abi3.so")):
        sys.exit("versions: nothing was tested: there is no extension yet; run make build")
    asked = requirements(options.words)
    tools = [line for line in (ROOT / "requirements.txt").read_text().split("\n") if line.split("=")[0] in TOOLS]
    home = ROOT / ".venv-versions"
    python = home / "bin/python"
    if subprocess.run([options.python, "-m", "venv", "--clear", home]).returncode:
        sys.exit(f"versions: nothing was tested: {options.python} could not make {home}; name another with --python")
    if subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *asked, *tools]).returncode:
        sys.exit(f"versions: nothing was tested: pip could not install {' '.join(asked)}; choose others")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([python, "-c", SHOW], env=environment, check=True)
    without = ["--deselect", POWER_SGD] if subprocess.run([python, "-c", HAS_POWER_SGD]).returncode else []
    sys.exit(subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *without, *TESTS], cwd=ROOT, env=environment).returncode)


if __name__ == "__main__":
    main()
