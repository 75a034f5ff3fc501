"""Which replica is the swarm's? Each peer's carries a mark that says how it came about, so that those that drifted
apart notice it when they meet.

Equal marks: equal states, to the bit (where the optimizer's arithmetic is the same). A mark begins as a digest of the
state, and moves on with whatever changes it. So it costs nothing to keep, and nothing is hashed twice.
csrc/core/epoch/lineage.c has the rules, and docs/design/lineage.md explains them.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import _hivemind_c
import torch

from hivemind_c.optim.parameters import all_finite

Whole = Tuple[Sequence[torch.Tensor], Any]
DIGIT_VALUES = 1 << 12  #: that a digit of a mark may have (HV_MARK_DIGIT_BITS of csrc/core/epoch/lineage.h)


class Lineage(_hivemind_c.Lineage):
    """The mark of this peer's replica.

    Args:
        content: A function that returns the tensors of the state, as it is now.
        whole: A function that returns these tensors once the program may have replaced them, and as plain values all
            else of the state. None: there is no checkpoint.
    """

    def __init__(self, content: Callable[[], Iterable[torch.Tensor]], whole: Optional[Callable[[], Whole]] = None):
        self._content, self._whole = content, whole or (lambda: (list(content()), None))
        self._saved: Any = None  # of the checkpoint that was restored last
        #: by a lossy load, and in no average of the state since: it has the mark of its donor, and not the bits
        self.is_rounded = False

    def digits_to_average(self) -> List[float]:
        """Returns the mark as numbers, or others if the replica is rounded, so that its average moves the mark."""
        digits = self.digits()
        return [(digit + DIGIT_VALUES / 2) % DIGIT_VALUES for digit in digits] if self.is_rounded else digits

    def digest(self) -> bytes:
        """Returns the mark of a state whose history is not known yet. The core asks for it, once it needs one.

        It is that of the checkpoint, if the state is what was saved with it, else a digest.
        """
        mark = self._mark_of_checkpoint()
        if mark is not None:
            return mark
        digest = hashlib.blake2b(digest_size=_hivemind_c.MARK_SIZE)
        for tensor in self._content():
            digest.update(_bytes_of(tensor))
        return digest.digest()

    # ---- in a checkpoint ----

    def saved(self) -> Dict[str, Any]:
        """Returns the mark with a digest of the state, for a checkpoint. Empty: the replica is not the swarm's."""
        tensors, more = self._whole()
        if not self.kept or self.is_wrong or not all_finite([t for t in tensors if t.is_floating_point()]):
            return {}
        return {"mark": self.mark.hex(), "state": _digest_of_all(tensors, more), "is_rounded": self.is_rounded}

    def restore(self, saved: Any) -> None:
        """The state of a checkpoint is there, or will be before the mark is asked for.

        Args:
            saved: Result of saved(), as the checkpoint has it. None: the checkpoint has nothing of it.
        """
        self.restart()
        self._saved, self.is_rounded = saved, False

    def _mark_of_checkpoint(self) -> Optional[bytes]:
        """The mark in the checkpoint, which anybody may have edited. None: it is not that of this state."""
        saved, self._saved = self._saved, None
        state, mark = (saved.get("state"), saved.get("mark")) if isinstance(saved, dict) else (None, None)
        if not isinstance(state, str) or not isinstance(mark, str) or state != _digest_of_all(*self._whole()):
            return None
        try:
            given = bytes.fromhex(mark)
        except ValueError:
            return None
        self.is_rounded = saved.get("is_rounded") is True
        return given if len(given) == _hivemind_c.MARK_SIZE else None


def _digest_of_all(tensors: Sequence[torch.Tensor], more: Any) -> str:
    with concurrent.futures.ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        parts = list(pool.map(_digest_of, tensors))
    return hashlib.sha256(b"".join(parts) + repr(_in_order(more)).encode()).hexdigest()


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


def _digest_of(tensor: torch.Tensor) -> bytes:
    return hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode()).digest() + hashlib.sha256(
        _bytes_of(tensor)
    ).digest()


def _in_order(value: Any) -> Any:
    """Plain values, alike whatever file they went through: it keeps no order of keys, and no tuples."""
    if isinstance(value, dict):
        return sorted(([str(key), _in_order(item)] for key, item in value.items()), key=lambda pair: pair[0])
    return [_in_order(item) for item in value] if isinstance(value, (list, tuple)) else value
