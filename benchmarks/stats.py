"""Medians, their spread, and ratios between measurements that were taken in turns. No I/O."""

from __future__ import annotations

import math
import statistics
from typing import List, NamedTuple, Sequence, Tuple


class Spread(NamedTuple):
    """The middle of some numbers, and the quartiles around it."""

    median: float
    low: float
    high: float
    count: int


NOTHING = Spread(math.nan, math.nan, math.nan, 0)  #: of what was not measured


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles (interpolated between the values, so they never lie outside of them)."""
    if not values:
        raise ValueError("nothing was measured: there are no values to take a median of")
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"a measured value is not finite: {list(values)}")
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, low, high, len(values))


def paired_ratios(top: Sequence[float], bottom: Sequence[float]) -> List[float]:
    """top[i] / bottom[i]: what was measured in the same round belongs together."""
    if len(top) != len(bottom):
        raise ValueError(f"{len(top)} values cannot be paired with {len(bottom)}")
    if not all(value > 0 for value in (*top, *bottom)):
        raise ValueError("a ratio needs values above zero: something was measured as nothing")
    return [a / b for a, b in zip(top, bottom)]


def turns(names: Sequence[str], rounds: int) -> List[Tuple[int, str]]:
    """The order of the measurements, as (round, name): A B - B A - A B - ... so that a machine that grows slower favours nobody."""
    return [(i, name) for i in range(rounds) for name in (names if i % 2 == 0 else tuple(reversed(names)))]
