"""Why a peer that loads the state again and again does not get into a swarm epoch, in one sentence with figures."""

from __future__ import annotations

import math
from typing import NamedTuple

FITS = 0.5  #: part of a swarm epoch that a download may take: the group forms when half of the samples are there
#: the same of an average that is downloaded: what was missed waits in no more memory than a state has, and rounds go on
AVERAGE_FITS = 0.5
STEPS = 32  #: that a peer makes again at most (docs/design/log.md, rule 12)
LOGGED_S = 1.0  #: shorter swarm epochs are in no log (rule 13)


class Figures(NamedTuple):
    """Figures of a peer and its swarm. 0: not known."""

    loads: int  #: without a common swarm epoch
    load_s: float  #: of the latest download
    load_bytes: int
    average_bytes: int  #: of a swarm epoch, as others keep it; 0: nobody does
    epoch_s: float  #: of a swarm epoch, at the swarm's speed
    batch_s: float  #: of this peer
    target: int  #: target_batch_size
    is_compressed: bool  #: by load_state_compression


def two_digits(value: float) -> int:
    """Returns a number of two digits that is no less.

    Args:
        value: The number.
    """
    unit = 10 ** max(0, math.floor(math.log10(max(value, 1))) - 1)
    return int(math.ceil(value / unit) * unit)


def average_s(now: Figures) -> float:
    """Returns the seconds of a download of an average, or 0 if nobody keeps any.

    Args:
        now: The figures.
    """
    return now.load_s * now.average_bytes / now.load_bytes if now.load_bytes else 0.0


def least_epoch_s(now: Figures) -> float:
    """Returns the shortest swarm epoch that a peer on this line comes into: by a quick download, or by the log.

    With averages of a seconds, a peer has made the steps of L / (T - a) swarm epochs when it has caught up.

    Args:
        now: The figures.
    """
    quick, average = now.load_s / FITS, average_s(now)
    if not average:
        return quick
    return min(quick, max(average / AVERAGE_FITS, average + now.load_s / STEPS, LOGGED_S))


def _takes(now: Figures) -> str:
    line = f" at {8e-6 * now.load_bytes / now.load_s:.3g} Mbit/s" if now.load_bytes else ""
    average = average_s(now)
    averages = f", the average of a swarm epoch {average:.3g} s" if average else ""
    return f"a download takes {now.load_s:.3g} s{line}{averages}, and a swarm epoch {now.epoch_s:.3g} s"


def _smaller(now: Figures) -> str:
    if average_s(now) / AVERAGE_FITS >= least_epoch_s(now):
        return "or a grad_compression of fewer bits at all peers"
    if now.is_compressed:
        return "or a faster line"
    return "or load_state_compression=hivemind_c.Float16Compression() at all peers, which shortens the download"


def why(now: Figures) -> str:
    """Returns the sentence.

    Args:
        now: The figures.
    """
    about = f"this peer has loaded the state {now.loads} times and has not finished a swarm epoch with the others: "
    least_s = least_epoch_s(now)
    if least_s > now.epoch_s > 0:
        target = two_digits(now.target * least_s / now.epoch_s)
        return f"{about}{_takes(now)}; give target_batch_size={target} or more at all peers, {_smaller(now)}"
    if now.batch_s > now.epoch_s > 0:
        return (
            f"{about}a batch takes {now.batch_s:.3g} s on this machine, and a swarm epoch {now.epoch_s:.3g} s, so it "
            "is slower than the swarm; give it smaller batches, or a larger target_batch_size at all peers"
        )
    return f"{about}a download took {now.load_s:.3g} s; run hivemind-doctor on this machine"
