"""A hub's checkpoints: each state in a file, written whole or not at all, and the newest of them."""

from __future__ import annotations

import logging
import os
import pathlib
import urllib.parse
from typing import BinaryIO, List, Optional, Set, Tuple

from hivemind_c.averaging.image import Image, block_of, block_size_max, read_block

logger = logging.getLogger("hivemind_c.hub")


def write_image(file: BinaryIO, run_id: str, image: Image) -> None:
    """Writes a state.

    Args:
        file: A file that is open for writing.
        run_id: Name of the run.
        image: The state.
    """
    for piece in block_of(run_id, image):
        file.write(piece)


def read_image(path: pathlib.Path, run_id: str, size_max: int) -> Image:
    """Returns the state in a file.

    Raises ValueError if it is not a whole file of this run, and OSError if it cannot be read.

    Args:
        path: The file.
        run_id: Name of the run.
        size_max: Most bytes of the state.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > block_size_max(size_max):
            raise ValueError("its state is larger than --memory allows")
        block = bytearray(size)
        if file.readinto(block) != size:
            raise ValueError("it is cut short")
    return read_block(block, run_id, size_max)


class Checkpoints:
    """The newest states of one run, in a folder.

    Args:
        folder: The folder, which is made if it is missing.
        run_id: Name of the run.
        keep: Number of files that stay.
    """

    def __init__(self, folder: pathlib.Path, run_id: str, keep: int):
        self._folder, self._run_id, self._keep = folder, run_id, keep
        self._stem = urllib.parse.quote(run_id, safe="")
        folder.mkdir(parents=True, exist_ok=True)
        self._unreadable: Set[pathlib.Path] = set()
        for _, draft in self._files(".part"):  # of a hub that was killed
            draft.unlink(missing_ok=True)

    def save(self, image: Image) -> pathlib.Path:
        """Writes a state, then removes files of old epochs. Returns the file. Raises OSError, as if the disk is full.

        The file itself stays, and files that could not be read neither count nor go.

        Args:
            image: The state.
        """
        path = self._folder / f"{self._stem}-{image.epoch}.state"
        draft = path.with_suffix(".part")
        try:
            with open(draft, "wb") as file:
                write_image(file, self._run_id, image)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        self._sync()
        self._unreadable.discard(path)
        others = [old for _, old in self._files() if old != path and old not in self._unreadable]
        for old in others[self._keep - 1 :]:
            old.unlink(missing_ok=True)
        return path

    def set_aside(self, least: int) -> List[pathlib.Path]:
        """Renames the files of an epoch and later ones, so that they are not read again. Returns the new names.

        Args:
            least: The epoch.
        """
        aside = []
        for epoch, path in self._files():
            if epoch < least:
                continue
            number, name = 1, path.with_name(f"{path.name}.aside")
            while name.exists():
                number += 1
                name = path.with_name(f"{path.name}.aside{number}")
            try:
                path.rename(name)
            except OSError as error:
                logger.warning("%s: could not set the checkpoint %s aside: %s", self._run_id, path, error)
                continue
            aside.append(name)
        return aside

    def newest(self, size_max: int) -> Optional[Image]:
        """Returns the state of the newest file that is whole. None: there is none. The log names files that are not.

        Args:
            size_max: Most bytes of a state.
        """
        for _, path in self._files():
            try:
                return read_image(path, self._run_id, size_max)
            except (OSError, ValueError) as error:
                self._unreadable.add(path)
                logger.warning("%s: skipping the checkpoint %s: %s", self._run_id, path, error)
        return None

    def _files(self, suffix: str = ".state") -> List[Tuple[int, pathlib.Path]]:
        """(epoch, file), the newest epoch first."""
        found = []
        for path in self._folder.glob(f"*{suffix}"):
            stem, _, epoch = path.stem.rpartition("-")
            if stem == self._stem and epoch.isascii() and epoch.isdigit():
                found.append((int(epoch), path))
        return sorted(found, reverse=True)

    def _sync(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
