"""Samples of turns in a file, so that a run that was interrupted continues where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, Optional, Tuple

Sample = Dict[str, float]


class Kept:
    """The samples of a file of JSON lines. A line that is not whole counts for nothing.

    Args:
        path: The file. It need not exist.
    """

    def __init__(self, path: Path):
        self._path, self._samples = path, {}
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            self._samples[self._key(entry["row"], entry["contestant"], entry["round"])] = entry["sample"]

    @staticmethod
    def _key(row: str, contestant: str, number: int) -> Tuple[str, str, int]:
        return row, contestant, number

    def sample(self, row: str, contestant: str, number: int) -> Optional[Sample]:
        """Returns what that turn gave, or None if it has not been measured.

        Args:
            row: Name of the row.
            contestant: Name of the contestant.
            number: Of the round, from 0.
        """
        return self._samples.get(self._key(row, contestant, number))

    def keep(self, row: str, contestant: str, number: int, sample: Sample) -> None:
        """Adds a sample, and writes it.

        Args:
            row: Name of the row.
            contestant: Name of the contestant.
            number: Of the round, from 0.
            sample: The numbers of the turn.
        """
        self._samples[self._key(row, contestant, number)] = sample
        with self._path.open("a") as file:
            print(json.dumps({"row": row, "contestant": contestant, "round": number, "sample": sample}), file=file)
