"""EpochNotes: what happens in a swarm epoch, collected until its EpochRecord is made."""

from __future__ import annotations

import math
from typing import Any, Iterable, List, Optional, Sequence, Tuple

import torch

from hivemind_c._text import printable
from hivemind_c.optim.epoch_clock import EpochClock
from hivemind_c.optim.epoch_record import WHY_LENGTH, WHY_MAX


class EpochNotes:
    """Notes of one epoch. The training thread writes them, and after the epoch's end the background job does."""

    def __init__(self) -> None:
        self._loss: Any = None  # sum over the batches; a tensor stays on its device
        self._losses = 0
        self.lost_samples = 0
        self.why: List[str] = []
        self.members = 0
        self.bytes_sent = self.bytes_received = 0
        self.part: Optional[float] = None
        self.is_narrow = False  #: averages came under narrow codecs
        self.gradient_norm: Any = None
        #: with local steps: norm of the own difference, and its cosine to the average
        self.difference: Optional[Tuple[float, Optional[float]]] = None
        self.carried_samples = self.repeated_steps = 0

    def add_loss(self, value: Any) -> None:
        """Adds the loss of a batch. A loss that is no number counts for nothing.

        Args:
            value: Tensor or number.
        """
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                return
            value = value.detach().float().reshape(())
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        self._loss = value if self._loss is None else self._loss + value
        self._losses += 1

    def mean_loss(self) -> Optional[float]:
        """Returns the mean of the losses, or None."""
        return float(self._loss) / self._losses if self._losses else None

    def lose(self, samples: int, why: str) -> int:
        """Notes samples that count for nothing, as the ledger of samples says. Returns their number.

        Args:
            samples: Number of samples. 0: nothing is noted.
            why: The cause.
        """
        if samples > 0:
            self.lost_samples += samples
            self.fail(f"{samples} samples lost: {why}")
        return samples

    def fail(self, why: str) -> None:
        """Notes that something failed. Only the first WHY_MAX sentences are kept.

        Args:
            why: The failure and its cause. It may hold words of another peer.
        """
        text = printable(why)[:WHY_LENGTH]
        if len(self.why) < WHY_MAX and text not in self.why:
            self.why.append(text)

    def carry(self, samples: int) -> None:
        """Notes samples that no average has yet, and that count in a later one. A failed average may fail again.

        Args:
            samples: Number of samples.
        """
        self.carried_samples = max(self.carried_samples, samples)

    def add_rounds(self, rounds: Sequence[Any], clock: EpochClock, called: float) -> float:
        """Adds what successful averagings measured. Returns the seconds of them for which the thread did not wait.

        Args:
            rounds: Their StepControls, in order.
            clock: Clock of the thread that waited for them.
            called: Moment on that clock when it began to wait.
        """
        blocked, beside = clock.now() - called, 0.0
        for control in rounds:
            members, _, _, moved, matching, _, reducing, _, _, is_narrow, part, _ = control.details(0)
            late = min(max(0.0, matching - max(0.0, called - control.begun)), blocked)
            clock.move(late, "matching")
            reduced = min(reducing, blocked - late)
            beside += reducing - clock.move(reduced, "reducing")
            blocked -= late + reduced
            self.members = max(self.members, len(members))
            self.bytes_sent += moved // 2  # as many come as go: spans of others, and averages of the own one
            self.bytes_received += moved // 2
            self._note_part(members, part)
            self.is_narrow |= is_narrow
        return beside

    def _note_part(self, members: Sequence[Any], part: float) -> None:
        """A peer in client mode reduces nothing, whatever its connection is."""
        reduce = sum(not client for _, _, client, *_ in members)
        if len(members) > 1 and not any(me and client for _, me, client, *_ in members):
            self.part = part * reduce if self.part is None else min(self.part, part * reduce)


@torch.no_grad()
def norm_of(tensors: Iterable[torch.Tensor]) -> float:
    """The norm of all values together. It reads each of them once, as fast as the processor reads memory."""
    here, away = 0.0, {}  # type: ignore[var-annotated]
    for tensor in tensors:
        if tensor.device.type != "cpu":
            away.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        elif tensor.numel():
            values = tensor.detach().reshape(-1)
            here += float(torch.dot(values, values))
    for group in away.values():
        here += sum(float(norm) ** 2 for norm in torch.stack(torch._foreach_norm(group)).tolist())
    return math.sqrt(here) if here >= 0 else math.nan
