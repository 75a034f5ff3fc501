"""The part of Optimizer that finds the swarm and keeps up with it."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from hivemind_c import _notebook
from hivemind_c.dht import get_dht_time
from hivemind_c.optim.manual_steps import LEAP
from hivemind_c.optim.progress_tracker import STANDINGS
from hivemind_c.optim.setup import ConfigMismatchError

if TYPE_CHECKING:
    from hivemind_c.optim.optimizer import Optimizer
    from hivemind_c.optim.progress_tracker import Figures

logger = logging.getLogger("hivemind_c.optim")
FIRST_LOOK_S = 5.0  #: to hear of others before the first batch counts
CHASE_S = 0.3  #: who loads a state within this time is waited for at the beginning of an epoch
NOTICE_S = 0.1  #: the others are to know so long before the epoch begins
#: who loads a state so quickly is in the group of an epoch that lasts so long, though it comes after its beginning
LONG_S = 4 * CHASE_S
#: groups form when half of an epoch's samples are there, or so long before its end: until then a newcomer is in time
AHEAD_S = 0.5


#: a peer that knows its replica to be wrong tries so long to load the swarm's, until it doubts the others
WRONG_S = 30.0
GONE_S, AGAIN_S = 15.0, 0.5  #: until the record of a peer that has died ends; between two looks


class Membership:
    """The part of Optimizer that joins the swarm, keeps up with it, and loads its state."""

    has_met = False  #: it has averaged gradients with others
    _wrong_since: Optional[float] = None  # when it first failed to load the swarm's state, its own being wrong
    missed = False  # the swarm has made a step without this peer, or holds another state than its
    _wanted = 0  # older states than of this epoch are of no use
    _load_s = math.inf  # what the quickest load took
    _apart = True  # others neither count this peer nor wait for it: it cannot make a step with them yet

    def _seen(self: "Optimizer") -> Dict[str, Any]:
        """The figures that decisions follow from, for the record."""
        if not self.record:
            return {}
        now = self.tracker.figures()
        return dict(
            epoch=self.local_epoch,
            mark=self.state_averager.lineage.mark,
            swarm=now.epoch,
            peers=now.peers,
            clients=now.clients,
            samples=int(now.samples),
            mine=self.local_samples,
            eta=round(min(now.eta, 1e6), 3),
            standing=STANDINGS[now.standing],
        )

    def _join(self: "Optimizer") -> None:
        """Before the first batch counts: where is the swarm, and is this peer set up like it?"""
        if _notebook.cell() is not None:
            _notebook.drop_unused(lambda other: getattr(other, "run_id", None) == self.run_id)
            # without the peer of an earlier cell, which may have left since this one was made
            self.tracker.fetch_global_progress()
        with self.ledger.clock.enter("waiting"):
            alone = self._apart and not self.tracker.fetched_global_progress_this_epoch.wait(FIRST_LOOK_S)
        if alone:
            logger.warning(
                "the swarm did not answer within %g s: this peer starts alone and joins the others when it hears them",
                FIRST_LOOK_S,
            )
        self.check_setup()
        self.record("join", **self._seen(), apart=self._apart, answered=not alone)
        self._joined = True
        self.reporter.start()
        if not alone:
            self._continue_run()

    def _continue_run(self: "Optimizer") -> None:
        """If those that trained have gone, and a hub still offers a state of the run, this peer continues from it."""
        least, until = self.local_epoch + 1, time.monotonic() + GONE_S
        if not self._apart or self.auxiliary or self.belief.newest_offered(least) is None:
            return
        while self.tracker.figures().peers:
            claimed = self.tracker.global_epoch
            least_there = self.schedule.state_epoch(claimed)
            if claimed < least or self.belief.newest_offered(least_there) is not None or time.monotonic() > until:
                return  # the others have begun, too; or they are there, and their state can be loaded
            if not self.setups.are_others_there():
                break  # the count is of peers that have died
            time.sleep(AGAIN_S)
            self.tracker.fetch_global_progress()
        self._load(epoch_least=least)

    def check_setup(self: "Optimizer") -> None:
        """Asks the peers of the run whether this one is set up like them. The first step() asks too.

        Raises ConfigMismatchError if others are there and none is set up alike, unless config_mismatch is "warn".
        """
        self.setups.check()
        self.setups.present()

    def _compare_setup(self: "Optimizer") -> None:
        """At the end of an epoch: has this peer's setup changed, and did others begin with another one?"""
        if self.setups.renew():
            self.group_search.setup_has_changed()
        try:
            self.setups.check_again()
        except ConfigMismatchError:
            self._step_aside()
            raise

    def _step_aside(self: "Optimizer") -> None:
        """Others neither count this peer nor wait for it, until it enters again."""
        self.record("aside", **self._seen())
        self.group_search.step_aside()
        if not (self._apart or self.auxiliary):
            self.tracker.withdraw()
        self._apart = True

    def _forms_groups(self: "Optimizer", now: "Figures") -> bool:
        """Whether it is time for the group that ends this epoch. Not long before it: newcomers may be loading the
        state.
        """
        return now.eta <= AHEAD_S or 2 * now.samples >= now.target

    def _await_next_epoch(self: "Optimizer") -> int:
        """Which epoch's state to load. Where the group of the swarm's epoch has formed without this peer, that of a
        later one, which is waited for: the others know that this peer is about to come."""
        now = self.tracker.figures()
        if (
            self.grad_averager is None
            or self.auxiliary
            or self._load_s > CHASE_S
            or now.peers < 1
            or not self._forms_groups(now)
        ):
            return now.epoch
        eta, epoch_s = max(now.eta, 0.0), now.target / now.speed if now.speed > 0 else NOTICE_S
        ahead = 1 if epoch_s >= LONG_S else 1 + math.ceil(max(0.0, NOTICE_S - eta) / epoch_s)
        self.grad_averager.comes(now.epoch + ahead)
        until = time.monotonic() + min(eta + (ahead - 1) * min(epoch_s, 1.0), self.matchmaking_time)
        while time.monotonic() < until and self.tracker.global_epoch < now.epoch + ahead:
            self.tracker.fetch_global_progress()
            time.sleep(0.02)
        return now.epoch + ahead

    def _enter(self: "Optimizer") -> None:
        """From now on others count this peer, and expect it in their groups."""
        if self._apart:
            self.record("enter", **self._seen())
            self._apart = False
            self.group_search.enter_epoch(self.local_epoch)
            self._report(0)
            self.tracker.fetch_global_progress()

    def _report(self: "Optimizer", samples: int) -> None:
        if not (self.auxiliary or self._apart):
            self.tracker.report_local_progress(self.local_epoch, samples)

    def _must_catch_up(self: "Optimizer") -> bool:
        if self.auxiliary:  # it has no state of the run: it follows the others' epochs
            return False
        if self._apart:
            return self.missed or self.tracker.global_epoch > self.local_epoch
        standing = self.tracker.standing
        behind = standing == "behind" and self._lacks_state(self.tracker.global_epoch)
        return self.missed or behind or standing == "late" and self._has_missed_it()

    def _lacks_state(self: "Optimizer", epoch: int) -> bool:
        """True if a peer needs another state to be in this epoch. With local updates, no state is on offer for the
        epochs between two averagings, and none is needed.
        """
        return self.schedule.state_epoch(epoch) > self.local_epoch or epoch > self.local_epoch + LEAP

    def _follow_epoch(self: "Optimizer") -> None:
        """Takes over the swarm's epoch, if this peer is behind and needs no state for it: its updates count."""
        if self.schedule.use_local_updates and self.tracker.standing == "behind":
            self.state_averager.background.take(wait=True)
            self.ledger.samples.taken()
            self.ledger.samples.stepped()
            self._local_samples = 0
            self._take_epoch(self.tracker.global_epoch)
            self.group_search.enter_epoch(self.local_epoch)
            self._report(0)

    def _take_epoch(self: "Optimizer", epoch: int) -> None:
        """Counts all epochs up to this epoch, unless a state is needed for it."""
        if not self._lacks_state(epoch):
            for _ in range(self.local_epoch, epoch):
                self.state_averager.step_scheduler()
            self.state_averager.local_epoch = max(self.local_epoch, epoch)

    def _verdict(self: "Optimizer", now: "Figures") -> Tuple[bool, bool]:
        """Whether the end of the epoch is near, and whether it is there, by one reading of the figures."""
        if self.auxiliary:
            return self._assist()
        behind = STANDINGS[now.standing] == "behind"  # then the next step() sees whether to load the swarm's state
        return now.match and not behind, now.ready and not behind and self.company.may_end_epoch(now.peers)

    def _assist(self: "Optimizer") -> Tuple[bool, bool]:
        """An auxiliary peer follows the epochs of the others, and goes to their meetings."""
        progress = self.tracker.global_progress
        if progress.epoch > self.local_epoch:
            self.state_averager.local_epoch = progress.epoch
            self.group_search.cancel()
            self.setups.follow()
            self.group_search.enter_epoch(progress.epoch)
        near = progress.epoch == self.local_epoch and progress.eta_next_epoch - get_dht_time() <= self.matchmaking_time
        return near, near and progress.num_peers > 1

    def _has_missed_it(self: "Optimizer") -> bool:
        """Late, the others being in the next epoch: whether no group is left with which this peer could have ended its
        own.
        """
        counted_at_once = self.schedule.delay_grad_averaging  # the others', before its gradients are averaged
        return self.grad_averager is not None and not (counted_at_once or self.group_search.has_begun())

    def _must_load(self: "Optimizer") -> bool:
        """Whether to load the swarm's state now. Before this peer steps aside for a claim that it is far behind, it
        looks whether there is such a state: if not, it continues in its own epoch.
        """
        if not self._must_catch_up():
            return False
        sure = self.missed or self._apart or self.tracker.standing != "behind"
        if sure or self.belief.is_offered(self.local_epoch + 1):
            return True
        self.belief.doubt(self.local_epoch + 2, self.local_epoch)
        return self._must_catch_up()

    def is_left_behind(self: "Optimizer", epoch: int) -> None:
        """Records that the other peers have ended an epoch without this one.

        Args:
            epoch: Number of that epoch.
        """
        self.record("left_out", **self._seen())
        self.missed, self._wanted = True, epoch + 1
        self.state_averager.lineage.is_left()

    def is_synchronized_with_peers(self: "Optimizer") -> bool:
        """True if this peer is in the epoch of the swarm, or at its very end."""
        return not self._must_catch_up()

    def begin_epoch_again(self: "Optimizer") -> None:
        """Counts this epoch's samples from zero, after nobody made its step."""
        self.group_search.cancel()
        if self.grad_averager is not None:
            self.grad_averager.reset_accumulated_grads_()
        self._report(0)
        self.tracker.fetch_global_progress()

    def catch_up(self: "Optimizer") -> bool:
        """Loads the state of the swarm, if it is time for another attempt. True if this peer has it now."""
        offers, loaded = self.state_averager.offers, False
        if offers.may_try():
            logger.info(
                "this peer is in swarm epoch %d and the swarm in %d: it loads the swarm's state",
                self.local_epoch,
                self.tracker.global_epoch,
            )
            claimed = self.tracker.global_epoch
            behind = self.tracker.standing == "behind" or self._apart and claimed > self.local_epoch
            behind = behind and self._lacks_state(claimed)
            offers.withdraw()
            loaded = self._load(chase=True)
            if loaded or not (behind or self._stays_aside()):
                self._enter()
                # a peer that only missed a round and finds no state sees in the next one whether it still lacks it
                self.missed = False
            newest = self._wanted > self.local_epoch and self.grad_averager is not None
            if newest and not (loaded or behind or self._apart):
                # those who made the step have gone: this may be the newest state that there is
                offers.offer(self.local_epoch)
        elif self.reuse_grad_buffers:  # the batch that is not counted lies in .grad with the sums
            self._drop_sums(self.local_epoch)
        return loaded

    def load_state_from_peers(self: "Optimizer", **kwargs: Any) -> bool:
        """Replaces model, optimizer, scheduler and epoch by the state of the swarm. False: there is none.

        Without a state they stay as they were. Samples of this epoch and unfinished background work are dropped either
        way.

        Args:
            **kwargs: Arguments of TrainingStateAverager.load_state_from_peers.
        """
        return self._load(**kwargs)

    def _load(self: "Optimizer", chase: bool = False, **kwargs: Any) -> bool:
        averager = self.state_averager
        before, was_apart, claimed, ledger = self.local_epoch, self._apart, self.tracker.global_epoch, self.ledger
        self._step_aside()
        averager.background.drop()
        averager.loaded = False
        ledger.drop()
        mark = averager.lineage.mark if ledger.samples.kept else None  # a joiner's need not be hashed
        with self.tracker.pause_updates(), ledger.clock.enter("loading"):
            newest = (
                self.local_epoch
                if self.grad_averager is None
                else max(self.local_epoch, self.tracker.global_epoch, self._wanted)
            )
            if chase:
                newest = max(newest, self._await_next_epoch())
            newest, begun = self.schedule.state_epoch(newest), time.monotonic()
            self.record("load", **self._seen(), least=newest, wanted=self._wanted, missed=self.missed)
            loaded = averager.load_state_from_peers(
                **{"timeout": self.load_state_timeout, "epoch_least": newest, **kwargs}
            )
        if loaded:
            self._load_s = min(self._load_s, time.monotonic() - begun)
            if self.schedule.use_local_updates:
                self._take_epoch(self.tracker.global_epoch)
            self.belief.trust()
            self._wrong_since = None
            if mark is not None and averager.lineage.mark != mark:
                ledger.notes.lose(*ledger.samples.kept_given_up())
            self.setups.renew()
            self.setups.take_change()  # the state's own mark says how it came about
        else:
            self.record("load_failed", **self._seen(), claimed=claimed)
            if self._is_wrong_too_long():
                self.belief.doubt(self.tracker.global_epoch, before)
            elif self._lacks_state(claimed) and not (self.auxiliary or self._stays_aside()):
                self.belief.doubt(claimed, before)
        self._drop_sums(before)
        if loaded and self.local_epoch != before:
            ledger.caught_up(before, was_left_out=self._wanted > before)
        if not (loaded or was_apart or self._stays_aside()):
            self._enter()
        return loaded

    def _is_wrong_too_long(self: "Optimizer") -> bool:
        """True once WRONG_S have passed in which others were there, and gave this peer no state for its wrong one."""
        if not self.state_averager.lineage.is_wrong or not self.tracker.figures().peers:
            self._wrong_since = None
            return False
        if self._wrong_since is None:
            self._wrong_since = time.monotonic()
        if time.monotonic() - self._wrong_since < WRONG_S:
            return False
        self._wrong_since = None
        return True

    def _stays_aside(self: "Optimizer") -> bool:
        """True if this peer must not train, because others have the swarm's replica and it has another.

        Once nobody else is there, its replica is the swarm's.
        """
        lineage = self.state_averager.lineage
        if lineage.is_wrong and not self.tracker.figures().peers and self._apart:
            lineage.is_wrong = False
        return lineage.is_wrong and self._wrong_since is not None

    def _gather_sums(self) -> None:
        """Overridden where several processes are one peer (inside/lead.py): their sums become this one's."""

    def _drop_sums(self: "Optimizer", epoch: int) -> None:
        """What this peer had summed up in that epoch is lost."""
        self.reporter.say_discarded(epoch, self.ledger.notes.lose(*self.ledger.samples.replaced()))
        if self.grad_averager is not None:
            self.grad_averager.reset_accumulated_grads_()
        self._local_samples = 0
        self._report(0)
