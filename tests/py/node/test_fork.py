"""A process with a node forks: the child may work and end as it likes; the node stays the parent's."""

import multiprocessing
import os
import sys
import time

import pytest

from hivemind_c import HivemindError
from support import eventually, files, threads

ENDINGS = {
    "os._exit": "os._exit(0)",
    "sys.exit": "sys.exit(0)",
    "its end": "",
}

FORKS = """
    import os, sys
    from hivemind_c import HivemindError, Node

    first = Node("/ip4/127.0.0.1/tcp/0")
    second = Node("/ip4/127.0.0.1/tcp/0", initial_peers=first.addresses)
    second.wait_for_peers(1, 60)
    future = second._node.receive()
    parcel = bytearray(48 << 20)
    sending = second.send(first, parcel, wait=False)

    if os.fork() == 0:
        for call in (lambda: second.peer_id, lambda: second.addresses, second.peers, lambda: second.echo(first, b""),
                     lambda: second.send(first, b""), second.receive, lambda: second.wait_for_peers(1),
                     future.done, future.result, future.cancel, lambda: sending.result(1)):
            try:
                call()
                print("no error")
            except HivemindError as error:
                if error.status != "FORKED" or "fork" not in str(error):
                    print("another error:", error)
        repr(second), repr(future)
        second.shutdown()
        DROP
        print("child ends")
        ENDING
    else:
        pid, status = os.wait()
        sending.result(120)
        assert second.echo(first, b"parent") == b"parent"
        assert first.receive(60)[1].nbytes == 48 << 20
        first.shutdown()
        second.shutdown()
        print("parent ends", status)
"""


@pytest.mark.parametrize("drop", ["", "del first, second, future, sending, call, parcel; import gc; gc.collect()"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_child_cannot_use_the_node_and_ends_as_it_likes(program, ending, drop):
    code, out, err = program(FORKS.replace("DROP", drop).replace("ENDING", ENDINGS[ending])).finish()
    assert (code, err) == (0, "")
    assert sorted(out.split("\n")) == ["", "child ends", "parent ends 0"]


STARTS = """
    import os
    from hivemind_c import HivemindError, Node

    BEFORE
    if os.fork() == 0:
        try:
            with Node("/ip4/127.0.0.1/tcp/0") as third, Node("/ip4/127.0.0.1/tcp/0",
                initial_peers=third.addresses) as fourth:
                fourth.wait_for_peers(1, 60)
                print(fourth.echo(third, b"child"))
        except HivemindError as error:
            print(error.status)
    else:
        assert os.wait()[1] == 0
        first = Node("/ip4/127.0.0.1/tcp/0")
        second = Node("/ip4/127.0.0.1/tcp/0", initial_peers=first.addresses)
        second.wait_for_peers(1, 60)
        print(second.echo(first, b"parent"))
"""


def said(program, before):
    """Its output and its errors; the node that lives longer may have missed the other."""
    code, out, errors = program(STARTS.replace("BEFORE", before)).finish()
    return code, out, [line for line in errors.splitlines() if not line.startswith("lost peer ")]


@pytest.mark.parametrize("before", ["kept = Node('127.0.0.1:0')", "Node('127.0.0.1:0').shutdown()"])
def test_child_of_a_process_with_nodes_starts_none(program, before):
    assert said(program, before) == (0, "FORKED\nb'parent'\n", [])


def test_a_child_forked_before_the_first_node_has_its_own(program):
    assert said(program, "") == (0, "b'child'\nb'parent'\n", [])


def square(number):
    return number * number


def use(queue, node):
    try:
        queue.put(node.peers())
    except HivemindError as error:
        queue.put(error)


def test_multiprocessing_by_fork_works_beside_a_node(pair):
    first, second = pair
    context = multiprocessing.get_context("fork")
    before = threads(), files()
    with context.Pool(2) as pool:
        assert pool.map(square, range(50)) == [number * number for number in range(50)]
        assert first.echo(second, b"while the pool lives") == b"while the pool lives"
    queue = context.Queue()
    child = context.Process(target=use, args=(queue, first))
    child.start()
    error = queue.get(timeout=120)
    child.join(120)
    assert child.exitcode == 0
    assert isinstance(error, HivemindError) and error.status == "FORKED"
    assert first.echo(second, b"after") == b"after"
    assert eventually(lambda: threads() <= before[0] + 1)  # the queue's feeder may linger


def test_a_data_loader_with_workers_runs_beside_a_node(program):
    code, out, err = program(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        from hivemind_c import Node

        def main():
            first = Node("/ip4/127.0.0.1/tcp/0")
            second = Node("/ip4/127.0.0.1/tcp/0", initial_peers=first.addresses)
            second.wait_for_peers(1, 60)
            for epoch in range(2):
                loader = DataLoader(TensorDataset(torch.arange(64.0)), batch_size=4, num_workers=2,
                    multiprocessing_context="fork")
                total = 0.0
                for (batch,) in loader:
                    assert second.echo(first, b"batch") == b"batch"
                    total += batch.sum().item()
                print(total)

        main()
        """
    ).finish(timeout=120)
    assert (code, err) == (0, "")
    assert out == "2016.0\n2016.0\n"


def test_many_forks_while_messages_fly(pair):
    first, second = pair
    for _ in range(20):
        pending = [first.echo(second, os.urandom(1000), wait=False, timeout=60) for _ in range(20)]
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        for future in pending:
            assert len(future.result(60)) == 1000


def test_a_child_holds_no_port_of_its_parent_open_after_it_ends(pair):
    first, _ = pair
    pid = os.fork()
    if pid == 0:
        time.sleep(0.1)
        os._exit(0)
    address = first.addresses[0]
    os.waitpid(pid, 0)
    first.shutdown()
    from hivemind_c import Node

    with Node(address.split("/p2p/")[0]) as again:
        assert again.addresses[0].split("/p2p/")[0] == address.split("/p2p/")[0]
    assert sys.getrefcount(first) < 10
