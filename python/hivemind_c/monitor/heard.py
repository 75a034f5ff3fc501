"""What a run's peers have told, asked for no more often than they tell it: a large swarm's peers tell seldom, so a look asks for some of them only."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Tuple

from hivemind_c.dht.news import News, gather, key_of, keys, period_s

ASKED = 3  #: times that a key is asked for while its peers tell once
Told = List[Tuple[str, News, float]]


class Heard:
    """All peers' news, at most a third of their own period late; who has not told for its lease is gone."""

    def __init__(self, dht: Any, run_id: str):
        self._dht, self._run_id = dht, run_id
        self._of: Dict[str, Tuple[float, Told]] = {key: (-math.inf, []) for key in keys(run_id)}
        self._looked = -math.inf

    def look(self, now: float) -> Told:
        """(peer ID, news, seconds since they were said) of each. now: seconds of a clock that only goes on."""
        fresh: Dict[str, Told] = {key: [] for key in self._due(now)}
        if fresh:
            for peer, news, age in gather(self._dht, self._run_id, list(fresh)):
                fresh[key_of(self._run_id, peer)].append((peer, news, age))
        for key, told in fresh.items():
            self._of[key] = (now, told)
        aged = ((peer, news, age + now - asked) for asked, told in self._of.values() for peer, news, age in told)
        return [(peer, news, age) for peer, news, age in aged if age <= news.lease]

    def _due(self, now: float) -> List[str]:
        """Those that were asked for longest ago, a few in each look, so that no look costs much."""
        after = period_s(sum(len(told) for _, told in self._of.values())) / ASKED
        share, self._looked = (now - self._looked) / after, now
        most = len(self._of) if share >= 1 else max(1, math.ceil(share * len(self._of)))
        due = sorted((asked, key) for key, (asked, _) in self._of.items() if now - asked >= after)
        return [key for _, key in due[:most]]
