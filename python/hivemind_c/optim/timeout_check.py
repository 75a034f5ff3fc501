"""TimeoutCheck: whether averaging_timeout holds the averages of a swarm epoch on the line that its rounds measured.

Gradients and state are averaged one after the other, and the search for both groups begins at the same moment. So one
averaging_timeout holds the search and both averages.
"""

from __future__ import annotations

import math
from typing import Optional

from hivemind_c.optim.epoch_record import EpochRecord

RAN_OUT = "took longer than"  #: in the error of a round that its time has ended
NEAR = 0.8  #: part of the time for averages from which on a slower moment of the line may end a round
WORSE = 1.5  #: a sentence is repeated if this many times the seconds are needed
SPARE = 2  #: times the seconds needed that are proposed


class TimeoutCheck:
    """Looks at the records of one peer. Its sentence comes at the first round that needs it.

    Args:
        averaging_timeout: Longest time in seconds for the averages of a swarm epoch, searches for groups included.
        matchmaking_time: Seconds of it for the search.
        follows: Rounds may take longer, as the line needs (csrc/core/epoch/epoch_line.c).
    """

    def __init__(self, averaging_timeout: float, matchmaking_time: float, follows: bool = False):
        self._timeout, self._matchmaking, self._follows = averaging_timeout, matchmaking_time, follows
        self._said = 0.0  # seconds needed, in the last sentence

    def look(self, record: EpochRecord) -> Optional[str]:
        """Takes the record of the next swarm epoch. Returns what is to be said now, or None.

        Args:
            record: The record.
        """
        spent = record.reducing_s + record.background_reducing_s
        ran_out = any(RAN_OUT in why for why in record.why)
        if ran_out:  # the average that failed has as many values as the other one
            needed = SPARE * spent or self._timeout
        elif not self._follows and record.members > 1 and spent > NEAR * (self._timeout - self._matchmaking):
            needed = spent
        else:
            return None
        if needed < WORSE * self._said:
            return None
        self._said = needed
        if self._follows:
            return (
                "a round needed more time than it had: the next one has more, because averaging_timeout is not given, "
                "and local steps give rounds the time that the line needs"
            )
        enough = 10 * math.ceil((SPARE * needed + self._matchmaking) / 10)
        return (
            f"averaging_timeout={self._timeout:g} {'is too short for' if ran_out else 'hardly holds'} the averages of "
            f"a swarm epoch on this line: {_measured(record, spent)}, a swarm epoch needs "
            f"{'at least ' if ran_out else ''}{needed:.0f} s, and matchmaking_time={self._matchmaking:g} comes "
            f"before; give averaging_timeout={enough} at all peers, or send fewer bytes with "
            "grad_compression and average_state_every (docs/howto/choose-settings.md)"
        )


def _measured(record: EpochRecord, spent: float) -> str:
    if not spent:
        return "no average was complete in time"
    most = max(record.bytes_sent, record.bytes_received)
    return f"{most / 1e6:.3g} MB took {spent:.1f} s ({8e-6 * most / spent:.0f} Mbit/s)"
