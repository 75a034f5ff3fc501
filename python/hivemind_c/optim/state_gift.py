"""StateGift: a trainer that nobody can dial gives its states to hubs.

When one is given is the machine's decision (csrc/core/epoch/epoch_offer.c); csrc/core/state/giver.h has the rules of
the way.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from hivemind_c.averaging import DecentralizedAverager


class StateGift:
    """Hears a hub that asks for a state, and gives one at a time.

    Args:
        dht: A DHT that runs, on a node that only dials out.
        run_id: Name of the run.
    """

    def __init__(self, dht: Any, run_id: str):
        self._dht, self._key = dht, f"{run_id}_state_averager".encode()
        self._asked: Any = None  # a future: the oldest epoch that a hub asks for
        self._is_told = False  # that hub waits; the next one is heard when it has its state

    def take_request(self) -> Optional[int]:
        """Returns the oldest epoch whose state a hub asks for, once for each request. It waits for none."""
        if self._is_told:
            return None
        if self._asked is None or self._asked.done() and self._asked.exception(0) is not None:
            self._asked = self._dht.core.gift_wait(self._key)
        if not self._asked.done() or self._asked.exception(0) is not None:
            return None
        self._is_told = True
        return self._asked.result(0)

    def give(
        self,
        averager: DecentralizedAverager,
        epoch: int,
        made: Any,
        hubs: Tuple[str, ...] = (),
        ticket: bytes = b"",
    ) -> None:
        """Gives a copy of the state in the background.

        Args:
            averager: The averager of the state.
            epoch: Number of the swarm epoch whose beginning the state is.
            made: The copy.
            hubs: IDs of the hubs that expect it. (): the one that has asked.
            ticket: The ticket under which they expect it.
        """
        if self._is_told:
            self._asked, self._is_told = None, False
        averager.give_state(self._dht.core, epoch, made, hubs, ticket)
