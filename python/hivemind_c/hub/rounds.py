"""A hub's part in a run: it counts the trainers, owns spans in their rounds, and contributes nothing.

The core counts, and decides what a hub does next (_hivemind_c.Follower). Here the run's setup and layout are looked up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Any, Dict, Optional, Tuple

import _hivemind_c
from _hivemind_c import HivemindError

from hivemind_c._record import events_path
from hivemind_c.averaging import layout_records
from hivemind_c.averaging.layout import AveragerLayout, RunLayout
from hivemind_c.dht import news
from hivemind_c.hub.keeper import Training
from hivemind_c.hub.sizes import in_words

logger = logging.getLogger("hivemind_c.hub")
SETUP_S, LAYOUT_S = 1.0, 5.0  #: between two questions for the setup, and for the layout
NEVER = 1 << 62  #: swarm epochs from one average of the state to the next, where the hub averages nothing
VALUE_BYTES = 8  #: of a round for each value: its sum, and the encoded average
PREFIX = {"gradients": "{}_grad_averager", "state": "{}_state_averager"}
ANCHOR = b"\nouter_optimizer: "  #: in that of a run whose trainers average differences to an anchor, and no state
LATE = b"delay_grad_averaging: True\n"  #: in the setup of a run whose trainers count an epoch before its round


class Rounds:
    """Finds the layout and the setup of a run, follows it, and takes part in its rounds with an averager for each kind.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        memory: Most bytes for rounds.
        bandwidth: Bytes per second. 0: not known.
    """

    def __init__(self, dht: Any, run_id: str, memory: int, bandwidth: float):
        self._dht, self._run_id, self._memory, self._bandwidth = dht, run_id, memory, bandwidth
        self._told: Any = None  # layout, setup and target that the follower has
        self._averagers: Dict[str, Any] = {}  # by kind
        self._follower: Any = None  # from the first setup on
        self._turn = threading.Lock()  # of those that ask the follower, and the one that ends it
        self._setup = b""
        self.target = 0  #: samples of a swarm epoch; 0: not known yet
        self._counts = (0, 0)  # of followers that were closed

    @property
    def counts(self) -> Tuple[int, int]:
        """(rounds, failures) so far."""
        follower = self._follower
        rounds, failures = follower.counts if follower is not None else (0, 0)
        return self._counts[0] + rounds, self._counts[1] + failures

    def training(self) -> Optional[Training]:
        """Returns where the trainers are, and asks for news of them. None: no trainer is counted."""
        with self._turn:
            epoch = None if self._follower is None else self._follower.trainers()
        return None if epoch is None else Training(epoch, self._setup)

    def run(self, ended: threading.Event) -> None:
        """Follows the run until ended is set.

        Args:
            ended: The end.
        """
        layout_at = 0.0
        try:
            while not ended.wait(SETUP_S if self._has_layout else SETUP_S / 4):
                try:
                    self._fetch_setup()
                    if time.monotonic() >= layout_at or not self._has_layout or self._told[1:] != self._run:
                        layout_at = time.monotonic() + LAYOUT_S
                        self._follow(layout_records.fetch(self._dht, self._run_id, 5.0))
                except HivemindError as error:
                    logger.debug("%s: could not ask for the layout: %s", self._run_id, error)
        finally:
            self._end_rounds()

    @property
    def _run(self) -> Tuple[bytes, int]:
        return self._setup, self.target

    @property
    def _has_layout(self) -> bool:
        return self._told is not None and self._told[0] is not None

    def _fetch_setup(self) -> None:
        told = news.gather(self._dht, self._run_id)
        found = [(one.setup, one.target) for _, one, _ in told if one.setup and one.role != "auxiliary"]
        counts = Counter(found)
        if not counts:
            return
        self._setup, self.target = max(counts, key=lambda one: (counts[one], one))

    def _follow(self, layout: Optional[RunLayout]) -> None:
        told = (layout, *self._run)
        if not self.target or told == self._told:
            return
        if layout is None and self._follower is not None and self._told[2] == self.target:
            return  # nobody stores one just now
        self._end_rounds()
        self._told = told
        need = 0 if layout is None else VALUE_BYTES * max(averager.values for averager in layout.averagers)
        if layout is None or not self._fits(need):
            self._begin()
            return
        try:
            self._begin_rounds(layout, self._memory - need)
        except HivemindError as error:
            logger.warning("%s: this hub does not average, by the layout of its trainers: %s", self._run_id, error)
            self._end_rounds()
            self._begin()
            return
        kinds = " and ".join(averager.kind for averager in layout.averagers)
        logger.info("%s: averaging %s for peers that nobody can dial", self._run_id, kinds)

    def _fits(self, need: int) -> bool:
        if need > self._memory:
            logger.warning(
                "%s: this hub does not average: a round takes %s, and it may use %s; give it more --memory",
                self._run_id,
                in_words(need),
                in_words(self._memory),
            )
            return False
        return True

    def _begin_rounds(self, layout: RunLayout, log_memory: int) -> None:
        for one in layout.averagers:
            self._averagers[one.kind] = self._averager(self._dht.core, one)
        every = [one.every for one in layout.averagers if one.kind == "state"]
        self._begin(
            matchmaking_time=layout.matchmaking_time,
            averaging_timeout=layout.averaging_timeout,
            average_state_every=every[0] if every else 1,
            log_memory=log_memory,
        )

    def _begin(
        self,
        matchmaking_time: float = 0.0,
        averaging_timeout: float = 0.0,
        average_state_every: int = NEVER,
        log_memory: int = 0,
    ) -> None:
        node = self._dht.core
        self._follower = _hivemind_c.Follower(
            node,
            self._run_id,
            PREFIX["state"].format(self._run_id),
            target_batch_size=self.target,
            matchmaking_time=matchmaking_time,
            averaging_timeout=averaging_timeout,
            average_state_every=average_state_every,
            is_late=LATE in self._setup,
            has_anchor=ANCHOR in self._setup,
            gradients=self._averagers.get("gradients"),
            state=self._averagers.get("state"),
            log_memory=log_memory,
            record=events_path(node.peer_id),
        )

    def _averager(self, node: Any, of: AveragerLayout) -> Any:
        settings = {**of.settings, "alpha": 1.0, "bandwidth": self._bandwidth, "auxiliary": 1, "apart": 1}
        prefix = PREFIX[of.kind].format(self._run_id)
        averager = _hivemind_c.Averager(node, prefix, of.loans(), of.bits, settings)
        averager.set_setup(self._setup)
        return averager

    def _end_rounds(self) -> None:
        with self._turn:
            follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()
            self._counts = tuple(map(sum, zip(self._counts, follower.counts)))
        while self._averagers:
            self._averagers.popitem()[1].close()
