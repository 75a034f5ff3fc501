"""hivemind-doctor: can this machine take part in a swarm, and if not, why? One sentence for each finding, with cause and remedy."""

from __future__ import annotations

from typing import Callable, Iterator, List

from hivemind_c.doctor.finding import FAULT, NOTE, OK, WARNING, Finding
from hivemind_c.doctor.settings import Settings

__all__ = ["FAULT", "Finding", "NOTE", "OK", "Settings", "WARNING", "diagnose"]


def diagnose(settings: Settings, told: Callable[[Finding], None] = lambda finding: None) -> List[Finding]:
    """All findings, the machine's first; each is also told as soon as it is there."""
    found = []
    for finding in _all(settings):
        told(finding)
        found.append(finding)
    return found


def _all(settings: Settings) -> Iterator[Finding]:
    from hivemind_c.doctor import machine, network, swarm

    yield from machine.check()
    if (wrong := network.check_credentials(settings)) is not None:
        yield wrong
        return  # no node of this machine would start
    peers = yield from network.check_environment(settings)
    yield from network.check_identity(settings)
    answering = yield from network.dial(peers, settings.timeout, settings.credentials)
    yield from network.check_reachable(settings, answering)
    if settings.run_id and answering:
        yield from swarm.check(settings.run_id, answering, settings.timeout, settings.credentials)
