"""A future that threads and coroutines can wait for."""

from __future__ import annotations

import asyncio
import concurrent.futures
from concurrent.futures import CancelledError, InvalidStateError, TimeoutError
from typing import Any, Generator, Generic, TypeVar

ResultType = TypeVar("ResultType")


class MPFuture(concurrent.futures.Future, Generic[ResultType]):  # type: ignore[type-arg]
    """A concurrent.futures.Future to await as well. It lives in one process, as all of hivemind_c does.

    Args:
        use_lock: Accepted for compatibility; has no effect.
    """

    def __init__(self, *, use_lock: bool = True):
        super().__init__()

    @classmethod
    def reset_backend(cls) -> None:
        """Nothing is to be reset: futures share nothing with other processes. For programs that call it."""

    def __await__(self) -> Generator[Any, None, ResultType]:
        return asyncio.wrap_future(self).__await__()

    def __reduce__(self) -> Any:
        raise TypeError(
            "an MPFuture cannot be sent to another process: everything runs in one here; return plain values instead"
        )


__all__ = ["CancelledError", "InvalidStateError", "MPFuture", "TimeoutError"]
