"""Peers that start together stay one swarm: each row is judged by what the peers recorded on the way."""

import pytest

from together import PAUSE, Verdict, lines_of, run

SHORT = dict(epoch_s=0.03, pauses=(0.003, 0.003))
ROWS = {
    "two clients and a hub": dict(clients=2, hub=True, seconds=10),
    "four clients and a hub": dict(clients=4, hub=True, seconds=12),
    "a client comes six seconds later": dict(clients=2, hub=True, seconds=14, delays=(0, 6)),
    "epochs of four seconds": dict(clients=2, hub=True, seconds=18, epoch_s=4),
    "epochs of sixty milliseconds": dict(clients=2, hub=True, seconds=8, **SHORT),
    "the same, and one comes three seconds later": dict(clients=2, hub=True, seconds=10, delays=(0, 3), **SHORT),
    "one open and two clients": dict(opens=1, clients=2, seconds=10),
    "three open": dict(opens=3, seconds=10),
    "two open, one eight times slower": dict(opens=2, seconds=10, pauses=(0.05, 0.4)),
}


def is_slow(lines, logs, seconds, pauses=(PAUSE,), **row):
    """True if this machine is too busy for such epochs: the hub gave a member up, whose state others may wait for, or
    the trainers made less than a quarter of their batches."""
    batches = [line["samples"]["stepped"] / 16 for line in lines_of(lines, "replica")]
    planned = seconds / (min(pauses) + 0.002)
    return "it did not connect" in logs or "excluding member" in logs or max(batches, default=0) < planned / 4


@pytest.mark.parametrize("row", ROWS)
def test_peers_that_start_together_stay_one_swarm(row, tmp_path):
    lines, logs = run(tmp_path, least=3, **ROWS[row])
    found, whole = Verdict(lines), "\n".join(logs)
    assert len(found.common) >= 3, f"{found}\n{whole}"
    assert set(found.apart) <= {1} and (is_slow(lines, whole, **ROWS[row]) or not found.doubts + found.failed_loads), (
        f"{found}\n{whole}"
    )
    assert not found.alone_with_others and not found.changes, f"{found}\n{whole}"
