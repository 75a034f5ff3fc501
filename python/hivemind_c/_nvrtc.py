"""Where NVRTC may be, which compiles the kernels for the GPU that is there, and where the result is kept."""

from __future__ import annotations

import glob
import os
import re
import sys
from typing import Iterator, List, Optional

#: in a folder of packages: NVIDIA's own (nvidia/cuda_nvrtc, nvidia/cu13), and that inside older builds of torch
_IN_PACKAGES = "nvidia/*/lib", "torch/lib"
_IN_TOOLKITS = "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"
_NAME = re.compile(r"libnvrtc(-[0-9a-f]+)?\.so\.(\d+)$")
_LOADER = "libnvrtc.so.13", "libnvrtc.so.12"  # wherever the system's loader finds them


def _folders() -> Iterator[str]:
    for place in sys.path:
        for pattern in _IN_PACKAGES:
            yield from sorted(glob.glob(os.path.join(glob.escape(place or "."), pattern)))
    toolkits = [os.environ.get(name) for name in ("CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH")]
    for place in [*filter(None, toolkits), *sorted(glob.glob("/usr/local/cuda*"), reverse=True)]:
        yield from (os.path.join(place, name) for name in _IN_TOOLKITS)


def _major(path: str) -> str:
    match = _NAME.search(path)
    return match[2] if match else ""


def compilers() -> List[str]:
    """NVRTC libraries in the order in which they are tried: those of the CUDA that torch was built for come first."""
    found = []
    for folder in _folders():
        paths = sorted(glob.glob(os.path.join(glob.escape(folder), "libnvrtc*.so.*")))
        found += [path for path in paths if _NAME.search(path) and path not in found]
    torch = sys.modules.get("torch")
    wanted = str(getattr(getattr(torch, "version", None), "cuda", None) or "").split(".")[0]
    return sorted([*found, *_LOADER], key=lambda path: _major(path) != wanted)


def cache() -> Optional[str]:
    """The folder of compiled kernels: in HIVEMIND_CACHE, or in the user's cache; None where there is no home."""
    folder = os.environ.get("HIVEMIND_CACHE")
    if not folder:
        place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = os.path.join(place, "hivemind_c")
    folder = os.path.join(os.path.expanduser(folder), "kernels")
    return folder if os.path.isabs(folder) else None
