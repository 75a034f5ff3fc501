"""A state of some seconds from one and from three sources over lines of 20, 100 and 1,000 Mbit/s and 50 ms: the share of the line

Peers in network namespaces, joined by a relay (benchmarks/c/wan.h), as root; Python nodes that offer a state, and one that loads it, from the first byte to the last
with the vote. WAN_CONGESTION as in the row wan. Headers leave 0.95 of a line to bytes.
As many bytes over one plain TCP connection are measured beside it: the kernel's send buffer (net.ipv4.tcp_wmem, 4 MiB)
bounds a connection at 1,000 Mbit/s.
"""

import json
import sys
import tempfile

from benchmarks import package
from benchmarks.frame import column
from benchmarks.programs import C_PROGRAMS, build_c, run as run_program
from benchmarks.rows.wan import congestion

LINES, SOURCES, SECONDS, QUEUE_MS, MB_MOST = (20, 100, 1000), (1, 3), 12, 100, 400
GOALS = {f"{sources}_at_{mbit}": 0.9 for sources in SOURCES for mbit in LINES}
ROUNDS = 1

PEER = """
import json, os, sys, time
import torch
from hivemind_c import Node
from hivemind_c.averaging.state import StateSharing

config, rank = json.loads(sys.argv[1]), int(os.environ["WAN_PEER"])
torch.set_num_threads(1)
up, done, until = config["folder"] + "/up", config["folder"] + "/done", time.monotonic() + 240
while rank and not os.path.exists(up) and time.monotonic() < until:
    time.sleep(0.1)
first = [] if rank == 0 else ["/ip4/10.77.0.1/tcp/7700"]
node = Node(listen=["/ip4/%s/tcp/%d" % (os.environ["WAN_ADDRESS"], 7700 + rank)], initial_peers=first)
open(up, "w").close()
sharing = StateSharing(node, "bench")
tensor = torch.arange(config["mb"] * 250_000, dtype=torch.float32)
if rank < config["sources"]:
    sharing.offer(1, [tensor])
    while not os.path.exists(done) and time.monotonic() < until:
        time.sleep(0.2)
else:
    node.wait_for_peers(config["sources"], timeout=60)
    time.sleep(8)  # all have announced it
    begun = time.monotonic()
    assert torch.equal(sharing.load(300).tensors[0], tensor)
    took = time.monotonic() - begun
    open(done, "w").close()
    print(json.dumps({"load_s": took, "line": config["mb"] * 8 / config["mbit"] / took}), flush=True)
node.shutdown()
"""

PLAIN = """
import json, os, socket, sys, time

mb = int(sys.argv[1])
if os.environ["WAN_PEER"] == "0":
    connection, _ = socket.create_server((os.environ["WAN_ADDRESS"], 7700)).accept()
    piece = bytes(1_000_000)
    for _ in range(mb):
        connection.sendall(piece)
    connection.recv(1)
else:
    time.sleep(1)  # the other one listens
    begun, left, into = time.monotonic(), mb * 1_000_000, bytearray(1_000_000)
    connection = socket.create_connection(("10.77.0.1", 7700), timeout=60)
    while left > 0:
        left -= connection.recv_into(into) or left + 1
    took = time.monotonic() - begun
    assert left == 0, "the connection ended early"
    connection.send(b"1")
    print(json.dumps({"load_s": took, "line": mb * 8 / int(sys.argv[2]) / took}), flush=True)
"""


def _run(peers, mbit, program, *arguments):
    line = [str(peers), str(mbit), "50", "0", congestion(), sys.executable, "-W", "ignore", "-c", program, *arguments]
    queue = {"WAN_QUEUE_KB": str(mbit * QUEUE_MS // 8), "PYTHONPATH": package.path()}
    return run_program([str(C_PROGRAMS / "bench_wan"), *line], 400, queue)


def _mb(mbit):
    return min(MB_MOST, mbit * SECONDS // 8)


def turn(mbit, sources):
    with tempfile.TemporaryDirectory() as folder:
        config = {"mb": _mb(mbit), "mbit": mbit, "sources": sources, "folder": folder}
        return _run(sources + 1, mbit, PEER, json.dumps(config))


def plain_tcp(mbit):
    return _run(2, mbit, PLAIN, str(_mb(mbit)), str(mbit))


def measure(run):
    build_c()
    turns = {f"{sources}_at_{mbit}": (lambda mbit=mbit, sources=sources: turn(mbit, sources)) for sources in SOURCES for mbit in LINES}
    plain = {f"tcp_at_{mbit}": (lambda mbit=mbit: plain_tcp(mbit)) for mbit in LINES}
    samples = run.interleave({**turns, **plain}, warm_up=[])
    for name in turns:
        shares = column(samples[name], "line")
        run.ratio(name, shares, [1.0] * len(shares))
    for mbit in LINES:
        load, tcp = column(samples[f"1_at_{mbit}"], "line"), column(samples[f"tcp_at_{mbit}"], "line")
        run.ratio(f"1_at_{mbit}_of_tcp", load, tcp)
    run.figures_of(samples)
