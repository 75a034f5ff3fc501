"""Arguments for an averager, looked at before anything happens: an error says what is wrong with it, and what
would be right.
"""

from __future__ import annotations

import logging
from typing import Any, Optional, Union

from _hivemind_c import HivemindValueError

from hivemind_c.dht.values import pack

logger = logging.getLogger("hivemind_c.averaging")
MOST_NORM_RATIO = 1e9  #: as in csrc/core/average/average.h
MOST_WEIGHT = 2.0**64  #: of any member, as in csrc/kern/codec.h
STALL = 10.0  #: seconds that one member may hold the others up, by default


def packed(gather: Any) -> bytes:
    try:
        return pack(gather)
    except (TypeError, ValueError) as error:
        raise type(error)(f"gather: {error}") from None


def epoch_bytes(epoch: Union[str, int, None]) -> bytes:
    return b"" if epoch is None else str(epoch).encode()


def epoch_number(epoch: int) -> int:
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 2**63:
        raise HivemindValueError(f"an epoch must be a whole number, 0 or more, not {epoch!r}")
    return epoch


def vector_size(number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**32 - 1:
        raise HivemindValueError(
            f"min_vector_size must be a number of values, 0 or more and below 2**32 - 1, not {number!r}"
        )
    return number


def weight_of(weight: Optional[float], auxiliary: bool) -> float:
    if weight is None:
        return 0.0 if auxiliary else 1.0
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < float("inf"):
        raise HivemindValueError(f"weight must be finite and 0 or more, not {weight!r}")
    return float(weight)


def most_weight(weight: Optional[float]) -> float:
    """The setting of C, which has 0 for no limit."""
    if weight is None:
        return 0.0
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 2.0**-64 <= weight <= MOST_WEIGHT:
        raise HivemindValueError(f"weight_max must be a number above 0 and at most 2**64, not {weight!r}")
    return float(weight)


def most_norm(ratio: Optional[float]) -> float:
    """The setting of C, which has 0 for no limit."""
    if ratio is None:
        return 0.0
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 1 <= ratio <= MOST_NORM_RATIO:
        raise HivemindValueError(f"norm_ratio_max must be a number from 1 to {MOST_NORM_RATIO:g}, not {ratio!r}")
    return float(ratio)


def check_modes(dials_out: bool, client_mode: bool, auxiliary: bool) -> None:
    """Refuses modes that contradict each other. dials_out: the DHT's node only dials out."""
    if dials_out and not client_mode:
        raise HivemindValueError(
            "client_mode=False is not possible: the DHT's node only dials out; make the DHT with "
            "client_mode=False, or remove client_mode"
        )
    if client_mode and auxiliary:
        raise HivemindValueError(
            "an auxiliary peer cannot be in client mode: it reduces data that others send to it; remove auxiliary "
            "or client_mode"
        )


def seconds(value: Optional[float], name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    if not 0 < value <= 7 * 86400:
        raise HivemindValueError(f"{name} must be more than 0 and at most a week, in seconds, not {value!r}")
    return float(value)


def ms(value: Optional[float], name: str) -> int:
    return 0 if value is None else max(1, round(seconds(value, name) * 1000))


def stall_of(
    next_chunk: Optional[float], sender: Optional[float], reducer: Optional[float], allreduce: Optional[float]
) -> float:
    """How long one member may hold the others up. A warning tells of what was given and has no effect."""
    stall = sender if sender is not None else next_chunk
    if stall is None:
        stall = STALL if reducer is None else reducer / 2
    if next_chunk is not None and next_chunk > stall:
        raise HivemindValueError(
            f"next_chunk_timeout of {next_chunk:g} s is longer than sender_timeout of {stall:g} s: make it shorter, "
            "or remove it"
        )
    if reducer is not None and reducer < stall:
        raise HivemindValueError(
            f"reducer_timeout of {reducer:g} s is shorter than sender_timeout of {stall:g} s, for which an owner "
            "waits: make it longer"
        )
    if allreduce is not None and allreduce < stall and (next_chunk, sender, reducer) != (None, None, None):
        raise HivemindValueError(
            f"allreduce_timeout of {allreduce:g} s is shorter than sender_timeout of {stall:g} s: make it longer"
        )
    if next_chunk is not None and next_chunk < stall:
        logger.warning(
            "ignoring next_chunk_timeout of %g s: sender_timeout of %g s applies; remove next_chunk_timeout",
            next_chunk,
            stall,
        )
    if reducer is not None and reducer != 2 * stall:
        logger.warning(
            "ignoring reducer_timeout of %g s: twice the sender_timeout of %g s applies; remove reducer_timeout",
            reducer,
            stall,
        )
    return seconds(stall, "sender_timeout")
