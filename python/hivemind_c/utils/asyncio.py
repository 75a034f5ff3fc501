"""Iterators of coroutines."""

from __future__ import annotations

import asyncio
import concurrent.futures
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Optional, Tuple, TypeVar

T = TypeVar("T")
_END = object()


def switch_to_uvloop() -> asyncio.AbstractEventLoop:
    """A new event loop, set as this thread's: uvloop's if it is installed, else asyncio's."""
    try:
        import uvloop

        loop = uvloop.new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


async def anext(aiter: AsyncIterator[T]) -> T:
    """The next value. StopAsyncIteration: there are no more."""
    return await aiter.__anext__()


async def iter_as_aiter(iterable: Iterable[T]) -> AsyncIterator[T]:
    for value in iterable:
        yield value


async def as_aiter(*args: T) -> AsyncIterator[T]:
    """Yields values asynchronously.

    Args:
        *args: The values.
    """
    for value in args:
        yield value


async def azip(*iterables: AsyncIterable[Any]) -> AsyncIterator[Tuple[Any, ...]]:
    """As zip: until the shortest has ended."""
    sources = [iterable.__aiter__() for iterable in iterables]
    while sources:
        try:
            yield tuple([await source.__anext__() for source in sources])
        except StopAsyncIteration:
            return


async def achain(*async_iters: AsyncIterable[T]) -> AsyncIterator[T]:
    for one in async_iters:
        async for value in one:
            yield value


async def aenumerate(aiterable: AsyncIterable[T]) -> AsyncIterator[Tuple[int, T]]:
    index = 0
    async for value in aiterable:
        yield index, value
        index += 1


async def asingle(aiter: AsyncIterable[T]) -> T:
    """Its only value. ValueError: it has none, or several."""
    values = []
    async for value in aiter:
        values.append(value)
        if len(values) > 1:
            raise ValueError("asingle() got several values: give an iterator of exactly one")
    if not values:
        raise ValueError("asingle() got no value: give an iterator of exactly one")
    return values[0]


async def aiter_with_timeout(iterable: AsyncIterable[T], timeout: Optional[float]) -> AsyncIterator[T]:
    """Its values. asyncio.TimeoutError: one has taken longer than timeout seconds."""
    source = iterable.__aiter__()
    while True:
        try:
            value = await asyncio.wait_for(source.__anext__(), timeout)
        except StopAsyncIteration:
            return
        yield value


async def attach_event_on_finished(iterable: AsyncIterable[T], event: asyncio.Event) -> AsyncIterator[T]:
    """Its values; the event is set once they have ended, in whatever way."""
    try:
        async for value in iterable:
            yield value
    finally:
        event.set()


async def await_cancelled(awaitable: Awaitable[Any]) -> bool:
    """Whether it was cancelled; waits until it is over, and passes its other errors over."""
    try:
        await awaitable
    except (asyncio.CancelledError, concurrent.futures.CancelledError):
        return True
    except Exception:
        return False
    return False


async def cancel_and_wait(awaitable: Any) -> bool:
    """Cancels a task or a future and waits for its end; returns whether it was cancelled."""
    awaitable.cancel()
    return await await_cancelled(awaitable)


def cancel_task_if_running(task: Optional["asyncio.Task[Any]"]) -> None:
    if task is not None and not task.done() and not task.get_loop().is_closed():
        task.cancel()


async def amap_in_executor(
    func: Callable[..., T],
    *iterables: AsyncIterable[Any],
    max_prefetch: int = 1,
    executor: Optional[concurrent.futures.Executor] = None,
) -> AsyncIterator[T]:
    """Calls a function in threads for each value, and yields the results in order.

    Args:
        func: The function.
        *iterables: One asynchronous iterable for each of its arguments.
        max_prefetch: Number of calls that begin before their result is asked for.
        executor: Executor for the calls. None: that of the event loop.
    """
    loop, ahead = asyncio.get_running_loop(), asyncio.Semaphore(max_prefetch + 1)
    results: "asyncio.Queue[Any]" = asyncio.Queue()

    async def feed() -> None:
        try:
            async for values in azip(*iterables):
                await ahead.acquire()
                results.put_nowait(loop.run_in_executor(executor, func, *values))
            results.put_nowait(_END)
        except Exception as error:
            failed = loop.create_future()
            failed.set_exception(error)
            results.put_nowait(failed)

    feeding = loop.create_task(feed())
    try:
        while (future := await results.get()) is not _END:
            value = await future
            ahead.release()
            yield value
    finally:
        await cancel_and_wait(feeding)
        while not results.empty():
            left = results.get_nowait()
            if left is not _END:
                left.cancel()


@asynccontextmanager
async def enter_asynchronously(context: AbstractContextManager) -> AsyncIterator[Any]:
    """Enters a context, such as that of a lock, in a thread, so that the event loop does not wait for it.

    Args:
        context: The context.
    """
    loop = asyncio.get_running_loop()
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        entered = await loop.run_in_executor(thread, context.__enter__)
        try:
            yield entered
        except BaseException as error:
            if not context.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            context.__exit__(None, None, None)


__all__ = [
    "achain",
    "aenumerate",
    "aiter_with_timeout",
    "amap_in_executor",
    "anext",
    "as_aiter",
    "asingle",
    "attach_event_on_finished",
    "await_cancelled",
    "azip",
    "cancel_and_wait",
    "cancel_task_if_running",
    "enter_asynchronously",
    "iter_as_aiter",
    "switch_to_uvloop",
]
