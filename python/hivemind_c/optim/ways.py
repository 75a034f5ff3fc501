"""The ways to average: modes with their codecs, bytes, and the share of its time that a peer computes.

One table: the advice (advice.py), and the pages of modes and settings (scripts/settings.py). It imports no module
of this package, so the script needs no build.
"""

from __future__ import annotations

import math
from typing import Dict, NamedTuple

#: bytes of a value under each codec, its tables included
CODECS: Dict[str, float] = {
    "NoCompression": 4,
    "Float16Compression": 2,
    "Uniform8BitQuantization": 1 + 1024 / 2**17,
    "BlockwiseQuantization": 1 + 4 / 4096,
    "Linear8BitQuantization": 1 + 2 / 64,
    "Linear4BitQuantization": 0.5 + 2 / 64,
}
COMPUTED = 0.9  #: share of the time that should compute
PATIENT_S = 30.0  #: seconds of computing for one step of the optimizer, up to which a way is recommended
OVERLAP = 0.5  #: part of an epoch of local steps in which its difference may travel: overlap=True
LOCAL_BATCHES = 50  #: steps that a peer makes in a swarm epoch of local steps: each batch is one
STATE_EVERY = 50  #: swarm epochs between two averages of parameters: uncompressed, or each would end the log


class Way(NamedTuple):
    """A mode with a codec. Its options are those of an Optimizer, as text."""

    options: Dict[str, str]
    codec: str  #: of gradients, or differences
    state_codec: str = ""  #: of parameters; "": they are not averaged
    hidden: float = 0.0  #: part of an epoch's computing that may pass while an average travels
    is_local: bool = False  #: each batch makes a step

    @property
    def patient_s(self) -> float:
        """Seconds of computing between two averages, up to which it is recommended."""
        return PATIENT_S * (LOCAL_BATCHES if self.is_local else 1)

    @property
    def value_bytes(self) -> float:
        """Bytes of a value in each swarm epoch, as encoded once."""
        return CODECS[self.codec] + (CODECS[self.state_codec] / STATE_EVERY if self.state_codec else 0.0)


def _exact(codec: str, **more: str) -> Dict[str, str]:
    return {
        **more,
        "grad_compression": f"hivemind_c.{codec}()",
        "average_state_every": str(STATE_EVERY),
    }


FULL = "NoCompression"
HALF, EIGHT, FOUR = "Float16Compression", "Linear8BitQuantization", "Linear4BitQuantization"
LOCAL = {"local_steps": "True"}  #: without a grad_compression a peer sends 8 bits, or 4 if its line carries no 8
_DELAYED = {"delay_grad_averaging": "True", "reuse_grad_buffers": "True"}
#: what keeps most of the exact mode is first
WAYS: Dict[str, Way] = {
    "exact, 16 bits": Way(_exact(HALF), HALF, FULL),
    "exact, 8 bits": Way(_exact(EIGHT), EIGHT, FULL),
    "delayed, 8 bits": Way(_exact(EIGHT, **_DELAYED), EIGHT, FULL, hidden=1.0),
    "exact, 4 bits": Way(_exact(FOUR), FOUR, FULL),
    "local steps, 8 bits": Way(LOCAL, EIGHT, hidden=OVERLAP, is_local=True),
    "local steps, 4 bits": Way(LOCAL, FOUR, hidden=OVERLAP, is_local=True),
}


def sent(value_bytes: float, members: float = math.inf) -> float:
    """Returns the bytes a parameter that each member of a group sends, and receives, for one average.

    Args:
        value_bytes: Bytes of an encoded value.
        members: Of the group.
    """
    return 2 * value_bytes * (1 - 1 / members)


def averaging_s(way: Way, parameters: float, bytes_a_second: float, members: float = math.inf) -> float:
    """Returns the seconds that the averages of a swarm epoch take.

    Args:
        way: The way.
        parameters: Their number.
        bytes_a_second: Of averages on the line, in each direction.
        members: Of the group.
    """
    return sent(way.value_bytes, members) * parameters / bytes_a_second


def share(way: Way, computing_s: float, averaged_s: float) -> float:
    """Returns the share of its time that a peer computes.

    Args:
        way: The way.
        computing_s: Seconds of computing in a swarm epoch.
        averaged_s: Seconds of its averages.
    """
    if way.is_local:  # such an epoch lasts until its average could travel beside it
        computing_s = max(computing_s, averaged_s / way.hidden)
    return computing_s / (computing_s + max(0.0, averaged_s - way.hidden * computing_s))


def least_s(way: Way, averaged_s: float) -> float:
    """Returns the seconds that a peer must compute between two averages to compute COMPUTED of its time.

    Args:
        way: The way.
        averaged_s: Seconds of a swarm epoch's averages.
    """
    if way.is_local:  # it lasts as long by itself
        return averaged_s / way.hidden
    return averaged_s / (way.hidden + 1 / COMPUTED - 1)


def recommended(averaged_s: Dict[str, float], computing_s: float = 0.0, is_local: bool = False) -> str:
    """Returns the first way that computes COMPUTED of the time without steps that are too rare; else the last one.

    Args:
        averaged_s: Seconds of a swarm epoch's averages in each way.
        computing_s: Seconds of computing in a swarm epoch as it is, which are not too many for any way.
        is_local: The run makes local steps: the codec with the most bits that the epoch as it is carries.
    """
    for name, way in WAYS.items():
        most = computing_s if is_local else max(way.patient_s, computing_s)
        if way.is_local >= is_local and least_s(way, averaged_s[name]) <= most:
            return name
    return list(WAYS)[-1]
