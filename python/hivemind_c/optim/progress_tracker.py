"""How far is the swarm? One contributor's view, under the names that hivemind's users know; the rules are the core's (docs/PROGRESS.md)."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Iterator, NamedTuple, Optional

import _hivemind_c

from hivemind_c.dht import DHT, get_dht_time

STANDINGS = "in step", "late", "behind", "ahead"


class Figures(NamedTuple):
    """What the core tells at once, in its order; times are seconds from now."""

    reported: bool
    local_epoch: int
    local_samples: int
    local_speed: float
    reported_at: float
    epoch: int
    samples: float
    target: int
    peers: int
    clients: int
    eta: float
    standing: int
    ready: bool
    match: bool
    fetched: bool
    alive: bool
    next_fetch: float


_named = partial(tuple.__new__, Figures)  # without a frame for seventeen arguments: it is read at each step


@dataclass(frozen=True)
class GlobalTrainingProgress:
    """How far the swarm is; times are in get_dht_time()."""

    epoch: int  #: what a third of the peers have reached: no smaller number of liars moves it
    samples_accumulated: int  #: of all peers in this epoch; others' are carried on to now by their speed
    target_batch_size: int
    num_peers: int  #: contributors, this one among them
    num_clients: int  #: those of them that only dial out
    eta_next_epoch: float  #: when the target is reached; infinite while nobody's speed is known
    next_fetch_time: float


@dataclass(frozen=True)
class LocalTrainingProgress:
    """How far this contributor is, as it reported."""

    peer_id: str
    epoch: int
    samples_accumulated: int
    samples_per_second: float
    time: float
    client_mode: bool


class _Fetched:
    """Whether the swarm was heard since this contributor's epoch began; to be used as a threading.Event."""

    def __init__(self, progress: _hivemind_c.Progress):
        self._progress = progress

    def is_set(self) -> bool:
        return _named(self._progress.read()).fetched

    def wait(self, timeout: Optional[float] = None) -> bool:
        return self._progress.wait(timeout)


class MeasuredSpeed:
    """How fast this contributor is, as its tracker measures it."""

    def __init__(self, tracker: "ProgressTracker", alpha: float):
        self._tracker, self.alpha = tracker, alpha

    @property
    def samples_per_second(self) -> float:
        return self._tracker.figures().local_speed

    @property
    def ema_seconds_per_sample(self) -> float:
        speed = self.samples_per_second
        return 1 / speed if speed > 0 else 0.0

    def pause(self) -> Any:
        """A context whose time does not count."""
        return self._tracker.pause_updates()


class ProgressTracker:
    """Says how far this contributor is, and tells how far the swarm is. Usable from any thread; no call but `wait` waits for anything.

    dht: the node through which it is told; prefix: the run's name; target_batch_size: samples of one epoch.
    The swarm is asked at the time when the target would be reached if expected_drift_peers more peers (or expected_drift_rate of all) came, but
    between min_refresh_period and max_refresh_period, and every default_refresh_period while nobody's speed is known (seconds).
    performance_ema_alpha: how fast the measured speed follows. metadata_expiration: after so many seconds a peer that is not heard is forgotten.
    matchmaking_time, batch_size_lead: a group is looked for (should_begin_matchmaking) so long, or so many samples, before the target.
    fast: a peer counts for at most so many times what all but a third of the peers stay below, so that nobody's claims weigh too much.
    private_key and status_loglevel have no effect: reports are signed with the node's key. Several trackers of a node are several contributors (8 of one prefix).
    """

    def __init__(
        self,
        dht: DHT,
        prefix: str,
        target_batch_size: int,
        *,
        client_mode: Optional[bool] = None,
        min_refresh_period: float = 0.5,
        max_refresh_period: float = 10,
        default_refresh_period: float = 3,
        expected_drift_peers: float = 3,
        expected_drift_rate: float = 0.2,
        performance_ema_alpha: float = 0.1,
        metadata_expiration: float = 60.0,
        private_key: Any = None,
        matchmaking_time: float = 0,
        batch_size_lead: int = 0,
        fast: float = 8,
        status_loglevel: Optional[int] = None,
        daemon: bool = True,
        start: bool,
    ):
        self.dht, self.prefix, self.client_mode = dht, prefix, dht.client_mode if client_mode is None else bool(client_mode)
        self._options = dict(
            client_mode=self.client_mode,
            batch_size_lead=batch_size_lead,
            matchmaking_time=matchmaking_time,
            min_refresh_period=min_refresh_period,
            max_refresh_period=max_refresh_period,
            default_refresh_period=default_refresh_period,
            expected_drift_peers=expected_drift_peers,
            expected_drift_rate=expected_drift_rate,
            performance_ema_alpha=performance_ema_alpha,
            metadata_expiration=metadata_expiration,
            fast=fast,
        )
        self.target_batch_size = target_batch_size
        self.min_refresh_period, self.max_refresh_period, self.default_refresh_period = min_refresh_period, max_refresh_period, default_refresh_period
        self.expected_drift_peers, self.expected_drift_rate = expected_drift_peers, expected_drift_rate
        self.metadata_expiration, self.performance_ema = metadata_expiration, MeasuredSpeed(self, performance_ema_alpha)
        self._progress: Optional[_hivemind_c.Progress] = None
        if start:
            self.run_in_background()

    @property
    def training_progress_key(self) -> str:
        """Where hivemind keeps records of progress; here the core tells of it by itself."""
        return f"{self.prefix}_progress"

    def run_in_background(self, await_ready: bool = True, timeout: Optional[float] = None) -> None:
        """Starts it, unless it runs."""
        if self._progress is None:
            self._progress = _hivemind_c.Progress(self.dht._node._started(), self.prefix, self.target_batch_size, **self._options)

    start = run_in_background

    # ---- this contributor ----

    def report_local_progress(self, local_epoch: int, samples_accumulated: int, update_global_samples: bool = True) -> None:
        """This contributor has so many samples in that epoch. The latest counts; it costs a microsecond. update_global_samples: they are counted in
        global_progress at once, always."""
        self._started().report(local_epoch, samples_accumulated)

    def withdraw(self) -> None:
        """This contributor is not counted until it reports again."""
        self._started().withdraw()

    def update_epoch(self, new_epoch: Optional[int] = None) -> int:
        """This contributor begins an epoch (the next one by default) with no samples; returns it."""
        if new_epoch is None:
            new_epoch = self.figures().local_epoch + 1
        self._started().report(new_epoch, 0)
        return new_epoch

    @contextmanager
    def pause_updates(self) -> Iterator[None]:
        """What happens meanwhile (averaging, say) does not count as slowness."""
        self._started().pause(True)
        try:
            yield
        finally:
            if self._progress is not None:
                self._progress.pause(False)

    @property
    def local_progress(self) -> LocalTrainingProgress:
        now = self.figures()
        return LocalTrainingProgress(
            peer_id=self.dht.peer_id,
            epoch=now.local_epoch,
            samples_accumulated=now.local_samples,
            samples_per_second=now.local_speed,
            time=get_dht_time() + now.reported_at if now.reported else 0.0,
            client_mode=self.client_mode,
        )

    # ---- the swarm ----

    def figures(self) -> Figures:
        """All there is to say now, at once: what the properties below are taken from."""
        return _named(self._started().read())

    @property
    def global_progress(self) -> GlobalTrainingProgress:
        now = self.figures()
        return GlobalTrainingProgress(
            epoch=now.epoch,
            samples_accumulated=int(now.samples),
            target_batch_size=now.target,
            num_peers=now.peers,
            num_clients=now.clients,
            eta_next_epoch=get_dht_time() + now.eta,
            next_fetch_time=get_dht_time() + now.next_fetch,
        )

    @property
    def global_epoch(self) -> int:
        return self.figures().epoch

    @property
    def ready_to_update_epoch(self) -> bool:
        """Whether it is time for this contributor's step: the swarm is further, or its samples are enough."""
        return self.figures().ready

    @property
    def should_begin_matchmaking(self) -> bool:
        """Whether it is time to form a group for that step: matchmaking_time or batch_size_lead before it."""
        return self.figures().match

    @property
    def estimated_next_update_time(self) -> float:
        """In get_dht_time(); now, if the swarm is ready."""
        now = self.figures()
        return get_dht_time() + (0 if now.ready else now.eta)

    @property
    def standing(self) -> str:
        """Where this contributor stands: "in step", "late" by one epoch (whose step may be under way), "behind" by more, or "ahead"."""
        return STANDINGS[self.figures().standing]

    @property
    def fetched_global_progress_this_epoch(self) -> _Fetched:
        return _Fetched(self._started())

    def fetch_global_progress(self) -> None:
        """Asks the swarm now instead of when it is due; fetched_global_progress_this_epoch tells when an answer came."""
        self._started().refresh()

    # ---- life ----

    def is_alive(self) -> bool:
        return self._progress is not None and self.figures().alive

    def shutdown(self, timeout: Optional[float] = None) -> None:
        """Says that this contributor has gone. May be called twice."""
        if self._progress is not None:
            self._progress.close()

    def __enter__(self) -> "ProgressTracker":
        return self

    def __exit__(self, *exc_info) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<hivemind_c.ProgressTracker of {self.prefix!r}>"

    def _started(self) -> _hivemind_c.Progress:
        if self._progress is None:
            raise _hivemind_c.HivemindError("cannot use this tracker: it has not been started; call run_in_background()")
        return self._progress


def __getattr__(name: str) -> object:
    if name == "TrainingProgressSchema":  # pydantic is needed for it alone
        from hivemind_c.optim.progress_schema import TrainingProgressSchema

        return TrainingProgressSchema
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
