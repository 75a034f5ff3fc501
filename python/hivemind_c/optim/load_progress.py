"""LoadProgress: how far a peer that was absent is, for the log, the progress bar and the monitor."""

from __future__ import annotations

import logging
import math
from collections import deque
from typing import Callable, Deque, NamedTuple, Optional, Tuple, Union

logger = logging.getLogger("hivemind_c.optim")
LEFT_MAX = 1e9  #: seconds left that are told
LINE_S, RECENT_S = 10.0, 20.0  #: between two lines of the log; over which a rate is measured


class Loading(NamedTuple):
    """A download of the state at one moment."""

    part: float  #: that is here, from 0 to 1
    rate: float  #: bytes per second, lately
    left_s: float  #: seconds until all is here at that rate; infinite: nothing comes

    def __str__(self) -> str:
        left = f"{self.left_s:.0f} s left" if math.isfinite(self.left_s) else "nothing comes"
        return f"{self.part:.0%} at {8e-6 * self.rate:.3g} Mbit/s, {left}"


class Repeating(NamedTuple):
    """A peer that makes the steps of others again (docs/design/log.md), at one moment."""

    epoch: int  #: swarm epoch whose step is next
    swarm: int  #: that of the swarm
    part: float  #: of the average for that step, from 0 to 1

    def __str__(self) -> str:
        return f"swarm epoch {self.epoch} of {self.swarm}, {self.part:.0%} of its average"


class LoadProgress:
    """Follows downloads of states, and steps that are repeated. Only the training thread calls it; any may read `now`.

    Args:
        clock: A function that returns seconds.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._seen: Deque[Tuple[float, int]] = deque()  # when, and bytes that were here
        self._epoch, self._line_at, self._size = 0, -math.inf, 0
        #: what is under way. None: nothing, or the size of the state is not known
        self.now: Union[None, Loading, Repeating] = None
        self.show: Callable[[], None] = lambda: None  #: called after each look

    @property
    def size(self) -> int:
        """Bytes of the latest download, as they travel. 0: not known."""
        return self._size

    def said(self) -> Tuple[float, ...]:
        """Returns the download under way as a peer's news have it: part, rate and seconds left. None: ()."""
        now = self.now
        return (now.part, now.rate, min(now.left_s, LEFT_MAX)) if isinstance(now, Loading) else ()

    def look(self, epoch: int, came: int, size: int, donors: int) -> None:
        """Takes the figures of the download under way.

        Args:
            epoch: Swarm epoch of the state.
            came: Bytes that are here.
            size: Bytes of all. 0: not known.
            donors: Peers that send.
        """
        if not size:
            return
        now = self._clock()
        if self._seen and (epoch != self._epoch or came < self._seen[-1][1]):
            self._seen.clear()  # another state
        self._epoch, self._size = epoch, size
        self._seen.append((now, came))
        while len(self._seen) > 2 and self._seen[0][0] < now - RECENT_S:
            self._seen.popleft()
        since, before = self._seen[0]
        rate = (came - before) / (now - since) if now > since else 0.0
        self.now = Loading(came / size, rate, (size - came) / rate if rate else math.inf)
        if rate and now - self._line_at >= LINE_S:
            self._line_at = now
            logger.info(
                "loading the state of swarm epoch %d, %.3g MB from %d peers: %s", epoch, size / 1e6, donors, self.now
            )
        self.show()

    def repeat(self, epoch: int, swarm: int, come: int, size: int) -> None:
        """Takes the figures of a step that is to be made again.

        Args:
            epoch: Swarm epoch of the step.
            swarm: That of the swarm.
            come: Bytes of its average that are here.
            size: All bytes of it. 0: not known.
        """
        self.now = Repeating(epoch, swarm, come / size if size else 0.0)
        self.show()

    def end(self) -> None:
        """The download is over, or all steps are made."""
        if self.now is None:
            return
        self._seen.clear()
        self.now, self._line_at = None, -math.inf
        self.show()
