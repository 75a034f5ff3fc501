"""Two pieces of work in turn (A-B-B-A), timed by CUDA's events; on the CPU by its clock."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Tuple

import torch

from .place import STAND_IN

Work = Callable[[], object]
PAIRS_LEAST, PAIRS_MOST = 6, 40


def spent(work: Work) -> float:
    """Milliseconds on the device."""
    if STAND_IN:
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def in_turn(
    one: Work, other: Work, seconds: float = 10.0, timed: Callable[[Work], float] = spent
) -> List[Tuple[float, float]]:
    """Pairs of the times of both, measured next to each other: 40, or as many as the seconds allow, and at least 6."""
    for _ in range(1 if STAND_IN else 3):
        timed(one), timed(other)
    end, pairs = time.monotonic() + (0 if STAND_IN else seconds), []
    while len(pairs) < PAIRS_LEAST or (len(pairs) < PAIRS_MOST and time.monotonic() < end):
        a, b, c, d = timed(one), timed(other), timed(other), timed(one)
        pairs += [(a, b), (d, c)]
    return pairs


def several(work: Work, milliseconds: float = 250.0) -> Tuple[Work, int]:
    """The work so many times in a row that it takes about as long as asked, and that number."""
    spent(work)
    times = max(1, round(milliseconds / max(spent(work), 0.01))) if not STAND_IN else 1

    def loop() -> None:
        for _ in range(times):
            work()

    return loop, times


def median(values: List[float], digits: int = 3) -> float:
    return round(sorted(values)[len(values) // 2], digits)


def spread(name: str, values: List[float], digits: int = 3) -> Dict[str, float]:
    """The median, and a fifth from either end."""
    low, high = sorted(values)[len(values) // 5], sorted(values)[len(values) * 4 // 5]
    return {name: median(values, digits), "low": round(low, digits), "high": round(high, digits)}
