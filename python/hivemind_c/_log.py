"""Hands what nodes say to Python's logging: loggers "hivemind_c.ROOM", drained by one daemon thread and at every shutdown; and ends what runs
when the program does."""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import os
import threading
import time
import traceback
import weakref
from typing import Any, Callable, Optional, Union

import _hivemind_c

PERIOD = 0.1  #: seconds between two looks
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


def level_number(level: Union[int, str]) -> int:
    """A level as logging has it ("info", 20) as a node has it (1)."""
    value = level
    if isinstance(level, str):
        value = logging.getLevelName(level.strip().upper())
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"log_level must be a level of logging, like 'info' or logging.INFO, not {level!r}")
    return sum(value > known for known in _LEVELS[:-1])


class _Watch:
    """The nodes that run in this process, and the thread that listens to them while there are any."""

    def __init__(self) -> None:
        self.nodes: weakref.WeakSet = weakref.WeakSet()
        self.lock = threading.Lock()  # over nodes and thread
        self.order = threading.RLock()  # one reader at a time, so that lines keep their order
        self.holding = threading.Lock()  # held while the thread keeps nodes alive, and while those end that it alone held
        self.ending = threading.Event()
        self.thread: Optional[threading.Thread] = None

    def add(self, node) -> None:
        with self.lock:
            self.nodes.add(node)
            if self.thread is None:
                try:
                    thread = threading.Thread(target=self.run, name="hivemind_c-log", daemon=True)
                    thread.start()
                except RuntimeError:  # an interpreter without daemon threads, or one that ends: read at shutdown only
                    return
                self.thread = thread

    def remove(self, node) -> None:
        with self.lock:
            self.nodes.discard(node)
        self.read(node)

    def living(self) -> list:
        with self.lock:
            nodes = list(self.nodes)
            if not nodes:
                self.thread = None
            return nodes

    def read(self, node) -> None:
        # A handler may take long, or wait for whoever waits here: order is worth half a second, never a deadlock.
        ours = self.order.acquire(timeout=0.5)
        try:
            while record := node._node.take_log():
                _handle(*record)
        finally:
            if ours:
                self.order.release()

    def run(self) -> None:
        while not self.ending.is_set() and self.turn():
            self.ending.wait(PERIOD)

    def turn(self) -> bool:
        """Reads what the nodes have said. False: there are none."""
        with self.holding:
            nodes = self.living()
            found = bool(nodes)
            for node in nodes:
                self.read(node)
                node.look_at_files()
            nodes = node = None  # a node that nobody else holds ends here
        return found

    def stop_all(self) -> None:
        nodes, thread = self.living(), self.thread
        self.ending.set()
        if thread is not None:
            thread.join(1)
        for node in nodes:
            self.read(node)
        for node in nodes:  # that they miss each other now is no news
            node._node.shutdown()


def _handle(level: int, room: str, event: str, text: str) -> None:
    logger = logging.getLogger(f"hivemind_c.{room}")
    if not logger.isEnabledFor(_LEVELS[level]):
        return
    try:
        logger.handle(logger.makeRecord(logger.name, _LEVELS[level], "hivemind_c", 0, text, None, None, extra={"event": event}))
    except Exception:  # a handler's or filter's mistake: told as logging tells its own, and no reason to stop listening
        if logging.raiseExceptions:
            traceback.print_exc()


_watch = _Watch()
_jobs: "weakref.WeakKeyDictionary[threading.Thread, Callable[[], Any]]" = weakref.WeakKeyDictionary()  # and what ends them


def watch(node) -> None:
    """Listens to a node until it is unwatched or dropped; at the end of the program it is shut down."""
    _watch.add(node)


def unwatch(node) -> None:
    """Hands over what the node has said so far, and lets go of it."""
    _watch.remove(node)


def let_go(timeout: float) -> None:
    """Waits until the thread that listens holds no node, and those have ended that it alone held."""
    if _watch.holding.acquire(timeout=timeout):
        _watch.holding.release()


def wait_at_end(job: threading.Thread, end: Callable[[], Any] = lambda: None) -> None:
    """The program does not end before this thread, whose node fails by then and which end() tells so: Python ends a daemon thread as soon as it asks for the
    interpreter, and torch, if it is in there just then, takes the whole program with it (SIGABRT). Said before the thread is started: Ctrl-C may come while it is."""
    _jobs[job] = end


def begin(name: str, work: Callable[[], Any], end: Callable[[], Any] = lambda: None) -> threading.Thread:
    """Starts work() in a daemon thread that the program's end waits for, once it has called end()."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    wait_at_end(thread, end)
    thread.start()
    return thread


def aside(name: str, work: Callable[[], Any]) -> "concurrent.futures.Future[Any]":
    """The result of work(), in a thread of its own, which begins at once: so it cannot be cancelled."""
    future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # it belongs to whoever asks for the result
            future.set_exception(error)

    begin(name, run)
    return future


def when_done(future: Any, call: Callable[[Any], Any]) -> None:
    """Calls call(future) once it is over: at once and here if it is already, else in a thread of its own. An error in it is told in the log."""

    def work() -> None:
        try:
            future.exception()  # waits
        finally:
            try:
                call(future)
            except Exception:
                logging.getLogger("hivemind_c").exception("what %r was to call when it is over has failed", future)

    if future.done():
        work()
    else:
        begin("hivemind_c-done", work)


def _forget() -> None:
    """In a forked child: the parent's nodes and threads are not here, and what would end those may be locked by one of them for good."""
    global _watch, _jobs
    _watch, _jobs = _Watch(), weakref.WeakKeyDictionary()


def _join(job: threading.Thread) -> None:
    for _ in range(100):
        try:
            return job.join()
        except RuntimeError:  # Ctrl-C came while it was started: it is about to begin, or never will
            time.sleep(0.01)


def _stop_all() -> None:
    _hivemind_c.end()
    # keyrefs(): a copy at once, as other threads may begin more meanwhile
    jobs = [(job, _jobs[job]) for reference in _jobs.keyrefs() if (job := reference()) is not None]
    for _, end in jobs:
        end()
    _watch.stop_all()
    for job, _ in jobs:
        _join(job)


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_forget)
