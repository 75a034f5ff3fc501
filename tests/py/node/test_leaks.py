"""Thousands of times the same: nothing stays behind, neither Python's objects nor memory, files and threads."""

import gc
import os
import sys

import pytest

from hivemind_c import HivemindError, Node
from support import HERE, eventually, files, resident, threads


def leaks_nothing(work, times, bytes_allowed=8 << 20):
    """Runs work once in full to warm up, then again; compares what there is."""
    work(times)
    gc.collect()
    before = sys.getallocatedblocks(), resident(), files(), threads()
    work(times)
    gc.collect()
    assert eventually(lambda: files() <= before[2] and threads() <= before[3]), (files(), threads(), before)
    assert eventually(lambda: gc.collect() is not None and sys.getallocatedblocks() - before[0] < times // 2 + 50)
    assert resident() - before[1] < bytes_allowed


def test_echoes_leak_nothing(pair):
    first, second = pair

    def work(times):
        for _ in range(times):
            first.echo(second, b"x" * 4000, timeout=60)

    leaks_nothing(work, 1000)


def test_parcels_leak_nothing(pair):
    first, second = pair
    data = bytearray(1 << 20)

    def work(times):
        for _ in range(times):
            first.send(second, data, timeout=60)
            assert second.receive(timeout=60)[1].nbytes == len(data)

    leaks_nothing(work, 200, 24 << 20)
    data.append(1)


def test_peers_and_names_leak_nothing(pair):
    first, second = pair

    def work(times):
        for _ in range(times):
            first.peers(), first.addresses, first.peer_id, repr(first), first.wait_for_peers(1, 5)

    leaks_nothing(work, 2000)


def test_unawaited_futures_leak_nothing(pair):
    first, second = pair

    def work(times):
        for turn in range(times):
            first.echo(second, b"forgotten", wait=False)
            second._node.receive()
            if turn % 50 == 0:
                first.echo(second, b"and wait", timeout=60)
        first.echo(second, b"the last", timeout=60)

    leaks_nothing(work, 1000)


def test_abandoned_waits_leak_nothing(pair):
    def work(times):
        for _ in range(times):
            pair[0]._node.wait_for_peers(99)
        pair[0].peers()  # so much it has seen

    leaks_nothing(work, 6000)


def test_failing_calls_leak_nothing(pair):
    first, second = pair
    with Node(HERE) as stranger:
        unknown = stranger.peer_id
    wrong = [
        lambda: first.echo(unknown, b"", timeout=5),
        lambda: first.send(unknown, bytearray(100), timeout=5),
        lambda: first.echo("nobody", b""),
        lambda: first.echo(second, "text"),
        lambda: first.echo(second, b"", timeout=-1),
        lambda: first.receive(timeout=0),
        lambda: first.wait_for_peers(7, timeout=0),
        lambda: Node("nonsense"),
        lambda: Node(5),
        lambda: Node(HERE, identity_path="/proc/nowhere/key"),
    ]

    def work(times):
        for _ in range(times):
            for call in wrong:
                with pytest.raises((HivemindError, TypeError, ValueError)):
                    call()

    leaks_nothing(work, 200)


@pytest.mark.parametrize("end", ["shutdown", "dropped"])
def test_nodes_leak_nothing(end):
    def work(times):
        for _ in range(times):
            one = Node(HERE)
            if end == "shutdown":
                one.shutdown()

    leaks_nothing(work, 50, 24 << 20)
    assert os.path.exists("/proc/self/fd")
