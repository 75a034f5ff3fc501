"""EpochLedger: makes the EpochRecord of each swarm epoch, and hands it to the program, the log and the judge."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Deque, Dict, Optional, Protocol, Tuple

import _hivemind_c

from hivemind_c.optim.advice import Advice
from hivemind_c.optim.clock_check import ClockCheck
from hivemind_c.optim.epoch_clock import EpochClock
from hivemind_c.optim.epoch_end import EpochEnd
from hivemind_c.optim.epoch_judge import EpochJudge, Situation
from hivemind_c.optim.epoch_notes import EpochNotes
from hivemind_c.optim.epoch_record import EpochRecord
from hivemind_c.optim.load_progress import LoadProgress
from hivemind_c.optim.run_peer import RunPeer
from hivemind_c.optim.target_check import TargetCheck
from hivemind_c.optim.timeout_check import TimeoutCheck

logger = logging.getLogger("hivemind_c.optim")


class _Ended(Protocol):
    """How a swarm epoch ended here."""

    @property
    def outcome(self) -> str: ...

    samples: int
    peers: int
    produced: Optional[int]
    background_spent: Dict[str, float]


class _CaughtUp:
    """A swarm epoch that this peer left by loading the state of the swarm."""

    samples, produced = 0, None

    def __init__(self, was_left_out: bool, peers: int):
        self.peers = peers
        self.outcome = "left out" if was_left_out else "caught up"
        self.background_spent: Dict[str, float] = {}


class _Closed:
    """A swarm epoch that has ended in the training thread. Its background job may still run."""

    def __init__(self, epoch: int, notes: EpochNotes, ended: _Ended, **measured: Any):
        self.epoch, self.notes, self.ended, self.measured = epoch, notes, ended, measured


class EpochLedger:
    """The records of one Optimizer. Only the training thread makes and hands over records.

    Args:
        optimizer: The Optimizer. Its on_epoch gets each record.
    """

    def __init__(self, optimizer: RunPeer):
        self._optimizer = optimizer
        self.clock, self.notes = EpochClock(), EpochNotes()  #: of the epoch that runs
        self.samples = _hivemind_c.SampleLedger()  #: what becomes of each sample; the background job writes in it, too
        self.clock_check = ClockCheck(optimizer.dht, optimizer.run_id)
        self.judge = EpochJudge(self._situation, bool(optimizer.dht.initial_peers))
        follows = optimizer.schedule.outer and not optimizer.averaging_is_given
        self._timeouts = TimeoutCheck(optimizer.averaging_timeout, optimizer.matchmaking_time, follows)
        self.load_progress = LoadProgress(self.clock.now)
        target = optimizer.target_batch_size
        self._target = TargetCheck(target)
        parameters = sum(p.numel() for p in optimizer.state_averager.parameters.main)
        self._advice = None if optimizer.auxiliary else Advice(parameters, target, optimizer.schedule.outer)
        self.last: Optional[EpochRecord] = None  #: the latest one
        self._settling: Optional[_Closed] = None
        self._closed_epoch: Optional[int] = None  # the latest that has ended
        self._ready: Deque[EpochRecord] = deque()

    # ---- the end of an epoch ----

    def end(self, end: EpochEnd) -> None:
        """Ends a swarm epoch, on which the late lane may still work.

        Args:
            end: Its end.
        """
        self._close(end.epoch, end, end.swarm_samples)

    def settle(self, end: EpochEnd) -> None:
        """Completes the record of a swarm epoch's end, which is over.

        Args:
            end: The end.
        """
        closed = self._settling
        if closed is None or closed.notes is not end.notes:
            return
        self._complete()

    def caught_up(self, epoch: int, was_left_out: bool) -> None:
        """Ends a swarm epoch that this peer left by loading the state of the swarm, unless it has ended already.

        Args:
            epoch: The swarm epoch.
            was_left_out: True if the others made its step without this peer.
        """
        if epoch == self._closed_epoch:
            return
        peers = max(1, self._optimizer.tracker.figures().peers)
        self._close(epoch, _CaughtUp(was_left_out, peers), self._optimizer.target_batch_size)
        self._complete()

    def abandon(self) -> None:
        """Completes a record whose background job is over: it has failed, or was dropped."""
        if self._settling is not None:
            self._settling.notes.fail("work in the background was not finished")
            self._complete()

    def _close(self, epoch: int, ended: _Ended, swarm_samples: int) -> None:
        self.abandon()
        spent = self.clock.take()
        measured: Dict[str, Any] = {f"{name}_s": seconds for name, seconds in spent.items()}
        measured.update(swarm_samples=max(ended.samples, swarm_samples), clock_s=self.clock_check.offset)
        if self._optimizer.schedule.outer:
            since = 0 if ended.produced is None else self.samples.figures()["produced"] - ended.produced
            self.notes.carry(self.samples.sums - since)
        measured["peers"] = ended.peers
        self._settling = _Closed(epoch, self.notes, ended, **measured)
        self.notes, self._closed_epoch = EpochNotes(), epoch

    def _complete(self) -> None:
        closed, self._settling = self._settling, None
        assert closed is not None
        notes, norm, background = closed.notes, closed.notes.gradient_norm, closed.ended.background_spent
        own, cosine = notes.difference or (None, None)
        self._ready.append(
            EpochRecord(
                epoch=closed.epoch,
                outcome=closed.ended.outcome,
                members=notes.members,
                samples=closed.ended.samples,
                lost_samples=notes.lost_samples,
                why=tuple(notes.why),
                background_s=background.get("wall", 0.0),
                background_reducing_s=background.get("reducing", 0.0),
                bytes_sent=notes.bytes_sent,
                bytes_received=notes.bytes_received,
                part=notes.part,
                codec=self._optimizer.narrow_codec if notes.is_narrow else self._optimizer.codec,
                loss=notes.mean_loss(),
                gradient_norm=None if norm is None else float(norm),
                difference_norm=own,
                difference_cosine=cosine,
                carried_samples=notes.carried_samples,
                repeated_steps=notes.repeated_steps,
                **closed.measured,
            )
        )

    # ---- to whom it goes ----

    def deliver(self) -> None:
        """Hands over the records that are complete. An error of on_epoch is raised."""
        while self._ready:
            self.last = record = self._ready.popleft()
            logger.info("%s", record)
            for verdict in self.judge.look(record):
                logger.warning("%s", verdict.text)
            if text := self._timeouts.look(record):
                logger.warning("%s", text)
            if found := self._target.look(record, self._optimizer.tracker.figures().speed):
                logger.log(logging.WARNING if found[0] else logging.INFO, "%s", found[1])
            if self._advice is not None and (text := self._advice.look(record)):
                logger.info("%s", text)
            if self._optimizer.on_epoch is not None:
                self._optimizer.on_epoch(record)

    def deliver_last(self) -> None:
        """The same at the Optimizer's end. An error of on_epoch becomes a warning, because no step is left."""
        if self._settling is not None and not self._optimizer.state_averager.background.waiting:
            self.abandon()
        while self._ready:
            try:
                self.deliver()
            except Exception as error:
                logger.warning("on_epoch failed for the last swarm epoch: %s: %s", type(error).__name__, error)

    def news(self) -> Tuple[Optional[EpochRecord], Tuple[str, ...]]:
        """Returns the latest record and the codes of the troubles that hold. Any thread may call it."""
        return self.last, self.judge.codes

    def _situation(self) -> Situation:
        state = self._optimizer.dht.state()
        return Situation(self._optimizer.run_id, int(state["peers"]), bool(state["is_initial"]))
