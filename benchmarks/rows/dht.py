"""stores and gets per second of 12 and 32 DHT nodes in processes, against hivemind's on the same schedule and against bare calls

Each node is a process; one more asks: values are stored, 16 at a time, and got again by another node that has not seen them. What hivemind does
is done in the same number of processes. `..._bare`: the calls that our stores and gets needed, per second, against those of a bare gRPC core
client and server over TLS (benchmarks/c/bench_rpc.c).
"""

from benchmarks import peers
from benchmarks.frame import column
from benchmarks.programs import build_c, c_program, our_python

GOALS = {"stores_12": 50.0, "gets_12": 50.0, "stores_32": 50.0, "gets_32": 50.0, "stores_12_bare": 0.5, "gets_12_bare": 0.5}
ROUNDS = 3

SCHEDULE = """
import json, subprocess, sys, time
from collections import deque
from {package} import DHT
from {clock} import get_dht_time

NODE = '''
import sys
from {package} import DHT
dht = DHT(sys.argv[1:], start=True)
print("up", flush=True)
sys.stdin.read()
dht.shutdown()
'''

def many(ask, n):
    waiting, begun = deque(), time.perf_counter()
    for i in range(n):
        waiting.append(ask(i))
        if len(waiting) == 16:
            assert waiting.popleft().result()
    while waiting:
        assert waiting.popleft().result()
    return n / (time.perf_counter() - begun)

def main():
    nodes, operations = int(sys.argv[1]), int(sys.argv[2])
    first = DHT(start=True)
    there = [str(address) for address in first.get_visible_maddrs()]
    others = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", NODE, *there], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(nodes - 2)]
    for other in others:
        assert other.stdout.readline() == b"up\\n"
    second = DHT(there, start=True)
    time.sleep(2)
    out = {{}}
    many(lambda i: first.store(f"warm {{i}}", i, get_dht_time() + 600, return_future=True), 50)
    many(lambda i: second.get(f"warm {{i}}", return_future=True), 50)
    before = first.state()["calls"] if hasattr(first, "state") else 0
    out["stores_per_s"] = many(lambda i: first.store(f"key {{i}}", i, get_dht_time() + 600, return_future=True), operations)
    if before:
        out["calls_per_store"] = (first.state()["calls"] - before) / operations
        before = second.state()["calls"]
    out["gets_per_s"] = many(lambda i: second.get(f"key {{i}}", return_future=True), operations)
    if before:
        out["calls_per_get"] = (second.state()["calls"] - before) / operations
    for other in others:
        other.stdin.close()
    for other in others:
        other.wait()
    second.shutdown()
    first.shutdown()
    print(json.dumps(out))

if __name__ == "__main__":
    main()
"""
OURS, THEIRS = SCHEDULE.format(package="hivemind_c", clock="hivemind_c"), SCHEDULE.format(package="hivemind", clock="hivemind.utils")


def measure(run):
    build_c()
    contestants = {"bare": lambda: c_program("bench_rpc", "bare_tls")}
    for nodes in (12, 32):
        contestants[f"ours_{nodes}"] = lambda nodes=nodes: our_python(OURS, str(nodes), "3000")
        contestants[f"hivemind_{nodes}"] = lambda nodes=nodes: peers.python(THEIRS, str(nodes), "200")
    samples = run.interleave(contestants)
    bare = column(samples["bare"], "calls_per_s")
    for nodes in (12, 32):
        ours, theirs = samples[f"ours_{nodes}"], samples[f"hivemind_{nodes}"]
        for what in ("store", "get"):
            run.ratio(f"{what}s_{nodes}", column(ours, f"{what}s_per_s"), column(theirs, f"{what}s_per_s"))
            calls = [sample[f"{what}s_per_s"] * sample[f"calls_per_{what}"] for sample in ours]
            run.ratio(f"{what}s_{nodes}_bare", calls, bare)
    run.figures_of(samples)
