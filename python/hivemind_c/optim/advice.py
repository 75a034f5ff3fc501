"""Advice: the share of its time that a peer can compute on the line that its rounds measured, and the way to take.

The peer logs it once. The monitor makes the same sentence of what peers report.
"""

from __future__ import annotations

import statistics
from typing import List, Mapping, NamedTuple, Optional, Sequence, Tuple

from hivemind_c.optim.epoch_record import EpochRecord
from hivemind_c.optim.keep_up import two_digits
from hivemind_c.optim.target_check import SHORT_S
from hivemind_c.optim.ways import COMPUTED, WAYS, averaging_s, least_s, recommended, share

AFTER = 2  #: swarm epochs that averaged, before anything is said: the first one has what others waited for

LEAST_S = 1e-3  #: seconds of computing in a swarm epoch; less is no training


class Measured(NamedTuple):
    """Figures of a swarm epoch that averaged."""

    computing_s: float  #: of a peer
    averaged_s: float  #: of its averages
    paused_s: float  #: of them, while training waited
    bytes_moved: float  #: in the busier direction
    members: float
    parameters: int
    target: int
    is_local: bool  #: the run makes local steps


def measured(
    numbers: Mapping[str, Optional[float]], parameters: int, target: int, is_local: bool
) -> Optional[Measured]:
    """Returns the figures of a record, or None if its rounds measured no line. The record may be a stranger's.

    Args:
        numbers: Numbers of an EpochRecord.
        parameters: Values of the model.
        target: target_batch_size.
        is_local: The run makes local steps.
    """
    known = {name: value or 0.0 for name, value in numbers.items()}
    paused, computing = known["reducing_s"], known["computing_s"] + known["stepping_s"]
    averaged, moved = paused + known["background_reducing_s"], max(known["bytes_sent"], known["bytes_received"])
    if paused < 0 or averaged < SHORT_S or moved < 1 or computing < LEAST_S or known["members"] < 2 or parameters < 1:
        return None
    return Measured(computing, averaged, paused, moved, known["members"], parameters, target, is_local)


def middle(found: Sequence[Measured]) -> Measured:
    """Returns the figures with the speed in the middle: a round is as slow as its slowest member, for all of them.

    Args:
        found: One or more.
    """
    return sorted(found, key=lambda one: one.bytes_moved / one.averaged_s)[(len(found) - 1) // 2]


def advice(now: Measured) -> str:
    """Returns the sentence.

    Args:
        now: The figures.
    """
    speed, computing = now.bytes_moved / now.averaged_s, now.computing_s
    seconds = {name: averaging_s(way, now.parameters, speed, now.members) for name, way in WAYS.items()}
    present = computing / (computing + now.paused_s)
    shares = ", ".join(f"{share(way, computing, seconds[name]):.2f} ({name})" for name, way in WAYS.items())
    exact = [
        f"{_shown(least_s(way, seconds[name]))} s ({name})"
        for name, way in WAYS.items()
        if not way.hidden and not way.is_local
    ]
    text = (
        f"averages move at {8e-6 * speed:.3g} Mbit/s on this line: with {now.parameters / 1e6:.3g} million parameters "
        f"and {_shown(computing)} s of computing in a swarm epoch, a peer computes {present:.2f} of the time, and "
        f"would compute {shares}; for {COMPUTED:g} of the time, exact averages allow a step each {', '.join(exact)}; "
    )
    if present >= COMPUTED:
        return text + "recommended: the options as they are"
    name = recommended(seconds, computing, now.is_local)
    options, least = dict(WAYS[name].options), least_s(WAYS[name], seconds[name])
    if least > computing:
        options["target_batch_size"] = f"{two_digits(now.target * least / computing)} or more"
    given = ", ".join(f"{option}={value}" for option, value in options.items())
    return f"{text}recommended at all peers: {name}: {given}"


class Advice:
    """Looks at the records of one peer. Its sentence comes once.

    All peers of a run have the same mode and options, so a peer changes none by itself but the bits of local steps.

    Args:
        parameters: Values of the model.
        target: target_batch_size.
        is_local: The run makes local steps.
    """

    def __init__(self, parameters: int, target: int, is_local: bool):
        self._run, self._found = (parameters, target, is_local), []  # type: Tuple[int, int, bool], List[Measured]

    def look(self, record: EpochRecord) -> Optional[str]:
        """Takes the record of the next swarm epoch. Returns what is to be said now, or None.

        Args:
            record: The record.
        """
        if len(self._found) == AFTER or record.outcome != "averaged":
            return None
        found = measured(record.numbers(), *self._run)
        if found is None:
            return None
        self._found.append(found)
        return advice(_mean(self._found)) if len(self._found) == AFTER else None


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _mean(found: Sequence[Measured]) -> Measured:
    run = found[0]
    return Measured(
        computing_s=statistics.fmean(one.computing_s for one in found),
        averaged_s=statistics.fmean(one.averaged_s for one in found),
        paused_s=statistics.fmean(one.paused_s for one in found),
        bytes_moved=statistics.fmean(one.bytes_moved for one in found),
        members=statistics.fmean(one.members for one in found),
        parameters=run.parameters,
        target=run.target,
        is_local=run.is_local,
    )
