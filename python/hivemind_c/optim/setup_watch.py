"""Whether this peer is set up like the others of its run: before it trains, and while it does."""

from __future__ import annotations

import logging
import time
from typing import Any, Dict, NamedTuple, Optional, Set

from _hivemind_c import HivemindError

from hivemind_c.dht import get_dht_time
from hivemind_c.dht.news import ask, key_of, keys, read_all
from hivemind_c.optim.run_peer import RunPeer
from hivemind_c.optim.setup import (
    ConfigMismatchError,
    RunSetup,
    Verdict,
    difference,
    in_words,
    judge,
    parse_setup,
)
from hivemind_c.optim.setup_fields import option_names, setup_of

logger = logging.getLogger("hivemind_c.optim")
ASK_S = 5.0  #: for the answers of the DHT
FIRST_NEWS_S = 1.0  #: until peers that have just begun have told their setup
ENOUGH = 16  #: setups from one key: then the other keys are not asked for
WARNED_MAX = 256  #: setups of others that are remembered as told


class Told(NamedTuple):
    """The setup that a peer states in its record."""

    setup: RunSetup
    joined: float  #: when it began to train, by its own clock


def read_setups(dht: Any, run_id: str, seconds: float = ASK_S) -> Dict[str, Told]:
    """Returns the setups that other peers of a run have published, by their IDs. It asks for some of a large swarm.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        seconds: Longest time to wait for answers.
    """
    until, me = time.monotonic() + seconds, str(dht.peer_id)
    first = key_of(run_id, me)
    found = _read(dht, run_id, [first], me, until)
    if len(found) < ENOUGH:
        found.update(_read(dht, run_id, [key for key in keys(run_id) if key != first], me, until))
    return found


def _read(dht: Any, run_id: str, among: Any, me: str, until: float) -> Dict[str, Told]:
    found: Dict[str, Told] = {}
    try:
        replies = [(key, ask(dht, key)) for key in among]
    except HivemindError:
        return found
    for key, reply in replies:
        try:
            answer = reply.result(max(0.0, until - time.monotonic()))
        except (HivemindError, TimeoutError):
            reply.cancel()
            continue
        for peer, news, _ in read_all(run_id, key, answer):
            if peer != me and news.setup and news.role != "auxiliary":
                try:
                    found[peer] = Told(parse_setup(news.setup), news.joined)
                except ValueError:
                    continue  # a stranger's bytes
    return found


class SetupWatch:
    """The setup of one Optimizer, and its comparison with those of other peers.

    Peers that differ are never averaged together: the averagers refuse them (csrc/core/match). This object decides
    whether this peer may train at all, and what it says.

    Args:
        optimizer: The Optimizer, whose averagers exist.
    """

    def __init__(self, optimizer: RunPeer):
        self._optimizer, self.warns_only = optimizer, optimizer.config_mismatch == "warn"
        self.own = self._first = setup_of(optimizer)
        self._adopted: Optional[RunSetup] = None  # the run's, presented in place of this peer's own
        self.joined = 0.0  #: when this peer began to train, in get_dht_time(); 0: it has not
        self.established = False  #: it has trained, or found its like: others cannot stop it any more
        self._warned: Set[bytes] = set()
        self._changed = b""  # the setup that this peer has stepped with for the first time, and not marked so yet
        optimizer.state_averager.offers.check_setup = self.check_state
        self.present()

    def present(self) -> None:
        """Gives the averagers the setup that members of their groups must have."""
        for averager in (self._optimizer.state_averager, self._optimizer.grad_averager):
            if averager is not None:
                averager.present_setup(self.presented)

    @property
    def presented(self) -> bytes:
        """The setup with which this peer looks for groups."""
        return (self._adopted or self.own).packed()

    @property
    def published(self) -> bytes:
        """The setup in this peer's record; none of an auxiliary peer, which trains nothing."""
        return b"" if self._optimizer.auxiliary else self.own.packed()

    # ---- before it trains ----

    def check(self) -> None:
        """Compares this peer with the others before its first batch.

        Raises ConfigMismatchError if others are there, none is set up alike, and config_mismatch is "error".
        """
        until = time.monotonic() + FIRST_NEWS_S
        others = self._others()
        while not others and self._optimizer.tracker.global_progress.num_peers > 0 and time.monotonic() < until:
            time.sleep(0.1)
            others = self._others()
        self._decide(self._judge(others))
        self.joined = self.joined or get_dht_time()

    def check_again(self) -> None:
        """Compares this peer once more at the end of its first swarm epoch: peers that begin together miss each other.

        Of two that differ, the one that began later is refused. Raises ConfigMismatchError as check() does.
        """
        if self._optimizer.auxiliary:
            self.follow()
        if self._optimizer.auxiliary or self.established:
            return
        others, me = self._others(), str(self._optimizer.dht.peer_id)
        verdict = self._judge(others)
        if not others and self._optimizer.tracker.global_progress.num_peers > 1:
            return  # they have not told it yet
        began = (self.joined, me)
        if verdict.is_alone and all((others[peer].joined, peer) > began for peer in verdict.differing):
            self._warn(verdict)
            return
        self._decide(verdict)
        self.established = True

    def has_averaged(self) -> None:
        """Records that this peer has averaged with others of its setup."""
        self.established = True

    def _others(self) -> Dict[str, Told]:
        return read_setups(self._optimizer.dht, self._optimizer.run_id)

    def are_others_there(self) -> bool:
        """True if another peer that trains has told of itself lately."""
        return bool(self._others())

    def _judge(self, others: Dict[str, Told]) -> Verdict:
        return judge(self.own, {peer: told.setup for peer, told in others.items()})

    def _decide(self, verdict: Verdict) -> None:
        if self._optimizer.auxiliary or self.warns_only and verdict.is_alone:
            self._adopt(verdict.common if verdict.is_alone else None)
        elif verdict.common is not None and verdict.is_alone:
            raise ConfigMismatchError(difference(self.own, verdict.common))
        self.established |= verdict.alike > 0
        self._warn(verdict)

    def _warn(self, verdict: Verdict) -> None:
        if self._optimizer.auxiliary:
            return
        for peer, theirs in verdict.differing.items():
            if theirs.digest in self._warned or len(self._warned) >= WARNED_MAX or theirs == self._adopted:
                continue
            self._warned.add(theirs.digest)
            logger.warning(
                "this peer is not averaged with peer %s and others of its setup: %s",
                peer,
                in_words(difference(self.own, theirs)),
            )

    def _adopt(self, setup: Optional[RunSetup]) -> None:
        if setup == self._adopted:
            return
        self._adopted = setup
        if setup is not None and not self._optimizer.auxiliary:
            logger.warning(
                "training with peers that are set up differently, because of config_mismatch='warn': %s",
                in_words(difference(self.own, setup)),
            )

    # ---- while it trains ----

    def renew(self) -> bool:
        """Looks at this peer's own settings again. True if it must look for groups with another setup now."""
        before, presented, self.own = self.own, self.presented, setup_of(self._optimizer)
        if self.own == before or self._optimizer.auxiliary:
            return False
        changed = "; ".join(f"{field} was {was} and is {now}" for field, now, was in difference(self.own, before))
        if self.own == self._first:
            logger.info("the setup of this peer is again what it was at first: %s", changed)
        else:
            logger.warning(
                "the setup of this peer has changed: %s; it is averaged only with peers that change alike", changed
            )
        self._changed = self.own.digest
        return self.presented != presented

    def take_change(self) -> bytes:
        """Returns the digest of a setup with which this peer steps from now on, once; empty if it has not changed."""
        changed, self._changed = self._changed, b""
        return changed

    def follow(self) -> None:
        """Lets an auxiliary peer present the setup that most peers of the run have."""
        self._adopt(self._judge(self._others()).common)

    def check_state(self, packed: Any) -> None:
        """Compares this peer with the setup of the swarm's state, before it takes that state over.

        A state brings the options of the optimizer's groups with it, so a peer that has trained may differ in these.
        Raises ConfigMismatchError if this peer is a joiner, else ValueError.

        Args:
            packed: The setup from the metadata of the state. None: it says nothing.
        """
        if packed is None or packed == b"":
            return
        theirs = parse_setup(packed)
        self.renew()
        # a hub may keep a state of an older version
        found = [one for one in difference(self.own, theirs) if one[0] != "setup"]
        if not found:
            return
        if self.warns_only:
            self._adopt(theirs)
            return
        if not self.established:
            raise ConfigMismatchError(found, is_kept=not self.are_others_there())
        lasting = [one for one in found if one[0] not in option_names(self._optimizer)]
        if lasting:
            raise ValueError(
                f"the swarm's state is of another setup: {in_words(lasting)}; set this peer up like the others"
            )
        logger.warning("the swarm's state brings other settings, which this peer takes over: %s", in_words(found))
