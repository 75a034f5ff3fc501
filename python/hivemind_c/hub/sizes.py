"""Amounts of memory: as options have them, as people read them, and what fits into one."""

from __future__ import annotations

import re
from typing import NamedTuple

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
OWN_BYTES = 64 << 20  #: of the program itself, the DHT and the page
LEAST_BYTES = 128 << 20
COPIES = 4  #: memory of a run: the state on offer, one for slow joiners, the next one, and as much for averaging
ADAM_BYTES = 12  #: of a state for each parameter: a float32, and two of the optimizer


def parse_bytes(text: str) -> int:
    """Returns the number of bytes in a text such as "2G", "512MB" or "1.5 GB".

    Raises ValueError if it is no such text.

    Args:
        text: The text.
    """
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if found is None:
        raise ValueError(f"not an amount of memory: {text!r}; give a number with K, M, G or T, such as 2G")
    return round(float(found[1]) * _UNITS[found[2]])


def in_words(count: int) -> str:
    """Returns a number of bytes as text of three digits, such as "1.5 GB".

    Args:
        count: The number.
    """
    for unit in ("T", "G", "M", "K"):
        if count >= 0.9995 * _UNITS[unit]:
            return f"{count / _UNITS[unit]:.3g} {unit}B"
    return f"{count} bytes"


class Budget(NamedTuple):
    """Memory of one run, in bytes."""

    state: int  #: the largest state that is kept
    averaging: int  #: what rounds of averaging may take

    def in_words(self) -> str:
        """Returns a clause that says which models fit."""
        parameters = self.state / ADAM_BYTES
        count = f"{parameters / 1e9:.3g} billion" if parameters >= 1e9 else f"{parameters / 1e6:.3g} million"
        return f"states of up to {in_words(self.state)}, such as {count} parameters with Adam"


def budget_of(memory: int, runs: int) -> Budget:
    """Returns the memory of each run.

    Raises ValueError if it is too little.

    Args:
        memory: Bytes of the hub.
        runs: Number of runs.
    """
    if memory < LEAST_BYTES:
        raise ValueError(f"cannot start the hub: --memory must be {in_words(LEAST_BYTES)} or more")
    each = (memory - OWN_BYTES) // (runs * COPIES)
    return Budget(each, each)
