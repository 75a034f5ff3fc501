"""Two and three real processes on this machine."""

import os
import signal
import time

import pytest

from hivemind_c import HivemindError, HivemindTimeoutError
from support import PATIENCE, at_best, eventually, files, free_port, resident, threads

PEER = """
    import sys
    from hivemind_c import Node

    node = Node("/ip4/127.0.0.1/tcp/0", initial_peers=sys.argv[1:])
    print(node.addresses[0])
    while True:
        sender, view = node.receive()
        print(sender, len(view), sum(view[:1000]))
        node.send(sender, view)
"""


def peer_id(address):
    return address.rsplit("/", 1)[1]


def test_two_processes_talk(node, program):
    other = program(PEER)
    address = other.line()
    one = node(initial_peers=address)
    (known,) = one.wait_for_peers(1, timeout=60)
    assert known.peer_id == peer_id(address)
    assert one.echo(known, b"across") == b"across"
    data = os.urandom(20 << 20)
    one.send(known, data, timeout=60)
    assert other.line() == f"{one.peer_id} {len(data)} {sum(data[:1000])}"
    sender, view = one.receive(timeout=60)
    assert sender == known.peer_id and view == data


def test_three_processes_find_each_other_through_one(node, program):
    first = node()
    others = [program(PEER, first.addresses[0]) for _ in range(2)]
    ids = {peer_id(other.line()) for other in others}
    assert {peer.peer_id for peer in first.wait_for_peers(2, timeout=60)} == ids
    late = node(initial_peers=first.addresses)
    assert {peer.peer_id for peer in late.wait_for_peers(3, timeout=60)} == ids | {first.peer_id}


def test_a_killed_peer_is_missed_within_a_second(node, program):
    def attempt():
        other = program(PEER)
        one = node(initial_peers=other.line())
        (known,) = one.wait_for_peers(1, timeout=60)
        one.send(known, bytes(1 << 20), timeout=60)
        one.receive(timeout=60)
        os.kill(other.pid, signal.SIGKILL)
        other.process.wait()
        start = time.monotonic()
        assert eventually(lambda: one.peers() == [])
        took = time.monotonic() - start
        with pytest.raises(HivemindError):
            one.echo(known, b"anybody?")
        return took

    at_best(1, attempt)


def test_a_kill_in_the_middle_of_a_parcel_ends_the_sending_soon(node, program):
    other = program(PEER)
    one = node(initial_peers=other.line())
    (known,) = one.wait_for_peers(1, timeout=60)
    os.kill(other.pid, signal.SIGSTOP)
    data = bytearray(64 << 20)
    future = one.send(known, data, timeout=60, wait=False)
    time.sleep(0.2)
    assert not future.done()
    os.kill(other.pid, signal.SIGKILL)
    assert isinstance(future.exception(PATIENCE), HivemindError)
    data.append(1)  # the buffer is ours again


def test_a_stopped_peer_costs_its_time_limit_and_no_more(node, program):
    other = program(PEER)
    one = node(initial_peers=other.line())
    (known,) = one.wait_for_peers(1, timeout=60)
    os.kill(other.pid, signal.SIGSTOP)

    def attempt():
        start = time.monotonic()
        with pytest.raises(HivemindTimeoutError):
            one.echo(known, b"anybody?", timeout=0.5)
        took = time.monotonic() - start
        assert took > 0.4
        return took

    at_best(3, attempt)
    os.kill(other.pid, signal.SIGCONT)
    assert eventually(lambda: one.peers() and one.echo(known, b"awake", timeout=60) == b"awake")


def test_stopped_peer_is_given_up_by_keepalive(node, program):
    def attempt():
        other = program(PEER)
        one = node(initial_peers=other.line())
        (known,) = one.wait_for_peers(1, timeout=60)
        os.kill(
            other.pid, signal.SIGSTOP
        )  # its kernel still takes what is sent: only keepalive can tell, after 10 + 5 s
        start = time.monotonic()
        with pytest.raises(HivemindError) as failed:
            one.echo(known, b"anybody?", timeout=300)
        assert failed.value.status == "CLOSED"
        return time.monotonic() - start

    at_best(60, attempt, tries=3)


def test_a_peer_that_says_goodbye_is_gone_at_once(node, program):
    other = program(
        """
        from hivemind_c import Node
        with Node("/ip4/127.0.0.1/tcp/0") as node:
            print(node.addresses[0])
            input()
        """
    )
    one = node(initial_peers=other.line())
    one.wait_for_peers(1, timeout=60)
    other.say()
    assert other.finish() == (0, "", "")
    assert eventually(lambda: one.peers() == [])


def test_killed_peers_leave_nothing_behind(node, program):
    one = node()

    def lose_one():
        other = program(PEER, one.addresses[0])
        other.line()
        (known,) = one.wait_for_peers(1, timeout=60)
        one.send(known, bytes(4 << 20), timeout=60)
        one.receive(timeout=60)
        os.kill(other.pid, signal.SIGKILL)
        other.end()
        assert eventually(lambda: one.peers() == [])

    for _ in range(3):
        lose_one()
    before = threads(), files(), resident()
    for _ in range(10):
        lose_one()
    assert eventually(lambda: threads() <= before[0] and files() <= before[1]), (threads(), files(), before)
    assert resident() - before[2] < 32 << 20


def test_a_peer_that_comes_back_at_its_address_is_found_again(node, program, tmp_path):
    source = """
        import sys
        from hivemind_c import Node
        node = Node(sys.argv[1], identity_path=sys.argv[2])
        print(node.addresses[0])
        node.receive()
    """
    key = tmp_path / "key"
    other = program(source, f"/ip4/127.0.0.1/tcp/{free_port()}", key)
    address = other.line()
    one = node(initial_peers=address)
    one.wait_for_peers(1, timeout=60)
    other.end()
    assert eventually(lambda: one.peers() == [])
    again = program(source, address.split("/p2p/")[0], key)
    assert again.line() == address
    assert eventually(one.peers)
    assert one.echo(one.peers()[0], b"welcome back") == b"welcome back"
