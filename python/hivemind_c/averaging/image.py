"""A run's state as bytes: what a joiner downloads and a donor offers, without tensors; also as one block of bytes.

A block is MAGIC, the size of the header (8 bytes, little endian), the header (MessagePack), the parts, and the SHA-256
of all before it. Each part begins at a multiple of ALIGN bytes; zeros are between them.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import msgpack

from hivemind_c.dht.values import _unpack

Kind = Tuple[int, int, bool]  #: of a part: numbers of its codec and dtype, and whether each donor has its own bytes
LINEAGE_BYTES = 16
MAGIC = b"HVhub 1\n"
ALIGN = 64
HEADER_MAX = 4 << 20  #: bytes
EPOCH_MAX = 1 << 48  #: of a state that is kept: a peer's record has no larger count
PARTS_MAX = 1 << 14  #: the core's limit
DIGEST = hashlib.sha256().digest_size
PIECE = 1 << 20  #: bytes that are hashed and written at a time


class Image(NamedTuple):
    """One state. Nobody changes its bytes."""

    epoch: int
    metadata: bytes  #: as its donors packed it
    parts: Tuple[Any, ...]  #: buffers
    kinds: Tuple[Kind, ...]  #: one for each part

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(memoryview(part).nbytes for part in self.parts)

    @property
    def lineage(self) -> bytes:
        """The 16 bytes that name the history of the state; none: it does not say."""
        lineage = self._about().get("lineage")
        return lineage if isinstance(lineage, bytes) and len(lineage) == LINEAGE_BYTES else b""

    @property
    def setup(self) -> bytes:
        """The setup of the trainers that made the state, packed; none: it does not say."""
        setup = self._about().get("setup")
        return setup if isinstance(setup, bytes) else b""

    def _about(self) -> Dict[Any, Any]:
        try:
            about = _unpack(self.metadata, 0)["metadata"]
        except Exception:  # a stranger's bytes
            return {}
        return about if isinstance(about, dict) else {}

    def last_use(self) -> Optional["weakref.ref[Any]"]:
        """A reference that is dead once nobody holds this image, nor downloads it. None: it has no bytes."""
        return next((weakref.ref(part) for part in self.parts if isinstance(part, memoryview) and part.nbytes), None)


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
