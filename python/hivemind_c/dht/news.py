"""The record that a peer of a run publishes about itself: a small record in the DHT, signed by the peer, that lives
for some seconds.

The swarm's own decisions never use it: those follow the core's reports (docs/design/progress.md). A watcher takes it as
a claim: read_news checks each field against its bounds, and a record that breaks one is nobody's news.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Dict, Iterator, Optional, Tuple

from hivemind_c.dht.values import ValueWithExpiration, get_dht_time, pack

SHARDS = 8  #: keys of a run, among which the peers' records are spread: one key keeps 2,048 of them
#: a record each second in small swarms; in large ones 20 peers a second, all together
LEAST_S, MOST_S, PEERS_A_SECOND = 1.0, 30.0, 20
NUMBERS_MAX, NUMBER_MAX, TROUBLES_MAX, CODE_MAX = 32, 1e18, 8, 32
TEXT_MAX, ERRORS_MAX, COUNT_MAX, SPEED_MAX, LEASE_MAX = 200, 4, 1 << 48, 1e12, 600.0


@dataclass(frozen=True)
class News:
    """One peer's figures, as it says."""

    version: str  #: of hivemind_c
    name: str  #: of the machine, or what its owner calls it
    role: str  #: "trainer", "client" (cannot be dialled), "auxiliary"
    time: float  #: on the peer's own clock, when it said so
    lease: float  #: seconds that the record lives from then
    epoch: int
    target: int  #: samples of an epoch
    samples: int  #: contributed since it started
    speed: float  #: samples per second
    loss: Optional[float]  #: mean over its latest batches; None: it tells none
    rounds: int  #: of averaging that worked
    failures: int  #: and that did not
    errors: Tuple[Tuple[int, str], ...]  #: the latest of these: (epoch, why)
    last: Optional[Tuple[Optional[float], ...]] = None  #: of its latest epoch: an EpochRecord's numbers, in their order
    troubles: Tuple[str, ...] = ()  #: codes of hivemind_c/doctor/troubles.py
    setup: bytes = b""  #: what must be alike at all peers (hivemind_c/optim/setup.py); none: it does not say
    joined: float = 0.0  #: on the peer's own clock, when it began to train
    loading: Tuple[float, ...] = ()  #: a state: part that is here, bytes per second, seconds left; (): none
    proof: bytes = b""  #: that it is a member of its closed swarm (docs/design/invitations.md); none: the swarm is open


_NAMES = frozenset(field.name for field in fields(News))
#: fields that records of older versions do not have
_LATER: Dict[str, Any] = {"last": None, "troubles": [], "setup": b"", "joined": 0.0, "loading": [], "proof": b""}
SETUP_MAX, PROOF_MAX = 2048, 300  #: bytes


def period_s(peers: int) -> float:
    """How often each of so many peers tells its news."""
    return min(MOST_S, max(LEAST_S, peers / PEERS_A_SECOND))


def keys(run_id: str) -> Tuple[str, ...]:
    return tuple(f"{run_id}_news{shard}" for shard in range(SHARDS))


def key_of(run_id: str, peer_id: str) -> str:
    return keys(run_id)[hashlib.sha256(peer_id.encode()).digest()[0] % SHARDS]


def subkey_of(peer_id: str) -> bytes:
    return f"[owner:{peer_id}]".encode()


def write_news(news: News) -> bytes:
    """The record's value, with long texts cut short."""
    value: Dict[str, Any] = asdict(news)
    for name in ("version", "name", "role"):
        value[name] = value[name][:TEXT_MAX]
    value["errors"] = [[epoch, text[:TEXT_MAX]] for epoch, text in news.errors[-ERRORS_MAX:]]
    value["last"], value["troubles"] = news.last and list(news.last), list(news.troubles)
    value["loading"] = list(news.loading)
    for name in ("proof", "loading"):
        if not value[name]:
            del value[name]  # an older reader refuses a field that it does not know
    return pack(value)


def _text(value: Any) -> bool:
    return type(value) is str and len(value) <= TEXT_MAX


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= COUNT_MAX


def _number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= most


def _numbers(value: Any) -> bool:
    """Numbers of either sign, some of them unknown."""
    return (
        isinstance(value, list)
        and len(value) <= NUMBERS_MAX
        and all(
            number is None or type(number) in (int, float) and math.isfinite(number) and abs(number) <= NUMBER_MAX
            for number in value
        )
    )


def _codes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= TROUBLES_MAX
        and all(_text(code) and len(code) <= CODE_MAX for code in value)
    )


def _loading(value: Any) -> bool:
    most = (1, SPEED_MAX, 1e9)
    return isinstance(value, list) and len(value) in (0, len(most)) and all(map(_number, value, most))


def read_news(value: Any) -> News:
    """A stranger's words. ValueError: they are not what write_news makes."""
    if not isinstance(value, dict) or {*value, *_LATER} != _NAMES:
        raise ValueError("it does not have the fields of a peer's news")
    value = {**_LATER, **value}
    good = {
        "version": _text(value["version"]),
        "name": _text(value["name"]),
        "role": value["role"] in ("trainer", "client", "auxiliary"),
        "time": _number(value["time"], 1e11),
        "lease": _number(value["lease"], LEASE_MAX),
        "epoch": _count(value["epoch"]),
        "target": _count(value["target"]) and value["target"] > 0,
        "samples": _count(value["samples"]),
        "speed": _number(value["speed"], SPEED_MAX),
        "loss": value["loss"] is None or type(value["loss"]) in (int, float) and math.isfinite(value["loss"]),
        "rounds": _count(value["rounds"]),
        "failures": _count(value["failures"]),
        "setup": type(value["setup"]) is bytes and len(value["setup"]) <= SETUP_MAX,
        "joined": _number(value["joined"], 1e11),
        "proof": type(value["proof"]) is bytes and len(value["proof"]) <= PROOF_MAX,
        "errors": isinstance(value["errors"], list)
        and len(value["errors"]) <= ERRORS_MAX
        and all(
            isinstance(error, list) and len(error) == 2 and _count(error[0]) and _text(error[1])
            for error in value["errors"]
        ),
        "last": value["last"] is None or _numbers(value["last"]),
        "troubles": _codes(value["troubles"]),
        "loading": _loading(value["loading"]),
    }
    if wrong := [name for name, fine in good.items() if not fine]:
        raise ValueError(f"{wrong[0]} is out of its bounds")
    loss = None if value["loss"] is None else float(value["loss"])  # an integer may be larger than a database's
    errors = tuple((epoch, text) for epoch, text in value["errors"])
    last = None if value["last"] is None else tuple(value["last"])
    lists = {name: tuple(value[name]) for name in ("troubles", "loading")}
    return News(**{**value, "loss": loss, "errors": errors, "last": last, **lists})


def owner(subkey: Any) -> Optional[str]:
    """The peer whose record it is; None: not a subkey of this kind."""
    if type(subkey) is not bytes or not subkey.startswith(b"[owner:") or not subkey.endswith(b"]") or len(subkey) > 100:
        return None
    try:
        name = subkey[7:-1].decode("ascii")
    except UnicodeDecodeError:
        return None
    return name if name.isalnum() else None


def ask(dht: Any, key: str) -> Any:
    """A future of what read_all takes."""
    return dht.get(key, latest=True, return_future=True)


def read_all(run_id: str, key: str, found: Any) -> Iterator[Tuple[str, News, float]]:
    """Of each peer that told under one of the run's keys: (its ID, its news, how many seconds old they are). A record
    that does not fit is left out.
    """
    if found is None or not isinstance(found.value, dict):
        return
    now = get_dht_time()
    for subkey, entry in found.value.items():
        peer = owner(subkey)
        if peer is None or key_of(run_id, peer) != key or not isinstance(entry, ValueWithExpiration):
            continue
        try:
            news = read_news(entry.value)
        except ValueError:
            continue
        yield peer, news, max(0.0, news.lease - (entry.expiration_time - now))


def gather(dht: Any, run_id: str) -> Iterator[Tuple[str, News, float]]:
    """All peers of a run."""
    replies = [(key, ask(dht, key)) for key in keys(run_id)]
    for key, reply in replies:
        yield from read_all(run_id, key, reply.result(15))
