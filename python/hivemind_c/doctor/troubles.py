"""Why a peer may be worse than useless to its run: one table for the peer itself and for the doctor.

The peer finds out by its last epochs (hivemind_c/optim/epoch_judge.py), warns, and adds the code to its news.
"""

from __future__ import annotations

from typing import Dict, NamedTuple

CLOCK_APART_S = 30.0  #: seconds that two clocks may differ; less costs nobody anything


class Trouble(NamedTuple):
    """A trouble, in two parts of a sentence."""

    about: str  #: what goes wrong, with the peer as the subject
    remedy: str  #: what to do


#: The codes are public: none changes, new ones are added.
TROUBLES: Dict[str, Trouble] = {
    "alone": Trouble(
        "trains alone although it was given initial peers",
        "check that run_id is the same at all peers and that the addresses are those that the peers print now, and run "
        "hivemind-doctor with both",
    ),
    "left_out": Trouble(
        "misses swarm epochs again and again",
        "raise target_batch_size or matchmaking_time at all peers, or give this peer smaller batches, so that it is "
        "ready when the others average",
    ),
    "failing": Trouble(
        "fails to average again and again",
        "run hivemind-doctor on this machine, and raise averaging_timeout or matchmaking_time if it finds nothing",
    ),
    "lost": Trouble(
        "loses most of its samples",
        "lower the learning rate or the loss scale if its gradients are not finite, else run hivemind-doctor on this "
        "machine",
    ),
    "clock": Trouble(
        "has a clock that differs from those of the other peers",
        "run timedatectl set-ntp true; training does not mind, but logs do not fit together",
    ),
    "thin": Trouble(
        "has a connection so slow that the others wait for it",
        "use grad_compression, a larger target_batch_size or a faster connection, or train without this peer",
    ),
}
