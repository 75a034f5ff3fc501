"""Helpers that wait for the DHT: futures, and a thread with an event loop for coroutines."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any, Callable, Coroutine, Generic, Optional, TypeVar

import _hivemind_c

from hivemind_c._log import when_done

Result = TypeVar("Result")


class _Over:
    """In the place of a future of the core: nothing had to be asked."""

    def done(self) -> bool:
        return True

    def cancel(self) -> bool:
        return False

    def exception(self, timeout: Optional[float] = None) -> None:
        return None


class DHTFuture(Generic[Result]):
    """The result of a store or get that is under way. result() waits in any thread, `await` in any event loop.

    Args:
        future: Future in C.
        settle: A function of the future and a timeout that returns the result.
    """

    def __init__(self, future: Any, settle: Callable[[Any, Optional[float]], Result]):
        self._future, self._settle = future, settle

    @classmethod
    def of(cls, result: Result) -> "DHTFuture[Result]":
        """Returns a future that is done.

        Args:
            result: Its result.
        """
        return cls(_Over(), lambda future, timeout: result)

    def result(self, timeout: Optional[float] = None) -> Result:
        """Waits for the result, and returns it.

        Args:
            timeout: Longest time in seconds to wait before HivemindTimeoutError. None: no limit.
        """
        return self._settle(self._future, timeout)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Waits for the end, and returns the error, or None.

        Args:
            timeout: Longest time in seconds to wait before HivemindTimeoutError. None: no limit.
        """
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise  # only the waiting is over
            return error
        return None

    def done(self) -> bool:
        """True if the call is over."""
        return self._future.done()

    def cancel(self) -> bool:
        """Asks for the end of the call. False: it is over already."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """True if the call ended because it was cancelled."""
        return self.done() and isinstance(self._future.exception(0), _hivemind_c.HivemindCancelledError)

    def running(self) -> bool:
        """True if the call is not over."""
        return not self.done()

    def add_done_callback(self, callback: Callable[["DHTFuture[Result]"], Any]) -> None:
        """Calls a function once the call is over: in a thread of its own, or at once if it is over already.

        Args:
            callback: A function of this future.
        """
        when_done(self, callback)

    def __await__(self):
        return self._wait().__await__()

    async def _wait(self) -> Result:
        pause = 0.0005
        try:
            while not self._future.done():
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.02)
        except asyncio.CancelledError:
            self._future.cancel()
            raise
        return self.result(0)


class Runner:
    """A daemon thread with an event loop, made when the first coroutine comes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: Optional[asyncio.AbstractEventLoop] = None
        self.thread: Optional[threading.Thread] = None
        self.stopped = False

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> "concurrent.futures.Future[Result]":
        with self.lock:
            if self.stopped:
                coroutine.close()
                raise _hivemind_c.HivemindConnectionError("cannot use this DHT: it was shut down")
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self.thread = threading.Thread(
                    target=self._serve, args=(self.loop,), name="hivemind_c-dht", daemon=True
                )
                self.thread.start()
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            loop.close()

    def stop(self, timeout: float) -> None:
        with self.lock:
            self.stopped = True
            loop, thread = self.loop, self.thread
        if loop is None or thread is None:
            return
        try:
            loop.call_soon_threadsafe(loop.stop)
        except RuntimeError:
            return  # it has been stopped before
        if thread is not threading.current_thread():
            thread.join(timeout)
