"""ReachCheck: a trainer that nobody can dial looks whether its run has a peer that can be dialled.

Nobody can dial a client, nor a peer behind a NAT without an open port (docs/design/reach.md).
"""

from __future__ import annotations

import logging
import math
import time
import weakref
from typing import Any, Callable, List, Tuple

from hivemind_c.dht.news import ask, keys, read_all

logger = logging.getLogger("hivemind_c.optim")
FIRST_S, ALONE_S, PERIOD_S = 3.0, 3.0, 60.0  #: seconds until the first look, to the next while alone, and later
OPENING_S = 12.0  #: seconds that a router may take to open the port of a peer behind it


class ReachCheck:
    """Asks the DHT for the roles of the other peers now and then, and waits for no answer.

    Args:
        dht: A DHT that runs. It is not kept alive: its user's thread may outlive the program's last variable.
        run_id: Name of the run.
        now: Returns the time in seconds, from any beginning.
    """

    def __init__(self, dht: Any, run_id: str, now: Callable[[], float] = time.monotonic):
        self._of, self._run_id, self._now = weakref.ref(dht), run_id, now
        self.is_client = bool(dht.client_mode)  #: nobody can dial this peer
        self._next, self._hidden_since = now() + FIRST_S, math.inf
        self._asked: List[Tuple[str, Any]] = []
        self._has_warned = False

    def look(self) -> None:
        """Takes the answers if all have come, and asks again when it is time."""
        dht = self._of()
        if dht is None:
            return
        if self._asked:
            if all(reply.done() for _, reply in self._asked):
                self._take(dht.peer_id)
        elif self._now() >= self._next:
            self._look_at_own_door(dht)
            if not self.is_client:
                self._next = self._now() + ALONE_S
                return
            self._asked = [(key, ask(dht, key)) for key in keys(self._run_id)]

    def _look_at_own_door(self, dht: Any) -> None:
        if dht.client_mode:
            return
        hidden_since = min(self._hidden_since, self._now())
        self._hidden_since = hidden_since if dht.state()["is_hidden"] else math.inf
        self.is_client = self._now() - self._hidden_since >= OPENING_S

    def _take(self, own: str) -> None:
        asked, self._asked = self._asked, []
        self._next = self._now() + ALONE_S
        roles = [
            news.role
            for key, reply in asked
            for peer, news, _ in read_all(self._run_id, key, reply.result(0))
            if peer != own
        ]
        if not roles:
            return  # alone: there is nobody to average with
        self._next = self._now() + PERIOD_S
        can_be_dialled = any(role != "client" for role in roles)
        if not can_be_dialled and not self._has_warned:
            logger.warning(
                "this peer cannot average: nobody can dial it, nor any of the %d other peers of the run; run "
                "'hivemind-hub --run_id %s' on a machine that all of them can reach, and give its address as "
                "initial_peers",
                len(roles),
                self._run_id,
            )
        self._has_warned = not can_be_dialled
