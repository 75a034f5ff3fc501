"""A network that goes away under a node: two processes in network namespaces of their own, and the cable between them
pulled.

`make partition`, as root (it makes and removes two namespaces); not part of `make test`, which runs anywhere. It
promises:
a transfer under way ends within 15 s of silence, the peer is lost, and met again when the cable is back.
"""

import os
import subprocess
import sys
import textwrap
import time

import pytest

PEER = """
    from hivemind_c import Node
    node = Node("/ip4/10.77.0.2/tcp/4711")
    print(node.addresses[0])
    input()
"""
ASKER = """
    import sys, time
    from hivemind_c import HivemindError, Node
    node = Node("/ip4/10.77.0.1/tcp/0", initial_peers=sys.argv[1])
    (peer,) = node.wait_for_peers(1, 10)
    print("met")
    input()
    start = time.monotonic()
    sending = node.send(peer, bytes(64 << 20), timeout=100, wait=False)
    print(sending.exception(100).status, time.monotonic() - start)
    while node.peers():
        time.sleep(0.05)
    print("lost", time.monotonic() - start)
    input()
    node.wait_for_peers(1, 100)
    print(node.echo(peer, b"again", timeout=10))
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def cable():
    """Two namespaces joined by a cable; pull(True) pulls it, pull(False) plugs it in again."""
    if os.geteuid() != 0:
        pytest.fail("network namespaces need root: sudo make partition", pytrace=False)
    names = [f"hv{side}{os.getpid()}" for side in "ab"]
    for name in names:
        ip("netns", "add", name)
    try:
        ip("link", "add", "hva", "netns", names[0], "type", "veth", "peer", "name", "hvb", "netns", names[1])
        for number, (name, device) in enumerate(zip(names, ("hva", "hvb")), 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
        yield names, lambda pulled: ip("-n", names[1], "link", "set", "hvb", "down" if pulled else "up")
    finally:
        for name in names:
            ip("netns", "del", name)


def start(name, source, *arguments):
    command = ["ip", "netns", "exec", name, sys.executable, "-u", "-c", textwrap.dedent(source), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_pulled_cable_is_noticed_and_a_plugged_one_too(cable):
    names, pull = cable
    running = [start(names[1], PEER)]
    try:
        running.append(start(names[0], ASKER, running[0].stdout.readline().strip()))
        asker = running[1]
        assert asker.stdout.readline() == "met\n"
        pull(True)
        asker.stdin.write("\n")
        asker.stdin.flush()
        status, seconds = asker.stdout.readline().split()
        print(f"the transfer ended after {float(seconds):.1f} s: {status}")
        assert status == "CLOSED" and float(seconds) < 15
        word, seconds = asker.stdout.readline().split()
        print(f"the peer was lost after {float(seconds):.1f} s")
        assert word == "lost"
        pull(False)
        back = time.monotonic()
        asker.stdin.write("\n")
        asker.stdin.flush()
        assert asker.stdout.readline() == "b'again'\n"
        print(f"and met again {time.monotonic() - back:.1f} s after the cable was back")
    finally:
        for process in running:
            process.kill()
            process.wait()
