"""Company: what a peer does if no other one trains in the run (when_alone)."""

from __future__ import annotations

CHOICES = ("train", "wait", "stop")  #: in the order of hv_epoch_company (csrc/core/epoch/epoch.h)


class AloneError(RuntimeError):
    """No other peer trains in the run, and when_alone is "stop"."""
