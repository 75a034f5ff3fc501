"""A cache of the news that the peers of a run publish, asked for no more often than they publish it.

Peers of a large swarm publish seldom, so a look asks for some of them only. No look waits long: it takes the answers
that have come, and a later one takes the rest.
"""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Tuple

from hivemind_c.dht.news import News, ask, key_of, keys, period_s, read_all

ASKED = 3  #: times that a key is asked for while its peers tell once
WAIT_S = 0.3  #: that a look waits for answers
GIVE_UP_S = 15.0  #: after so long an answer is waited for no more
Told = List[Tuple[str, News, float]]


class NewsCache:
    """The news of all peers, at most a third of their own period late.

    A peer that is missing in the answer for its key has left. A peer that could not be asked for stays for GIVE_UP_S
    beyond its lease, because the network of the monitor may fail for some seconds.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
    """

    def __init__(self, dht: Any, run_id: str):
        self._dht, self._run_id = dht, run_id
        # when it was answered; what, and when that was said
        self._of: Dict[str, Tuple[float, Told]] = {key: (-math.inf, []) for key in keys(run_id)}
        self._under_way: Dict[str, Tuple[float, Any]] = {}
        self._looked = -math.inf

    @property
    def whole(self) -> bool:
        """Whether all keys have been answered once."""
        return all(answered > -math.inf for answered, _ in self._of.values())

    def look(self, now: float, asking: bool = True) -> Told:
        """(peer ID, news, seconds since they were said) of each. now: seconds of a clock that only goes on. Not asking:
        what is known.
        """
        if asking:
            for key in self._due(now):
                self._under_way[key] = now, ask(self._dht, key)
            self._take(now)
        self._looked = now
        aged = ((peer, news, now - said) for _, told in self._of.values() for peer, news, said in told)
        return [(peer, news, age) for peer, news, age in aged if age <= news.lease + GIVE_UP_S]

    def _take(self, now: float) -> None:
        until, pause = time.monotonic() + WAIT_S, 0.001
        while any(not reply.done() for _, reply in self._under_way.values()) and time.monotonic() < until:
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
        for key, (asked, reply) in list(self._under_way.items()):
            came = reply.done()
            if not came and now - asked < GIVE_UP_S:
                continue
            del self._under_way[key]
            if not came:
                reply.cancel()
            found = reply.result(0) if came else None
            if found is None:  # each stays, for a while
                self._of[key] = now, self._of[key][1]
            else:
                self._of[key] = now, [(peer, news, now - age) for peer, news, age in read_all(self._run_id, key, found)]

    def _due(self, now: float) -> List[str]:
        """Those that were answered longest ago, a few in each look, so that no look costs much."""
        after = period_s(sum(len(told) for _, told in self._of.values())) / ASKED
        share = (now - self._looked) / after
        most = len(self._of) if share >= 1 else max(1, math.ceil(share * len(self._of)))
        due = sorted(
            (answered, key)
            for key, (answered, _) in self._of.items()
            if now - answered >= after and key not in self._under_way
        )
        return [key for _, key in due[:most]]
