"""One job in the background of the training loop. Its errors are raised when its result is taken."""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

from hivemind_c._log import wait_at_end

logger = logging.getLogger("hivemind_c.optim")


class Background:
    """Runs one job at a time in a thread.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str):
        self._name = name
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None
        self._finish: Optional[Callable[[], None]] = None
        self._taking = threading.Lock()

    @property
    def waiting(self) -> bool:
        """True if a job runs, or its result has not been taken."""
        return self._thread is not None

    @property
    def busy(self) -> bool:
        """True while a job runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None], finish: Callable[[], None] = lambda: None, at_end: bool = True) -> None:
        """Runs a job in a thread. The result of the job before must have been taken.

        Args:
            job: The function to run.
            finish: A function for the thread that takes the result.
            at_end: Let the end of the program wait for the job.
        """
        if self._thread is not None:
            raise RuntimeError("the job before has not been taken")
        self._error, self._finish = None, finish
        self._thread = threading.Thread(target=self._run, args=(job,), name=self._name, daemon=True)
        if at_end:
            wait_at_end(self._thread)
        self._thread.start()

    def take(self, wait: bool = False, timeout: Optional[float] = None) -> bool:
        """Takes the result, if the job is over, and calls its finish. False: nothing was taken. Raises the job's error.

        Args:
            wait: Wait until the job is over.
            timeout: Longest time in seconds to wait. None: no limit.
        """
        thread = self._thread
        if thread is None or not wait and thread.is_alive():
            return False
        if wait:
            thread.join(timeout)
            if thread.is_alive():
                return False
        with self._taking:
            if self._thread is not thread:  # somebody else has taken it meanwhile: shutdown() may come from any thread
                return False
            error, finish = self._error, self._finish
            self._thread = self._error = self._finish = None
        if error is not None:
            raise error
        finish()
        return True

    def settle(self, timeout: Optional[float] = None) -> bool:
        """Waits, in any thread, until the job is over, and takes nothing. False: it is not over yet.

        Args:
            timeout: Longest time in seconds to wait. None: no limit.
        """
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def drop(self, timeout: Optional[float] = None) -> None:
        """Drops the result, an error included, once the job is over.

        Args:
            timeout: Longest time in seconds to wait. None: no limit.
        """
        self.settle(timeout)
        self._thread = self._error = self._finish = None

    def end(self, timeout: float) -> None:
        """Takes the last result, if it comes in time. An error becomes a warning, because no caller is left.

        Args:
            timeout: Longest time in seconds to wait.
        """
        if not self.settle(timeout):
            logger.warning(
                "the last delayed step did not end within shutdown_timeout=%g s, so its result is not in the model: "
                "make shutdown_timeout longer",
                timeout,
            )
            return
        try:
            self.take()
        except (Exception, SystemExit) as error:  # the latter is a node's word to other threads that the program ends
            logger.warning(
                "the last delayed step failed, so its result is not in the model: %s: %s", type(error).__name__, error
            )

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # it belongs to whoever calls take()
            self._error = error
