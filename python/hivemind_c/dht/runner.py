"""What waits for the DHT: futures, and a thread with an event loop for coroutines."""

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
    """What a store or get will have led to: result() waits from any thread, `await` from any event loop."""

    def __init__(self, future: Any, settle: Callable[[Any, Optional[float]], Result]):
        self._future, self._settle = future, settle

    @classmethod
    def of(cls, result: Result) -> "DHTFuture[Result]":
        """One that is over."""
        return cls(_Over(), lambda future, timeout: result)

    def result(self, timeout: Optional[float] = None) -> Result:
        return self._settle(self._future, timeout)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        try:
            self.result(timeout)
        except Exception as error:
            if not self.done():
                raise  # only the waiting is over
            return error
        return None

    def done(self) -> bool:
        return self._future.done()

    def cancel(self) -> bool:
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self.done() and isinstance(self._future.exception(0), _hivemind_c.HivemindCancelledError)

    def running(self) -> bool:
        return not self.done()

    def add_done_callback(self, callback: Callable[["DHTFuture[Result]"], Any]) -> None:
        """callback(this) once it is over: in a thread of its own, or at once and here if it is already."""
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
                self.thread = threading.Thread(target=self._serve, args=(self.loop,), name="hivemind_c-dht", daemon=True)
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
