"""Lightning's launchers for several ranks, with an observer that names the rank that died."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Sequence

import torch

from hivemind_c._lightning import namespaces
from hivemind_c.node import Node

logger = logging.getLogger("hivemind_c.strategy")
LOOK_S = 0.25  #: between two looks at the ranks
END_S = 8.0  #: for the ranks to end by themselves after one has failed; longer than inside/watch.py gives each
OF_LAST_FIT, FIGURES = ("first_epoch", "_last_epoch", "_last_progress", "_last_record"), "hivemind_c"
FIRST = "HIVEMIND_FIRST_RANK"  #: variable with the process of rank 0 and a file of it, for the ranks that it starts
_made: Dict[type, type] = {}
_in_fit = threading.Event()
_first: Optional[threading.Thread] = None  # looks whether rank 0 is there


def watched(strategy: Any, launcher: Any) -> Any:
    """The launcher, with what this peer needs of it. MisconfigurationException: it cannot be used."""
    kind = type(launcher)
    if kind not in _made:
        scripts = namespaces.part(strategy._names[0], "strategies.launchers._SubprocessScriptLauncher")
        mixin = _Scripts if issubclass(kind, scripts) else _Forks
        _made[kind] = type(kind.__name__, (mixin, kind), {})
    made = object.__new__(_made[kind])
    made.__dict__.update(launcher.__dict__, _of=strategy)
    return made


class _Scripts:
    """Starts the program again for each further rank. Rank 0 observes them."""

    procs: List[subprocess.Popen]
    _ranks: Sequence[subprocess.Popen] = ()

    def _call_children_scripts(self) -> None:
        descriptor, path = tempfile.mkstemp(prefix="hivemind-first-")
        os.close(descriptor)
        atexit.register(end_in_order, path)
        os.environ[FIRST] = f"{os.getpid()}:{path}"
        super()._call_children_scripts()  # type: ignore[misc]
        # Lightning's observer, which kills before anybody has said why, gets none to observe
        self._ranks, self.procs = self.procs, []
        threading.Thread(target=observe, args=(self._ranks,), name="hivemind_c observer", daemon=True).start()

    def kill(self, signum: Any) -> None:
        for process in self._ranks:
            process.send_signal(signum)


def end_in_order(path: str) -> None:
    """At the end of rank 0: removes the file by which its ranks know that it runs, unless an error ends it.

    Args:
        path: The file.
    """
    if getattr(sys, "last_value", None) is None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def watch_first() -> threading.Event:
    """In a rank that rank 0 has started: ends this process if rank 0 has died, before a fit or after it.

    Returns an event of this process, to be set during a fit: then inside/watch.py looks.
    """
    global _first
    first, _, path = os.environ.get(FIRST, "").partition(":")
    if first and int(first) == os.getppid() and _first is None:
        _first = threading.Thread(target=_look, args=(int(first), path), name="hivemind_c first", daemon=True)
        _first.start()
    return _in_fit


def _look(first: int, path: str) -> None:
    while os.getppid() == first:
        time.sleep(LOOK_S)
    while os.path.exists(path):  # it has not ended in order
        if not _in_fit.is_set():
            logger.error("rank 0 (process %d) has died; this rank ends with it", first)
            with contextlib.suppress(OSError):
                os.unlink(path)
            os._exit(1)
        time.sleep(LOOK_S)


class _Forks:
    """Forks each rank, in a notebook. The kernel gets the figures of the last fit from rank 0."""

    _of: Any

    def launch(self, function: Any, *args: Any, trainer: Any = None, **kwargs: Any) -> Any:
        if Node.started_in == os.getpid() or torch.cuda.is_initialized():
            what = "started a DHT" if Node.started_in == os.getpid() else "used CUDA"
            raise namespaces.misconfigured(
                self._of,
                f"a notebook forks a process for each device, and this kernel has {what} already, which cannot be "
                "forked: restart the kernel, and call fit before that; leave dht= out",
            )
        return super().launch(function, *args, trainer=trainer, **kwargs)  # type: ignore[misc]

    def get_extra_results(self, trainer: Any) -> Dict[str, Any]:
        figures = SimpleNamespace(**{name: getattr(self._of, name) for name in OF_LAST_FIT})
        return {**super().get_extra_results(trainer), FIGURES: figures}  # type: ignore[misc]

    def update_main_process_results(self, trainer: Any, extra: Dict[str, Any]) -> None:
        super().update_main_process_results(trainer, extra)  # type: ignore[misc]
        vars(self._of).update(vars(extra[FIGURES]))


def observe(processes: Sequence[subprocess.Popen]) -> None:
    """Waits until all have ended. Once one has failed, it says so, and ends all after a while, this process too."""
    while True:
        codes = [process.poll() for process in processes]
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None:
            break
        if all(code == 0 for code in codes):
            return
        time.sleep(LOOK_S)
    code = codes[failed] or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    logger.error("rank %d (process %d) has ended with %s: this peer ends", failed + 1, processes[failed].pid, how)
    time.sleep(END_S)
    for process in processes:
        process.send_signal(signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
