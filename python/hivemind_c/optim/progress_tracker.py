"""ProgressTracker: progress of the swarm and of this contributor.

The rules are in docs/design/progress.md, and C applies them.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Iterator, NamedTuple, Optional

import _hivemind_c

from hivemind_c._signature import names_options
from hivemind_c.dht import DHT, get_dht_time

STANDINGS = "in step", "late", "behind", "ahead"


class Figures(NamedTuple):
    """All values that C reports at once, in its order. Times are seconds from now."""

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
    speed: float  #: samples per second of all


_named = partial(tuple.__new__, Figures)  # without a frame for eighteen arguments: it is read at each step


@dataclass(frozen=True)
class GlobalTrainingProgress:
    """Progress of the swarm. Times are moments in get_dht_time()."""

    epoch: int  #: what a third of the peers have reached: no smaller number of liars moves it
    samples_accumulated: int  #: of all peers in this epoch; others' are carried on to now by their speed
    target_batch_size: int
    num_peers: int  #: contributors, this one among them
    num_clients: int  #: those of them that only dial out
    eta_next_epoch: float  #: when the target is reached; infinite while nobody's speed is known
    next_fetch_time: float


@dataclass(frozen=True)
class LocalTrainingProgress:
    """Progress of this contributor, as it reported it."""

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
    """Speed of this contributor, as its tracker measures it.

    Args:
        tracker: The ProgressTracker.
        alpha: Weight of the newest measurement, from 0 to 1.
    """

    def __init__(self, tracker: "ProgressTracker", alpha: float):
        self._tracker, self.alpha = tracker, alpha

    @property
    def samples_per_second(self) -> float:
        """Samples per second. 0: not known."""
        return self._tracker.figures().local_speed

    @property
    def ema_seconds_per_sample(self) -> float:
        """Seconds per sample. 0: not known."""
        speed = self.samples_per_second
        return 1 / speed if speed > 0 else 0.0

    def pause(self) -> Any:
        """A context whose time is not counted."""
        return self._tracker.pause_updates()


class ProgressTracker:
    """Reports the progress of this contributor, and shows that of the swarm.

    It can be used from any thread, and only fetched_global_progress_this_epoch.wait() waits. Several trackers on one
    node are several contributors, at most 8 of one prefix. The tracker asks the swarm when the samples of peers that
    may have joined meanwhile could reach the target.

    Args:
        dht: A DHT that runs.
        prefix: Name of the run.
        target_batch_size: Samples from all peers for one swarm epoch.
        client_mode: Report that this peer only dials out. None: as the DHT.
        min_refresh_period: Least seconds between two questions to the swarm.
        max_refresh_period: Most seconds between two questions to the swarm.
        default_refresh_period: Seconds between two questions while no speed is known.
        expected_drift_peers: Number of peers that may join before the next question.
        expected_drift_rate: The same as a fraction of all peers. The larger number applies.
        performance_ema_alpha: Weight of the newest measurement in the moving average of the speed, from 0 to 1.
        metadata_expiration: Lease of this peer's record in seconds. Silent peers count for 3 x max_refresh_period.
        private_key: Accepted without effect: reports are signed with the key of the node.
        matchmaking_time: Seconds before the target at which should_begin_matchmaking becomes true.
        batch_size_lead: Samples before the target at which should_begin_matchmaking becomes true.
        fast: Most that one peer's figures count for, in multiples of the largest figure below the highest third.
        status_loglevel: Accepted without effect.
        daemon: Accepted without effect.
        start: Start at once. False: run_in_background() starts it.
    """

    @names_options
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
        self.dht, self.prefix, self.client_mode = (
            dht,
            prefix,
            dht.client_mode if client_mode is None else bool(client_mode),
        )
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
        self.min_refresh_period, self.max_refresh_period, self.default_refresh_period = (
            min_refresh_period,
            max_refresh_period,
            default_refresh_period,
        )
        self.expected_drift_peers, self.expected_drift_rate = expected_drift_peers, expected_drift_rate
        self.metadata_expiration, self.performance_ema = metadata_expiration, MeasuredSpeed(self, performance_ema_alpha)
        self._progress: Optional[_hivemind_c.Progress] = None
        if start:
            self.run_in_background()

    @property
    def training_progress_key(self) -> str:
        """The key under which hivemind keeps progress records. C does not use it."""
        return f"{self.prefix}_progress"

    def run_in_background(self, await_ready: bool = True, timeout: Optional[float] = None) -> None:
        """Starts the tracker, unless it runs.

        Args:
            await_ready: Accepted without effect.
            timeout: Accepted without effect.
        """
        if self._progress is None:
            self._progress = _hivemind_c.Progress(
                self.dht.core, self.prefix, self.target_batch_size, **self._options
            )

    start = run_in_background

    # ---- this contributor ----

    def report_local_progress(
        self, local_epoch: int, samples_accumulated: int, update_global_samples: bool = True
    ) -> None:
        """Reports the progress of this contributor. The latest report counts.

        Args:
            local_epoch: Epoch of this contributor.
            samples_accumulated: Its samples in that swarm epoch.
            update_global_samples: Accepted without effect: global_progress counts them at once.
        """
        self.core.report(local_epoch, samples_accumulated)

    def withdraw(self) -> None:
        """Takes this contributor out of the count until it reports again."""
        self.core.withdraw()

    def update_epoch(self, new_epoch: Optional[int] = None) -> int:
        """Begins a swarm epoch without samples, and returns its number.

        Args:
            new_epoch: Number of the swarm epoch. None: the next one.
        """
        if new_epoch is None:
            new_epoch = self.figures().local_epoch + 1
        self.core.report(new_epoch, 0)
        return new_epoch

    @contextmanager
    def pause_updates(self) -> Iterator[None]:
        """A context whose time is not counted in the speed, for example that of an averaging."""
        self.core.pause(True)
        try:
            yield
        finally:
            if self._progress is not None:
                self._progress.pause(False)

    @property
    def local_progress(self) -> LocalTrainingProgress:
        """The latest report of this contributor."""
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
        """Returns all values at once. The properties are taken from them."""
        return _named(self.core.read())

    @property
    def global_progress(self) -> GlobalTrainingProgress:
        """The progress of the swarm now."""
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
        """The epoch of the swarm."""
        return self.figures().epoch

    @property
    def ready_to_update_epoch(self) -> bool:
        """True if it is time for the step of this contributor: the swarm is ahead, or its samples reach the target."""
        return self.figures().ready

    @property
    def should_begin_matchmaking(self) -> bool:
        """True if it is time to form a group for that step, by matchmaking_time or batch_size_lead."""
        return self.figures().match

    @property
    def estimated_next_update_time(self) -> float:
        """The moment of the next step in get_dht_time(). It is now if the swarm is ready."""
        now = self.figures()
        return get_dht_time() + (0 if now.ready else now.eta)

    @property
    def standing(self) -> str:
        """ "in step", "late" by one swarm epoch (whose step may still run), "behind" by more, or "ahead"."""
        return STANDINGS[self.figures().standing]

    @property
    def fetched_global_progress_this_epoch(self) -> _Fetched:
        """An event that is set once an answer of the swarm came in this swarm epoch."""
        return _Fetched(self.core)

    def fetch_global_progress(self) -> None:
        """Asks the swarm at once. fetched_global_progress_this_epoch shows when an answer came."""
        self.core.refresh()

    # ---- life ----

    def is_alive(self) -> bool:
        """True if the tracker was started and has not been shut down."""
        return self._progress is not None and self.figures().alive

    def shutdown(self, timeout: Optional[float] = None) -> None:
        """Reports that this contributor has left. May be called twice.

        Args:
            timeout: Accepted without effect.
        """
        if self._progress is not None:
            self._progress.close()

    @property
    def core(self) -> _hivemind_c.Progress:
        """The tracker in C. Raises HivemindError before run_in_background()."""
        if self._progress is None:
            raise _hivemind_c.HivemindError(
                "cannot use this tracker: it has not been started; call run_in_background()"
            )
        return self._progress

    def __enter__(self) -> "ProgressTracker":
        return self

    def __exit__(self, *exc_info) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<hivemind_c.ProgressTracker of {self.prefix!r}>"


def __getattr__(name: str) -> object:
    if name == "TrainingProgressSchema":  # pydantic is needed for it alone
        from hivemind_c.optim.progress_schema import TrainingProgressSchema

        return TrainingProgressSchema
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
