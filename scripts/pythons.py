"""Does the one abi3 extension work on every Python? Runs the node's tests on each interpreter found, with the .so as it was built.

scripts/pythons.py [PYTHON...]: without arguments python3.10 to python3.14 on PATH, but not the one this runs on. Each gets an
environment of its own, .venv-pythons/X.Y, with what these tests import, as requirements.txt pins it. When no interpreter is found
it says so and fails: nothing was tested.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSIONS = [f"3.{minor}" for minor in range(10, 15)]
TESTS = ["tests/py/node/test_node.py", "tests/py/dht/test_dht.py", "tests/py/node/test_log.py", "tests/py/node/test_interrupt.py"]
NEEDED = "numpy", "msgpack", "pytest"
VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def version_of(python):
    try:
        done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find(wanted):
    """{version: interpreter}, of those named or of those on PATH; the first of each version."""
    mine = "%d.%d" % sys.version_info[:2]
    names = wanted or [f"python{version}" for version in VERSIONS if version != mine]
    found = {}
    for name in names:
        python = shutil.which(name)
        version = version_of(python) if python else None
        if version is None and wanted:
            sys.exit(f"pythons: {name} is no Python that runs here")
        if version in VERSIONS:
            found.setdefault(version, python)
    return found


def environment(version, python):
    """An interpreter with what the tests import: made once."""
    home = ROOT / ".venv-pythons" / version
    inside = home / "bin/python"
    if not (home / "ready").exists():
        needs = [line for line in (ROOT / "requirements.txt").read_text().split("\n") if line.split("=")[0] in NEEDED]
        subprocess.run([python, "-m", "venv", "--clear", home], check=True)
        subprocess.run([inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", *needs], check=True)
        (home / "ready").touch()
    return inside


def main(wanted):
    found = find(wanted)
    if not found:
        sys.exit(f"pythons: no other Python was found (looked for python{', python'.join(VERSIONS)} on PATH): nothing was tested; name some: scripts/pythons.py PYTHON...")
    if not list((ROOT / "python").glob("_hivemind_c.abi3.so")):
        sys.exit("pythons: there is no extension yet: make build")
    failed = []
    for version, python in sorted(found.items()):
        print(f"== Python {version} ({python})", flush=True)
        command = [environment(version, python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
        if subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}).returncode:
            failed.append(version)
    print("pythons: not found:", ", ".join(sorted(set(VERSIONS) - set(found), key=VERSIONS.index)) or "none")
    if failed:
        sys.exit(f"pythons: failed on {', '.join(failed)}")
    print(f"pythons: the same extension passes on {', '.join(sorted(found, key=VERSIONS.index))}")


if __name__ == "__main__":
    main(sys.argv[1:])
