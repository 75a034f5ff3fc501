"""The limit on what a peer sends in bulk (upload_mbit)."""

import time

import pytest

from hivemind_c import Node
from hivemind_c.averaging.state import StateSharing

MEGABYTE = 1 << 20


def met(*nodes):
    for node in nodes:
        node.wait_for_peers(1, timeout=60)
    return nodes


def test_bulk_keeps_its_rate_and_small_calls_stay_quick(node):
    other = node()
    one = node(initial_peers=other.addresses, upload_mbit=16)
    met(one, other)
    for size in (MEGABYTE, 6 * MEGABYTE):  # the first one opens the stream
        sent = one.send(other.peer_id, bytes(size), wait=False)
        begun, slowest = time.monotonic(), 0.0
        while not sent.done():
            asked = time.monotonic()
            one.echo(other.peer_id, b"alive")
            other.echo(one.peer_id, b"alive")
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(0.02)
        took = time.monotonic() - begun
        other.receive(10)
    rate = 6 * MEGABYTE * 8e-6 / took
    assert 0.9 * 16 < rate <= 16, f"{rate:.1f} Mbit/s"
    assert slowest < 0.25


def test_states_and_parcels_share_the_limit(node):
    import torch

    one = node(upload_mbit=16)
    joiner = node(initial_peers=one.addresses)
    met(one, joiner)
    StateSharing(one, "run").offer(1, [torch.zeros(MEGABYTE)])
    begun = time.monotonic()
    sent = one.send(joiner.peer_id, bytes(4 * MEGABYTE), wait=False)
    assert StateSharing(joiner, "run").load(60).epoch == 1
    sent.result(60)
    rate = 8 * MEGABYTE * 8e-6 / (time.monotonic() - begun)
    assert rate <= 16, f"{rate:.1f} Mbit/s"


def test_limit_changes_while_a_node_runs(node):
    other = node()
    one = node(initial_peers=other.addresses, upload_mbit=1)
    met(one, other)
    sent = one.send(other.peer_id, bytes(4 * MEGABYTE), wait=False)
    time.sleep(0.5)
    assert not sent.done()
    one.limit_upload(None)
    sent.result(10)


@pytest.mark.parametrize("mbit", [0, 0.5, -1, float("nan"), 1e9])
def test_limit_out_of_bounds_is_refused(mbit):
    with pytest.raises(ValueError, match="upload_mbit must be"):
        Node(start=False, upload_mbit=mbit)
