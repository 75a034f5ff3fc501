"""How fast something is done, as a moving average."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import Iterator, Optional


class PerformanceEMA:
    """Exponential moving average of samples per second, without the bias towards its first value.

    Args:
        alpha: Weight of the newest measurement, from 0 to 1.
        eps: Smallest time and count that it divides by.
        paused: Begin without counting time, until pause() ends or reset_timer() is called.
    """

    def __init__(self, alpha: float = 0.1, eps: float = 1e-20, paused: bool = False):
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1, not {alpha!r}")
        self.alpha, self.eps, self.num_updates, self.paused = alpha, eps, 0, paused
        self.ema_seconds_per_sample = 0.0
        self.samples_per_second = eps
        self.timestamp = time.perf_counter()
        self.lock = threading.Lock()

    def update(self, task_size: float, interval: Optional[float] = None) -> float:
        """Counts samples, and returns samples per second.

        Args:
            task_size: Number of samples, above 0.
            interval: Seconds that they took. None: the time since the last call.
        """
        if task_size <= 0:
            raise ValueError(f"task_size must be a number of samples above 0, not {task_size!r}")
        if self.paused:
            raise RuntimeError("PerformanceEMA cannot count: it is paused; call update() outside pause()")
        if interval is None:
            now = time.perf_counter()
            interval, self.timestamp = now - self.timestamp, now
        self.ema_seconds_per_sample += self.alpha * (max(0.0, interval) / task_size - self.ema_seconds_per_sample)
        self.num_updates += 1
        unbiased = self.ema_seconds_per_sample / (1 - (1 - self.alpha) ** self.num_updates)
        self.samples_per_second = 1 / max(unbiased, self.eps)
        return self.samples_per_second

    def reset_timer(self) -> None:
        """The next update counts from now."""
        self.timestamp = time.perf_counter()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Time within this context does not count."""
        before, begin = self.paused, time.perf_counter()
        self.paused = True
        try:
            yield
        finally:
            self.paused = before
            self.timestamp += time.perf_counter() - begin

    @contextmanager
    def update_threadsafe(self, task_size: float) -> Iterator[None]:
        """A context at whose end samples are counted. Threads share the time that passes.

        Args:
            task_size: Number of samples, above 0.
        """
        begin = time.perf_counter()
        yield
        with self.lock:
            now = time.perf_counter()
            self.update(task_size, interval=max(0.0, now - max(begin, self.timestamp)))
            self.timestamp = now

    def __repr__(self) -> str:
        speed = f"samples_per_second={self.samples_per_second:.3g}, num_updates={self.num_updates}"
        return f"PerformanceEMA(alpha={self.alpha}, {speed})"


__all__ = ["PerformanceEMA"]
