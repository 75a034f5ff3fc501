"""EpochRecord: one swarm epoch of one peer, in numbers. docs/reference/epoch-record.md has the table of its fields."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Callable, Dict, Optional, Tuple

#: How an epoch ended here.
OUTCOMES = {
    "averaged": "this peer averaged with others: its gradients, or with use_local_updates its parameters",
    "alone": "no other peer took part in the run",
    "local": "with use_local_updates: no averaging was due in this epoch",
    "failed": "averaging failed, so this peer continued with what it had itself",
    "left out": "the others made this step without this peer, which loaded their state",
    "caught up": "this peer loaded the state of a later epoch, as a newcomer does",
}


@dataclass(frozen=True)
class EpochRecord:
    """One swarm epoch of this peer: samples, seconds, bytes, and what was lost.

    The training thread is in one of six occupations at each moment, so their seconds add up to wall_s.
    """

    epoch: int  #: number of the epoch that ended
    outcome: str  #: a key of OUTCOMES
    peers: int  #: peers of the run that this peer knew of, with itself
    members: int  #: peers in the group that averaged, with itself; 0: there was none
    samples: int  #: samples of this peer that count
    swarm_samples: int  #: samples of all peers, as this peer's tracker counted them
    lost_samples: int  #: samples of this peer that count for nothing
    why: Tuple[str, ...]  #: what was lost or failed, and why; at most WHY_MAX sentences
    wall_s: float  #: seconds since the epoch before ended, or since the Optimizer was made
    computing_s: float  #: seconds of the program outside of step(), and of adding up gradients
    waiting_s: float  #: seconds of waiting for other peers, for background work, or in an averaging that failed
    matching_s: float  #: seconds of waiting for a group to form
    reducing_s: float  #: seconds of waiting for the all-reduce
    loading_s: float  #: seconds of loading the swarm's state
    stepping_s: float  #: seconds of the optimizer, the scheduler and the copies that they need
    background_s: float  #: seconds of work in the background, beside the ones above
    background_reducing_s: float  #: seconds of all-reduce in background_s
    bytes_sent: int  #: encoded bytes that this peer sent in its averagings, as planned without losses
    bytes_received: int  #: encoded bytes that it received in them, likewise
    part: Optional[float]  #: values that this peer reduced; 1: its share in equal parts; None: it is a client
    codec: str  #: compression of what was averaged
    loss: Optional[float]  #: mean loss of this peer's batches; None: the program reports none
    gradient_norm: Optional[float]  #: norm of the averaged gradient before clipping; None: with use_local_updates
    difference_norm: Optional[float]  #: with local steps: norm of this peer's own difference
    difference_cosine: Optional[float]  #: with local steps: cosine of its own difference to the averaged one
    carried_samples: int  #: of this peer, in no average yet when the epoch had ended: they count later
    repeated_steps: int  #: steps of others that this peer made again since the epoch before
    clock_s: Optional[float]  #: seconds by which the others' clocks are ahead of this one; None: not known yet

    def numbers(self) -> Dict[str, Optional[float]]:
        """Returns the fields that are numbers, by name, for loggers and charts."""
        return {name: getattr(self, name) for name in NUMBERS}

    def __str__(self) -> str:
        spent = ", ".join(f"{name} {getattr(self, f'{name}_s'):.2f}" for name in OCCUPATIONS)
        said = [
            f"swarm epoch {self.epoch}: {self.outcome} after {self.wall_s:.2f} s ({spent})",
            f"{self.samples} of {self.swarm_samples} samples",
            f"{self.members} of {self.peers} peers",
            f"{self.bytes_sent / 1e6:.3g} MB sent, {self.bytes_received / 1e6:.3g} MB received",
        ]
        if self.background_s:
            said.append(f"background {self.background_s:.2f} s")
        if self.loss is not None:
            said.append(f"loss {self.loss:.4g}")
        if self.gradient_norm is not None:
            said.append(f"gradient norm {self.gradient_norm:.4g}")
        if self.difference_norm is not None:
            cosine = "" if self.difference_cosine is None else f", cosine {self.difference_cosine:.2f}"
            said.append(f"own difference {self.difference_norm:.4g}{cosine}")
        if self.carried_samples:
            said.append(f"{self.carried_samples} samples carried")
        if self.repeated_steps:
            said.append(f"{self.repeated_steps} steps of others repeated")
        if self.lost_samples:
            said.append(f"{self.lost_samples} samples lost")
        return "; ".join([*said, *self.why])


OnEpoch = Callable[[EpochRecord], Any]


OCCUPATIONS = "computing", "waiting", "matching", "reducing", "loading", "stepping"  #: of the training thread
NUMBERS = tuple(field.name for field in fields(EpochRecord) if field.name not in ("outcome", "why", "codec"))
WHY_MAX, WHY_LENGTH = 4, 200


def finite(number: Optional[float]) -> Optional[float]:
    """The number if it is finite, else None."""
    return number if number is not None and math.isfinite(number) else None


def codec_of(compression: Any, factory: Any = None) -> str:
    """The name of a compression, and of the averager if that compresses, too.

    Args:
        compression: The compression.
        factory: The maker of the GradientAverager: a class, a partial of one, or a function. None: the usual one.
    """
    inner = getattr(compression, "compression", None)
    name = type(compression).__name__ + (f"({type(inner).__name__})" if inner is not None else "")
    kind = getattr(getattr(factory, "func", factory), "__name__", "GradientAverager")
    return name if kind == "GradientAverager" else f"{kind}, {name}"
