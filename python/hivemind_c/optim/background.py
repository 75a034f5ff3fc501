"""One thing at a time, beside the training loop; what goes wrong in it is raised where its outcome is asked for."""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

from hivemind_c._log import wait_at_end

logger = logging.getLogger("hivemind_c.optim")


class Background:
    def __init__(self, name: str):
        self._name = name
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None
        self._finish: Optional[Callable[[], None]] = None
        self._taking = threading.Lock()

    @property
    def waiting(self) -> bool:
        """Whether there is a job, under way or finished, whose outcome has not been taken."""
        return self._thread is not None

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], None], finish: Callable[[], None] = lambda: None, at_end: bool = True) -> None:
        """Runs job in a thread; finish runs in the thread that takes the outcome. The job before must have been taken. at_end: the program's end waits for it."""
        if self._thread is not None:
            raise RuntimeError("the job before has not been taken")
        self._error, self._finish = None, finish
        self._thread = threading.Thread(target=self._run, args=(job,), name=self._name, daemon=True)
        if at_end:
            wait_at_end(self._thread)
        self._thread.start()

    def take(self, wait: bool = False, timeout: Optional[float] = None) -> bool:
        """Takes the outcome if it is there (wait: when it is there) and finishes it. Raises what the job raised. False: nothing taken."""
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
        """Waits until the job is over, from any thread, and takes nothing. False: it is not over yet."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout)
        return not thread.is_alive()

    def drop(self, timeout: Optional[float] = None) -> None:
        """Forgets the outcome, an error included, once the job is over."""
        self.settle(timeout)
        self._thread = self._error = self._finish = None

    def end(self, timeout: float) -> None:
        """Takes the last outcome, if it comes in this time; what goes wrong has nobody left to be raised to, and is a warning."""
        if not self.settle(timeout):
            logger.warning("the last delayed step did not end within shutdown_timeout=%g s, so its result is not in the model: make shutdown_timeout longer", timeout)
            return
        try:
            self.take()
        except (Exception, SystemExit) as error:  # the latter is a node's word to other threads that the program ends
            logger.warning("the last delayed step failed, so its result is not in the model: %s: %s", type(error).__name__, error)

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # it belongs to whoever calls take()
            self._error = error
