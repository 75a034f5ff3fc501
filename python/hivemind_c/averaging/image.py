"""A run's state as bytes: what a joiner downloads and a donor offers, without tensors."""

from __future__ import annotations

import weakref
from typing import Any, Dict, NamedTuple, Optional, Tuple

import _hivemind_c

from hivemind_c.dht.values import _unpack

Kind = Tuple[int, int, bool]  #: of a part: numbers of its codec and dtype, and whether each donor has its own bytes
LINEAGE_BYTES = 16
EPOCH_MAX = _hivemind_c.STATE_EPOCH_MAX  #: of a state that is kept: a peer's record has no larger count


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
