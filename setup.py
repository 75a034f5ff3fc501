"""Builds the extension _hivemind_c: csrc/Makefile makes the C library, this puts the binding around it. The rest stands in pyproject.toml."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

PACKAGES = "grpc >= 29", "libprotobuf-c", "libcrypto >= 3", "libxxhash"
APT = "build-essential pkg-config libgrpc-dev libprotobuf-c-dev protobuf-c-compiler libssl-dev libxxhash-dev libminiupnpc-dev libnatpmp-dev python3-dev"
OWN_GRPC = os.path.join(os.path.dirname(os.path.abspath(__file__)), ".grpc", "current", "lib", "pkgconfig")  # of `make grpc`
NO_PORTS = "hivemind_c is built without miniupnpc and libnatpmp, so peers ask no router to open their port; on Debian and Ubuntu, run apt-get install libminiupnpc-dev libnatpmp-dev before the build"
BUILD_MB = 60  # objects, the library and the extension


def version() -> str:
    with open("csrc/include/hivemind_c.h") as header:
        return re.search(r'HV_VERSION_TEXT "([^"]+)"', header.read()).group(1)


def check_tools() -> None:
    """SystemExit in one sentence if a compiler, a tool, a library or Python's headers are missing."""
    chosen = os.environ.get("CC")
    compilers = {(chosen or usual).split()[0] for usual in ("cc", sysconfig.get_config_var("CC") or "cc")}  # of csrc/Makefile, of setuptools
    tools = [*sorted(compilers), "c++", "make", "pkg-config", "protoc-c"]
    missing = [tool for tool in tools if not shutil.which(tool)]
    if "pkg-config" not in missing:
        missing += [name for name in PACKAGES if subprocess.run(["pkg-config", "--exists", name]).returncode]
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        missing.append("Python.h")
    if missing:
        raise SystemExit(f"hivemind_c cannot be built: this machine has no {', no '.join(missing)}; on Debian 12 or Ubuntu 24.04 and later, run apt-get install {APT}")


def check_room() -> None:
    """SystemExit in one sentence if the sources lie where nothing can be written, or where too little space is left."""
    here = os.getcwd()
    if not os.access(here, os.W_OK):
        raise SystemExit(f"hivemind_c cannot be built: the folder {here} cannot be written; copy the sources to one that can")
    free = shutil.disk_usage(here).free >> 20
    if free < BUILD_MB:
        raise SystemExit(f"hivemind_c cannot be built: the disk of {here} has {free} MB free of the {BUILD_MB} MB that this takes; free some space, or set TMPDIR to another disk for pip")


def pkg_config(option: str, prefix: str) -> list:
    output = subprocess.run(["pkg-config", option, *PACKAGES], check=True, capture_output=True, text=True).stdout
    return [word[len(prefix) :] for word in output.split() if word.startswith(prefix)]


def port_libraries() -> list:
    """The libraries that open ports at a gateway, if the C library was built with them."""
    output = subprocess.run(["make", "-s", "--no-print-directory", "-C", "csrc", "port-libs"], check=True, capture_output=True, text=True).stdout
    return [word.removeprefix("-l") for word in output.split()]


class Build(build_ext):
    def run(self) -> None:
        super().run()
        self.build_lowrank()
        self.build_cuda()

    def build_extensions(self) -> None:
        check_tools()
        check_room()
        # Warnings stop only those who develop this (make check), never an installation by another compiler.
        subprocess.run(["make", "-s", "--no-print-directory", f"-j{os.cpu_count() or 1}", "-C", "csrc", "lib", "WARN=-Wall"], check=True)
        for extension in self.extensions:
            extension.include_dirs += pkg_config("--cflags-only-I", "-I")
            extension.library_dirs += pkg_config("--libs-only-L", "-L")
            extension.extra_link_args += pkg_config("--libs-only-other", "")
            extension.libraries += port_libraries()
        if not port_libraries():
            print(NO_PORTS, file=sys.stderr)
        super().build_extensions()

    def build_lowrank(self) -> None:
        """PowerSGD's maths beside the package. It is built without torch, and calls the torch that is there when it is loaded."""
        subprocess.run(["make", "-s", "--no-print-directory", "-C", "csrc", "lowrank", "WARN=-Wall"], check=True)
        self.put_beside("libhivemind_lowrank.so")

    def put_beside(self, library: str) -> None:
        target = os.path.join("python" if self.inplace else self.build_lib, "hivemind_c")
        os.makedirs(target, exist_ok=True)
        shutil.copy(os.path.join("csrc", "build", "rel", library), target)

    def build_cuda(self) -> None:
        """The codecs for GPUs beside the package: a GPU's machine compiles the kernels in it, so CUDA is not needed here."""
        subprocess.run(["make", "-s", "--no-print-directory", "-C", "csrc", "cuda", "WARN=-Wall"], check=True)
        self.put_beside("libhivemind_cuda.so")


os.environ["PKG_CONFIG_PATH"] = os.pathsep.join(filter(None, [OWN_GRPC, os.environ.get("PKG_CONFIG_PATH")]))
setup(
    version=version(),
    ext_modules=[
        Extension(
            "_hivemind_c",
            sources=sorted(glob("csrc/bind/*.c")),
            depends=["csrc/build/rel/libhivemind_c.a", *glob("csrc/**/*.h", recursive=True), *glob("cuda/*.h")],
            include_dirs=["csrc/include", "csrc", "."],
            define_macros=[("_GNU_SOURCE", None)],
            extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-pthread"],
            extra_objects=["csrc/build/rel/libhivemind_c.a"],
            libraries=["grpc", "gpr", "protobuf-c", "xxhash", "crypto", "m"],
            extra_link_args=["-pthread"],
            py_limited_api=True,
        )
    ],
    cmdclass={"build_ext": Build},
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
