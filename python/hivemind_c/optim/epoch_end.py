"""EpochEnd: what the hands of an Optimizer know of one swarm epoch's end, for its record and for its step."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from hivemind_c.optim.epoch_clock import EpochClock
from hivemind_c.optim.epoch_notes import EpochNotes


class EpochEnd:
    """One swarm epoch's end; made anew for each.

    Args:
        epoch: The swarm epoch that ends.
        alone: True if no other peer takes part.
        samples: Samples of this peer in it.
        swarm_samples: Those of all peers.
        notes: Notes of the swarm epoch.
        clock: The clock of the thread that does the actions.
        metric: Metric of this peer, for the scheduler. None: it has none.
    """

    def __init__(
        self,
        epoch: int,
        alone: bool,
        samples: int,
        swarm_samples: int,
        notes: EpochNotes,
        clock: EpochClock,
        metric: Optional[float],
    ):
        self.epoch, self.next_epoch, self.alone = epoch, epoch + 1, alone
        self.samples, self.swarm_samples = samples, swarm_samples  #: of this peer, those that count; of all
        self.notes, self.clock, self.metric = notes, clock, metric
        self.produced: Optional[int] = None  #: samples of this peer in all, as it began to end
        self.peers = 1  #: that the swarm counts as it begins to end
        self.outcome = "alone" if alone else "failed"  #: a key of epoch_record.OUTCOMES
        self.background_spent: Dict[str, float] = {}  #: seconds of each occupation there
        self.error: Optional[Exception] = None  #: why the gradients were not averaged
        self.averages_no_state = False  #: the setup has changed, so the group of the state is of no use
        self.averaged = False  #: gradients with the swarm
        self.is_repeated = False  #: the average is that of others, who kept it
        self.takes: List[bool] = []  #: of the averager's parameters, whether it is stepped with its gradient
        self.main: Any = None  #: the parameters that are stepped
        self.beside: Any = ()  #: parameters that no gradient is averaged for
