"""Values that end at a time."""

from __future__ import annotations

import heapq
from contextlib import contextmanager
from typing import Dict, Generic, Iterator, List, Optional, Tuple, TypeVar

from hivemind_c.dht.values import DHTExpiration, ValueWithExpiration, get_dht_time

KeyType = TypeVar("KeyType")
ValueType = TypeVar("ValueType")
MAX_DHT_TIME_DISCREPANCY_SECONDS = 3.0  #: of hivemind; here clocks may be an hour apart


class TimedStorage(Generic[KeyType, ValueType]):
    """A dict whose values are gone once their time has come.

    Args:
        maxsize: Largest number of values; if there are more, those that end first are dropped. None: no limit.
    """

    frozen = False  #: while True nothing is dropped

    def __init__(self, maxsize: Optional[int] = None):
        self.maxsize = float("inf") if maxsize is None else maxsize
        self.data: Dict[KeyType, ValueWithExpiration] = {}
        self._ends: List[Tuple[DHTExpiration, int, KeyType]] = []
        self._count = 0

    def _drop(self) -> None:
        now = get_dht_time()
        while self._ends and not self.frozen and (self._ends[0][0] < now or len(self.data) > self.maxsize):
            end, _, key = heapq.heappop(self._ends)
            if key in self.data and self.data[key].expiration_time == end:
                del self.data[key]

    def store(self, key: KeyType, value: ValueType, expiration_time: DHTExpiration) -> bool:
        """Stores a value. False: it has expired already, or a value that expires later is there.

        Args:
            key: The key.
            value: The value.
            expiration_time: Moment in get_dht_time() at which the value ends.
        """
        if expiration_time < get_dht_time() and not self.frozen:
            return False
        there = self.data.get(key)
        if there is not None and there.expiration_time >= expiration_time:
            return False
        self._count += 1
        heapq.heappush(self._ends, (expiration_time, self._count, key))
        self.data[key] = ValueWithExpiration(value, expiration_time)
        self._drop()
        return key in self.data

    def get(self, key: KeyType) -> Optional[ValueWithExpiration]:
        """Returns (value, expiration_time) of a key, or None.

        Args:
            key: The key.
        """
        self._drop()
        return self.data.get(key)

    def items(self) -> Iterator[Tuple[KeyType, ValueWithExpiration]]:
        """Returns an iterator of (key, (value, expiration_time))."""
        self._drop()
        return iter(list(self.data.items()))

    def top(self) -> Tuple[Optional[KeyType], Optional[ValueWithExpiration]]:
        """Returns the key and value that end first, or (None, None)."""
        self._drop()
        while self._ends:
            end, _, key = self._ends[0]
            there = self.data.get(key)
            if there is not None and there.expiration_time == end:
                return key, there
            heapq.heappop(self._ends)
        return None, None

    def clear(self) -> None:
        """Drops all values."""
        self.data.clear()
        self._ends.clear()

    @contextmanager
    def freeze(self) -> Iterator["TimedStorage[KeyType, ValueType]"]:
        """A context in which no value is dropped."""
        before, self.frozen = self.frozen, True
        try:
            yield self
        finally:
            self.frozen = before

    def __contains__(self, key: KeyType) -> bool:
        self._drop()
        return key in self.data

    def __len__(self) -> int:
        self._drop()
        return len(self.data)

    def __delitem__(self, key: KeyType) -> None:
        del self.data[key]

    def __bool__(self) -> bool:
        return bool(self.data)

    def __repr__(self) -> str:
        return f"TimedStorage({self.data})"


__all__ = ["DHTExpiration", "MAX_DHT_TIME_DISCREPANCY_SECONDS", "TimedStorage", "ValueWithExpiration", "get_dht_time"]
