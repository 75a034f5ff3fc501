"""A hub's part in averaging: it owns spans in the rounds of a run, and contributes nothing."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Any, Callable, List, Optional, Sequence

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c._log import begin
from hivemind_c._record import Recorder, short
from hivemind_c.averaging import layout_records
from hivemind_c.averaging.layout import AveragerLayout, RunLayout
from hivemind_c.averaging.marks import Member, members_of
from hivemind_c.dht import news
from hivemind_c.dht.values import pack
from hivemind_c.hub.keeper import Training
from hivemind_c.hub.sizes import in_words
from hivemind_c.optim.progress_tracker import ProgressTracker

logger = logging.getLogger("hivemind_c.hub")
LOOK_S = 0.02  #: between two looks at the progress of the run
ASK_S = 0.25  #: between two questions whether the next epoch has begun
SETUP_S, LAYOUT_S = 1.0, 5.0  #: between two questions for the setup, and for the layout
Met = Callable[[int, Sequence[Member]], None]
VALUE_BYTES = 8  #: of a round for each value: its sum, and the encoded average
PREFIX = {"gradients": "{}_grad_averager", "state": "{}_state_averager"}


class RoundHelper:
    """One averager without tensors, which follows the epochs of the run.

    Args:
        node: The core's node.
        run_id: Name of the run.
        layout: The run's layout.
        averager: That of this averager.
        tracker: A ProgressTracker of the run.
        setup: A function that returns the setup of the run as bytes.
        bandwidth: Bytes per second. 0: not known.
        met: A function that gets epoch and members of each round of gradients.
    """

    def __init__(
        self,
        node: Any,
        run_id: str,
        layout: RunLayout,
        averager: AveragerLayout,
        tracker: ProgressTracker,
        setup: Callable[[], bytes],
        bandwidth: float,
        met: Met,
    ):
        self._met = met
        self.rounds = self.failures = 0
        self._run_id, self._layout, self._of, self._tracker = run_id, layout, averager, tracker
        self._setup, self._presented = setup, setup()
        settings = {**averager.settings, "alpha": 1.0, "bandwidth": bandwidth, "auxiliary": 1, "apart": 1}
        prefix = PREFIX[averager.kind].format(run_id)
        self._averager = _hivemind_c.Averager(node, prefix, averager.loans(), averager.bits, settings)
        self._averager.set_setup(self._presented)
        self._last: Optional[int] = None  # the round before
        self._announced: Optional[int] = None
        self._asked = 0.0
        self._ended = threading.Event()
        self._record = Recorder(node.peer_id, run_id, "hub")
        self._step: Any = None
        self._thread = begin(f"hivemind_c hub {averager.kind}", self._run, self._ended.set)

    def close(self) -> None:
        """Ends the round under way, and the thread."""
        self._ended.set()
        self._averager.close()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            try:
                self._look()
            except HivemindError as error:
                if not self._ended.is_set():
                    logger.warning("%s: not averaging %s: %s; will retry", self._run_id, self._of.kind, error)
                    self._ended.wait(1.0)

    def _ends(self, number: int) -> int:
        """The epoch at whose end that round is."""
        return number if self._of.kind == "gradients" else number * self._of.every - 1

    def _next(self, epoch: int) -> int:
        """The number of the round to come, as the trainers count it."""
        # of an epoch that has just ended members may still wait for this peer
        if self._last is not None and self._ends(self._last + 1) >= epoch - 1:
            return self._last + 1
        return epoch if self._of.kind == "gradients" else epoch // self._of.every + 1

    def _look(self) -> None:
        now = self._tracker.figures()
        number = self._next(now.epoch)
        if number != self._announced:
            self._averager.reached(number)
            self._announced = number
        end = self._ends(number)
        if end > now.epoch:
            if time.monotonic() - self._asked > ASK_S:
                self._asked = time.monotonic()
                self._tracker.fetch_global_progress()
            return
        if now.peers > 1 and (end < now.epoch or now.eta <= self._layout.matchmaking_time or now.ready):
            self._average(number, max(0.0, min(now.eta, self._layout.averaging_timeout)) if end == now.epoch else 0.0)

    def _average(self, number: int, left: float) -> None:
        """Takes part in one round. left: seconds until the members need it."""
        if (setup := self._setup()) != self._presented:
            self._averager.set_setup(setup)
            self._presented = setup
        wait, timeout = left + max(self._layout.matchmaking_time, 0.1), left + self._layout.averaging_timeout + 0.1
        step = self._averager.step(pack(None), str(number).encode(), 0.0, wait, timeout, 0, False, False)
        try:
            members = step.result()[0]
        except HivemindError as error:
            if self._ended.is_set():
                return
            logger.debug("%s: round %d of %s: %s", self._run_id, number, self._of.kind, error)
            self._record(f"{self._of.kind}_failed", epoch=number, status=error.status)
            if error.status not in ("EXISTS", "TIMEOUT"):
                self.failures += 1
                logger.warning("%s: a round of %s failed: %s", self._run_id, self._of.kind, error)
            if error.status == "TIMEOUT" and self._ends(number) >= self._tracker.global_epoch:
                return  # they are still in that epoch
        else:
            self.rounds += 1
            self._record(self._of.kind, epoch=number, members=[short(member[0]) for member in members])
            if self._of.kind == "gradients":
                self._met(number, members_of(members))
            logger.info("%s: averaged %s %d for %d peers", self._run_id, self._of.kind, number, len(members) - 1)
        self._last = number


class Rounds:
    """Finds the layout and the setup of a run, and keeps a RoundHelper for each of its averagers.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        memory: Most bytes for rounds.
        bandwidth: Bytes per second. 0: not known.
    """

    def __init__(self, dht: Any, run_id: str, memory: int, bandwidth: float):
        self._dht, self._run_id, self._memory, self._bandwidth = dht, run_id, memory, bandwidth
        self._layout: Optional[RunLayout] = None
        self._helpers: List[RoundHelper] = []
        self._tracker: Optional[ProgressTracker] = None
        self._setup = b""
        self._counts = [0, 0]  # of helpers that were closed
        #: called with epoch and members of each round of gradients
        self.met: Met = lambda epoch, members: None

    @property
    def counts(self) -> List[int]:
        """[rounds, failures] so far."""
        helpers = list(self._helpers)
        return [
            self._counts[0] + sum(helper.rounds for helper in helpers),
            self._counts[1] + sum(helper.failures for helper in helpers),
        ]

    def training(self) -> Optional[Training]:
        """Returns where the trainers are, and asks for news of them. None: no trainer is counted."""
        tracker = self._tracker
        if tracker is None:
            return None
        now = tracker.figures()
        tracker.fetch_global_progress()
        return Training(now.epoch, self._setup) if now.fetched and now.peers else None

    def run(self, ended: threading.Event) -> None:
        """Follows the run until ended is set.

        Args:
            ended: The end.
        """
        layout_at = 0.0
        try:
            while not ended.wait(SETUP_S if self._helpers else SETUP_S / 4):
                try:
                    self._fetch_setup()
                    if time.monotonic() >= layout_at or not self._helpers:
                        layout_at = time.monotonic() + LAYOUT_S
                        self._follow(layout_records.fetch(self._dht, self._run_id, 5.0))
                except HivemindError as error:
                    logger.debug("%s: could not ask for the layout: %s", self._run_id, error)
        finally:
            self._close()

    def _fetch_setup(self) -> None:
        told = news.gather(self._dht, self._run_id)
        found = [(one.setup, one.target) for _, one, _ in told if one.setup and one.role != "auxiliary"]
        counts = Counter(found)
        if not counts:
            return
        self._setup, target = max(counts, key=lambda one: (counts[one], one))
        if self._tracker is None or self._tracker.target_batch_size != target:
            self._close()
            self._layout = None
            self._tracker = ProgressTracker(self._dht, self._run_id, target, start=True)

    def _follow(self, layout: Optional[RunLayout]) -> None:
        if layout is None or layout == self._layout or self._tracker is None:
            return
        tracker = self._tracker
        self._end_helpers()
        self._layout = layout
        need = VALUE_BYTES * max(averager.values for averager in layout.averagers)
        if need > self._memory:
            logger.warning(
                "%s: this hub does not average: a round takes %s, and it may use %s; give it more --memory",
                self._run_id,
                in_words(need),
                in_words(self._memory),
            )
            return
        node = self._dht._node._started()
        for averager in layout.averagers:
            setup = lambda: self._setup  # noqa: E731
            self._helpers.append(
                RoundHelper(node, self._run_id, layout, averager, tracker, setup, self._bandwidth, self.met)
            )
        kinds = " and ".join(averager.kind for averager in layout.averagers)
        logger.info("%s: averaging %s for peers that nobody can dial", self._run_id, kinds)

    def _end_helpers(self) -> None:
        helpers, self._helpers = self._helpers, []
        for helper in helpers:
            helper.close()
            self._counts[0] += helper.rounds
            self._counts[1] += helper.failures

    def _close(self) -> None:
        self._end_helpers()
        if self._tracker is not None:
            self._tracker.shutdown()
            self._tracker = None
