"""Local steps on a line that does not carry a round within averaging_timeout."""

import torch

from hivemind_c.optim.options import ByDefault
from optim_support import meet, train_until
from test_local_steps import normed_swarm  # noqa: F401

#: at 1 Mbit/s a round takes about 6 s
SLOW = dict(upload_mbit=1.0, width=12_000, matchmaking_time=1.0, log_memory=0)


def train(normed_swarm, timeout, until):  # noqa: F811
    """Two peers train until that is so of both. Returns them, and the longest times of their next rounds."""
    peers = normed_swarm(2, averaging_timeout=timeout, **SLOW)
    meet(peers)
    train_until(peers, lambda: all(until(peer) for peer in peers))
    return peers, [peer.optimizer.driver.machine.averaging for peer in peers]


def has_run_out(peer):
    """A round of the epoch that goes on needed more time than it had."""
    return any("took longer than" in why for why in peer.optimizer.ledger.notes.why)


def test_round_gets_the_time_that_the_line_needs(normed_swarm, caplog):  # noqa: F811
    peers, seconds = train(normed_swarm, ByDefault(4.0), lambda peer: len(peer.after) > 1)
    assert "took longer than" in caplog.text and "local steps give rounds the time that the line needs" in caplog.text
    assert min(seconds) >= 12.0
    one, other = (peer.after for peer in peers)
    common = set(one) & set(other)
    assert common and all(torch.equal(one[epoch], other[epoch]) for epoch in common)


def test_averaging_timeout_of_the_program_stays(normed_swarm):  # noqa: F811
    _, seconds = train(normed_swarm, 4.0, has_run_out)
    assert seconds == [4.0, 4.0]
