"""The tools that make the wheel; the wheel itself is tested by `make wheel-test` (tests/wheel)."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys

import _hivemind_c
import pytest

from support import module_of

ROOT = pathlib.Path(__file__).resolve().parents[3]
STUBS = ROOT / "python/_hivemind_c-stubs/__init__.pyi"
USER = """
from _hivemind_c import Future, HivemindTimeoutError, Node

def talk(node: Node, peer: str) -> bytes:
    future: Future[bytes] = node.echo(peer, b"hello", 3.0)
    try:
        return future.result(1.5)
    except HivemindTimeoutError as error:
        raise SystemExit(error.status)
"""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **options)


@pytest.fixture(scope="module")
def script():
    sys.path.append(str(ROOT / "scripts"))  # where build_grpc is
    return module_of(ROOT / "scripts/wheel.py")


def unique(path):
    return re.findall(r"^\S+ u (\S+)", run("nm", "-D", path).stdout, re.M)


def test_unique_symbols_are_made_ordinary(script, tmp_path):
    """A unique symbol would be shared by all libraries of the process."""
    source, library = tmp_path / "a.cpp", tmp_path / "liba.so"
    source.write_text(
        'inline int &count() { static int n = 41; return n; } extern "C" int next() { return ++count(); }'
    )
    made = run("c++", "-shared", "-fPIC", source, "-o", library)
    assert made.returncode == 0, made.stderr
    assert unique(library)
    assert script.unshare_symbols(library) == 1
    assert not unique(library) and script.unshare_symbols(library) == 0
    asked = run(sys.executable, "-c", f"import ctypes; print(ctypes.CDLL({str(library)!r}).next())")
    assert asked.stdout.strip() == "42"


def test_file_that_is_no_library_is_left_alone(script, tmp_path):
    (tmp_path / "a.so").write_bytes(b"\x7fELF\x01\x01 32 bits")
    with pytest.raises(ValueError, match="a.so is no 64-bit"):
        script.unshare_symbols(tmp_path / "a.so")


@pytest.mark.parametrize("is_ours", [True, False])
def test_wheel_is_built_aside_on_a_current_grpc(script, tmp_path, monkeypatch, is_ours):
    """The 13 minutes of that gRPC are not spent here: the build itself is replaced."""
    monkeypatch.setenv("PKG_CONFIG_PATH", "/of/the/system")
    grpc, ran = tmp_path / "grpc", []
    run_it = script.run

    def run(*command, **more):
        ran.append((command, more))
        return "" if "wheel" in command else run_it(*command, **more)

    monkeypatch.setattr(script, "run", run)
    script.built(tmp_path, grpc if is_ours else None)
    command, more = ran[-1]
    assert command[:4] == (sys.executable, "-m", "pip", "wheel") and command[-1] == "."
    assert more["cwd"].parent == tmp_path / "source" and (more["cwd"] / "setup.py").exists()
    assert not (more["cwd"] / ".grpc").exists() and not (more["cwd"] / "csrc/build").exists()
    own = f"{grpc}/lib/pkgconfig:" if is_ours else ""
    assert more["PKG_CONFIG_PATH"] == f"{own}/of/the/system"


def test_licence_of_our_grpc_is_put_beside(script, tmp_path):
    (tmp_path / "LICENSE").write_text("of gRPC")
    (tmp_path / "licenses").mkdir()
    library = tmp_path / "libgrpc-0123456789.so.59"
    assert script.licences([library], tmp_path / "licenses", tmp_path) == {"grpc"}
    assert (tmp_path / "licenses/grpc.txt").read_text() == "of gRPC"


def test_the_extension_shows_its_entry_alone():
    symbols = run("nm", "-D", "--defined-only", _hivemind_c.__file__).stdout.split("\n")
    assert [line.split()[-1] for line in symbols if line] == ["PyInit__hivemind_c"]


def test_the_stubs_are_strict_and_serve_a_strict_program(tmp_path):
    (tmp_path / "_hivemind_c").mkdir()
    shutil.copy(STUBS, tmp_path / "_hivemind_c")
    (tmp_path / "user.py").write_text(USER)
    checked = run(
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        tmp_path / "cache",
        "user.py",
        "_hivemind_c/__init__.pyi",
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stdout
    (tmp_path / "user.py").write_text(USER.replace("result(1.5)", "result('soon')"))
    assert (
        run(
            sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "user.py", cwd=tmp_path
        ).returncode
        == 1
    )


STRICT = """[mypy]
strict = True
follow_imports = silent
[mypy-torch.*,lightning.*,pytorch_lightning.*,numpy.*]
follow_imports = skip
"""


def strictly(folder, *what):
    """The output of mypy, with no more of torch, Lightning and numpy than their names."""
    (folder / "mypy.ini").write_text(STRICT)
    command = [sys.executable, "-m", "mypy", "--cache-dir", folder / "cache", *what]
    return run(*command, cwd=folder, env={**os.environ, "MYPYPATH": str(ROOT / "python")})


def test_monitor_doctor_and_commands_are_strict(tmp_path):
    checked = strictly(
        tmp_path, *(word for room in ("monitor", "doctor", "cli") for word in ("-p", f"hivemind_c.{room}"))
    )
    assert checked.returncode == 0, checked.stdout


TRAINS = """
import torch

from hivemind_c import DHT, CollaborativeStrategy, HivemindStrategy, Optimizer, SwarmProgressBar

def train(parameters: list[torch.nn.Parameter]) -> None:
    dht = DHT(start=True)
    optimizer = Optimizer(dht=dht, run_id="run", target_batch_size=8, optimizer=torch.optim.SGD(parameters, lr=0.1))
    optimizer.step(batch_size=4)
    HivemindStrategy(target_batch_size=8), CollaborativeStrategy(8), SwarmProgressBar()
"""


def test_strict_program_finds_the_packages_names(tmp_path):
    (tmp_path / "trains.py").write_text(TRAINS)
    checked = strictly(tmp_path, "trains.py")
    assert checked.returncode == 0, checked.stdout
    (tmp_path / "trains.py").write_text(TRAINS.replace("SwarmProgressBar", "SwarmProgresBar"))
    assert strictly(tmp_path, "trains.py").returncode == 1


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_stubs_name_exactly_the_modules_members():
    tree = ast.parse(STUBS.read_text())

    def name_of(item):
        return item.target.id if isinstance(item, ast.AnnAssign) else getattr(item, "name", None)

    classes = {
        node.name: public(name for item in node.body if (name := name_of(item)))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    values = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert public(dir(_hivemind_c)) == public({*classes, *functions, *values})
    for name, members in classes.items():
        real = getattr(_hivemind_c, name)
        if not issubclass(real, BaseException):
            assert public(dir(real)) == members, name
