"""Lanes: orders of the machine that are to be carried out: before step() returns, or while the program trains on."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Optional, Tuple

from hivemind_c.optim.order import Order

NOW, LATE = 0, 1  #: lanes


class Lanes:
    """The orders of both lanes, as the machine's answers to events have brought them.

    Only the thread of a lane adds to it. Two threads may take orders: shutdown() may come from any thread.
    """

    def __init__(self) -> None:
        self._left: Tuple[Deque[Order], Deque[Order]] = deque(), deque()
        self._are_last = [True, True]  # no order comes behind these, unless another event brings it

    def hear(self, lane: int, answer: Any) -> None:
        """Takes the orders that follow from an event.

        Args:
            lane: The lane of the thread.
            answer: The machine's answer to the event.
        """
        orders, self._are_last[lane] = answer or ((), True)
        self._left[lane].extend(Order(*order) for order in orders)

    def next(self, lane: int) -> Optional[Order]:
        """Takes the next order. None: there is none, but is_waiting() may be true.

        Args:
            lane: The lane.
        """
        try:
            return self._left[lane].popleft()
        except IndexError:
            return None

    def has(self, lane: int) -> bool:
        """True if there is an order.

        Args:
            lane: The lane.
        """
        return bool(self._left[lane])

    def is_waiting(self, lane: int) -> bool:
        """True if there is no order, and the machine is to bring one.

        Args:
            lane: The lane.
        """
        return not self._left[lane] and not self._are_last[lane]
