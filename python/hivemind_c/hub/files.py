"""A hub's checkpoints: each state in a file, written whole or not at all, and the newest of them.

A file is a block: MAGIC, the size of the header (8 bytes, little endian), the header (MessagePack), the parts, and the
SHA-256 of all before it. Each part begins at a multiple of ALIGN bytes; zeros are between them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pathlib
import urllib.parse
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Set, Tuple

import msgpack

from hivemind_c.averaging.image import EPOCH_MAX, Image

logger = logging.getLogger("hivemind_c.hub")
MAGIC = b"HVhub 1\n"
ALIGN = 64
HEADER_MAX = 4 << 20  #: bytes
PARTS_MAX = 1 << 14  #: the core's limit
DIGEST = hashlib.sha256().digest_size
PIECE = 1 << 20  #: bytes that are hashed and written at a time


def block_size_max(size: int) -> int:
    """Returns the largest size of a block whose parts have so many bytes.

    Args:
        size: Bytes of all parts.
    """
    return len(MAGIC) + 8 + HEADER_MAX + size + ALIGN * (PARTS_MAX + 1) + DIGEST


def block_of(run_id: str, image: Image) -> Iterator[Any]:
    """Yields the block of a state in pieces.

    Args:
        run_id: Name of the run.
        image: The state.
    """
    header = msgpack.packb(
        {
            "run_id": run_id,
            "epoch": image.epoch,
            "metadata": image.metadata,
            "parts": [[memoryview(part).nbytes, *kind] for part, kind in zip(image.parts, image.kinds)],
        }
    )
    digest, at = hashlib.sha256(), 0
    for part in (MAGIC + len(header).to_bytes(8, "little") + header, *image.parts):
        view = memoryview(part).cast("B")
        gap = bytes(-at % ALIGN)
        for piece in (gap, *(view[begin : begin + PIECE] for begin in range(0, view.nbytes, PIECE))):
            digest.update(piece)
            yield piece
        at += len(gap) + view.nbytes
    yield digest.digest()


def read_block(block: bytearray, run_id: str, size_max: int) -> Image:
    """Returns the state in a block. Its parts are views of the block.

    Raises ValueError if it is not a whole block of this run.

    Args:
        block: The bytes.
        run_id: Name of the run.
        size_max: Most bytes of the state.
    """
    view = memoryview(block)
    body = view[: max(0, len(view) - DIGEST)]
    if body[: len(MAGIC)] != MAGIC:
        raise ValueError("it is not a state of a hub of this version")
    begin = len(MAGIC) + 8
    size = int.from_bytes(body[len(MAGIC) : begin], "little")
    if size > HEADER_MAX or begin + size > len(body):
        raise ValueError("its header is too long")
    if hashlib.sha256(body).digest() != view[len(body) :]:
        raise ValueError("its bytes are not those that were written")
    epoch, metadata, parts = _header(bytes(body[begin : begin + size]), run_id)
    if sum(size for size, *_ in parts) > size_max:
        raise ValueError("its state is larger than --memory allows")
    at, buffers = begin + size, []
    for size, *_ in parts:
        at += -at % ALIGN
        buffers.append(body[at : at + size])
        at += size
    if at != len(body):
        raise ValueError("its size is not that of its parts")
    return Image(epoch, metadata, tuple(buffers), tuple((codec, dtype, own) for _, codec, dtype, own in parts))


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
        and 0 <= epoch <= EPOCH_MAX
        and type(metadata) is bytes
        and len(parts) <= PARTS_MAX
        and all(type(size) is int and size >= 0 for size, *_ in parts)
        and all(type(number) is int and 0 <= number < 256 for _, codec, dtype, _ in parts for number in (codec, dtype))
        and all(type(own) is bool for *_, own in parts)
    )
    if not fine:
        raise ValueError("its header has values out of their bounds")
    return epoch, metadata, parts


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
        keep: Number of files that stay, and of those that were set aside.
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

        Of all files that were set aside, the latest stay, as many as of the others.

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
        for old in self._aside()[self._keep :]:
            old.unlink(missing_ok=True)
        return aside

    def _aside(self) -> List[pathlib.Path]:
        """The files that were set aside, the latest first."""
        found = []
        for path in self._folder.glob("*.state.aside*"):
            stem, _, epoch = path.name.rpartition(".state.aside")[0].rpartition("-")
            if stem == self._stem and epoch.isascii() and epoch.isdigit():
                found.append((path.stat().st_ctime_ns, int(epoch), path))  # renaming sets this time
        return [path for *_, path in sorted(found, reverse=True)]

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
