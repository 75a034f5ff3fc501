"""Order: what the machine that decides for a peer of a run (csrc/core/epoch) tells its Driver to do."""

from __future__ import annotations

from typing import NamedTuple

GRADIENTS, STATE = 0, 1  #: which round


class Order(NamedTuple):
    """An order of the machine, in the order of _hivemind_c.Epoch.next()."""

    kind: str
    what: str  #: an action, a notice, or why samples were lost
    which: int  #: GRADIENTS or STATE; of LOST: 1 if the samples were in flight
    number: int
    epoch: int
    samples: int
    wait: float
    timeout: float
    ask: int
