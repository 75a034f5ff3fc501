"""Whether the other ranks of this machine live: their process numbers and last sentences, in a folder they share."""

from __future__ import annotations

import atexit
import logging
import os
import pathlib
import shutil
import signal
import threading
import time
from typing import Dict, Optional

from hivemind_c._log import begin
from hivemind_c.inside.errors import PeerError

logger = logging.getLogger("hivemind_c.inside")
LOOK_S = 0.25  #: between two looks at the other processes
STOPPED_S = 30.0  #: a rank that is stopped is waited for as long
END_S = 7.0  #: for this process to end by itself once another rank is lost
SENTENCE_MAX = 4000  #: characters
REMEDY = "this peer ends with it; start the program again"


class Watch:
    """Looks at the other ranks, until stop().

    Args:
        folder: A folder that all ranks share, made for this watch.
        rank: Rank of this process.
        world: Number of ranks.
    """

    def __init__(self, folder: str, rank: int, world: int):
        self._folder, self.rank, self.world = pathlib.Path(folder), rank, world
        self._pids: Dict[int, int] = {}
        self._stopped: Dict[int, float] = {}  # since when
        self._lost: Optional[str] = None
        self._said = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._put("pid", str(os.getpid()))
        self._thread = begin("hivemind_c ranks", self._run, self._ended.set)

    @property
    def lost(self) -> Optional[str]:
        """The sentence of the first rank that was lost, or None."""
        return self._lost

    def check(self, patience: float = 0.0) -> None:
        """Raises PeerError if a rank is lost.

        Args:
            patience: Seconds to wait for that.
        """
        self._said.wait(patience)
        self.look()
        if self._lost is not None:
            raise PeerError(self._lost)

    def tell(self, sentence: str) -> None:
        """Writes down why this rank ends, for the others. The first sentence counts.

        Args:
            sentence: The sentence.
        """
        if self._lost is None and not (self._folder / f"error-{self.rank}").exists():
            self._put("error", sentence[:SENTENCE_MAX])
            atexit.register(end_by_alarm, END_S)

    def leave(self) -> None:
        """Writes down that this rank has left in order: its end is no loss."""
        self._put("left", "")

    def stop(self) -> None:
        """Ends the watch. The last rank that does so removes the folder: until then others read its sentences."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._go()

    def _go(self) -> None:
        self._put("gone", "")
        others = [rank for rank in range(self.world) if rank != self.rank]
        if all(self._get("gone", rank) is not None or self._is_dead(rank) for rank in others):
            shutil.rmtree(self._folder, ignore_errors=True)

    def _is_dead(self, rank: int) -> bool:
        text = self._get("pid", rank)
        return text is not None and state_of(int(text)) is None

    def _put(self, what: str, text: str) -> None:
        path = self._folder / f"{what}-{self.rank}"
        try:
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").replace(path)
        except OSError as error:  # rank 0 has left, and the folder with it
            logger.debug("rank %d could not write %s: %s", self.rank, path, error)

    def _get(self, what: str, rank: int) -> Optional[str]:
        try:
            return (self._folder / f"{what}-{rank}").read_text()
        except OSError:
            return None

    # ---- its own thread ----

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S) and self._lost is None:
            self.look()

    def _end_soon(self) -> None:
        time.sleep(END_S)  # it may hang where nothing reaches it: in a collective, or in a round
        self._go()
        os._exit(1)

    def look(self) -> None:
        """Looks at all other ranks once."""
        with self._lock:
            others = [rank for rank in range(self.world) if rank != self.rank]
            sentences = {rank: text for rank in others if (text := self._get("error", rank)) is not None}
            for rank in others:
                if self._lost is None and (why := sentences.get(rank) or self._trouble_of(rank)) is not None:
                    self._lost = why
                    logger.error("%s", why)
                    self._said.set()
                    end_by_alarm(END_S + 1)
                    threading.Thread(target=self._end_soon, name="hivemind_c end", daemon=True).start()

    def _trouble_of(self, rank: int) -> Optional[str]:
        if rank not in self._pids:
            if (text := self._get("pid", rank)) is not None:
                self._pids[rank] = int(text)
            return None
        pid = self._pids[rank]
        state = state_of(pid)
        if state == "T":
            return self._stop_of(rank, pid)
        if self._stopped.pop(rank, None) is not None:
            logger.warning("rank %d (process %d) runs again", rank, pid)
        if state is not None or self._get("left", rank) is not None:
            return None
        if (sentence := self._get("error", rank)) is not None:  # written just before it ended
            return sentence
        return f"rank {rank} (process {pid}) has died; {REMEDY}"

    def _stop_of(self, rank: int, pid: int) -> Optional[str]:
        now = time.monotonic()
        if rank not in self._stopped:
            self._stopped[rank] = now
            logger.warning(
                "rank %d (process %d) is stopped by a signal: this peer waits %g s for it", rank, pid, STOPPED_S
            )
        if now - self._stopped[rank] < STOPPED_S:
            return None
        try:
            os.kill(pid, signal.SIGKILL)  # nobody else could end it
        except OSError:
            pass
        return f"rank {rank} (process {pid}) was stopped by a signal for {STOPPED_S:g} s; {REMEDY}"


def end_by_alarm(seconds: float) -> None:
    """Ends this process by SIGALRM, where no thread of Python may run any more: in the end of a CUDA context whose
    kernels wait for a rank that is gone.

    Args:
        seconds: The time until then.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds)


def state_of(pid: int) -> Optional[str]:
    """The state of a process as Linux names it: "R", "S", "T". None: it has ended."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
        state = text.rpartition(")")[2].split()[0]
        return None if state in "ZX" else state
    except (OSError, IndexError):
        pass
    if os.path.isdir("/proc/self"):
        return None
    try:
        os.kill(pid, 0)  # a system without /proc
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "S"
