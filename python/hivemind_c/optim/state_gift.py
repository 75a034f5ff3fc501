"""StateGift: a trainer that nobody can dial gives its states to a hub that asks for them.

The rules are the core's (csrc/core/state/giver.h).
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

from hivemind_c.averaging import DecentralizedAverager


class Meeting(NamedTuple):
    """Hubs that expect a state without a request, because peers of their group lack it."""

    hubs: List[str]  #: their IDs
    ticket: bytes  #: under which they expect it
    epoch: int


class StateGift:
    """Knows whether a hub asks for a state, and gives one at a time.

    Args:
        dht: A DHT that runs, on a node that only dials out.
        run_id: Name of the run.
    """

    def __init__(self, dht: Any, run_id: str):
        self._dht, self._key = dht, f"{run_id}_state_averager".encode()
        self._asked: Any = None  # a future: the oldest epoch that a hub asks for
        self._meeting: Optional[Meeting] = None

    def look(self) -> None:
        """Begins to wait for a hub's request. Waits for nothing itself."""
        if self._asked is None or self._asked.done() and self._asked.exception(0) is not None:
            self._asked = self._dht.core.gift_wait(self._key)

    def meet(self, hubs: List[str], ticket: bytes, epoch: int) -> None:
        """Has the state of a swarm epoch given to hubs that expect it, because peers of their group lack it.

        Args:
            hubs: IDs of the hubs.
            ticket: The ticket under which they expect it.
            epoch: The swarm epoch.
        """
        self._meeting = Meeting(hubs, ticket, epoch) if hubs else None

    def is_wanted(self, epoch: int) -> bool:
        """True if a hub waits for the state of this swarm epoch.

        Args:
            epoch: Number of the swarm epoch.
        """
        meeting, asked = self._meeting, self._asked
        if meeting is not None and epoch >= meeting.epoch:
            return True
        is_asked = asked is not None and asked.done() and asked.exception(0) is None
        return is_asked and epoch >= asked.result(0)

    def give(self, averager: DecentralizedAverager, epoch: int, made: Any) -> None:
        """Gives a copy of the state to the hub that waits for it, in the background.

        Args:
            averager: The averager of the state.
            epoch: Number of the swarm epoch whose beginning the state is.
            made: The copy.
        """
        meeting, self._meeting = self._meeting, None
        expected = (tuple(meeting.hubs), meeting.ticket) if meeting is not None else ()
        averager.give_state(self._dht.core, epoch, made, *expected)
        if meeting is None:
            self._asked = None
            self.look()
