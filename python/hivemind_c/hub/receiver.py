"""The states that a hub asks trainers for, because it cannot dial them."""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from _hivemind_c import HivemindError, HivemindTimeoutError

from hivemind_c._log import begin
from hivemind_c._record import short
from hivemind_c.averaging import gifts
from hivemind_c.averaging.image import block_size_max, read_block
from hivemind_c.averaging.marks import Member, ticket_of, view_of
from hivemind_c.dht import news
from hivemind_c.hub.keeper import Keeper

logger = logging.getLogger("hivemind_c.hub")
LOOK_S = 1.0  #: between two looks at a run
PATIENCE_S = 60.0  #: of a trainer that was asked and sends nothing, in which an epoch should end
STORE_S = 5.0  #: between two stores of a request
TURN_S = 120.0  #: for which one trainer is asked
SOON_S = 3.0  #: in which a trainer sends the state of an epoch that has begun, if its line is fast


class Asked:
    """The requests of a hub for one run.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        keeper: The Keeper of the run.
        arrivals: The blocks that arrive at this hub.
    """

    def __init__(self, dht: Any, run_id: str, keeper: Keeper, arrivals: gifts.Arrivals):
        self._dht, self.run_id, self._keeper, self._arrivals = dht, run_id, keeper, arrivals
        self.request: Optional[gifts.Request] = None
        # when the trainer was asked, when bytes came, when the record was stored
        self._asked_at = self._since = self._stored = 0.0
        self._seen = 0  # bytes of the block
        self._given = 0  # the epoch of the state before, or of the trainer when it was asked
        # when the first bytes of the block came, and how long the trainer sends nothing after a state
        self._begun = self._rest = 0.0
        self._failed: Set[str] = set()  # trainers that were asked and gave nothing, until no other is left
        self._right: Set[str] = set()  # peers of the latest round that have the swarm's replica
        self._turn = threading.RLock()  # of the threads that look, average and receive
        self._level_at = 0.0  # when no trainer was known to be ahead of the one that is asked

    def run(self, ended: threading.Event) -> None:
        """Asks whenever only trainers that cannot be dialled have a newer state, until ended is set.

        Args:
            ended: The end.
        """
        while not ended.wait(LOOK_S):
            try:
                trainers = self._trainers()
                with self._turn:
                    self._look(trainers)
            except HivemindError as error:
                logger.debug("%s: could not ask for a state: %s", self.run_id, error)

    def _trainers(self) -> List[Tuple[str, str, int]]:
        """(ID, role, epoch) of each trainer."""
        told = news.gather(self._dht, self.run_id)
        return [(peer, one.role, one.epoch) for peer, one, _ in told if one.role != "auxiliary"]

    def _look(self, trainers: List[Tuple[str, str, int]]) -> None:
        now, request = time.monotonic(), self.request
        are_clients = bool(trainers) and all(role == "client" for _, role, _ in trainers)
        if request is not None:
            arrived = self._arrivals.arrived(request)
            if arrived != self._seen:
                self._seen, self._since = arrived, now
                self._begun = self._begun or now
            epoch = next((epoch for peer, _, epoch in trainers if peer == request.giver), None)
            newest = max((epoch for peer, _, epoch in trainers if peer not in self._failed), default=0)
            if epoch is None or epoch >= newest:
                self._level_at = now
            # it has begun epochs and not given their state, or does not keep up: another replica is the run's
            has_passed = epoch is None or epoch > self._given + 2 and now - self._since > SOON_S + self._rest
            has_failed = has_passed or now - self._level_at > SOON_S + self._rest
            is_over = now - self._asked_at > TURN_S or not are_clients
            if now - self._since > PATIENCE_S + self._rest or not arrived and has_failed:
                self._failed.add(request.giver)
                self.end_request()
            elif not arrived and is_over:
                self.end_request()
        # the state of an epoch is that of its beginning: a trainer has one once it has made a step
        able = [(peer, epoch) for peer, _, epoch in trainers if epoch >= max(1, self._keeper.least)]
        if self.request is None and able and are_clients and self._keeper.has_room:
            giver, self._given = self._choose(able)
            self._ask(giver)
        if self.request is not None and now - self._stored > STORE_S:
            self._stored = now
            self.request = self.request._replace(least=max(1, self._keeper.least))
            gifts.store(self._dht, self.run_id, self.request)

    def _choose(self, able: List[Tuple[str, int]]) -> Tuple[str, int]:
        """Returns one of the trainers in the newest epoch: others may wait for the very state that the hub needs."""
        able = [one for one in able if one[0] in self._right] or able  # others are about to load the state
        untried = [one for one in able if one[0] not in self._failed]
        if not untried:
            self._failed.clear()
        newest = max(epoch for _, epoch in untried or able)
        return random.choice([one for one in untried or able if one[1] == newest])

    def _ask(self, giver: str) -> None:
        least, every, size = max(1, self._keeper.least), self._keeper.every, self._keeper.size_max
        self._expect(gifts.new_request(self._dht.peer_id, giver, least, every, size))

    def met(self, epoch: int, members: Sequence[Member]) -> None:
        """Takes the words of a round of gradients. If peers lack the swarm's state, it expects that of the giver.

        Args:
            epoch: The epoch that the round ended.
            members: The members of the group.
        """
        with self._turn:
            view = view_of(members)
            self._right, giver = set(view.right), view.giver
            if giver is not None:
                self.end_request()
                ticket, every, size = ticket_of(epoch, members), self._keeper.every, self._keeper.size_max
                self._given = epoch
                self._expect(gifts.Request(self._dht.peer_id, giver, ticket, epoch + 1, every, size))

    def _expect(self, request: gifts.Request) -> None:
        now = time.monotonic()
        self._keeper.record("ask", giver=short(request.giver), least=request.least)
        self.request, self._since, self._asked_at, self._stored, self._seen = request, now, now, 0.0, 0
        self._begun = self._rest = 0.0
        self._level_at = now
        self._arrivals.expect(request, block_size_max(request.size_max))

    def end_request(self) -> None:
        """Waits for that block no longer."""
        if self.request is not None:
            self._arrivals.forget(self.request)
        self.request = None

    def take(self, block: bytearray) -> None:
        """Keeps the state in the block that came.

        Args:
            block: The bytes.
        """
        with self._turn:
            now, giver = time.monotonic(), self.request.giver if self.request is not None else "?"
            self._rest = (gifts.REST + 1) * (now - (self._begun or now))
            self._since, self._seen, self._begun = now, 0, 0.0
            try:
                image = read_block(block, self.run_id, self._keeper.size_max)
                self._given = image.epoch
                if self._keeper.has_room:
                    self._keeper.take(image)
            except (ValueError, HivemindError) as error:
                logger.warning("%s: refusing the state that peer %s sent: %s", self.run_id, giver, error)
                self._failed.add(giver)
                self.end_request()


class Receiver:
    """Takes the parcels that arrive at a hub, of all its runs.

    Args:
        dht: A DHT that runs.
    """

    def __init__(self, dht: Any):
        self._dht, self.arrivals = dht, gifts.Arrivals()
        self._runs: Dict[str, Asked] = {}
        self._ended, self._thread = threading.Event(), None  # type: ignore[var-annotated]

    def add(self, run_id: str, keeper: Keeper) -> Asked:
        """Returns the requests for a run.

        Args:
            run_id: Name of the run.
            keeper: The Keeper of the run.
        """
        asked = self._runs[run_id] = Asked(self._dht, run_id, keeper, self.arrivals)
        return asked

    def start(self) -> None:
        """Begins to take parcels, in a thread, until the DHT is shut down. May be called again."""
        if self._thread is None:
            self._thread = begin("hivemind_c hub receiver", self._run, self._ended.set)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                sender, parcel = self._dht._node.receive(1.0)
            except HivemindTimeoutError:
                continue
            except HivemindError:
                return  # the node has ended
            ticket = self.arrivals.add(str(sender), parcel)
            del parcel
            if ticket is None:
                continue
            block = self.arrivals.take(ticket)
            for asked in list(self._runs.values()):
                request = asked.request  # another thread may end it
                if block is not None and request is not None and request.ticket == ticket:
                    asked.take(block)
            del block
