"""The layer between the kernels and NVIDIA's driver, without a GPU: cuda/runtime.c, driver.c, compiler.c and keep.c as
they are built,
over a driver and a compiler made for tests (tests/lib/fake_driver.c, fake_nvrtc.c), and over the real NVRTC of
requirements.txt."""

import ctypes
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hivemind_c import _nvrtc
from support import makes

ROOT = Path(__file__).resolve().parents[3]
FAKE = ROOT / "csrc/build/rel/fake"
KERNELS = 24
#: what a program of these tests begins with: opened() opens GPU 0 with these compilers and this cache, and says how
#: that went
BEGIN = f"""
import ctypes, logging, os, sys
import _hivemind_c
import hivemind_c
from hivemind_c import _nvrtc, cuda

LIBRARY, RTC = {str(FAKE / "libhivemind_cuda.so")!r}, {str(FAKE / "libnvrtc-fa4e.so.12")!r}
driver = ctypes.CDLL("libcuda.so.1")

def machine(**variables):
    for name in [name for name in os.environ if name.startswith("FAKE_")]:
        del os.environ[name]
    os.environ.update(variables)

def opened(cache, *compilers, index=0):
    try:
        gpu, note, is_warning = _hivemind_c.cuda_open(LIBRARY, index, list(compilers), cache)
        assert driver.fake_cuda_depth() == 0 and bool(compilers) >= bool(note)
        return note if is_warning else "opened"
    except hivemind_c.HivemindError as error:
        assert driver.fake_cuda_depth() == 0
        return f"{{error.status}}: {{error}}"
"""


@pytest.fixture(scope="module", autouse=True)
def fakes():
    makes("cuda-fake")


def told(program, *arguments, timeout=240, **variables):
    """The output of a process that finds the driver for tests, and no other."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "HIVEMIND_"))}
    path = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
    env = {**clean, "LD_LIBRARY_PATH": str(FAKE), "PYTHONPATH": path, **variables}
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


# ---- opening ----


def test_unusable_driver_is_one_sentence_with_a_remedy():
    cases = {
        "a driver of CUDA 12.0": (
            {"FAKE_CUDA_VERSION": "12000"},
            "UNSUPPORTED: no GPU can be used: the driver is for CUDA 12.0 .* install driver 530 or later",
        ),
        "no start": (
            {"FAKE_CUDA_FAIL": "cuInit:100"},
            'NOT_FOUND: no GPU can be used: .* "as the test wanted it"; look at nvidia-smi',
        ),
        "no GPU": ({"FAKE_CUDA_DEVICES": "0"}, "NOT_FOUND: there is no GPU number 0: this process sees 0"),
        "none counted": (
            {"FAKE_CUDA_FAIL": "cuDeviceGetCount:100"},
            "NOT_FOUND: there is no GPU number 0: this process sees 0",
        ),
        "an old GPU": (
            {"FAKE_CUDA_CAPABILITY": "61"},
            "UNSUPPORTED: GPU number 0 has compute capability 6.1, and the kernels need 7.0 or later",
        ),
        "a GPU in use": (
            {"FAKE_CUDA_FAIL": "cuDevicePrimaryCtxRetain:2"},
            "IO: GPU number 0 cannot be opened: .*; look at nvidia-smi",
        ),
        "code refused": (
            {"FAKE_CUDA_FAIL": "cuModuleLoadData:209"},
            "UNSUPPORTED: GPU number 0 does not take the kernels: .*; install a newer driver",
        ),
        "no memory": (
            {"FAKE_CUDA_FAIL": "cuModuleLoadData:2"},
            "NOMEM: loading the kernels on the GPU failed: out of memory",
        ),
        "no kernel": (
            {"FAKE_CUDA_FAIL": "cuModuleGetFunction:500"},
            "UNSUPPORTED: GPU number 0 does not take the kernels: .*",
        ),
        "a context that is gone": (
            {"FAKE_CUDA_FAIL": "cuCtxPushCurrent_v2:201"},
            "IO: loading the kernels on the GPU failed: invalid device context",
        ),
    }
    program = f"for variables in {[variables for variables, _ in cases.values()]!r}:\n  machine(**variables)\n  print(opened(None, RTC))\n"
    lines = told(
        program
        + "machine()\nprint(opened(None, RTC, index=1))\nprint(opened(None, RTC))\nprint(driver.fake_cuda_calls(b'cuDevicePrimaryCtxRelease_v2'))"
    )
    for (name, (_, expected)), line in zip(cases.items(), lines):
        assert re.fullmatch(expected, line), (name, line)
    assert lines[len(cases) :] == ["NOT_FOUND: there is no GPU number 1: this process sees 1", "opened", "4"]


def test_library_names_28_functions_of_the_driver():
    names = set(re.findall(r'X\(\w+, "(cu\w+)"', (ROOT / "cuda/driver.h").read_text()))
    library = (ROOT / "python/hivemind_c/libhivemind_cuda.so").read_bytes()
    found = {name.decode() for name in re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", library)}
    assert len(names) == 28 and found == names


# ---- compiling ----


def test_compiler_is_chosen_by_version_and_reach(tmp_path):
    program = """
folder = sys.argv[1]
def made(**variables):
    machine(**variables)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    how = opened(folder, "/nowhere/libnvrtc.so.12", RTC)
    return "; ".join([how, *(line.decode(errors="replace") for name in os.listdir(folder) for line in open(os.path.join(folder, name), "rb").read().split(b"\\n") if line.startswith(b"--"))])

print(made(FAKE_CUDA_CAPABILITY="90"))
print(made(FAKE_CUDA_CAPABILITY="86"))
print(made(FAKE_CUDA_CAPABILITY="120"))
print(made(FAKE_CUDA_CAPABILITY="70"))
print(made(FAKE_NVRTC_VERSION="12000"))
print(made(FAKE_NVRTC_VERSION="13000"))
print(made(FAKE_NVRTC_VERSION="13000", FAKE_CUDA_VERSION="13000"))
print(made(FAKE_NVRTC_FAIL="6"))
print(made(FAKE_NVRTC_ARCHS="75 x"))
"""
    lines = told(program, tmp_path)
    flags = "; --std=c++17; --fmad=false; --diag-suppress=177"
    assert lines[:3] == [f"opened; --gpu-architecture={arch}{flags}" for arch in ("sm_90", "sm_80", "compute_90")]
    assert re.fullmatch(
        r"UNSUPPORTED: the kernels cannot be compiled for this GPU: .*nowhere.*; .*fa4e.so.12 makes no code for compute capability 7.0; install a torch that is built for it",
        lines[3],
    )
    assert re.fullmatch(
        r"NOT_FOUND: the kernels cannot be compiled: no NVRTC can be used \(.*nowhere.*; .*fa4e.so.12 is older than NVRTC 12.1\); run pip install nvidia-cuda-nvrtc-cu12, .*",
        lines[4],
    )
    assert "is of CUDA 13 and the driver of CUDA 12" in lines[5]
    assert lines[6] == f"opened; --gpu-architecture=sm_90{flags}"
    assert lines[7] == "INTERNAL: NVRTC could not compile the kernels (error 6): kernels.cu(3): error: no"
    assert lines[8].startswith("opened; --gpu-architecture=compute_75")


def test_missing_compiler_is_one_sentence_with_a_remedy():
    (line,) = told("print(opened(None))")
    assert line.startswith(
        "NOT_FOUND: the kernels cannot be compiled: no NVRTC can be used (none was found); run pip install nvidia-cuda-nvrtc-cu12"
    )


def test_compilers_are_looked_for_beside_torch_first(tmp_path, monkeypatch):
    for name in ("a/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "a/nvidia/cuda_nvrtc/lib/libnvrtc.alt.so.12", "a/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.8",
                 "b/nvidia/cu13/lib/libnvrtc.so.13", "b/torch/lib/libnvrtc-b51b459d.so.12", "conda/lib/libnvrtc.so.12.4.127", "conda/lib/libnvrtc.so.12"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "a"), str(tmp_path / "b")])
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    found = [os.path.relpath(path, tmp_path) for path in _nvrtc.compilers() if path.startswith(str(tmp_path))]
    assert found == [
        "b/nvidia/cu13/lib/libnvrtc.so.13",
        "a/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "b/torch/lib/libnvrtc-b51b459d.so.12",
        "conda/lib/libnvrtc.so.12",
    ]
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert _nvrtc.compilers()[0] == str(tmp_path / found[1]) and "libnvrtc.so.13" in _nvrtc.compilers()


# ---- keeping ----


def test_kernels_are_kept_unless_the_file_is_damaged(tmp_path):
    folder = tmp_path / "some/kernels"
    assert told("print(opened(sys.argv[1], RTC))", folder) == ["opened"]
    (file,) = folder.iterdir()
    assert (
        re.fullmatch(r"sm_90-[0-9a-f]{16}\.bin", file.name)
        and file.stat().st_mode & 0o777 == 0o600
        and folder.stat().st_mode & 0o777 == 0o700
    )
    assert told("print(opened(sys.argv[1]))", folder) == ["opened"]  # no compiler is asked
    whole = file.read_bytes()
    for damage in (whole[:-1], whole + b"x", whole[:99] + bytes([whole[99] ^ 1]) + whole[100:], b"", whole[:20]):
        file.write_bytes(damage)
        assert told("print(opened(sys.argv[1]))", folder)[0].startswith("NOT_FOUND")
        assert told("print(opened(sys.argv[1], RTC))", folder) == ["opened"] and file.read_bytes() == whole
    file.chmod(0o622)  # others could have written it
    assert told("print(opened(sys.argv[1]))", folder)[0].startswith("NOT_FOUND")


def test_code_that_the_driver_refuses_is_compiled_again(tmp_path):
    program = "print(opened(sys.argv[1], RTC)); machine(FAKE_CUDA_FAIL='cuModuleLoadData:209:2'); print(opened(sys.argv[1], RTC)); print(opened(sys.argv[1], RTC))"
    lines = told(program, tmp_path)
    assert lines[0] == "opened" and lines[1].startswith("UNSUPPORTED")
    assert told("print(opened(sys.argv[1], RTC), driver.fake_cuda_calls(b'cuModuleLoadData'))", tmp_path) == [
        "opened 1"
    ]


def test_folder_that_takes_nothing_is_noted_and_done_without(tmp_path):
    (tmp_path / "file").touch()
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY)); "
    lines = [
        told(f"{more}print(opened(sys.argv[1], RTC))", folder)[0]
        for more, folder in (("", tmp_path / "file/kernels"), ("", "/proc/kernels"), (full, tmp_path / "full"))
    ]
    for line, why in zip(
        lines,
        ("Not a directory", "No such file or directory|Operation not permitted|Permission denied", "File too large"),
    ):
        assert re.fullmatch(
            rf"the compiled kernels could not be kept in '.*': ({why}); set HIVEMIND_CACHE to a folder that can be written, or each process compiles them again",
            line,
        )
    assert list((tmp_path / "full").iterdir()) == []  # nothing half written


def test_compiling_is_logged_in_one_line(tmp_path):
    program = """
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
_nvrtc.compilers = lambda: [RTC]
cuda.Kernels(0, LIBRARY)
"""
    (line,) = told(program, HIVEMIND_CACHE="/proc")
    assert line.startswith("WARNING the compiled kernels could not be kept in '/proc/kernels': ")
    kept = f"INFO the kernels of GPU number 0 were compiled, and are kept in '{tmp_path}/kernels'"
    assert told(program, HIVEMIND_CACHE=str(tmp_path)) == [kept] and told(program, HIVEMIND_CACHE=str(tmp_path)) == []
    not_kept = program.replace("cuda.Kernels", "_nvrtc.cache = lambda: None\ncuda.Kernels")
    assert told(not_kept) == [
        "INFO the kernels of GPU number 0 were compiled, and will be again: set HIVEMIND_CACHE to a folder to keep them"
    ]


def test_cache_folder_is_the_users_or_the_named_one(monkeypatch):
    for name, value in (("HOME", "/home/someone"), ("XDG_CACHE_HOME", "/cache"), ("HIVEMIND_CACHE", "~/here")):
        monkeypatch.setenv(name, value)
    assert _nvrtc.cache() == "/home/someone/here/kernels"
    monkeypatch.delenv("HIVEMIND_CACHE")
    assert _nvrtc.cache() == "/cache/hivemind_c/kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert _nvrtc.cache() == "/home/someone/.cache/hivemind_c/kernels"
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where there is no home
    assert _nvrtc.cache() is None


# ---- at work ----


def test_errors_at_work_have_a_status_and_leave_no_context(tmp_path):
    program = """
import torch
gpu, *_ = _hivemind_c.cuda_open(LIBRARY, 0, [RTC], sys.argv[1])
kernels = cuda.Kernels.__new__(cuda.Kernels)
kernels._gpu = gpu
for fail in ("cuLaunchKernel:2", "cuLaunchKernel:1", "cuLaunchKernel:901", "cuLaunchKernel:700", "cuCtxPushCurrent_v2:201"):
    machine(FAKE_CUDA_FAIL=fail)
    try:
        kernels.encode("float16", torch.randn(5000))
    except hivemind_c.HivemindError as error:
        print(f"{error.status}: {error}", driver.fake_cuda_depth())
for fail in ("cuMemAlloc_v2:2", "cuMemHostAlloc:2", "cuStreamCreate:2", "cuEventCreate:2"):
    machine(FAKE_CUDA_FAIL=fail)
    try:
        kernels.stage("none", torch.float32, 1000)
    except hivemind_c.HivemindError as error:
        print(f"{error.status}: {error}", driver.fake_cuda_depth())
machine()
print(len(kernels.encode("float16", torch.randn(5000))))
"""
    lines = told(program, tmp_path)
    assert lines == [
        "NOMEM: starting a kernel on the GPU failed: out of memory 0",
        "INVALID: starting a kernel on the GPU failed: as the test wanted it 0",
        "INVALID: starting a kernel on the GPU failed: as the test wanted it 0",
        "IO: starting a kernel on the GPU failed: as the test wanted it 0",
        "IO: starting a kernel on the GPU failed: its context is gone 0",
        "NOMEM: taking memory on the GPU failed: out of memory 0",
        "NOMEM: taking page-locked memory on the GPU failed: out of memory 0",
        "NOMEM: making a stream on the GPU failed: out of memory 0",
        "NOMEM: making an event on the GPU failed: out of memory 0",
        "10032",
    ]


def test_binding_passes_its_tests_over_the_runtime(tmp_path):
    """All that test_cuda.py tries on a stand-in, with runtime.c in between: chunks, stages and sums come out with the
    CPU's bytes."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**clean, "LD_LIBRARY_PATH": str(FAKE), "CUDA_STAND_IN": str(FAKE / "libhivemind_cuda.so"), "HIVEMIND_CACHE": str(tmp_path),
           "CONDA_PREFIX": str(tmp_path / "conda"), "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])}  # fmt: skip
    (tmp_path / "conda/lib").mkdir(parents=True)
    (tmp_path / "conda/lib/libnvrtc-fa4e.so.12").symlink_to(FAKE / "libnvrtc-fa4e.so.12")
    choice = "stand-in and not lost"
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", choice, "tests/py/compression/test_cuda.py"],
                          cwd=ROOT, capture_output=True, text=True, timeout=300, env=env)  # fmt: skip
    assert done.returncode == 0 and re.search(r"\b9 passed", done.stdout), done.stdout[-3000:] + done.stderr
    assert len(list((tmp_path / "kernels").iterdir())) == 1


# ---- NVIDIA's own compiler ----


def compiled(folder, capability, *more):
    """The real NVRTC's code for a GPU of this kind, and the rest of the program's output."""
    program = (
        f"machine(FAKE_CUDA_CAPABILITY='{capability}', FAKE_CUDA_VERSION='13000')\nprint(opened(sys.argv[1], *_nvrtc.compilers()))\n"
        + "".join(more)
    )
    lines = told(program, folder, timeout=380)
    assert lines[0] == "opened", lines[0]
    (file,) = Path(folder).glob(f"sm_{capability}-*")
    return file.read_bytes()[24:], lines[1:]


def sections(code):
    """The names of the kernels that have machine code in an ELF file, and the capability that it is for."""
    machine, flags, table = (
        *struct.unpack_from("<H", code, 18),
        *struct.unpack_from("<I", code, 48),
        *struct.unpack_from("<Q", code, 40),
    )
    assert code[:5] == b"\x7fELF\x02" and machine == 190 and table < len(code)
    arch = (
        flags >> 8 & 0xFF if flags & 0xFF == 0 or code[8] >= 8 else flags & 0xFF
    )  # newer files have it one byte further
    return set(re.findall(rb"\0\.text\.(hv_\w+)(?=\0)", code)), arch


def test_real_compiler_makes_code_that_the_runtime_takes(tmp_path):
    code, lines = compiled(tmp_path, 90, "print(driver.fake_cuda_calls(b'cuModuleGetFunction'))\n")
    names, arch = sections(code)
    assert len(names) == KERNELS and arch == 90 and lines == [str(KERNELS)]


def rounds_otherwise(ptx):
    """Instructions on floats that need not give what C gives on the host: a product and a sum in one, denormals that
    are lost, roundings that are not said."""
    arithmetic = re.findall(
        r"^\s+(?:@!?%p\d+ )?((?:add|sub|mul|div|rcp|sqrt|fma|mad|ex2|lg2|sin|cos|tanh|rsqrt)\.[\w.]*f(?:16|32|64)\w*)",
        ptx,
        re.M,
    )
    return {one for one in arithmetic if not re.fullmatch(r"(add|sub|mul|div|rcp|sqrt)\.rn\.f(32|64)", one)} | set(
        re.findall(r"\b\w+\.ftz\.\w+", ptx)
    )


def test_newer_gpu_gets_ptx_that_rounds_to_the_nearest(tmp_path):
    """Each instruction says so itself, so no driver that makes machine code of it may join two of them either."""
    code, _ = compiled(tmp_path, 250)
    ptx = code.rstrip(b"\0").decode()
    assert len(re.findall(r"\.entry hv_\w+", ptx)) == KERNELS
    assert len(re.findall(r"\.rn\.f(?:32|64)", ptx)) > 100 and not rounds_otherwise(ptx)


@pytest.mark.parametrize("flag, joined", [("--fmad=false", False), ("--fmad=true", True)])
def test_flag_keeps_products_and_sums_apart(flag, joined):
    rtc = ctypes.CDLL(next(path for path in _nvrtc.compilers() if path.endswith(".so.12") and os.path.isabs(path)))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = b'extern "C" __global__ void f(float *x) { x[0] = x[1] * x[2] + x[3]; }'
    assert rtc.nvrtcCreateProgram(ctypes.byref(program), source, b"f.cu", 0, None, None) == 0
    assert (
        rtc.nvrtcCompileProgram(program, 2, (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_90", flag.encode())) == 0
    )
    assert rtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
    ptx = ctypes.create_string_buffer(size.value)
    assert rtc.nvrtcGetPTX(program, ptx) == 0
    assert ("fma.rn.f32" in rounds_otherwise(ptx.value.decode())) == joined


@pytest.mark.long
@pytest.mark.parametrize("capability", [70, 75, 80, 86, 89, 100, 120])
def test_real_compiler_makes_code_for_every_generation(capability, tmp_path):
    names, arch = sections(compiled(tmp_path, capability)[0])
    assert len(names) == KERNELS and arch == capability
