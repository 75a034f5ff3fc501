"""The wheel in dist/, in an environment of its own, with the machine's gRPC hidden: `make wheel-test`.

It takes minutes and the network (grpcio, protobuf), so it is no part of `make test`; tests/py/project/test_wheel.py
is."""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HIDDEN = (
    "libgrpc",
    "libgpr",
    "libupb",
    "libaddress_sorting",
    "libabsl_",
    "libre2",
    "libcares",
    "libprotobuf-c",
    "libxxhash",
)
PARTS = "hivemind_c/libhivemind_lowrank.so", "hivemind_c/libhivemind_cuda.so"  # PowerSGD; GPUs
TALK = """
import hivemind_c as h
a = h.Node("127.0.0.1:0")
b = h.Node("127.0.0.1:0", initial_peers=a.addresses)
assert b.wait_for_peers(1, timeout=20)[0].peer_id == a.peer_id
assert b.echo(a, b"hello", timeout=20) == b"hello"
"""
IMPORTS = {
    "hivemind_c": TALK,
    "grpc": """
import grpc, concurrent.futures
server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
same = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"echo": same}),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
assert grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/s/echo")(b"hello", timeout=20) == b"hello"
""",
    "protobuf": """
from google.protobuf import struct_pb2, timestamp_pb2
s = struct_pb2.Struct(); s["a"] = 1.0
assert struct_pb2.Struct.FromString(s.SerializeToString())["a"] == 1.0
""",
    "torch": "import torch; assert torch.ones(64, 64).mm(torch.ones(64, 64)).sum() == 64 ** 3\n",
}


def told(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel():
    wheels = list((ROOT / "dist").glob("*.whl"))
    assert len(wheels) == 1, "run `make wheel` first; older wheels in dist/ are in the way"
    return wheels[0]


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """The Python of a new environment with the wheel, grpcio and protobuf; torch and Lightning are seen in this one."""
    home = tmp_path_factory.mktemp("clean") / "venv"
    told(sys.executable, "-m", "venv", home)
    python = home / "bin/python"
    told(python, "-m", "pip", "install", "-q", wheel, "grpcio", "protobuf", env=clean())
    site = told(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", env=clean()).strip()
    (pathlib.Path(site) / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def clean(**more):
    return {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")},
        **more,
    }


def without_grpc(*command):
    """The command where nothing that is hidden can be loaded from the system: /dev/null lies over each of those
    libraries."""
    folder = pathlib.Path("/usr/lib") / sysconfig.get_config_var("MULTIARCH")
    files = [
        path
        for path in folder.iterdir()
        if path.name.startswith(HIDDEN) and ".so" in path.name and not path.is_symlink()
    ]
    assert files, "there is no gRPC here to hide"
    script = f'for f in {" ".join(map(str, files))}; do mount --bind /dev/null $f || exit 9; done; exec "$@"'
    return ("unshare", "-rm", "sh", "-c", script, "sh", *command)


def test_it_is_one_abi3_wheel_with_its_licences_and_types(wheel):
    assert re.fullmatch(r"hivemind_c-[0-9.]+-cp310-abi3-manylinux_2_\d+_(x86_64|aarch64)\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert {"_hivemind_c.abi3.so", "hivemind_c/py.typed", "_hivemind_c-stubs/__init__.pyi", *PARTS} <= set(names)
    licences = " ".join(name.split("/")[-1] for name in names if ".dist-info/licenses/" in name)
    brought = [name for name in names if name.startswith("hivemind_c.libs/")]
    are_apart = any("libabsl" in name for name in brought)  # else they are inside libgrpc, and in its licence
    parts = ("libabsl", "libre2", "libc-ares") if are_apart else ()
    for library in ("LICENSE", "grpc", "libssl", "libprotobuf-c", "libxxhash", *parts):
        assert library in licences
    assert sum(name.startswith("hivemind_c.libs/libgrpc-") for name in names) == 1
    assert not any("libtorch" in name or "libc10" in name for name in names)


def test_nothing_it_brings_is_shared_with_others_in_the_process(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    symbols = told("nm", "-D", "--defined-only", tmp_path / "_hivemind_c.abi3.so").split("\n")
    assert [line.split()[-1] for line in symbols if line] == ["PyInit__hivemind_c"]
    for library in (tmp_path / "hivemind_c.libs").iterdir():
        assert not re.search(r"^\S+ u ", told("nm", "-D", library), re.M), f"{library.name} has unique symbols"


def test_it_runs_where_no_grpc_is_installed(python):
    hidden = subprocess.run(
        without_grpc(sys.executable, "-c", "import ctypes; ctypes.CDLL('libgrpc.so.29')"),
        capture_output=True,
        text=True,
    )
    assert hidden.returncode == 1 and "OSError" in hidden.stderr, hidden.stderr
    out = told(*without_grpc(python, "-c", TALK + "print(h.__file__)"), env=clean(), cwd="/")
    assert out.startswith(str(python.parent.parent))


def test_its_grpc_has_no_known_hole(python):
    program = "from hivemind_c import _grpc_holes; print(_grpc_holes.open_holes(), _grpc_holes.sentence())"
    assert told(python, "-c", program, env=clean(), cwd="/").startswith("[] "), "make wheel takes a current gRPC"


def test_it_loads_its_own_libraries_only(python):
    maps = told(python, "-c", TALK + "print(open('/proc/self/maps').read())", env=clean(), cwd="/")
    loaded = {line.split()[-1] for line in maps.split("\n") if ".so" in line}
    assert any("hivemind_c.libs/libgrpc-" in path for path in loaded)
    assert not [path for path in loaded if path.split("/")[-1].startswith(HIDDEN) and "hivemind_c.libs" not in path]


@pytest.mark.parametrize("order", list(itertools.permutations(IMPORTS)), ids=" ".join)
def test_it_works_beside_others_in_any_order(python, order):
    told(
        python,
        "-c",
        "".join(IMPORTS[name] for name in order) + "".join(IMPORTS[name] for name in order),
        env=clean(),
        cwd="/",
    )


def test_it_works_beside_others_that_share_all_their_symbols(python):
    share = "import os, sys; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)\n"
    told(python, "-c", share + "".join(IMPORTS.values()), env=clean(), cwd="/")


def test_the_quickstart_runs_where_no_grpc_is_installed(python, tmp_path):
    out = told(*without_grpc(python, ROOT / "examples/quickstart.py", "20"), env=clean(), cwd=tmp_path)
    assert "INITIAL_PEERS=" in out


LOADS_ALONE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.hv_cuda_api_of.restype = ctypes.c_void_p
assert library.hv_cuda_api_of(int(sys.argv[2]))
"""


def test_gpu_library_is_loaded_when_asked_and_says_why_not(python, wheel, tmp_path):
    program = (
        TALK + "assert 'libhivemind_cuda' not in open('/proc/self/maps').read(); import hivemind_c.cuda; "
        "print(hivemind_c.cuda.why_not())"
    )
    why = told(python, "-c", program, env=clean(), cwd="/").strip()
    if os.path.exists("/dev/nvidiactl"):
        assert why == "None"
    else:
        assert re.match("no GPU can be used: (there is no driver for NVIDIA's GPUs here|NVIDIA's driver says)", why), (
            why
        )
    zipfile.ZipFile(wheel).extract(PARTS[1], tmp_path)
    (version,) = re.findall(r"HV_CUDA_VERSION (\d+)u", (ROOT / "cuda/hv_cuda.h").read_text())
    told(sys.executable, "-S", "-c", LOADS_ALONE, tmp_path / PARTS[1], version, env=clean(), cwd="/")


def test_gpu_library_compiles_its_kernels_for_a_driver(python, tmp_path):
    """The driver is one for tests (tests/lib/fake_driver.c), and NVRTC is that of requirements.txt, which is seen
    beside torch."""
    told("make", "-s", "-C", ROOT / "csrc", "cuda-fake")
    env = clean(LD_LIBRARY_PATH=str(ROOT / "csrc/build/rel/fake"), HIVEMIND_CACHE=str(tmp_path))
    told(python, "-c", "from hivemind_c import cuda; assert cuda.why_not() is None, cuda.why_not()", env=env, cwd="/")
    (kept,) = (tmp_path / "kernels").iterdir()
    assert kept.name.startswith("sm_90-") and b".text.hv_encode_plain" in kept.read_bytes()


POWER_SGD = """
import torch, hivemind_c._lowrank as lowrank
peer, grads = lowrank.LowRank([torch.empty(40, 60)], 4, 0.0), [torch.randn(40, 4) @ torch.randn(4, 60)]
sent = grads[0].clone()
peer.decode(1, peer.middle(1, peer.encode(1, grads)))
torch.testing.assert_close(grads[0], sent, rtol=0, atol=1e-3)
print(lowrank.__file__)
"""


def test_power_sgd_runs_from_it(python):
    assert told(python, "-c", POWER_SGD, env=clean(), cwd="/").startswith(str(python.parent.parent))


def test_plain_install_from_source_has_all_parts(python, tmp_path):
    """pip builds in an environment without torch; torch is seen only when the package is used."""
    told(python, "-m", "pip", "install", "-q", "--no-deps", "--target", tmp_path / "plain", ROOT, env=clean())
    assert all((tmp_path / "plain" / part).exists() for part in PARTS)
    at_work = told(python, "-c", POWER_SGD, env=clean(PYTHONPATH=str(tmp_path / "plain")), cwd="/")
    assert at_work.startswith(str(tmp_path / "plain"))
