"""BitsCheck: whether the differences of local steps take too much of an epoch on the line that its rounds measured."""

from __future__ import annotations

from typing import Optional

from hivemind_c.optim.epoch_record import EpochRecord

AFTER = 2  #: epochs that averaged, before anything is said: the first one has what others waited for
ENOUGH = 0.9  #: share of an epoch that computes, from which on nothing is said
#: bits of a value on the line, under the codecs that are proposed, and others
BITS = {
    "NoCompression": 32.0,
    "Float16Compression": 16.0,
    "BFloat16Compression": 16.0,
    "Uniform8BitQuantization": 8.0,
    "BlockwiseQuantization": 8.0,
    "Linear8BitQuantization": 8.25,
    "Linear4BitQuantization": 4.25,
}
PROPOSED = "Linear8BitQuantization", "Linear4BitQuantization"  #: the finer one first


class BitsCheck:
    """Looks at the records of one peer that makes local steps. Its sentence comes once.

    All peers of a run have the same codec, so a peer does not change it by itself.
    """

    def __init__(self) -> None:
        self._epochs, self._computing, self._reducing = 0, 0.0, 0.0
        self._is_over = False

    def look(self, record: EpochRecord) -> Optional[str]:
        """Takes the record of the next swarm epoch. Returns what is to be said now, or None.

        Args:
            record: The record.
        """
        if self._is_over or record.outcome != "averaged" or record.members < 2:
            return None
        self._epochs += 1
        self._computing += record.computing_s + record.stepping_s
        self._reducing += record.reducing_s
        if self._epochs < AFTER or record.codec not in BITS:
            return None
        self._is_over = True
        computing, reducing = self._computing / self._epochs, self._reducing / self._epochs
        share = computing / (computing + reducing) if computing else 0.0
        if share >= ENOUGH:
            return None
        text = (
            f"local steps: averaging differences in {record.codec} takes {reducing:.1f} s after {computing:.1f} s of "
            f"computing on this line, so this peer computes {share:.2f} of the time"
        )
        seconds = {name: reducing * BITS[name] / BITS[record.codec] for name in PROPOSED}
        fewer = [name for name in PROPOSED if BITS[name] < BITS[record.codec]]
        good = [name for name in fewer if computing / (computing + seconds[name]) >= ENOUGH] or fewer[-1:]
        if good:
            text += f"; give all peers grad_compression=hivemind_c.{good[0]}(), for about {seconds[good[0]]:.1f} s"
        return text + (", or " if good else "; give all peers ") + "a larger target_batch_size"
