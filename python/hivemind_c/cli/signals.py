"""The end of a service, as its user asks for it."""

from __future__ import annotations

import signal
import threading


def ended_by_signals() -> threading.Event:
    """Returns an event that SIGTERM and Ctrl-C set. The terminal may go: the service stays."""
    ended = threading.Event()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended
