"""The record of a peer that hivemind-monitor reads (hivemind_c/dht/news.py), and the thread that stores it.

No step waits for the thread. An error in it means no more than a missing record.
"""

from __future__ import annotations

import collections
import logging
import math
import os
import platform
import threading
import weakref
from typing import Any, Deque, List, Optional, Tuple

import _hivemind_c

from hivemind_c._log import begin
from hivemind_c.dht import get_dht_time
from hivemind_c.dht.news import ERRORS_MAX, LEAST_S, News, key_of, period_s, subkey_of, write_news
from hivemind_c.dht.values import pack
from hivemind_c.optim.epoch_record import finite
from hivemind_c.optim.epoch_work import EpochWork
from hivemind_c.optim.layout_report import LayoutReport
from hivemind_c.optim.reach_check import ReachCheck

logger = logging.getLogger("hivemind_c.optim")

LIVES, LIVES_S = 3, 10.0  #: periods that a record lives, and seconds at least
BATCHES = 64  #: a loss is the mean over so many batches at most


class Reporter:
    """Counts events of one Optimizer, and stores a record of them in the DHT.

    Args:
        optimizer: The Optimizer. It is not kept alive by this object.
    """

    def __init__(self, optimizer: EpochWork):
        # its thread keeps no optimizer in the swarm that the program has dropped
        self._optimizer = weakref.ref(optimizer)
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._losses: Deque[Any] = collections.deque(maxlen=BATCHES)
        self._loss: Optional[float] = None
        self._errors: Deque[Tuple[int, str]] = collections.deque(maxlen=ERRORS_MAX)
        self._samples = optimizer.ledger.samples
        self._rounds = self._failures = 0
        self._has_cut = False  # samples beyond the most that counts
        self._layout = LayoutReport()
        self._reach = None if optimizer.auxiliary else ReachCheck(optimizer.dht, optimizer.run_id)
        self._name = os.environ.get("HIVEMIND_NAME") or platform.node() or "?"

    # ---- what the training thread says; none of it waits ----

    def add_loss(self, value: Any) -> None:
        """Counts the loss of a batch. Only the latest BATCHES count.

        Args:
            value: Tensor or number. None counts for nothing.
        """
        if value is not None:
            self._losses.append(value.detach() if hasattr(value, "detach") else value)
            if (optimizer := self._optimizer()) is not None:
                optimizer.ledger.notes.add_loss(value)

    @property
    def samples_kept(self) -> int:
        """Samples in steps that this peer made by itself since its replica was the swarm's."""
        return self._samples.kept

    @property
    def samples_lost(self) -> int:
        """Samples that were computed and are in no step."""
        return self._samples.lost

    def add_round(self) -> None:
        """Counts a successful round."""
        self._rounds += 1

    def say_discarded(self, epoch: int, samples: int, has_met: bool) -> None:
        """Tells of discarded samples, which a peer that has just come cannot help.

        Args:
            epoch: Epoch in which they were computed.
            samples: Number of samples.
            has_met: This peer has averaged with others.
        """
        if samples:
            logger.log(
                logging.WARNING if has_met else logging.INFO,
                "swarm epoch %d: discarding %d samples of this peer: they belong to a state that is not the swarm's",
                epoch,
                samples,
            )

    def say_cut(self, epoch: int, samples: int, most: int) -> None:
        """Reports samples beyond the most with which a peer counts. The first time is a warning.

        Args:
            epoch: Epoch in which they were computed.
            samples: Number of samples that do not count.
            most: Number of samples that do.
        """
        logger.log(
            logging.DEBUG if self._has_cut else logging.WARNING,
            "swarm epoch %d: %d samples of this peer do not count: a peer counts with at most target_batch_size=%d",
            epoch,
            samples,
            most,
        )
        self._has_cut = True

    def add_failure(self, epoch: int, why: Any) -> None:
        """Counts a failed round.

        Args:
            epoch: Epoch of the round.
            why: Cause, as shown in the monitor.
        """
        self._failures += 1
        self._errors.append((epoch, str(why)))

    def start(self) -> None:
        """Starts the thread, unless it runs."""
        if self._thread is None:
            self._thread = begin("hivemind_c reporter", self._run, self._ended.set)

    def shutdown(self) -> None:
        """Ends the thread, and waits for it for 2 seconds at most."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2)

    # ---- its own thread ----

    def _run(self) -> None:
        period, waiting = LEAST_S, None
        while not self._ended.wait(period / 4 if waiting is None else period):
            try:
                optimizer = self._optimizer()
                if optimizer is None:
                    return
                period = period_s(optimizer.tracker.global_progress.num_peers)
                if waiting is None or waiting.done():  # else the network is slow, and what is newer waits
                    waiting = self._store(optimizer, self.news(max(LIVES_S, LIVES * period)))
                    self._layout.renew(optimizer)
                optimizer.ledger.clock_check.look()
                if self._reach is not None:
                    self._reach.look()
            except _hivemind_c.HivemindError as error:
                logger.debug("this peer's news were not told: %s", error)
                if error.status in ("CLOSED", "FORKED"):
                    return
            except Exception as error:  # a loss that is no number, say
                logger.debug("this peer's news were not told: %s", error)
            optimizer = None

    def _store(self, optimizer: EpochWork, news: News) -> Any:
        dht, run_id = optimizer.dht, optimizer.run_id
        key, subkey = key_of(run_id, dht.peer_id).encode(), pack(subkey_of(dht.peer_id))
        return dht.core.dht_store(key, subkey, write_news(news), math.ceil(news.lease * 1000))

    def news(self, lease: float) -> News:
        """Returns the record as it is now.

        Args:
            lease: Seconds that the record lives in the DHT.
        """
        optimizer = self._optimizer()
        if optimizer is None:
            raise ReferenceError("the optimizer that this news would be of has been dropped")
        last, troubles = optimizer.ledger.news()
        is_client = optimizer.client_mode or self._reach is not None and self._reach.is_client
        role = "auxiliary" if optimizer.auxiliary else "client" if is_client else "trainer"
        return News(
            version=_hivemind_c.__version__,
            name=self._name,
            role=role,
            time=get_dht_time(),
            lease=lease,
            epoch=optimizer.local_epoch,
            target=optimizer.target_batch_size,
            samples=self._samples.held,
            speed=optimizer.tracker.local_progress.samples_per_second,
            loss=self._mean_loss(),
            rounds=self._rounds,
            failures=self._failures,
            errors=tuple(self._errors),
            last=None if last is None else tuple(map(finite, last.numbers().values())),
            troubles=troubles,
            setup=optimizer.setups.published,
            joined=optimizer.setups.joined,
            proof=optimizer.dht.proof,
            loading=optimizer.ledger.load_progress.said(),
        )

    def _mean_loss(self) -> Optional[float]:
        values: List[float] = []
        while self._losses:
            try:
                values.append(float(self._losses.popleft()))
            except (TypeError, ValueError, RuntimeError):  # a closure may return anything
                continue
        if values and math.isfinite(mean := sum(values) / len(values)):
            self._loss = mean
        return self._loss


class MetricReports(EpochWork):
    """The part of Optimizer that takes losses and metrics from the program."""

    reporter: Reporter

    def report_loss(self, value: Any) -> None:
        """Reports the loss of this batch to hivemind-monitor. It waits for nothing.

        A closure's loss and that of Lightning are reported anyway.

        Args:
            value: Tensor or number.
        """
        self.reporter.add_loss(value)
