"""Which epochs of the swarm this peer believes: not one of which no peer has a state.

docs/design/progress.md has the rule.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Optional

from _hivemind_c import HivemindError, HivemindLookupError

if TYPE_CHECKING:
    from hivemind_c.optim.progress_tracker import ProgressTracker
    from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")
FIRST_S, MOST_S = 1.0, 60.0  #: the first and the longest doubt
LOOK_S = 3.0  #: the longest look at the states on offer
AGAIN_S = 0.5  #: between two looks


def doubled(first: float, times: int, most: float) -> float:
    """A pause that has doubled so many times, and is at most `most`."""
    return min(first * 2.0 ** min(times, 60), most)


class Belief:
    """Looks for states of epochs that others claim, and leaves claims without one out of the count for a while.

    Each doubt lasts twice as long as the one before, until a state is loaded.

    Args:
        tracker: The ProgressTracker that counts the claims.
        averager: The averager of the state, which knows where states are offered.
    """

    def __init__(self, tracker: "ProgressTracker", averager: "TrainingStateAverager"):
        self._tracker, self._averager = tracker, averager
        self._doubts = 0  # since a state was loaded
        self._until = 0.0  # the end of the latest doubt
        self._found_none = -AGAIN_S  # when a look found no state

    def is_offered(self, epoch: int) -> bool:
        """False if no peer offers a state of this epoch or a later one. True also if that could not be found out.

        Args:
            epoch: Number of the epoch.
        """
        if time.monotonic() < self._found_none + AGAIN_S:
            return False
        try:
            self._averager._shared().look(LOOK_S, epoch_least=epoch)
        except HivemindLookupError:
            self._found_none = time.monotonic()
            return False
        except HivemindError as error:
            logger.debug("could not look for a state of epoch %d or later: %s", epoch, error)
        return True

    def newest_offered(self, least: int) -> Optional[int]:
        """Returns the epoch of the newest state that a joiner could load. None: there is none, or it was not found out.

        Args:
            least: Oldest epoch that is of use.
        """
        try:
            return self._averager._shared().look(LOOK_S, epoch_least=least)
        except HivemindError as error:
            logger.debug("found no state of epoch %d or later: %s", least, error)
            return None

    def doubt(self, epoch: int, own: int) -> None:
        """Leaves the claims of this epoch and of later ones out of the count for a while.

        Args:
            epoch: An epoch of which this peer could get no state.
            own: Epoch of this peer, in which it continues.
        """
        now, claimed = time.monotonic(), self._tracker.global_epoch
        if now >= self._until:
            seconds = doubled(FIRST_S, self._doubts, MOST_S)
            self._doubts, self._until = self._doubts + 1, now + seconds
            logger.warning(
                "peers claim epoch %d, and this peer could get no state of it: for %g s it does not count these peers, "
                "and continues in epoch %d",
                claimed,
                seconds,
                own,
            )
        self._averager.record("doubt", epoch=own, doubted=epoch, claimed=claimed, until=round(self._until - now, 3))
        self._tracker._started().disbelieve(epoch, max(self._until - now, 0.001))

    def trust(self) -> None:
        """A state was loaded: the next doubt is short again."""
        self._doubts = 0
