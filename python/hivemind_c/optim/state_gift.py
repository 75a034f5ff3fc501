"""StateGift: a trainer that nobody can dial sends its states to a hub that asks for them."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, List, Optional

from _hivemind_c import HivemindError

from hivemind_c._log import begin
from hivemind_c.averaging import gifts
from hivemind_c.averaging.image import Image, block_of

if TYPE_CHECKING:
    from hivemind_c.optim.state_averager import TrainingStateAverager

logger = logging.getLogger("hivemind_c.optim")
ASK_S = 1.0  #: between two questions whether a hub asks
SEND_S = 60.0  #: the longest time for one parcel


class StateGift:
    """Reads requests of hubs, and answers one at a time in a thread of its own.

    Args:
        dht: A DHT that runs, on a node that only dials out.
        run_id: Name of the run.
        now: Returns the time in seconds, from any beginning.
    """

    def __init__(self, dht: Any, run_id: str, now: Callable[[], float] = time.monotonic):
        self._dht, self._run_id, self._now = dht, run_id, now
        self._next, self._asked = 0.0, None  # type: ignore[var-annotated]
        self._request: Optional[gifts.Request] = None
        self._meeting: List[gifts.Request] = []  # of hubs that wait for the state without a record in the DHT
        self._least = 0  # oldest epoch that was not sent
        self._not_before = 0.0  # when the next state may be sent
        self._sender: Optional[threading.Thread] = None
        self._ended = threading.Event()

    def look(self) -> None:
        """Takes the answer of the DHT that has come, and asks again when it is time. Waits for nothing."""
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self._request = next(iter(gifts.requests_to(self._dht.peer_id, asked.result(0))), None)
        if self._asked is None and self._now() >= self._next:
            self._next = self._now() + ASK_S
            self._asked = self._dht.get(gifts.key_of(self._run_id), latest=True, return_future=True)

    def meet(self, hubs: List[str], ticket: bytes, epoch: int) -> None:
        """Has the state of an epoch sent to hubs that expect it, because peers of their group lack it.

        Args:
            hubs: IDs of the hubs.
            ticket: The ticket under which they expect it.
            epoch: The epoch.
        """
        known = {self._request.hub: self._request.size_max} if self._request is not None else {}
        own = self._dht.peer_id
        self._meeting = [
            gifts.Request(hub, own, ticket, epoch, 1, known.get(hub, gifts.UNASKED_MAX)) for hub in hubs
        ]

    def is_wanted(self, epoch: int) -> bool:
        """True if a hub waits for the state of this epoch.

        Args:
            epoch: Number of the epoch.
        """
        request, sender = self._request, self._sender
        if any(epoch >= meeting.least for meeting in self._meeting):
            return True
        is_free = (sender is None or not sender.is_alive()) and self._now() >= self._not_before
        return request is not None and is_free and epoch >= max(request.least, self._least)

    def give(self, averager: "TrainingStateAverager", epoch: int) -> None:
        """Sends a copy of the state to the hub that waits for it, in the background.

        Args:
            averager: The averager of the state.
            epoch: Number of the epoch whose beginning the state is.
        """
        meeting, self._meeting = self._meeting, []
        requests = [one for one in meeting or [self._request] if one is not None]
        if not requests:
            return
        self._least = epoch + max(1, requests[0].every)
        metadata, tensors, infos = averager.get_current_state()
        image = averager._shared().image(epoch, tensors, metadata, infos, averager._n_own)
        for request in requests:
            if image.size > request.size_max:
                logger.info("the hub %s does not keep this state: it is larger than the hub's --memory", request.hub)
        requests = [one for one in requests if image.size <= one.size_max]
        self._sender = begin("hivemind_c gift", lambda: self._send_all(requests, image), self._ended.set)

    def _send_all(self, requests: List[gifts.Request], image: Image) -> None:
        for request in requests:
            self._send(request, image)

    def _send(self, request: gifts.Request, image: Image) -> None:
        begun = self._now()
        total = sum(len(piece) for piece in block_of(self._run_id, image))
        try:
            for parcel in gifts.parcels_of(request.ticket, block_of(self._run_id, image), total):
                if self._ended.is_set():
                    return
                self._dht._node.send(request.hub, parcel, SEND_S)
        except HivemindError as error:
            logger.info("could not send the state of epoch %d to the hub %s: %s", image.epoch, request.hub, error)
        self._not_before = self._now() + gifts.REST * (self._now() - begun)

    def end(self) -> None:
        """Sends nothing any more."""
        self._ended.set()
