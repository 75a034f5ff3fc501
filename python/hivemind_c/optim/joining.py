"""The part of Optimizer that finds the swarm and keeps up with it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hivemind_c.optim.optimizer import Optimizer

logger = logging.getLogger("hivemind_c.optim")
FIRST_LOOK_S = 5.0  #: to hear of others before the first batch counts


class KeepsUp:
    missed = False  # the swarm has made a step without this peer, or holds another state than its
    _wanted = 0  # older states than of this epoch are of no use

    def _join(self: "Optimizer") -> None:
        """Before the first batch counts: where is the swarm?"""
        self._joined = True
        self.telling.start()
        if not self.auxiliary:
            self.tracker.report_local_progress(self.local_epoch, 0)
        if not self.tracker.fetched_global_progress_this_epoch.wait(FIRST_LOOK_S):
            logger.warning("the swarm has not answered within %g s: this peer begins alone, and joins the others when it hears them", FIRST_LOOK_S)

    def _must_catch_up(self: "Optimizer") -> bool:
        standing = self.tracker.standing
        return self.missed or standing == "behind" or standing == "late" and self._has_missed_it()

    def _has_missed_it(self: "Optimizer") -> bool:
        """Late, the others being in the next epoch: whether no group is left with which this peer could have ended its own."""
        counted_at_once = self.schedule.delay_grad_averaging  # the others', before its gradients are averaged
        return self.grad_averager is not None and not (counted_at_once or self.auxiliary or self.meeting.has_begun())

    def is_left_behind(self: "Optimizer", epoch: int) -> None:
        """The others have ended this epoch without this peer."""
        self.missed, self._wanted = True, epoch + 1

    def is_synchronized_with_peers(self: "Optimizer") -> bool:
        """Whether this peer is in the swarm's epoch, or at its very end."""
        return not self._must_catch_up()

    def catch_up(self: "Optimizer") -> None:
        shared = self.state_averager.shared
        if shared.may_try():
            logger.info("this peer is in epoch %d and the swarm in %d: it loads the swarm's state", self.local_epoch, self.tracker.global_epoch)
            behind = self.tracker.standing == "behind"
            shared.withdraw()
            loaded = self.load_state_from_peers()
            if loaded or not behind:
                self.missed = False  # who only missed a round, and finds no state, sees in the next one whether it still lacks it
            if not loaded and not behind and self._wanted > self.local_epoch and self.grad_averager is not None:
                shared.offer(self.local_epoch)  # those who made the step have gone: this may be the newest state that there is
        elif self.reuse_grad_buffers:  # the batch that is not counted lies in .grad with the sums
            self._drop_sums(self.local_epoch)

    def load_state_from_peers(self: "Optimizer", **kwargs: Any) -> bool:
        """Takes over the swarm's state. False: there is none to be had; model, optimizer, scheduler and epoch are as they were. What this peer had summed up of its own
        is dropped either way, and so is an outcome in the background that the model has not taken over yet."""
        averager = self.state_averager
        before = self.local_epoch
        self.meeting.cancel()
        averager.background.drop()
        with self.tracker.pause_updates():
            newest = self.local_epoch if self.grad_averager is None else max(self.local_epoch, self.tracker.global_epoch, self._wanted)
            loaded = averager.load_state_from_peers(**{"timeout": self.load_state_timeout, "epoch_least": newest, **kwargs})
        if loaded:
            self.meeting.passed(self.local_epoch)
        self._drop_sums(before)
        return loaded

    def _drop_sums(self: "Optimizer", epoch: int) -> None:
        """What this peer had summed up in that epoch is lost."""
        self.telling.lost(epoch, self.local_samples)
        if self.grad_averager is not None:
            self.grad_averager.reset_accumulated_grads_()
        self._local_samples = 0
        self.tracker.report_local_progress(self.local_epoch, 0)
