"""Where ranks of a peer interrupt a validation: before the same batch. docs/design/several-gpus-nccl.md.

Thread: that of the training, in each rank.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Iterator

import numpy

ENDLESS = 1 << 62  #: the batch of a rank that needs no interruption any more
NAME = "halt"  #: of the file


class Halt:
    """Counts the batches of a validation in a file that all ranks map into their memory.

    A rank that is asked to interrupt the validation writes down the latest batch that any rank has begun. No rank
    begins a later one before it has interrupted. So a collective in a batch has all ranks, and nobody waits otherwise.

    Args:
        folder: The folder that all ranks share.
        rank: Rank of this process.
        world: Number of ranks.
    """

    def __init__(self, folder: str, rank: int, world: int):
        self._file = os.open(os.path.join(folder, NAME), os.O_CREAT | os.O_RDWR, 0o600)
        os.ftruncate(self._file, 8 * (3 + world))
        all_of_it = numpy.memmap(os.path.join(folder, NAME), dtype=numpy.int64, mode="r+", shape=(3 + world,))
        self._turn, self._begun, self._rank = all_of_it[:3], all_of_it[3:], rank  # turn: number, cause, last batch
        self._batch = self._past = 0  # number of the latest turn that this rank has done

    def start(self) -> None:
        """Call it before a validation, and before the ranks meet."""
        with self._lock():
            self._batch, self._past, self._begun[self._rank] = 0, int(self._turn[0]), 0

    def before_batch(self, is_last: bool, cause: int) -> int:
        """Returns the cause of an interruption that is to take place now, or 0.

        Args:
            is_last: The batch is the last one of this rank.
            cause: The cause for which this rank is asked to interrupt the validation. 0: none.
        """
        self._batch += 1
        with self._lock():
            if cause and not self._waits:
                self._turn[:] = self._turn[0] + 1, cause, self._begun.max()
            due = self._waits and self._batch > self._turn[2]
            if due:
                self._past += 1
            self._begun[self._rank] = ENDLESS if is_last and not self._waits else self._batch
            return int(self._turn[1]) if due else 0

    def after_last_batch(self) -> int:
        """Returns the cause of an interruption that is to take place now, or 0."""
        with self._lock():
            due = self._waits and self._turn[2] != ENDLESS
            if due:
                self._past, self._begun[self._rank] = self._past + 1, ENDLESS
            return int(self._turn[1]) if due else 0

    @property
    def _waits(self) -> bool:
        """True if this rank has not interrupted yet as another one has."""
        return bool(self._turn[0] > self._past)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)
