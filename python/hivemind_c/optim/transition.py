"""An epoch's end, carried out: what schedule.py says, one action after the other, now and in the background."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import TYPE_CHECKING, Callable, Dict, List

import torch
from _hivemind_c import HivemindError

from hivemind_c._record import short
from hivemind_c.averaging.marks import Member, View, members_of, ticket_of, view_of
from hivemind_c.optim.epoch_clock import EpochClock
from hivemind_c.optim.epoch_notes import norm_of, share_of
from hivemind_c.optim.parameters import all_finite
from hivemind_c.optim.schedule import Action, Actions, Plan

if TYPE_CHECKING:
    from hivemind_c.optim.optimizer import Optimizer

logger = logging.getLogger("hivemind_c.optim")


class Transition:
    """One passage from an epoch to the next; made anew for each."""

    def __init__(self, optimizer: "Optimizer", next_epoch: int, alone: bool):
        self.optimizer, self.next_epoch, self.alone = optimizer, next_epoch, alone
        self.epoch = optimizer.local_epoch
        self.state, self.gradients = optimizer.state_averager, optimizer.grad_averager
        self.samples = 0  # of this peer, that count
        self.ledger = optimizer.ledger
        self.notes, self.clock = self.ledger.notes, self.ledger.clock  # the latter: of the thread that does the actions
        self.background_spent: Dict[str, float] = {}  # seconds of each occupation there
        now = optimizer.tracker.figures()
        self.swarm_samples = int(now.samples) if now.epoch == self.epoch else now.target
        self.state_averaged = False
        self.averaged = False  # the gradients are the swarm's
        self.was_group_of_one = False
        self.nobody_came = False  # for the gradients, in all of their time
        self.left_out = False  # the others have made this step without this peer
        self.is_empty = False  # nobody came, and this peer has nothing to step with: the epoch goes on
        self.meets_another = False  # not all members of the group had the same replica
        self.stepped = optimizer.schedule.use_local_updates or optimizer.auxiliary
        self.metric = optimizer.take_metric()
        self.takes: List[bool] = []  # of the averager's parameters, whether it is stepped with its gradient
        self._do: Dict[Action, Callable[[], None]] = {
            Action.AVERAGE_GRADIENTS: self._average_gradients,
            Action.OPTIMIZER_STEP: self._optimizer_step,
            Action.SCHEDULER_STEP: self._scheduler_step,
            Action.NEXT_EPOCH: self._count_epoch,
            Action.AVERAGE_STATE: self._average_state,
            Action.UPDATE_MODEL: self.state.update_model,
        }

    def run(self, plan: Plan) -> None:
        """Does what is to be done now, and starts the rest."""
        self.samples = self.ledger.samples.taken()
        if not self.optimizer.auxiliary:
            self.state.buffers.take(self.samples, self.alone)
        if self.gradients is not None:
            self._look_at_parameters()
            self.gradients.load_accumulators_into_averager_(self.metric)
        with self.optimizer.tracker.pause_updates():
            self._run(plan.now)
        if self.left_out:
            self.optimizer.catch_up()
            return
        if self.is_empty:
            self.optimizer.begin_epoch_again()
            return
        if not self.optimizer.auxiliary:  # who reports an epoch is counted as one who trains, from then on
            self.optimizer.tracker.update_epoch(self.next_epoch)
        if self.gradients is not None:
            self.gradients.reset_accumulated_grads_()
        if self.gradients is None:  # each batch was a step
            self.ledger.samples.stepped()
        if plan.background:
            # while the model trains on: what is averaged is taken before
            if plan.background[0] is Action.AVERAGE_STATE:
                self.state.load_state_into_averager_()
            *job, last = plan.background
            assert last is Action.UPDATE_MODEL, (
                "what is done in the background reaches the model in the thread that trains"
            )
            self.state.background.start(lambda: self._in_background(tuple(job)), self._finish)
        else:
            self._settle()
        self._record("ended")
        self.ledger.end(self, settled=not plan.background)

    def _record(self, what: str) -> None:
        lineage = self.state.lineage
        self.optimizer.record(what, epoch=self.next_epoch, mark=lineage.mark, outcome=self.outcome, mine=self.samples)

    @property
    def outcome(self) -> str:
        """How the epoch ended, as a key of epoch_record.OUTCOMES."""
        if self.left_out:
            return "left out"
        if self.averaged or self.gradients is None and self.state_averaged:
            return "averaged"
        if self.alone or self.was_group_of_one:
            return "alone"
        if self.gradients is None and not self.optimizer.schedule.averages_state_at(self.next_epoch):
            return "local"
        return "failed"

    def _lose(self, samples: int, why: str) -> int:
        """Notes samples of this epoch that the ledger has moved to those that are lost."""
        self.samples -= samples
        return self.notes.lose(samples, why)

    def _run(self, actions: Actions) -> None:
        for action in actions:
            self._do[action]()
            if self.left_out or self.is_empty:  # what is left of this epoch is the others'
                return

    def _in_background(self, actions: Actions) -> None:
        self.clock = EpochClock()
        try:
            with self.clock.enter("stepping"):
                self._run(actions)
        except BaseException:
            if not self.stepped:  # this epoch has not happened here: the peer is behind, and knows it
                self.state.local_epoch = self.epoch
            self._lose(*self.ledger.samples.broken())
            raise
        finally:
            self.background_spent = self.clock.take()

    def _finish(self) -> None:
        with self.ledger.clock.enter("stepping"):
            if not self.left_out:
                if not self.state_averaged:
                    self.state.loaded = False  # the copies that were to be averaged are no average
                self.state.update_model()
                self._settle()
            self._record("settled")
            self.ledger.settle(self)

    def _settle(self) -> None:
        """The epoch has ended here. Where this peer's state is that of the others, joiners may have it."""
        self.optimizer.group_search.enter_epoch(self.next_epoch)
        if self.averaged:
            self.state.offers.loads = 0
        if self.optimizer.missed:  # a state of its own, that nobody should take
            self.state.offers.withdraw()
            return
        if (
            self.optimizer.auxiliary
            or not self.alone
            and not self.state_averaged
            and (self.state.extra_tensors or self.gradients is None)
        ):
            return  # it has none, or one of its own
        self.state.share_averages = self.gradients is None and not self.alone
        wanted = self.meets_another or self.gradients is not None and self.gradients.awaits(self.next_epoch)
        self.state.offers.begin_epoch(self.next_epoch, wanted=wanted, changed=self.state_averaged)

    # ---- gradients ----

    def _look_at_parameters(self) -> None:
        """Now, while the program does not change what requires gradients: as it does at the end of the same epoch in
        all peers.
        """
        averaged = self.gradients.parameters
        self.main, self.beside = self.state.parameters.split(averaged)
        self.takes = [p.requires_grad for p in averaged]
        if self.alone:  # in a group the others' gradients are there where this peer has none
            self.takes = [takes and touched for takes, touched in zip(self.takes, self.gradients.touched())]

    def _average_gradients(self) -> None:
        optimizer, control = self.optimizer, self.optimizer.group_search.take_gradient_control(self.epoch)
        if control is None:
            if self._has_nothing():
                self._stay()
            return
        if self.gradients.drop_if_not_finite():
            logger.warning(
                "swarm epoch %d: this peer's gradient is not finite, so its %d samples do not count; it takes the "
                "others' average",
                self.epoch,
                self.samples,
            )
            self._lose(*self.ledger.samples.not_finite())
        called = self.clock.now()
        try:
            # which may be the next one already: then the state is not there yet
            with self.state.offers.overdue_timer(self.state.local_epoch), self.clock.enter("waiting"):
                members = self.gradients.average_loaded(float(self.samples), control=control)
        except HivemindError as error:
            optimizer.reporter.add_failure(self.epoch, f"gradients: {error}")
            optimizer.record("gradients_failed", epoch=self.epoch, status=error.status, mine=self.samples)
            self.notes.fail(f"averaging gradients failed: {error}")
            if error.status == "EXISTS" and not optimizer.auxiliary:
                self._leave_it_to_the_others()
                return
            self.nobody_came = error.status == "TIMEOUT"
            self.is_empty = self.nobody_came and self._has_nothing()
            own = (
                f"steps with its own {self.samples} samples' gradient"
                if self.samples
                else "stays in this epoch, having no gradient of its own to step with"
                if self.is_empty
                else "has no gradient of its own to step with"
            )
            logger.warning("swarm epoch %d: averaging gradients failed, so this peer %s: %s", self.epoch, own, error)
            self.ledger.samples.over("NOBODY" if self.nobody_came else "FAILED")
            return
        met = members_of(self.gradients.rounds[0].details(0)[0])
        view = view_of(met)
        # a hub is no company: what it gives back is this peer's own gradient
        self.was_group_of_one = self.gradients.was_alone() or not optimizer.auxiliary and len(view.marks) < 2
        if self.was_group_of_one and self._has_nothing():
            self._stay()
            return
        if self.was_group_of_one and self.state.offers.loads and self.state.lineage.kept:
            # it came as the others ended this epoch, who had not heard of it
            self._leave_it_to_the_others()
            return
        self.averaged = not self.was_group_of_one
        if self.averaged:
            optimizer.setups.has_averaged()
            self._cut_samples()
        self.notes.add_rounds(self.gradients.rounds, self.clock, called)
        self._count_lost(share_of(self.gradients.rounds))
        optimizer.reporter.add_round()
        self._look_at(met, view)
        optimizer.record(
            "gradients",
            epoch=self.epoch,
            members={short(peer): mark for peer, mark in view.marks.items()},
            stamp=self.gradients.stamp if self.averaged else None,
            missed=optimizer.missed,
        )
        self.metric = self.gradients.averaged_metric()
        optimizer.say("Averaged tensors successfully with %d peers", len(members))

    def _leave_it_to_the_others(self) -> None:
        logger.warning("swarm epoch %d: the others made this step without this peer: it loads their state", self.epoch)
        self.state.local_epoch, self.left_out = self.epoch, True
        self.optimizer.reporter.say_discarded(self.epoch, self._lose(*self.ledger.samples.over("LEFT_OUT")))
        self.optimizer.is_left_behind(self.epoch)

    def _stay(self) -> None:
        """The epoch continues: there is no group, or nobody else is in it."""
        self.is_empty = True
        logger.warning(
            "swarm epoch %d: no peer averages with this one, so it stays in this epoch, having no gradient of its own "
            "to step with",
            self.epoch,
        )

    def _has_nothing(self) -> bool:
        """True if this peer has nothing to step with, and has not counted the epoch yet."""
        counted = self.state.local_epoch != self.epoch
        return not (self.samples or self.optimizer.auxiliary or counted)

    def _cut_samples(self) -> None:
        """Drops the samples above target_batch_size, which is the most that a peer counts with."""
        most = self.optimizer.target_batch_size
        if lost := self._lose(*self.ledger.samples.cut(most)):
            self.optimizer.reporter.say_cut(self.epoch, lost, most)

    def _count_lost(self, share: float) -> None:
        """A part of this peer's values may not have reached the average: it was late, or a member died."""
        lost, _ = self.ledger.samples.over("CONFIRMED" if self.averaged else "NOBODY", share)
        self._lose(lost, f"only {share:.0%} of this peer's values reached the average")

    def _look_at(self, members: List[Member], view: View) -> None:
        """Where members have different replicas, one of them is the swarm's, and the rest take it over."""
        self.meets_another = len(view.right) < len(view.marks)
        if not self.optimizer.auxiliary:
            self._judge_replica(self.state.lineage.judge(view.swarms))
        gift, own = self.state.offers.gift, str(self.optimizer.dht.peer_id)
        if gift is not None and view.giver == own:
            hubs = [one.peer for one in members if one.is_auxiliary and not one.is_client]
            gift.meet(hubs, ticket_of(self.epoch, members), self.next_epoch)

    def _judge_replica(self, is_mine: bool) -> None:
        optimizer = self.optimizer
        if is_mine:
            if self.averaged:
                self.ledger.samples.kept_settled()
        elif optimizer.has_met:
            logger.warning(
                "swarm epoch %d: this peer's state is not the swarm's, because an averaging failed: it loads the "
                "swarm's",
                self.epoch,
            )
        else:
            logger.info(
                "swarm epoch %d: this peer began with another model than the swarm: it loads the swarm's", self.epoch
            )
        optimizer.missed = optimizer.missed or not is_mine
        optimizer.has_met = optimizer.has_met or self.averaged

    @torch.no_grad()
    def _optimizer_step(self) -> None:
        optimizer = self.optimizer
        if not self.averaged and self.samples == 0:
            logger.warning(
                "swarm epoch %d: skipping the step: this peer has no gradients of its own, and averaging gave none",
                self.epoch,
            )
            self._mark_step()
        else:
            with self.gradients.use_averaged_gradients(self.takes, self.main, self.beside):
                norm = optimizer.clip_averaged_gradients()
                self.notes.gradient_norm = norm_of(self.gradients.averaged_grads) if norm is None else norm
                self.state.step_optimizer()
            self._mark_step()
            optimizer.say(
                "Optimizer step: done! This peer contributed %d samples to swarm epoch %d", self.samples, self.epoch
            )
        if not self.averaged:
            self.ledger.samples.stepped()
        self.stepped = True

    def _mark_step(self) -> None:
        if changed := self.optimizer.setups.take_change():
            self.state.lineage.set_up(changed)
        if self.averaged:
            frozen = [i for i, takes in enumerate(self.takes) if not takes]  # who froze others has stepped otherwise
            stamp = self.gradients.stamp
            stamps = stamp if isinstance(stamp, tuple) else (stamp,)
            self.state.lineage.stepped(stamps, frozen, self.optimizer.target_batch_size)
        else:
            self.state.lineage.stepped_alone(str(self.optimizer.dht.peer_id), self.epoch, self.samples)

    def _scheduler_step(self) -> None:
        for epoch in range(self.epoch, self.next_epoch):
            self.state.step_scheduler(self.metric)

    def _count_epoch(self) -> None:
        self.state.local_epoch = self.next_epoch

    # ---- state ----

    def _offer_own_step(self) -> None:
        """If this peer stepped by itself: nobody came, it may be long until nobody has come for the state, and joiners
        need one meanwhile.
        """
        if self.gradients is not None and not (
            self.averaged or self.optimizer.auxiliary or self.optimizer.missed or self.state.extra_tensors
        ):
            self.state.offers.offer(self.next_epoch)

    def _others_have_left(self) -> bool:
        return not self.optimizer.auxiliary and self.optimizer.tracker.global_progress.num_peers <= 1

    def _average_state(self) -> None:
        if self.nobody_came or self._others_have_left():  # an epoch waits once
            self.optimizer.group_search.cancel()
            self._offer_own_step()
            return
        control = self.optimizer.group_search.take_state_control(self.next_epoch)
        ready = self.optimizer.auxiliary or self.state.loaded
        if control is None:
            return
        if not (ready or self.state.load_state_into_averager_()):
            logger.warning(
                "swarm epoch %d: the optimizer has not stepped yet and has no average_opt_statistics: this peer's "
                "state is averaged after its first step",
                self.next_epoch,
            )
            control.cancel()  # the others need not wait for it
            return
        if not self.optimizer.auxiliary and not all_finite(self.state.tensors_to_average):
            logger.warning(
                "swarm epoch %d: the state of this peer is not finite, so it is not averaged but loaded from others",
                self.next_epoch,
            )
            control.cancel()
            self.state.loaded, self.optimizer.missed = False, True
            self.state.lineage.is_left()
            return
        self._offer_own_step()
        same = self.averaged and not (
            self.optimizer.auxiliary or self.optimizer.missed or self.meets_another or self.state.extra_tensors
        )
        called = self.clock.now()
        try:
            # equal to the others' already: its average changes nothing
            late = self.state.offers.late_timer(self.next_epoch) if same else nullcontext()
            with late, self.clock.enter("waiting"):
                members = self.state.average_loaded(control)
        except HivemindError as error:
            logger.warning(
                "swarm epoch %d: averaging the state failed, so this peer keeps its own: %s", self.next_epoch, error
            )
            self.optimizer.reporter.add_failure(self.next_epoch, f"state: {error}")
            self.optimizer.record("state_failed", epoch=self.next_epoch, status=error.status)
            self.notes.fail(f"averaging the state failed: {error}")
            return
        self.state_averaged = True
        if self.gradients is None:
            self.ledger.samples.kept_settled()
        self.optimizer.record(
            "state", epoch=self.next_epoch, members=list(map(short, members)), mark=self.state.lineage.mark
        )
        self.notes.add_rounds([control], self.clock, called)
        self.optimizer.reporter.add_round()
        self.optimizer.say("Averaged state successfully with %d peers", len(members))
