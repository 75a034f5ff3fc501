"""The package builds from its source archive, installs, and says what it misses."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(*command, **options):
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The source archive, made from a copy so that nothing is built or left in the checkout."""
    copy = tmp_path_factory.mktemp("copy") / "source"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.so", "*.egg-info", "corpus")
    )
    make = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"
    name = run(sys.executable, "-c", make, cwd=copy).split()[-1]
    return copy / "dist" / name


def test_the_source_archive_has_all_it_takes_to_build(archive):
    with tarfile.open(archive) as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames() if "/" in name}
    sources = {
        str(path.relative_to(ROOT))
        for kind in ("*.c", "*.h", "*.proto")
        for path in (ROOT / "csrc").rglob(kind)
        if "build" not in path.parts
    }
    assert sources <= names
    assert {
        "csrc/Makefile",
        "setup.py",
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "python/hivemind_c/py.typed",
    } <= names


@pytest.fixture(scope="module")
def target(archive, tmp_path_factory):
    """Where pip has installed it; its commands are in bin/."""
    target = tmp_path_factory.mktemp("installed") / "target"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
    ]
    run(*pip, "--target", target, archive)
    return target


@pytest.mark.long
def test_pip_installs_it_without_build_isolation(target, tmp_path):
    assert (target / "_hivemind_c.abi3.so").exists()
    assert (target / "hivemind_c/py.typed").exists() and (target / "_hivemind_c-stubs/__init__.pyi").exists()
    assert {path.name for path in (target / "hivemind_c/monitor/page").iterdir()} == {
        "index.html",
        "page.js",
        "page.css",
    }
    (wheel,) = target.glob("hivemind_c-*.dist-info/WHEEL")
    assert "cp310-abi3-linux" in wheel.read_text()
    program = (
        "import hivemind_c as h; n = h.Node('127.0.0.1:0'); print(h.__file__, h.__version__, n.addresses); n.shutdown()"
    )
    # -S: without this environment's own path to the checkout
    out = run(sys.executable, "-S", "-c", program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)})
    assert out.startswith(str(target))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.long
def test_the_installed_command_runs_a_root_that_others_join(target, tmp_path, how):
    command = [target / "bin" / "hivemind-dht", "--host_maddrs", "127.0.0.1:0", "--refresh_period", "0.1", "--json"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    root = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)}, **pipes)
    try:
        option, *addresses = root.stdout.readline().split()
        assert option == "--initial_peers"
        root.send_signal(signal.SIGHUP)  # as when its terminal is closed
        join = (
            "import sys, hivemind_c as h; d = h.DHT(sys.argv[1:], start=True, wait_timeout=30, startup_timeout=90); "
            "print(h.__file__, d.store('k', 1, h.get_dht_time() + 60)); d.shutdown()"
        )
        out = run(sys.executable, "-c", join, *addresses, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(target)})
        assert out.startswith(str(target)) and out.split()[-1] == "True"
        said = iter(lambda: json.loads(root.stderr.readline()), None)
        assert any(line["event"] == "heartbeat" and line["records"] == 1 for line in said)
        root.send_signal(how)
        rest, errors = root.communicate(timeout=120)
    finally:
        root.kill()
        root.communicate()
    assert (root.returncode, rest) == (0, "") and json.loads(errors.splitlines()[-1])["event"] == "ended"


def test_a_missing_library_is_named_in_one_sentence(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build_ext", "-b", tmp_path, "-t", tmp_path]
    result = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PKG_CONFIG_LIBDIR": str(tmp_path), "PKG_CONFIG_PATH": ""},
    )
    assert result.returncode != 0
    last = result.stderr.strip().split("\n")[-1]
    assert "grpc" in last and "apt-get install" in last and "libgrpc-dev" in last
    assert "Traceback" not in result.stderr


def test_setup_is_quick_and_silent_when_nothing_is_missing():
    result = subprocess.run([ROOT / "scripts/setup.sh", "system"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_setup_without_arguments_prints_its_usage():
    result = subprocess.run([ROOT / "scripts/setup.sh"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "system | venv | browser" in result.stderr
