"""StepLog: the averages of the latest swarm epochs, which this peer keeps for peers that were absent.

docs/design/log.md has the rules.
"""

from __future__ import annotations

import logging
import math
import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c.averaging.marks import view_of
from hivemind_c.optim.listening import Listening
from hivemind_c.optim.order import GRADIENTS, Order
from hivemind_c.optim.run_peer import RunPeer

logger = logging.getLogger("hivemind_c.optim")
STATE_VALUES = 3  #: for each parameter in the state, with the statistics of AdamW
Hear = Callable[[int, Any], None]
ANCHOR_VALUES = 2  #: the same, of an anchor with momentum
VALUE_BYTES = 4  #: of a parameter, in the default of log_memory
SHOW_S = 1.0  #: between two looks at an average that comes


class StepLog:
    """The log of one Optimizer: what it keeps, and the core's log of entries that others keep.

    It ends if the replica becomes another one than these averages make: the mark has moved by something else.

    Args:
        optimizer: The Optimizer, whose averagers exist.
        memory: Most bytes of the averages that are kept. None: those of the model, or of one average if that is more.
    """

    def __init__(self, optimizer: RunPeer, memory: Optional[int]):
        self._averager, self._lineage = optimizer.grad_averager, optimizer.state_averager.lineage
        self.core: Optional[_hivemind_c.StepLog] = None  #: None: this peer's averages cannot be repeated by others
        self._lock = threading.Lock()  # of both lanes
        self._mark = b""  # of the replica that the latest entry leads to; empty: there is no entry
        self._is_stepping = False  # the step of that entry has not moved the mark yet
        #: of an average, and of the state, for the machine; none: this peer repeats no steps
        self.sizes: Dict[str, int] = {}
        self._wanted: Optional[int] = None  # the swarm epoch whose average the machine waits for
        self._until, self._shown = 0, -math.inf  # the swarm's; when the progress was shown
        self._listens = False  # to a round of the others, whose outcome the machine waits for
        self._listening: Optional[Listening] = None  # the step of that round; none: it could not begin
        self._ledger = optimizer.ledger
        averager = self._averager
        if averager is None or optimizer.auxiliary or not averager.averages_once:
            return
        size, model = averager.core.kept_size(), VALUE_BYTES * sum(one.numel() for one in averager.averaged_grads)
        if memory is None:
            memory = max(size, model)
        elif 0 < memory < size:
            logger.warning(
                "log_memory=%d is less than an average, which has %d bytes: none is kept, so peers that miss swarm "
                "epochs have to load the state; raise log_memory, or give 0",
                memory,
                size,
            )
        self.core = _hivemind_c.StepLog(optimizer.dht.core, f"{optimizer.run_id}_state_averager", memory)
        averager.keeps_averages = memory >= size
        values = ANCHOR_VALUES if optimizer.schedule.outer else STATE_VALUES
        self.sizes = dict(entry_bytes=size, state_bytes=values * model)

    def add(self, epoch: int, stamps: Sequence[int]) -> None:
        """The replica, which has not moved yet, is about to step with the average of the latest round.

        Args:
            epoch: The swarm epoch that the step ends.
            stamps: Stamps of the averages.
        """
        self._add(epoch, lambda core, before: core.add(self._averager.core, epoch, before, stamps))

    def add_own(self, epoch: int) -> Tuple[int, ...]:
        """The replica is about to step with this peer's own values, which become what others will have of them.

        Returns the stamp of that step; none: nobody can repeat it.

        Args:
            epoch: The swarm epoch that the step ends.
        """
        stamp = self._add(epoch, lambda core, before: self._averager.keep_own(core, epoch, before))
        return () if stamp is None else (stamp,)

    def broke(self) -> None:
        """The step that was to be made with the latest entry has failed, so nobody may repeat it."""
        if self.core is not None:
            with self._lock:
                self._end()

    def _add(self, epoch: int, adds: Callable[[Any, bytes], Any]) -> Any:
        if self.core is None or not self._averager.keeps_averages:
            return None
        with self._lock:
            before, self._is_stepping = self._lineage.mark, True
            if not before or (self._mark and self._mark != before):
                self._end()
            if not before:
                return None
            try:
                added = adds(self.core, before)
                self._mark = before
                return added
            except HivemindError as error:
                self._end()
                if error.status == "IO":  # of a GPU; the values may be written in part
                    raise
                logger.debug("swarm epoch %d: its average is not kept: %s", epoch, error)
                return None

    def follow(self) -> None:
        """The replica may have moved."""
        if self.core is None or not self._mark:
            return
        with self._lock:
            mark = self._lineage.mark
            if mark == self._mark:
                return
            if self._is_stepping:
                self._mark, self._is_stepping = mark, False
            else:
                self._end()

    # ---- to repeat ----

    def orders(self) -> Dict[str, Callable[[Order, int], None]]:
        """The functions that carry out the machine's orders for the log, by its names."""
        return {
            "WANT": self._want,
            "REFUSE": self._refuse,
        }

    def _want(self, order: Order, lane: int) -> None:
        """Wants the averages from order.epoch to order.number, of which the last order.ask may still be made."""
        self._wanted, self._until = (order.epoch, order.number) if order.number > order.epoch else (None, 0)
        self._shown = -math.inf
        if self.core is not None:
            self.core.want(order.epoch, order.number, order.number - order.ask, order.samples)

    def _refuse(self, order: Order, lane: int) -> None:
        """The average of a swarm epoch does not fit: looks for another one."""
        if self.core is not None:
            self.core.refuse(order.epoch)

    def listen(self, order: Order) -> Optional[Listening]:
        """Listens to the others' round of a swarm epoch. None: it cannot, and the machine hears so at the next poll.

        Args:
            order: The machine's order to look for the group.
        """
        try:
            self._listening = Listening(self._averager, order.epoch, order.wait, order.timeout)
        except HivemindError as error:
            logger.debug("swarm epoch %d: cannot listen to its round: %s", order.epoch, error)
            self._listening = None
        self._listens = True
        return self._listening

    def _hear_round(self, machine: _hivemind_c.Epoch, lane: int, hear: Hear) -> None:
        """If the round to which this peer listens is over, the log has its average, and the machine hears so."""
        listening = self._listening
        if not self._listens or (listening is not None and not listening.done()):
            return
        self._listens, self._listening = False, None
        status, parts = ("TIMEOUT", ()) if listening is None else listening.outcome()
        before = view_of(listening.members()).swarms if listening is not None and parts else None
        if listening is not None and before is not None and listening.stamp:
            try:
                self.core.hear(self._averager.core, listening.epoch, before, (listening.stamp,))
            except HivemindError as error:
                logger.debug("swarm epoch %d: its average is not there: %s", listening.epoch, error)
        hear(lane, machine.round(lane, GRADIENTS, status, parts)[2])

    def poll(self, machine: _hivemind_c.Epoch, lane: int, hear: Hear) -> None:
        """The training thread is here for an average: tells the machine if it is there, or lost.

        Args:
            machine: The machine.
            lane: The lane of the thread.
            hear: Takes the lane and the machine's answer.
        """
        if self.core is None:
            return
        self._hear_round(machine, lane, hear)
        if self._wanted is None:
            return
        if (now := self._ledger.clock.now()) - self._shown >= SHOW_S:
            self._shown = now
            self._ledger.load_progress.repeat(self._wanted, self._until, *self.core.progress())
        standing, before, stamps = self.core.look(self._wanted)
        if standing in ("THERE", "LOST"):
            hear(lane, machine.entry(self._wanted, before, stamps or ()))

    def _end(self) -> None:
        self._mark = b""
        try:
            if self.core is not None:
                self.core.end()
        except HivemindError as error:  # the node is being shut down
            logger.debug("could not end the log of averages: %s", error)

    def close(self) -> None:
        """Withdraws all entries. May be called twice."""
        if self.core is not None:
            self.core.close()


def log_memory(value: Any) -> Optional[int]:
    """Checks the option of this name.

    Args:
        value: The number of bytes, or None.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or int(value) != value:
        raise TypeError(f"log_memory must be a number of bytes, or None, not {value!r}")
    if value < 0:
        raise ValueError(f"log_memory must be 0 bytes or more, not {value!r}")
    return int(value)
