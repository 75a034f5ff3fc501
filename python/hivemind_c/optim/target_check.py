"""TargetCheck: the least target_batch_size for the line that the first common swarm epoch measured."""

from __future__ import annotations

import math
from typing import Optional, Tuple

from hivemind_c.optim.epoch_record import EpochRecord
from hivemind_c.optim.keep_up import two_digits

PART = 0.1  #: of a swarm epoch that averaging may take while training pauses for it (docs/howto/choose-settings.md)
SHORT_S = 0.05  #: of a round that tells of latency alone, and nothing of the line


class TargetCheck:
    """Looks at the records of one peer, until one of them measured the line.

    Args:
        target: target_batch_size.
    """

    def __init__(self, target: int):
        self._target, self._is_over = target, False

    def look(self, record: EpochRecord, speed: float) -> Optional[Tuple[bool, str]]:
        """Takes the record of the next swarm epoch. Returns whether the target is too small, and a sentence, or None.

        Args:
            record: The record.
            speed: Samples per second of the swarm.
        """
        paused, beside = record.reducing_s, record.background_reducing_s
        if self._is_over or record.outcome != "averaged" or not paused + beside or not 0 < speed < math.inf:
            return None
        self._is_over = True
        least = two_digits(speed * max(paused / PART, beside))
        most = max(record.bytes_sent, record.bytes_received)
        line = f"averages of {most / 1e6:.3g} MB took {paused + beside:.2g} s on this line"
        if least <= self._target:
            return False, f"{line}: target_batch_size may be {least} or more with the present peers"
        if paused + beside < SHORT_S:
            return None
        return True, (
            f"{line}, and the swarm makes target_batch_size={self._target} samples in {self._target / speed:.2g} s; "
            f"give target_batch_size={least} or more at all peers, or send fewer bytes with grad_compression"
        )
