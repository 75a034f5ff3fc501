"""Which build of hivemind_c the programs that are measured import: that of this tree, or one from a wheel."""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Iterator

from benchmarks.frame import BenchmarkError

ROOT = Path(__file__).resolve().parent.parent
_paths = [ROOT / "python"]


def path(*more: str) -> str:
    """PYTHONPATH of a program that is to import hivemind_c."""
    return os.pathsep.join(filter(None, [str(_paths[-1]), *more]))


@contextlib.contextmanager
def using(folder: Path) -> Iterator[None]:
    """Within it, path() names this folder."""
    _paths.append(folder)
    try:
        yield
    finally:
        _paths.pop()


@contextlib.contextmanager
def unpacked(wheel: str) -> Iterator[Path]:
    """A folder with the files of a wheel."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(wheel) as files:
                files.extractall(folder)
        except (OSError, zipfile.BadZipFile) as error:
            why = f"--against {wheel}: it cannot be unpacked: {error}; give a wheel of hivemind_c"
            raise BenchmarkError(why) from None
        if not (Path(folder) / "hivemind_c").is_dir():
            raise BenchmarkError(f"--against {wheel}: it has no hivemind_c; give a wheel of hivemind_c")
        yield Path(folder)
