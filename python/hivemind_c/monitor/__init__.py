"""The run as people see it: what hivemind-monitor gathers, keeps and shows (docs/howto/monitor.md)."""

from hivemind_c.monitor.gather import Failure, Gatherer, PeerView, Snapshot
from hivemind_c.monitor.history import History, Point

__all__ = ["Failure", "Gatherer", "History", "PeerView", "Point", "Snapshot"]
