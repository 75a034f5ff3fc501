"""The device of a report's measurements: GPU 0, or in a rehearsal the CPU, with a stand-in and small tensors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Tuple

import torch

from hivemind_c import cuda

if TYPE_CHECKING:
    from hivemind_c.cuda import Kernels

STAND_IN = os.environ.get("HIVEMIND_GPU_STAND_IN")  # the library of a rehearsal
DEVICE = "cpu" if STAND_IN else "cuda"
DTYPES = torch.float32, torch.float16, torch.bfloat16


def kernels() -> Kernels:
    return cuda.Kernels(0, STAND_IN) if STAND_IN else cuda.Kernels(0)


def values_of(megabytes: int) -> int:
    """How many float32 values that many MB are; a rehearsal takes a thousandth."""
    return megabytes * 250_000 // (1000 if STAND_IN else 1)


def room() -> float:
    """GB of the device's memory."""
    return 0.0 if STAND_IN else torch.cuda.get_device_properties(0).total_memory / 1e9


def sizes() -> Tuple[int, ...]:
    """MB of float32 that rows of codecs take."""
    return 512, 25
