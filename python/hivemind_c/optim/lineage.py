"""Which replica is the swarm's? Each peer's carries a mark that says how it came about, so that those that drifted
apart notice it when they meet.

Equal marks: equal states, to the bit (where the optimizer's arithmetic is the same). A mark begins as a digest of the
state, and moves on with whatever changes it. So it costs nothing to keep, and nothing is hashed twice.
csrc/core/epoch/lineage.c has the rules, and docs/design/lineage.md explains them.
"""

from __future__ import annotations

import hashlib
from typing import Callable, Iterable, List

import _hivemind_c
import torch


DIGIT_VALUES = 1 << 12  #: that a digit of a mark may have (HV_MARK_DIGIT_BITS of csrc/core/epoch/lineage.h)


class Lineage(_hivemind_c.Lineage):
    """The mark of this peer's replica.

    Args:
        content: A function that returns the tensors of the state, as it is now.
    """

    def __init__(self, content: Callable[[], Iterable[torch.Tensor]]):
        self._content = content
        #: by a lossy load, and in no average of the state since: it has the mark of its donor, and not the bits
        self.is_rounded = False

    def digits_to_average(self) -> List[float]:
        """Returns the mark as numbers, or others if the replica is rounded, so that its average moves the mark."""
        digits = self.digits()
        return [(digit + DIGIT_VALUES / 2) % DIGIT_VALUES for digit in digits] if self.is_rounded else digits

    def digest(self) -> bytes:
        """Returns the mark of a state without a history. The core asks for it, once it needs one."""
        digest = hashlib.blake2b(digest_size=_hivemind_c.MARK_SIZE)
        for tensor in self._content():
            digest.update(memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
        return digest.digest()
