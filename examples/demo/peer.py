"""One node of the demo, in a process of its own: does what it is told on stdin, tells what happens on stdout, a JSON object a line."""

import json
import logging
import sys
import threading
import time
import zlib

from hivemind_c import HivemindError, Node

logging.getLogger("hivemind_c").addHandler(logging.NullHandler())  # the demo tells it in its own words
telling = threading.Lock()


def tell(event, **details):
    with telling:
        print(json.dumps({"event": event, "at": time.monotonic(), **details}), flush=True)


def watch_peers(node):
    """Tells who comes and who goes."""
    known = set()
    while True:
        now = {peer.peer_id for peer in node.peers()}
        for peer in now - known:
            tell("found", peer=peer)
        for peer in known - now:
            tell("lost", peer=peer)
        known = now
        time.sleep(0.01)


def receive_parcels(node):
    while True:
        sender, view = node.receive()
        tell("parcel", peer=sender, size=len(view), check=zlib.crc32(view))


def echo(node, peer, times):
    trips = []
    for number in range(times):
        data = f"hello {number}".encode()
        start = time.perf_counter()
        if node.echo(peer, data) != data:
            raise HivemindError("other bytes came back")
        trips.append(time.perf_counter() - start)
    tell("echoed", peer=peer, times=times, median=sorted(trips)[times // 2])


def send(node, peer, size):
    data = bytes(range(256)) * (size // 256)
    check = zlib.crc32(data)
    tell("sending", peer=peer, size=len(data))
    start = time.perf_counter()
    node.send(peer, data, timeout=30)
    tell("sent", peer=peer, size=len(data), check=check, seconds=time.perf_counter() - start)


def obey(node, order):
    try:
        {"echo": echo, "send": send}[order.pop("do")](node, **order)
    except HivemindError as error:
        tell("failed", peer=order["peer"], status=error.status, why=str(error))


def main():
    identity, *initial_peers = sys.argv[1:]
    node = Node("/ip4/127.0.0.1/tcp/0", initial_peers=initial_peers, identity_path=identity)  # the end of the program stops it
    tell("started", peer=node.peer_id, address=node.addresses[0])
    for work in (watch_peers, receive_parcels):
        threading.Thread(target=work, args=(node,), daemon=True).start()
    for line in sys.stdin:
        threading.Thread(target=obey, args=(node, json.loads(line)), daemon=True).start()


main()
