"""EpochJudge: whether this peer does more harm than good, by its last swarm epochs. Records in, sentences out.

Each rule counts the epochs that speak for a trouble (hivemind_c/doctor/troubles.py). It holds if they are at least
60% of the latest swarm epochs: of five, or where epochs are short, of as many as fill LEAST_S.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, Dict, List, NamedTuple, Tuple

from hivemind_c.doctor.troubles import CLOCK_APART_S, TROUBLES
from hivemind_c.optim.epoch_record import EpochRecord

LATEST, LEAST, FRACTION = 5, 3, 0.6  #: epochs that are looked at; that must speak for a trouble; and their part
LEAST_S = 15.0  #: seconds of training before the first verdict: peers need some to find each other
MOST = 256  #: epochs that are kept
AGAIN_S = 1800.0  #: seconds until a sentence is repeated, if it still holds
THIN_PART, THIN_TIME, THIN_S = 0.25, 1 / 3, 2.0


class Situation(NamedTuple):
    """Facts that the records do not show."""

    run_id: str
    others: int  #: peers of any run that this node is connected to
    is_initial: bool = False  #: the initial peers name this node itself


class Rule(NamedTuple):
    """One trouble, and how it is recognised."""

    code: str  #: a key of TROUBLES
    speaks: Callable[[EpochRecord], bool]  #: whether this epoch speaks for it
    detail: Callable[[EpochRecord, Situation], str]  #: the cause, of the latest epoch that speaks for it; "": not said
    reason: str  #: why this threshold


class Verdict(NamedTuple):
    """A trouble of this peer, as it is said to the program."""

    code: str
    text: str


def _reducing(record: EpochRecord) -> float:
    return record.reducing_s + record.background_reducing_s


def _is_thin(record: EpochRecord) -> bool:
    return (
        record.part is not None
        and record.part < THIN_PART
        and _reducing(record) > max(THIN_S, THIN_TIME * record.wall_s)
    )


def _why_alone(record: EpochRecord, now: Situation) -> str:
    if now.is_initial:
        return ""
    if not now.others:
        return "none of them is connected"
    return f"it is connected to others, but none of them trains in {now.run_id!r}"


def _why_lost(record: EpochRecord, now: Situation) -> str:
    return next((why for why in record.why if "samples lost" in why), f"{record.lost_samples} samples lost")


def _why_clock(record: EpochRecord, now: Situation) -> str:
    offset = record.clock_s or 0.0
    return f"it is {abs(offset):.0f} s {'behind' if offset > 0 else 'ahead'}"


def _why_thin(record: EpochRecord, now: Situation) -> str:
    return (
        f"averaging took {_reducing(record):.1f} s of a swarm epoch of {record.wall_s:.1f} s, and this peer is "
        f"trusted with {record.part:.0%} of an equal part of it"
    )


#: The rules. A newcomer's first epoch, or one lost round, speaks for nothing: that is the life of a swarm.
RULES = (
    Rule(
        "alone",
        lambda record: record.outcome == "alone",
        _why_alone,
        "a peer hears the swarm within seconds; a run's first peer has no initial peers, or waits for others",
    ),
    Rule(
        "left_out",
        lambda record: record.outcome in ("left out", "caught up"),
        lambda record, now: f"the last one was swarm epoch {record.epoch}",
        "a newcomer is left out once or twice, until it is in step",
    ),
    Rule(
        "failing",
        lambda record: record.outcome == "failed",
        lambda record, now: f"last in swarm epoch {record.epoch}, {record.why[0] if record.why else 'unknown'}",
        "a member that dies makes one round fail, and the next one is made without it",
    ),
    Rule(
        "lost",
        lambda record: record.lost_samples > record.samples and record.outcome not in ("left out", "caught up"),
        _why_lost,
        "one overflow is how a loss scale is found; a peer that loses more than it gives only costs the others time",
    ),
    Rule(
        "clock",
        lambda record: record.clock_s is not None and abs(record.clock_s) > CLOCK_APART_S,
        _why_clock,
        "no rule of the swarm goes by a clock, so only an offset that people stumble over is said",
    ),
    Rule(
        "thin",
        _is_thin,
        _why_thin,
        "the plan gives a slow link a small part of the values; if it costs a third of the time, it holds others up",
    ),
)


class EpochJudge:
    """Looks at the records of one peer.

    Args:
        situation: Returns the Situation now. It is asked only when there is something to say.
        has_initial_peers: True if the program gave initial peers. Else nobody wonders at a peer that is alone.
    """

    def __init__(self, situation: Callable[[], Situation], has_initial_peers: bool):
        self._situation = situation
        self._rules = [rule for rule in RULES if rule.code != "alone" or has_initial_peers]
        self._window: Deque[Tuple[float, Tuple[bool, ...]]] = deque()
        self._counts = [0] * len(self._rules)
        self._window_s = self._total_s = 0.0
        self._said: Dict[str, float] = {}  # code: when, in seconds of training
        self.codes: Tuple[str, ...] = ()  #: troubles that were said and still hold

    def look(self, record: EpochRecord) -> List[Verdict]:
        """Takes the record of the next swarm epoch. Returns what is to be said now.

        Args:
            record: The record.
        """
        speaks = tuple(rule.speaks(record) for rule in self._rules)
        self._add(record.wall_s, speaks)
        holding = [i for i in range(len(self._rules)) if self._holds(i)]
        verdicts = []
        for i in holding:
            code = self._rules[i].code
            if not speaks[i] or self._total_s - self._said.get(code, -AGAIN_S) < AGAIN_S:
                continue
            if detail := self._rules[i].detail(record, self._situation()):
                self._said[code] = self._total_s
                about, remedy = TROUBLES[code]
                verdicts.append(Verdict(code, f"this peer {about}: {detail}; {remedy}"))
        self.codes = tuple(self._rules[i].code for i in holding if self._rules[i].code in self._said)
        return verdicts

    def _add(self, wall_s: float, speaks: Tuple[bool, ...]) -> None:
        self._window.append((wall_s, speaks))
        self._window_s += wall_s
        self._total_s += wall_s
        self._counts = [count + one for count, one in zip(self._counts, speaks)]
        while len(self._window) > LATEST and (
            len(self._window) > MOST or self._window_s - self._window[0][0] >= LEAST_S
        ):
            old_s, old = self._window.popleft()
            self._window_s -= old_s
            self._counts = [count - one for count, one in zip(self._counts, old)]

    def _holds(self, rule: int) -> bool:
        return self._total_s >= LEAST_S and self._counts[rule] >= max(LEAST, FRACTION * len(self._window))
