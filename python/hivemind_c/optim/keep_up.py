"""Why a peer that loads the state again and again does not get into a swarm epoch, in one sentence with figures."""

from __future__ import annotations

import math
from typing import NamedTuple

FITS = 0.5  #: part of a swarm epoch that a download may take: the group forms when half of the samples are there


class Figures(NamedTuple):
    """Figures of a peer and its swarm. 0: not known."""

    loads: int  #: without a common swarm epoch
    load_s: float  #: of the latest download
    load_bytes: int
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


def why(now: Figures) -> str:
    """Returns the sentence.

    Args:
        now: The figures.
    """
    about = f"this peer has loaded the state {now.loads} times and has not finished a swarm epoch with the others: "
    if now.load_s > FITS * now.epoch_s > 0:
        target = two_digits(now.target * now.load_s / (FITS * now.epoch_s))
        line = f" at {8e-6 * now.load_bytes / now.load_s:.3g} Mbit/s" if now.load_bytes else ""
        smaller = (
            "or a faster line"
            if now.is_compressed
            else "or load_state_compression=hivemind_c.Float16Compression() at all peers, which shortens the download"
        )
        return (
            f"{about}a download takes {now.load_s:.3g} s{line}, and a swarm epoch {now.epoch_s:.3g} s; give "
            f"target_batch_size={target} or more at all peers, {smaller}"
        )
    if now.batch_s > now.epoch_s > 0:
        return (
            f"{about}a batch takes {now.batch_s:.3g} s on this machine, and a swarm epoch {now.epoch_s:.3g} s, so it "
            "is slower than the swarm; give it smaller batches, or a larger target_batch_size at all peers"
        )
    return f"{about}a download took {now.load_s:.3g} s; run hivemind-doctor on this machine"
