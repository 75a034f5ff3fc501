"""One look at a run: how far the swarm is (the core's tracker says so), and what its peers tell of themselves."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from hivemind_c.dht import get_dht_time
from hivemind_c.dht.news import News
from hivemind_c.doctor.troubles import TROUBLES
from hivemind_c.monitor.news_cache import NewsCache
from hivemind_c.optim.advice import AFTER, advice, measured, middle
from hivemind_c.optim.epoch_record import NUMBERS
from hivemind_c.optim.progress_tracker import ProgressTracker
from hivemind_c.optim.setup import RunSetup, difference, parse_setup, values_of
from hivemind_c.optim.speed import Speed

TARGET = 4096  #: samples of an epoch, until a peer tells the run's own
FAST = 8.0  #: as in docs/design/progress.md: who claims more times the reference is doubtful
FAILURES_MAX = 500
BEGINS_S = 5.0  #: that peers may tell of the run, or of a later epoch, before its count is heard
AHEAD = 2  #: epochs that a peer may be ahead of the count, which is of a moment ago
TOTAL_MAX = (1 << 63) - 1  #: an integer of SQLite
SETUPS_MAX = 64  #: different setups that are compared: the most common ones
PEERS_FAILURES_MAX = 20  #: of one peer: nobody fills the list


class PeerView(NamedTuple):  # of which a large swarm's look makes many
    """A peer of the run, as it says. All texts are a stranger's."""

    peer_id: str
    name: str
    version: str
    role: str
    epoch: int
    samples: int
    share: float  #: of all samples that peers say they have contributed
    speed: float
    loss: Optional[float]
    rounds: int
    failures: int
    age: float  #: seconds since it said so
    doubt: str  #: why its figures cannot be right; "": nothing speaks against them
    last: Optional[Tuple[Optional[float], ...]] = None  #: of its latest epoch the numbers of an EpochRecord
    troubles: Tuple[str, ...] = ()  #: what it says is wrong with itself: keys of TROUBLES
    loading: str = ""  #: how far its download of the state is; "": it loads none
    differs: str = ""  #: in which settings it differs from most peers; "": in none, or it does not say
    membership: str = ""  #: ID and name of its invitation, as it proves; "": the swarm is open


@dataclass(frozen=True)
class Failure:
    """A round that failed at a peer, as it says."""

    time: float
    peer_id: str
    epoch: int
    text: str


@dataclass(frozen=True)
class Snapshot:
    """The run at one moment."""

    time: float
    run_id: str
    epoch: int
    samples: int  #: in this epoch
    target: int
    speed: float  #: samples per second of the whole swarm, as they are counted
    eta: Optional[float]  #: seconds to the next epoch; None: not known
    num_peers: int
    num_clients: int
    loss: Optional[float]  #: the middle one of the peers' losses
    peers: Tuple[PeerView, ...] = ()  #: who contributed most is first
    failures: Tuple[Failure, ...] = ()  #: the newest first
    #: of each live member of a closed swarm that says nothing of the run: ID, and what its certificate proves
    silent: Tuple[Tuple[str, str], ...] = ()
    advice: str = ""  #: which mode the line carries, by what peers say; "": not known
    whole: bool = True  #: False: the monitor has just begun, and has not heard all of the swarm

    @property
    def is_training(self) -> bool:
        """True if somebody trains, as peers are counted or say themselves."""
        return self.num_peers > 0 or any(peer.role != "auxiliary" for peer in self.peers)

    @property
    def total(self) -> int:
        return min(TOTAL_MAX, self.epoch * self.target + min(self.samples, self.target))


def reference(values: Sequence[float]) -> float:
    """The most that at least one honest peer claims, if a third of them lies: the (f+1)-th highest."""
    return sorted(values, reverse=True)[len(values) // 3] if values else 0.0


def _training(heard: Iterable[Tuple[str, News, float]]) -> List[Tuple[str, News, float]]:
    """Those that train: a hub's record counts neither for the target nor for the epoch."""
    return [one for one in heard if one[1].role != "auxiliary"]


class Gatherer:
    """Looks at a run through a node of the DHT.

    Args:
        dht: A DHT that runs.
        run_id: Name of the run.
        target: Samples of an epoch. None: the number that most trainers report.
    """

    def __init__(self, dht: Any, run_id: str, target: Optional[int] = None):
        self._dht, self.run_id, self._target = dht, run_id, target
        self._tracker = ProgressTracker(dht, run_id, target or TARGET, start=True)
        self._next: Optional[ProgressTracker] = None  # of another target, until it has heard the swarm
        self._news, self._speed = NewsCache(dht, run_id), Speed()
        self._memberships: Dict[Tuple[str, bytes], str] = {}  # by peer and proof
        self._begun = time.monotonic()
        self._epoch: Optional[int] = None  # the one that was counted last, while somebody trained
        self._failures: "OrderedDict[Tuple[str, int, str], Failure]" = OrderedDict()
        # of each peer the failures that it told last time
        self._last_errors: Dict[str, Tuple[Tuple[int, str], ...]] = {}

    def look(self, asking: bool = True) -> Snapshot:
        """Returns a Snapshot. It waits for a part of a second at most.

        Args:
            asking: Ask the swarm for news. False: use those that are known, which costs less.
        """
        heard = self._news.look(time.monotonic(), asking)
        if self._target is None and self._news.whole and (targets := [news.target for _, news, _ in _training(heard)]):
            self._follow(statistics.mode(targets))
        return self._snapshot(heard, self._tracker.global_progress, time.time())

    def _follow(self, target: int) -> None:
        if target != (self._next or self._tracker).target_batch_size:
            if self._next is not None:
                self._next.shutdown()
            self._next = ProgressTracker(self._dht, self.run_id, target, start=True)
        if self._next is not None and self._next.fetched_global_progress_this_epoch.is_set():
            self._tracker.shutdown()
            self._tracker, self._next, self._speed, self._begun = self._next, None, Speed(), time.monotonic()

    def _snapshot(self, heard: List[Tuple[str, News, float]], progress: Any, now: float) -> Snapshot:
        training = _training(heard)
        told = int(reference([news.epoch for _, news, _ in training]))
        # at first the count is of records of some epochs ago
        counted = not training or progress.num_peers > 0 and told <= progress.epoch + AHEAD
        begins = not counted and time.monotonic() - self._begun <= BEGINS_S
        if begins:
            self._speed = Speed()  # what comes into the count now was not done now
        if progress.num_peers:
            self._epoch = progress.epoch
        epoch = progress.epoch
        if not progress.num_peers and not training:  # hubs hold the state of the epoch before the trainers went
            held = int(reference([news.epoch for _, news, _ in heard]))
            epoch = held if self._epoch is None else self._epoch
        peers = views(heard, told if begins or not progress.num_peers and training else epoch)
        members = self._members()
        losses = [view.loss for view in peers if view.loss is not None and not view.doubt]
        self._note_failures(heard, now)
        eta = progress.eta_next_epoch - get_dht_time()
        return Snapshot(
            time=now,
            run_id=self.run_id,
            epoch=epoch,
            samples=min(progress.samples_accumulated, progress.target_batch_size),
            target=progress.target_batch_size,
            speed=self._speed.look(progress),
            eta=max(0.0, eta) if math.isfinite(eta) else None,
            num_peers=progress.num_peers,
            num_clients=progress.num_clients,
            loss=statistics.median(losses) if losses else None,
            peers=self._with_memberships(peers, heard, members),
            silent=tuple(sorted(set(members.items()) - {(view.peer_id, members.get(view.peer_id)) for view in peers})),
            failures=tuple(reversed(self._failures.values())),
            advice=_advice(peers, heard, progress.target_batch_size),
            whole=self._news.whole and self._has_fetched and not begins,
        )

    def _members(self) -> Dict[str, str]:
        """In a closed swarm: how each live peer is a member, by the certificate of its connection."""
        node = self._dht.core
        if not node.membership:
            return {}
        return {peer_id: membership for peer_id, *_, membership in node.peers().result()}

    def _with_memberships(
        self, peers: List[PeerView], heard: List[Tuple[str, News, float]], members: Dict[str, str]
    ) -> Tuple[PeerView, ...]:
        """In a closed swarm: with the invitation of each peer. Without a connection here its record proves it."""
        if not members and not any(news.proof for _, news, _ in heard):
            return tuple(peers)
        node, before = self._dht.core, self._memberships
        proofs = {peer: news.proof for peer, news, _ in heard}
        self._memberships = {
            one: before[one] if one in before else node.proved(one[1], one[0]) for one in proofs.items()
        }
        return tuple(
            view._replace(
                membership=members.get(view.peer_id) or self._memberships[view.peer_id, proofs[view.peer_id]]
            )
            for view in peers
        )

    @property
    def _has_fetched(self) -> bool:
        return self._next is None and self._tracker.fetched_global_progress_this_epoch.is_set()

    def _note_failures(self, heard: List[Tuple[str, News, float]], now: float) -> None:
        for peer, news, _ in heard:
            if news.errors == self._last_errors.get(peer, ()):
                continue
            new = [error for error in news.errors if error not in self._last_errors.get(peer, ())]
            for epoch, text in new:
                self._failures.setdefault((peer, epoch, text), Failure(now, peer, epoch, text))
            if new:
                mine = [known for known in self._failures if known[0] == peer]
                for known in mine[:-PEERS_FAILURES_MAX]:
                    del self._failures[known]
        self._last_errors = {peer: news.errors for peer, news, _ in heard}
        while len(self._failures) > FAILURES_MAX:
            self._failures.popitem(last=False)

    def known_failures(self, failures: Sequence[Failure]) -> None:
        """Those of before a restart, oldest first."""
        for failure in failures:
            self._failures.setdefault((failure.peer_id, failure.epoch, failure.text), failure)

    def shutdown(self) -> None:
        for tracker in (self._tracker, self._next):
            if tracker is not None:
                tracker.shutdown()


def views(heard: Sequence[Tuple[str, News, float]], epoch: int) -> List[PeerView]:
    fast = FAST * reference([news.speed for _, news, _ in heard])
    much = FAST * max(1.0, reference([float(news.samples) for _, news, _ in heard]))
    doubts = [_doubt(news, epoch, fast if len(heard) > 2 else math.inf) for _, news, _ in heard]
    counted = sum(min(news.samples, much) for _, news, _ in heard) or 1.0
    differs = _differences(news.setup for _, news, _ in heard)
    found = [
        PeerView(
            peer, news.name, news.version, news.role, news.epoch, news.samples, min(news.samples, much) / counted,
            float(news.speed), news.loss, news.rounds, news.failures, age, doubt,
            news.last if news.last is not None and len(news.last) == len(NUMBERS) else None,  # another version's differ
            tuple(code for code in news.troubles if code in TROUBLES),
            _loading(news),
            differs.get(news.setup, ""),
        )
        for (peer, news, age), doubt in zip(heard, doubts)
    ]  # fmt: skip
    return sorted(found, key=lambda view: (-view.samples, view.peer_id))


def _loading(news: News) -> str:
    if not news.loading:
        return ""
    part, rate, left_s = news.loading
    left = f"{left_s:.0f} s left" if left_s < 1e6 else "nothing comes"
    return f"loads the state: {part:.0%} at {8e-6 * rate:.3g} Mbit/s, {left}"


def _differences(told: Iterable[bytes]) -> Dict[bytes, str]:
    """Of each setup that peers say they have: in which settings it differs from the most common one."""
    counts = Counter(told)
    counts.pop(b"", None)
    known: Dict[bytes, RunSetup] = {}
    for packed in sorted(counts, key=lambda packed: (-counts[packed], packed))[:SETUPS_MAX]:
        try:
            known[packed] = parse_setup(packed)
        except ValueError:
            continue  # a stranger's bytes
    common = next(iter(known.values()), None)
    return {
        packed: "differs in " + ", ".join(f"{field} ({mine}, most have {theirs})" for field, mine, theirs in found[:3])
        for packed, setup in known.items()
        if common is not None and (found := difference(setup, common))
    }


def _advice(peers: Sequence[PeerView], heard: Sequence[Tuple[str, News, float]], target: int) -> str:
    """The advice that a peer would log with the figures of these peers."""
    counts = Counter(news.setup for _, news, _ in heard if news.setup)
    if not counts:
        return ""
    try:
        setup = parse_setup(max(counts, key=lambda packed: (counts[packed], packed)))
    except ValueError:
        return ""  # a stranger's bytes
    parameters, is_local = values_of(setup), "outer_optimizer" in dict(setup.fields)
    found = [
        measured(dict(zip(NUMBERS, view.last)), parameters, target, is_local)
        for view in peers
        if view.last is not None and view.role != "auxiliary" and not view.doubt and view.rounds >= AFTER
    ]
    known = [one for one in found if one is not None]
    return advice(middle(known)) if known else ""


def _doubt(news: News, epoch: int, fast: float) -> str:
    if news.epoch > epoch + AHEAD:
        return f"says swarm epoch {news.epoch}, and the swarm is in {epoch}"
    if news.speed > fast > 0:
        return f"says to be more than {FAST:g} times faster than most"
    return ""
