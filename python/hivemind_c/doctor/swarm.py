"""The swarm that this machine would join: who trains there, in which versions, and how far the clocks are apart."""

from __future__ import annotations

import statistics
import time
from types import MappingProxyType
from typing import Any, Iterator, List, Mapping, Sequence, Tuple

import hivemind_c
from hivemind_c import DHT, HivemindError
from hivemind_c._text import printable
from hivemind_c.dht.news import News, gather
from hivemind_c.doctor.finding import FAULT, OK, WARNING, Finding
from hivemind_c.doctor.troubles import CLOCK_APART_S, TROUBLES

Heard = List[Tuple[str, News, float]]


def check(run_id: str, peers: Sequence[str], timeout: float, credentials: Mapping[str, Any] = MappingProxyType({})) -> Iterator[Finding]:
    try:
        with DHT(list(peers), start=True, client_mode=True, bootstrap_timeout=timeout, **credentials) as dht:
            heard = list(gather(dht, run_id))
            yield from judge(run_id, heard, time.time())
    except HivemindError as error:
        yield Finding("run", FAULT, f"the swarm could not be asked for the run: {error}")


def judge(run_id: str, heard: Heard, now: float) -> Iterator[Finding]:
    if not heard:
        yield Finding("run", WARNING, f"nobody tells of a run {run_id!r} in this swarm: is run_id the same at all peers, and has one of them trained for some seconds?")
        return
    yield Finding("run", OK, f"{len(heard)} peer{'s' if len(heard) > 1 else ''} of {run_id!r} tell{'s' if len(heard) == 1 else ''} of swarm epoch {statistics.median_low(n.epoch for _, n, _ in heard)}")
    yield apart([news.time + age - now for _, news, age in heard])
    yield from other_versions([news.version for _, news, _ in heard])
    failing = [(peer, news) for peer, news, _ in heard if news.errors and news.failures > news.rounds]
    if failing:
        peer, news = failing[0]
        yield Finding(
            "rounds", WARNING, f"averaging fails more often than it works at {len(failing)} of {len(heard)} peers, at {peer[-8:]} because "
            f"{_plain(news.errors[-1][1])!r}: run hivemind-doctor there"
        )  # fmt: skip
    yield from troubles(heard)


def troubles(heard: Heard) -> Iterator[Finding]:
    """Troubles that peers have found in themselves, by the same table (optim/epoch_judge.py)."""
    for code, (about, remedy) in TROUBLES.items():
        if peers := [peer for peer, news, _ in heard if code in news.troubles]:
            yield Finding("troubles", WARNING, f"peer {peers[0][-8:]} {about} ({len(peers)} of {len(heard)} peers say so): {remedy}")


def apart(offsets: Sequence[float]) -> Finding:
    """offsets: what others' clocks show more than this one's."""
    offset = statistics.median(offsets)
    if abs(offset) > CLOCK_APART_S:
        return Finding(
            "clocks", WARNING, f"this machine's clock is {abs(offset):.0f} s {'behind' if offset > 0 else 'ahead of'} the other peers'; training does not mind, "
            "but logs will not fit together: run timedatectl set-ntp true"
        )  # fmt: skip
    return Finding("clocks", OK, f"this clock and the peers' agree within {max(1.0, abs(offset)):.0f} s")


def other_versions(theirs: Sequence[str]) -> Iterator[Finding]:
    here = hivemind_c.__version__
    others = sorted({_plain(version) for version in theirs if version != here})
    if others:
        yield Finding("peers' versions", WARNING, f"this is hivemind_c {here}, and others run {', '.join(others[:5])}: install the same everywhere, so that rounds cannot fail for it")
    else:
        yield Finding("peers' versions", OK, f"all peers run hivemind_c {here}")


def _plain(text: str) -> str:
    """A stranger's text, fit for a terminal."""
    return printable(text)[:120]
