"""The error that ends all ranks of a peer."""

from __future__ import annotations


class PeerError(RuntimeError):
    """A rank of this peer has failed or died, and this one ends with it. The text names the rank and the cause."""
