"""The state that an averager gives to joining peers, and takes from the swarm when it joins itself."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c._log import aside
from hivemind_c.averaging.base import AveragerBase
from hivemind_c.averaging.on_demand import OnDemandDonor, load_on_demand
from hivemind_c.averaging.state import StateSharing
from hivemind_c.compression import arrays
from hivemind_c.compression.base import CompressionBase, CompressionInfo

logger = logging.getLogger("hivemind_c.averaging")
State = Tuple[Any, List[Any]]
Made = Tuple[Any, List[Any], Optional[List[CompressionInfo]]]  # of get_current_state(); infos may be missing
PART_ALIGN = 64  #: bytes: where each tensor of a state begins in memory


class StateExchange(AveragerBase):
    """The part of DecentralizedAverager that offers a state to joining peers, and loads one when it joins itself.

    A subclass that shares more than its tensors overrides get_current_state().
    """

    _state_compression: CompressionBase
    _declare_state_period: float
    _allow_state_sharing: bool
    _sharing: Optional[StateSharing] = None
    _on_demand = True  # a class that says when its state may be offered has False
    _by_hand = False  # the program says so
    _n_own = 0  # of the last state of get_current_state(), the last tensors whose values are this peer's own
    _answers: Optional[OnDemandDonor] = None
    watch_load: Optional[Callable[[int, int, int, int], None]] = None  #: as `watch` of StateSharing.load()

    def get_current_state(self) -> Tuple[Any, Sequence[Any], Sequence[CompressionInfo]]:
        """Returns (metadata, tensors, infos) for a joining peer.

        Metadata has types of MessagePack, and is the same at all peers whose state is the same.
        """
        with self.get_tensors() as tensors:
            copies = [tensor.detach().clone() if arrays.is_tensor(tensor) else _as_tensor(tensor) for tensor in tensors]
        return {"group_key": self.prefix}, copies, self._tensors.infos

    def _state_lineage(self) -> bytes:
        """How that state came about, in 16 bytes; none: it is not known."""
        return b""

    def share_state(self, epoch: int = 0, wait: bool = True) -> None:
        """Offers the result of get_current_state() to joining peers, in place of an earlier offer.

        Nothing happens while allow_state_sharing is False. Before the first call the averager offers its state whenever
        a joining peer asks for it.

        Args:
            epoch: Number of the state. Joining peers take the newest one that a majority of the peers names.
            wait: Return once the offer is made.
        """
        self._by_hand = True
        self._end_answers()
        if self._allow_state_sharing:
            self.offer_state(self.make_state(), epoch, wait)

    def make_state(self) -> Made:
        """Returns the result of get_current_state() as offer_state() takes it."""
        metadata, tensors, *infos = self.get_current_state()
        return metadata, list(tensors), list(infos[0]) if infos and infos[0] is not None else None

    def offer_state(
        self, made: Made, epoch: int, wait: bool = True, lineage: Optional[bytes] = None
    ) -> Union[bytes, _hivemind_c.Future]:
        """Offers a state to joining peers, as StateSharing.offer() does.

        Args:
            made: Result of make_state().
            epoch: Number of the state.
            wait: False: return a future of the digest at once.
            lineage: 16 bytes that name the history of the state. None: that of this peer's.
        """
        metadata, tensors, infos = made
        lineage = self._state_lineage() if lineage is None else lineage
        return self._shared().offer(
            epoch, tensors, metadata, infos=infos, wait=wait, lineage=lineage, n_own=self._n_own
        )

    def give_state(
        self, node: Any, epoch: int, made: Made, hubs: Tuple[str, ...] = (), ticket: bytes = b""
    ) -> _hivemind_c.Future:
        """Gives a state to hubs, as StateSharing.give() does.

        Args:
            node: The core's node of a trainer that only dials out.
            epoch: Number of the state.
            made: Result of make_state().
            hubs: IDs of hubs that expect it under this ticket. (): the hub that has asked.
            ticket: The ticket.
        """
        (metadata, tensors, infos), sharing = made, self._shared()
        image = sharing.image(epoch, tensors, metadata, infos, self._n_own)
        return sharing.give(node, image, self._state_lineage(), hubs, ticket)

    @property
    def shares_on_demand(self) -> bool:
        """True while joining peers get the state as it is when they ask, which ends with the first share_state()."""
        return self._on_demand and self._allow_state_sharing and not self._by_hand

    def load_state_from_peers(
        self, wait: bool = True, timeout: Optional[float] = None, epoch_least: int = 0
    ) -> Union[None, State, "Future[Optional[State]]"]:
        """Returns the state of the swarm as (metadata, tensors), and changes nothing here.

        None means that no peer offers a state or that no donor could be reached, which the log reports.

        Args:
            wait: False: return a concurrent.futures.Future at once.
            timeout: Longest time in seconds in which nothing of it arrives. None: 600.
            epoch_least: Oldest epoch whose state is accepted.
        """
        sharing = self._shared()
        if wait:
            return self._load(sharing, timeout, epoch_least)
        return aside("hivemind_c-load", lambda: self._load(sharing, timeout, epoch_least))

    def _load(
        self, sharing: StateSharing, timeout: Optional[float], epoch_least: int
    ) -> Optional[State]:
        try:
            if self._on_demand and not epoch_least:
                loaded = load_on_demand(sharing, timeout, self.dht.state()["peers"] > 0, **self._limits())
            else:
                loaded = sharing.load(timeout, epoch_least=epoch_least, **self._limits())
        except HivemindError as error:
            logger.warning("%s: could not load the state from peers, keeping this peer's own: %s", self.prefix, error)
            return None
        return loaded.metadata, loaded.tensors

    def _limits(self) -> Dict[str, Any]:
        """The size of a state that this peer can use, a function that refuses others, and one that watches."""
        return dict(
            size_max=self._state_size_max(),
            accept=lambda got: self._check_state(got.metadata, got.tensors),
            watch=self.watch_load,
        )

    def _state_size_max(self) -> int:
        """Most bytes of a state that this peer can use. 0: not known, as where a subclass shares more than its
        tensors.
        """
        return 0 if self._shares_more() else sum(tensor.nbytes + PART_ALIGN for tensor in self._tensors.tensors)

    def _check_state(self, metadata: Any, tensors: Sequence[Any]) -> None:
        """Raises ValueError if this peer cannot use that state."""
        if not self._shares_more():
            check_finite(tensors)

    def _shares_more(self) -> bool:
        return type(self).get_current_state is not StateExchange.get_current_state

    @property
    def allow_state_sharing(self) -> bool:
        """True if joining peers may download the state of this peer."""
        return self._allow_state_sharing

    @allow_state_sharing.setter
    def allow_state_sharing(self, value: bool) -> None:
        if value and (self.client_mode or self.auxiliary):
            raise ValueError(
                "this peer cannot share its state: it is in client mode, where no peer can ask it, or auxiliary, "
                "where it has none"
            )
        self._allow_state_sharing = bool(value)
        if value and self.is_alive():
            self._answer_joiners()
        if not value:
            self._end_answers()
        if not value and self._sharing is not None:
            self._sharing.withdraw()

    @property
    def state_sharing_priority(self) -> float:
        """Priority of this donor. Joining peers ask donors with a higher one first."""
        return self._shared().priority

    @state_sharing_priority.setter
    def state_sharing_priority(self, value: float) -> None:
        self._shared().priority = value

    def _shared(self) -> StateSharing:
        _ = self.core  # an error, unless the averager runs
        if self._sharing is None:
            self._sharing = StateSharing(
                self._node, self.prefix, compression=self._state_compression, declare_period=self._declare_state_period
            )
        return self._sharing

    def _answer_joiners(self) -> None:
        """From now on, where the class leaves it to this one."""
        if self.shares_on_demand and self._answers is None:
            self._answers = OnDemandDonor(self._node.core, self.prefix, self)

    def _end_answers(self) -> None:
        """Gives no state on demand any more. An offer that was made for a joiner stays until another one."""
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.end()

    def look_for_state(self, timeout: Optional[float] = None, epoch_least: int = 0) -> int:
        """Returns the epoch of the state that load_state_from_peers() would download, and downloads nothing.

        Raises HivemindLookupError if no peer offers such a state.

        Args:
            timeout: Longest time in seconds. None: no limit.
            epoch_least: Oldest epoch that is accepted.
        """
        return self._shared().look(timeout, epoch_least=epoch_least)

    def withdraw_state(self) -> None:
        """Offers no state any more. It has no effect if none was offered."""
        if self._sharing is not None:
            try:
                self._sharing.withdraw()
            except HivemindError:
                pass  # the node has ended, and offers nothing any more


def check_finite(tensors: Sequence[Any]) -> None:
    """Raises ValueError if a value of a state is not finite."""
    for i, tensor in enumerate(tensors):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"tensor {i} of the state from a peer has values that are not finite")


def check_as_finite(own: Any, given: Any) -> None:
    """Raises ValueError if a tensor of a state has a value that is not finite, unless it is the same here, as in a mask
    of infinities.
    """
    if given.is_floating_point() and not given.isfinite().all():
        odd = ~given.isfinite()
        if not bool((own.to(given.device, given.dtype)[odd] == given[odd]).all()):
            raise ValueError("an extra tensor of the state from a peer has values that are not finite")


def _as_tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array.copy())
