"""The machine by itself: what is installed, and what the system allows."""

from __future__ import annotations

import ctypes
import glob
import importlib.metadata
import os
import platform
import socket
import struct
import time
from typing import Callable, Iterator, Optional, Tuple

import _hivemind_c

import hivemind_c
from hivemind_c import _grpc_holes, _needs
from hivemind_c.doctor.finding import FAULT, NOTE, OK, WARNING, Finding

FILES_LEAST = 1024  #: open files for a swarm of some hundred peers, with a program's own
BUILT_AFTER = 1_735_689_600  #: 2025 began; a clock before that is wrong
_PACKAGE = os.path.dirname(hivemind_c.__file__)
Version = Callable[[str], Optional[str]]


def installed(name: str) -> Optional[str]:
    """The version of a Python package; None: it is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check() -> Iterator[Finding]:
    yield versions(installed)
    yield grpc(_hivemind_c.GRPC_CORE_VERSION)
    yield torch_there(installed)
    yield from lightning_there(installed)
    yield low_rank(os.path.join(_PACKAGE, "libhivemind_lowrank.so"), installed)
    yield gpu(os.path.exists("/dev/nvidiactl") or bool(glob.glob("/dev/nvidia[0-9]*")), _torch_cuda, _why_no_kernels)
    yield files(_files_allowed())
    yield from ports(_hivemind_c.CAN_OPEN_PORTS)
    yield from internet(_route(socket.AF_INET, "192.0.2.1"), _route(socket.AF_INET6, "2001:db8::1"), os.path.exists("/proc/net/if_inet6"))
    yield clock(time.time(), _synchronized())


def versions(installed: Version) -> Finding:
    here, package = hivemind_c.__version__, installed("hivemind_c")
    about = f"hivemind_c {here}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if package is not None and package != here:
        return Finding(
            "versions", FAULT, f"the extension that is loaded is version {here} and the package that is installed {package}, so an old build is in the way: "
            "install the wheel again with pip install --force-reinstall, or run make build in the repository"
        )  # fmt: skip
    return Finding("versions", OK, about)


def grpc(version: str) -> Finding:
    details = tuple(_grpc_holes.details(version))
    return Finding("gRPC", WARNING if details else OK, _grpc_holes.sentence(version), details)


def ports(can_open: bool) -> Iterator[Finding]:
    """Nothing where all is well: whether a router opens a port is seen when a peer listens."""
    if not can_open:
        yield Finding(
            "router", NOTE, "this build cannot ask a router to open a port, because it has no miniupnpc and libnatpmp: run apt-get install libminiupnpc-dev libnatpmp-dev "
            "and build hivemind_c again, or forward the port by hand"
        )  # fmt: skip


def torch_there(installed: Version) -> Finding:
    version = installed("torch")
    if version is None:
        return Finding("torch", WARNING, f"torch is not installed, so this machine can keep records for a swarm but not train: run pip install '{_needs.at_least('torch')}'")
    if sentence := _needs.too_old("torch", version):
        return Finding("torch", FAULT, sentence)
    return Finding("torch", OK, f"torch {version}")


def lightning_there(installed: Version) -> Iterator[Finding]:
    found = {name: version for name in ("lightning", "pytorch-lightning") if (version := installed(name))}
    for name, version in found.items():
        sentence = _needs.too_old(name, version)
        yield Finding("lightning", FAULT, sentence) if sentence else Finding("lightning", OK, f"{name} {version}")
    if not found:
        yield Finding("lightning", NOTE, "Lightning is not installed, so HivemindStrategy cannot be used, but Optimizer can: run pip install lightning to have both")


def low_rank(path: str, installed: Version) -> Finding:
    version = installed("torch")
    if not os.path.exists(path):
        missing = f"{os.path.basename(path)} is missing from this installation"
        return Finding("PowerSGD", WARNING, f"PowerSGD cannot be used, because {missing}: install hivemind_c again")
    if version is not None and _needs.numbers(version) < (2, 10):
        remedy = "run pip install 'torch>=2.10' if you want it"
        return Finding("PowerSGD", NOTE, f"PowerSGD cannot be used with torch {version}: {remedy}")
    return Finding("PowerSGD", OK, "PowerSGD's maths is there")


def _torch_cuda() -> Optional[Tuple[bool, Optional[str]]]:
    """(whether torch sees a GPU, the CUDA that it was built for); None: there is no torch."""
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.is_available(), torch.version.cuda


def _why_no_kernels() -> Optional[str]:
    from hivemind_c import cuda

    return cuda.why_not()


def gpu(there: bool, torch_cuda: Callable[[], Optional[Tuple[bool, Optional[str]]]], why_no_kernels: Callable[[], Optional[str]]) -> Finding:
    if not there:
        return Finding("GPU", NOTE, "there is no NVIDIA GPU here: this machine trains on its processors")
    seen = torch_cuda()
    if seen is None:
        return Finding("GPU", WARNING, "there is a GPU, but torch is not installed: run pip install torch")
    if seen[1] is None:
        return Finding("GPU", FAULT, "there is a GPU, but this torch was built without CUDA, so training would not use it: install torch from https://pytorch.org with CUDA")
    if not seen[0]:
        return Finding("GPU", FAULT, f"there is a GPU, but torch for CUDA {seen[1]} cannot use it: look at nvidia-smi, and update the driver or take a torch for an older CUDA")
    why = why_no_kernels()
    if why is not None:
        about = f"torch sees the GPU, but the kernels cannot be used, so tensors go by the host's memory: {why}"
        return Finding("GPU", WARNING, about)
    return Finding("GPU", OK, "torch sees the GPU, and the kernels are ready")


def _files_allowed() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FILES_LEAST if soft == resource.RLIM_INFINITY else soft


def files(allowed: int) -> Finding:
    if allowed < FILES_LEAST:
        return Finding("open files", WARNING, f"this program may open {allowed} files and connections at most, too few for a large swarm: run ulimit -n 4096 before it")
    return Finding("open files", OK, "enough files and connections may be open at once")


def _route(family: int, address: str) -> Optional[str]:
    """This machine's address towards that one; nothing is sent. None: there is no way."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def internet(v4: Optional[str], v6: Optional[str], has_v6: bool) -> Iterator[Finding]:
    if v4 is None and v6 is None:
        yield Finding("network", FAULT, "this machine has no way to other networks, so only peers on this machine or beside it can be found: check cable, Wi-Fi, or the container's network")
        return
    if v4 is None:
        yield Finding("network", WARNING, f"there is IPv6 ({v6}) but no IPv4, so peers that have only IPv4 addresses cannot be dialled: name peers by IPv6 addresses")
    else:
        yield Finding("network", OK, f"IPv4 by {v4}")
    if not has_v6:
        yield Finding("IPv6", NOTE, "IPv6 is switched off in this system, so peers that have only IPv6 addresses cannot be dialled: name peers by IPv4 addresses")
    elif v6 is None:
        yield Finding("IPv6", NOTE, "there is no way to IPv6 networks from here, so peers that have only IPv6 addresses cannot be dialled: name peers by IPv4 addresses")
    else:
        yield Finding("IPv6", OK, f"IPv6 by {v6}")


def _synchronized() -> Optional[bool]:
    """Whether the kernel's clock is kept by time servers; None: it does not say."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(512)  # struct timex, with room to spare; modes 0: only look
        state = libc.adjtimex(buffer)
        status = struct.unpack_from("i", buffer.raw, 40 if ctypes.sizeof(ctypes.c_long) == 8 else 20)[0]
    except (OSError, AttributeError):
        return None
    return None if state < 0 else not status & 0x40  # STA_UNSYNC


def clock(now: float, synchronized: Optional[bool]) -> Finding:
    if now < BUILT_AFTER:
        date = time.strftime("%Y-%m-%d", time.gmtime(now))
        return Finding("clock", WARNING, f"this machine's clock says {date}, which has passed long ago; logs and checkpoints will be dated wrong: run timedatectl set-ntp true")
    if synchronized is False:
        return Finding("clock", NOTE, "no time server keeps this machine's clock; peers do not mind, but logs of several machines will not fit together: run timedatectl set-ntp true")
    return Finding("clock", OK, "the clock is " + ("kept by a time server" if synchronized else "plausible"))
