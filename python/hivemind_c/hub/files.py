"""A hub's checkpoints: each state in a file, written whole or not at all, and the newest of them.

A file is MAGIC, the size of the header (8 bytes, little endian), the header (MessagePack), the parts, and the SHA-256
of all before it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pathlib
import urllib.parse
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

import msgpack

from hivemind_c.hub.image import Image

logger = logging.getLogger("hivemind_c.hub")
MAGIC = b"HVhub 1\n"
HEADER_MAX = 4 << 20  #: bytes
PARTS_MAX = 1 << 14  #: the core's limit
DIGEST = hashlib.sha256().digest_size
BLOCK = 1 << 20  #: bytes that are written and hashed at a time


def write_image(file: BinaryIO, run_id: str, image: Image) -> None:
    """Writes a state.

    Args:
        file: A file that is open for writing.
        run_id: Name of the run.
        image: The state.
    """
    digest = hashlib.sha256()
    header = msgpack.packb(
        {
            "run_id": run_id,
            "epoch": image.epoch,
            "metadata": image.metadata,
            "parts": [[memoryview(part).nbytes, *kind] for part, kind in zip(image.parts, image.kinds)],
        }
    )
    for piece in (MAGIC, len(header).to_bytes(8, "little"), header, *image.parts):
        view = memoryview(piece).cast("B")
        for begin in range(0, view.nbytes, BLOCK):
            block = view[begin : begin + BLOCK]
            digest.update(block)
            file.write(block)
    file.write(digest.digest())


class _Reader:
    """Reads a file in pieces and hashes them."""

    def __init__(self, file: BinaryIO, size: int):
        self._file, self._left, self._digest = file, size, hashlib.sha256()

    def read(self, size: int) -> memoryview:
        if not 0 <= size <= self._left - DIGEST:
            raise ValueError("it is cut short")
        piece = memoryview(bytearray(size))
        if self._file.readinto(piece) != size:
            raise ValueError("it is cut short")
        self._left -= size
        self._digest.update(piece)
        return piece

    def check_end(self) -> None:
        if self._left != DIGEST or self._file.read(DIGEST) != self._digest.digest():
            raise ValueError("its bytes are not those that were written")


def read_image(path: pathlib.Path, run_id: str, size_max: int) -> Image:
    """Returns the state in a file.

    Raises ValueError if it is not a whole file of this run, and OSError if it cannot be read.

    Args:
        path: The file.
        run_id: Name of the run.
        size_max: Most bytes of the state.
    """
    with open(path, "rb") as file:
        reader = _Reader(file, os.fstat(file.fileno()).st_size)
        if reader.read(len(MAGIC)) != MAGIC:
            raise ValueError("it is not a checkpoint of a hub of this version")
        size = int.from_bytes(reader.read(8), "little")
        if size > HEADER_MAX:
            raise ValueError("its header is too long")
        epoch, metadata, parts = _header(bytes(reader.read(size)), run_id)
        if sum(size for size, *_ in parts) > size_max:
            raise ValueError("its state is larger than --memory allows")
        buffers = tuple(reader.read(size) for size, *_ in parts)
        reader.check_end()
    return Image(epoch, metadata, buffers, tuple((codec, dtype, own) for _, codec, dtype, own in parts))


def _header(packed: bytes, run_id: str) -> Tuple[int, bytes, List[Tuple[int, int, int, bool]]]:
    try:
        header: Dict[str, Any] = msgpack.unpackb(packed)
        epoch, metadata, named = header["epoch"], header["metadata"], header["run_id"]
        parts = [(size, codec, dtype, own) for size, codec, dtype, own in header["parts"]]
    except Exception as error:
        raise ValueError(f"its header cannot be read ({type(error).__name__})") from None
    if named != run_id:
        raise ValueError("it is of another run")
    fine = (
        type(epoch) is int
        and 0 <= epoch < 1 << 64
        and type(metadata) is bytes
        and len(parts) <= PARTS_MAX
        and all(type(size) is int and size >= 0 for size, *_ in parts)
        and all(type(number) is int and 0 <= number < 256 for _, codec, dtype, _ in parts for number in (codec, dtype))
        and all(type(own) is bool for *_, own in parts)
    )
    if not fine:
        raise ValueError("its header has values out of their bounds")
    return epoch, metadata, parts


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

    def save(self, image: Image) -> pathlib.Path:
        """Writes a state, then removes files of old epochs. Returns the file. Raises OSError, as if the disk is full.

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
        for _, old in list(self._files())[self._keep :]:
            old.unlink(missing_ok=True)
        return path

    def newest(self, size_max: int) -> Optional[Image]:
        """Returns the state of the newest file that is whole. None: there is none. The log names files that are not.

        Args:
            size_max: Most bytes of a state.
        """
        for _, path in self._files():
            try:
                return read_image(path, self._run_id, size_max)
            except (OSError, ValueError) as error:
                logger.warning("%s: skipping the checkpoint %s: %s", self._run_id, path, error)
        return None

    def _files(self) -> Iterator[Tuple[int, pathlib.Path]]:
        """(epoch, file), the newest epoch first."""
        found = []
        for path in self._folder.glob("*.state"):
            stem, _, epoch = path.stem.rpartition("-")
            if stem == self._stem and epoch.isascii() and epoch.isdigit():
                found.append((int(epoch), path))
        return iter(sorted(found, reverse=True))

    def _sync(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
