"""Lightning's launchers for several ranks, with an observer that names the rank that died."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from typing import Any, Dict, List, Sequence

import torch

from hivemind_c._lightning import namespaces
from hivemind_c.node import Node

logger = logging.getLogger("hivemind_c.strategy")
LOOK_S = 0.25  #: between two looks at the ranks
END_S = 8.0  #: for the ranks to end by themselves after one has failed; longer than inside/watch.py gives each
FIRST = "HIVEMIND_FIRST_RANK"  #: variable with the process of rank 0, for the ranks that it starts
_made: Dict[type, type] = {}


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
        os.environ[FIRST] = str(os.getpid())
        super()._call_children_scripts()  # type: ignore[misc]
        # Lightning's observer, which kills before anybody has said why, gets none to observe
        self._ranks, self.procs = self.procs, []
        threading.Thread(target=observe, args=(self._ranks,), name="hivemind_c observer", daemon=True).start()

    def kill(self, signum: Any) -> None:
        for process in self._ranks:
            process.send_signal(signum)


def watch_first(until: threading.Event) -> None:
    """In a rank that rank 0 has started: ends this process if rank 0 ends before the ranks have met.

    Args:
        until: Set once they have met: then inside/watch.py looks.
    """
    first = os.environ.get(FIRST)
    if not first or int(first) != os.getppid():
        return

    def look() -> None:
        while not until.wait(LOOK_S):
            if os.getppid() != int(first):
                logger.error("rank 0 (process %s) has died before the ranks had met; this rank ends with it", first)
                os._exit(1)

    threading.Thread(target=look, name="hivemind_c first", daemon=True).start()


class _Forks:
    """Forks each rank, in a notebook."""

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
