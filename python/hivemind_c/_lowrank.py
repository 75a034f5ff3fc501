"""PowerSGD for a list of gradients: the maths of csrc/torch/lowrank.cpp under one small class."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from hivemind_c import _needs

_LIBRARY = os.path.join(os.path.dirname(__file__), "libhivemind_lowrank.so")
_TORCH = 2, 10  # the oldest whose stable functions the library asks for


def _ops():
    """The operators, loaded at first use."""
    if not hasattr(torch.ops.hivemind_c, "lowrank_encode"):
        try:
            torch.ops.load_library(_LIBRARY)
        except OSError as error:
            old = _needs.numbers(torch.__version__) < _TORCH
            remedy = "install torch 2.10 or later" if old else "install hivemind_c again"
            what = f"PowerSGD cannot be loaded beside torch {torch.__version__}"
            raise ImportError(f"{what}: {error}; {remedy}") from error
    return torch.ops.hivemind_c


class LowRank:
    """Sends P and Q (rank columns, rank rows) in place of each large gradient, and keeps what they miss for the next round.

    A round: ``ps = encode(round_id, grads)``, average ``ps`` with the peers, ``qs = middle(round_id, ps)``, average ``qs``,
    ``decode(round_id, qs)`` writes the averaged gradients. Peers must use the same ``round_id``, ``seed`` and shapes. The
    gradients must stay as they are from encode to decode. Every step may be repeated; whatever is repeated or given up
    (``abort``), the residual changes in decode alone, once for each round.

    ``indices`` are the tensors that take part: those whose P and Q are smaller than they are by ``min_compression_ratio``;
    the rest is the caller's to average as it is. NaN or Inf in a gradient or in an average is a RuntimeError that changes
    nothing. On CPUs all peers compute the same bytes from the same averages; other devices must be alike for that.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor], rank: int, min_compression_ratio: float = 0.5, seed: int = 0, *, portable: bool = False
    ):
        if not 1 <= rank <= 256:
            raise ValueError(f"rank must be between 1 and 256, not {rank}")
        if not 0 <= min_compression_ratio <= 1:
            raise ValueError(f"min_compression_ratio must be between 0 and 1, not {min_compression_ratio}")
        self._torch_ops, self._portable, self.rank, self.seed = _ops(), portable, rank, seed
        views = [self._torch_ops.lowrank_view(list(t.shape), rank, min_compression_ratio) for t in tensors]
        self.indices = tuple(i for i, view in enumerate(views) if view)
        devices = [tensors[i].device for i in self.indices]
        sizes = [views[i] for i in self.indices]
        self.residuals = [torch.zeros(*size, device=device) for size, device in zip(sizes, devices)]
        self._sent = [torch.empty(rows, rank, device=device) for (rows, _), device in zip(sizes, devices)]
        self._bases = [torch.empty_like(p) for p in self._sent]
        self._sketches = [torch.empty(rank, cols, device=device) for (_, cols), device in zip(sizes, devices)]
        self._qs = [torch.empty_like(q) for q in self._sketches]
        self._grads: List[torch.Tensor] = []
        self._sketched: Optional[int] = None
        self._round = torch.zeros(4, dtype=torch.int64)

    @torch.no_grad()
    def encode(self, round_id: int, grads: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        """P of each matrix (rows x rank), for averaging in place. ``grads``: all of them, or those at ``indices``."""
        mine = self._pick(grads)
        self._sketch(round_id)
        self._torch_ops.lowrank_encode(self._round, round_id, mine, self.residuals, self._sent, self._sketches, self._portable)
        self._grads = mine
        return self._sent

    @torch.no_grad()
    def middle(self, round_id: int, ps: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        """Q of each matrix (rank x columns), for averaging in place, from the averaged ``ps``, which stay as they are."""
        self._like(ps, self._bases, "P")
        for basis, p in zip(self._bases, ps):
            basis.copy_(p)
        self._torch_ops.lowrank_middle(self._round, round_id, self._grads, self.residuals, self._bases, self._qs, self._portable)
        return self._qs

    @torch.no_grad()
    def decode(self, round_id: int, qs: Sequence[torch.Tensor], out: Optional[Sequence[torch.Tensor]] = None) -> None:
        """Writes the averaged gradients into ``out`` (default: over the gradients given to encode) and commits the round."""
        self._like(qs, self._qs, "Q")
        for mine, q in zip(self._qs, qs):
            if mine is not q:
                mine.copy_(q)
        outs = self._grads if out is None else self._pick(out)
        self._torch_ops.lowrank_decode(
            self._round, round_id, self._grads, self.residuals, self._bases, self._qs, outs, self._portable
        )
        self._grads = []

    @property
    def buffers(self) -> Tuple[List[torch.Tensor], List[torch.Tensor]]:
        """Where P and Q are written in every round: ``ps`` and ``qs``, the same tensors always."""
        return self._sent, self._qs

    def abort(self, round_id: int) -> None:
        """Gives the round up; the residual stays as it was before it."""
        self._torch_ops.lowrank_abort(self._round, round_id)
        self._grads = []

    def state_dict(self) -> Dict[str, object]:
        """State for the next rounds: residuals, and which round was the last. An open round is not part of it."""
        return {"residuals": [e.clone() for e in self.residuals], "round": [0, 0, *self._round[2:].tolist()], "seed": self.seed}

    @torch.no_grad()
    def load_state_dict(self, state: Dict[str, object]) -> None:
        self._like(state["residuals"], self.residuals, "residual")
        for mine, saved in zip(self.residuals, state["residuals"]):
            mine.copy_(saved)
        self._round.copy_(torch.tensor(state["round"], dtype=torch.int64))
        self.seed, self._sketched, self._grads = int(state["seed"]), None, []

    def _sketch(self, round_id: int) -> None:
        if self._sketched == round_id:
            return
        for index, sketch in zip(self.indices, self._sketches):
            here = sketch if sketch.device.type == "cpu" else torch.empty(sketch.shape, pin_memory=sketch.device.type == "cuda")
            self._torch_ops.lowrank_sketch(here, self.seed, round_id, index)
            sketch.copy_(here, non_blocking=True)
        self._sketched = round_id

    def _pick(self, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        if len(tensors) == len(self.indices):
            return list(tensors)
        if self.indices and len(tensors) <= self.indices[-1]:
            raise ValueError(f"{len(tensors)} tensors were given: expected {len(self.indices)}, or all of them")
        return [tensors[i] for i in self.indices]

    @staticmethod
    def _like(given: Sequence[torch.Tensor], mine: Sequence[torch.Tensor], what: str) -> None:
        if [tuple(t.shape) for t in given] != [tuple(t.shape) for t in mine]:
            raise ValueError(f"{what} must have the shapes {[tuple(t.shape) for t in mine]}, not {[tuple(t.shape) for t in given]}")
