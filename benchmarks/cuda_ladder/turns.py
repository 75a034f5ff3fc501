"""Two pieces of work on a GPU in turn (A-B-B-A), timed by CUDA's events."""

from typing import Callable, Dict, List, Tuple

import torch

Work = Callable[[], object]


def spent(work: Work) -> float:
    """Milliseconds on the device."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def in_turn(one: Work, other: Work, timed: Callable[[Work], float] = spent) -> List[Tuple[float, float]]:
    """Forty pairs of what the one and the other took, measured next to each other."""
    for _ in range(5):
        timed(one), timed(other)
    pairs = []
    for _ in range(20):
        a, b, c, d = timed(one), timed(other), timed(other), timed(one)
        pairs += [(a, b), (d, c)]
    return pairs


def median(values: List[float], digits: int = 3) -> float:
    return round(sorted(values)[len(values) // 2], digits)


def spread(name: str, values: List[float], digits: int = 3) -> Dict[str, float]:
    """The median, and a fifth from either end."""
    low, high = sorted(values)[len(values) // 5], sorted(values)[len(values) * 4 // 5]
    return {name: median(values, digits), "low": round(low, digits), "high": round(high, digits)}
