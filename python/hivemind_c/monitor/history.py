"""The history of a run, kept over restarts: a small SQLite file whose size is bounded, and as much of it in memory as
a chart can show.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pathlib
import sqlite3
from typing import Any, List, NamedTuple, Optional, Sequence, Set, Tuple

from hivemind_c._kept import state_folder
from hivemind_c.monitor.gather import FAILURES_MAX, Failure, Snapshot

logger = logging.getLogger("hivemind_c.monitor")
SHOWN_MAX = 1200  #: points in memory: when there are more, every second one of the older half goes
KEPT_MAX = 20_000  #: rows in the file, likewise


class Point(NamedTuple):
    time: float
    epoch: int
    total: int  #: samples since the run's beginning
    speed: float
    loss: Optional[float]
    peers: int


def own_key() -> Tuple[str, Any]:
    """(the key file of this monitor, what holds it while it runs): the first one of this machine that no other monitor
    uses.
    """
    folder = state_folder()
    for number in range(1, 65):
        path = folder / ("monitor.key" if number == 1 else f"monitor-{number}.key")
        lock = open(path.with_suffix(".lock"), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return str(path), lock
        except OSError:
            lock.close()
    raise OSError(
        f"cannot choose a key: 64 monitors on this machine use the keys in {folder}; give this monitor --identity_path"
    )


def thinned(points: List[Point], most: int) -> List[Point]:
    """Not more than so many, the older ones ever further apart."""
    while len(points) > most:
        half = len(points) // 2
        points = points[:half:2] + points[half:]
    return points


class History:
    """Not to be used by several threads at once. If the file fails, one warning says so, and memory is used.

    Args:
        path: The file. None: kept in memory only.
        run_id: Name of the run.
    """

    def __init__(self, path: Optional[str], run_id: str):
        self._path, self._run, self._has_failed = path, run_id, False
        self._db = sqlite3.connect(":memory:")
        self._noted: Set[Failure] = set()  #: failures of the latest snapshot, which are in the file
        self._kept = self._failed = 0  #: rows of this run: points, and failures
        try:
            self._open(":memory:" if path is None else path)
        except sqlite3.Error as error:
            if path is None:
                raise
            self._warn(error, "its curves are kept in memory; move the file or give --history another place")
            self._open(":memory:")

    def _warn(self, error: Exception, next_step: str) -> None:
        """Logs a warning, unless the latest write failed too."""
        if not self._has_failed:
            path = self._path or "memory"
            logger.warning("%s: cannot use the history in %s: %s; %s", self._run, path, error, next_step)
        self._has_failed = True

    def _open(self, path: str) -> None:
        self._db.close()
        self._db = sqlite3.connect(path, timeout=5, check_same_thread=False)
        if path != ":memory:":
            self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS points (run TEXT, time REAL, epoch INTEGER, total INTEGER, speed REAL, loss "
            "REAL, peers INTEGER)"
        )
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS failures (run TEXT, time REAL, peer TEXT, epoch INTEGER, text TEXT, UNIQUE "
            "(run, peer, epoch, text))"
        )
        self._db.commit()
        rows = self._db.execute(
            "SELECT time, epoch, total, speed, loss, peers FROM points WHERE run = ? ORDER BY time", (self._run,)
        )
        self.points = thinned([Point(*row) for row in rows], SHOWN_MAX)
        self._count()
        rows = self._db.execute(
            "SELECT time, peer, epoch, text FROM failures WHERE run = ? ORDER BY time DESC LIMIT ?",
            (self._run, FAILURES_MAX),
        )
        self._earlier = [Failure(*row) for row in rows][::-1]

    def failures(self) -> Sequence[Failure]:
        """Returns the failures that were kept before this start, the oldest first."""
        return self._earlier

    def look(self, now: Snapshot) -> None:
        """Keeps what was seen while somebody trains.

        Before that there is nothing to remember, and what a few have said is not the run's loss.

        Args:
            now: A Snapshot.
        """
        if now.whole and now.is_training:
            self.add(now)

    def add(self, snapshot: Snapshot) -> None:
        point = Point(snapshot.time, snapshot.epoch, snapshot.total, snapshot.speed, snapshot.loss, snapshot.num_peers)
        self.points = thinned([*self.points, point], SHOWN_MAX)
        try:
            self._write(point, snapshot)
        except (sqlite3.Error, OverflowError, ValueError) as error:  # the disk is full, a stranger's words do not fit
            self._warn(error, "its curves are kept in memory, and the next point is written again")
        else:
            self._has_failed = False

    def _write(self, point: Point, snapshot: Snapshot) -> None:
        new = [failure for failure in snapshot.failures if failure not in self._noted]
        with self._db:
            self._db.execute("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?)", (self._run, *point))
            self._db.executemany(
                "INSERT OR IGNORE INTO failures VALUES (?, ?, ?, ?, ?)",
                [(self._run, failure.time, failure.peer_id, failure.epoch, failure.text) for failure in new],
            )
        self._noted = set(snapshot.failures)
        self._kept, self._failed = self._kept + 1, self._failed + len(new)
        if self._kept > KEPT_MAX or self._failed > 2 * FAILURES_MAX:
            self._thin()

    def _thin(self) -> None:
        with self._db:
            if self._kept > KEPT_MAX:
                (middle,) = self._db.execute(
                    "SELECT time FROM points WHERE run = ? ORDER BY time LIMIT 1 OFFSET ?", (self._run, self._kept // 2)
                ).fetchone()
                self._db.execute(
                    "DELETE FROM points WHERE run = ? AND time < ? AND rowid IN (SELECT id FROM (SELECT rowid AS id, "
                    "ROW_NUMBER() OVER (ORDER BY time) AS n "
                    "FROM points WHERE run = ? AND time < ?) WHERE n % 2 = 0)",
                    (self._run, middle, self._run, middle),
                )
            keep = "SELECT rowid FROM failures WHERE run = ? ORDER BY time DESC LIMIT ?"
            self._db.execute(
                f"DELETE FROM failures WHERE run = ? AND rowid NOT IN ({keep})", (self._run, self._run, FAILURES_MAX)
            )
        self._count()

    def _count(self) -> None:
        self._kept, self._failed = self._rows("points"), self._rows("failures")

    def _rows(self, table: str) -> int:
        (count,) = self._db.execute(f"SELECT COUNT(*) FROM {table} WHERE run = ?", (self._run,)).fetchone()
        return int(count)

    def close(self) -> None:
        self._db.close()
