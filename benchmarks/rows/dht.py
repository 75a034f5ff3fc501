"""stores and gets per second of 12 and 32 DHT nodes in processes, against hivemind's on the same schedule and against bare calls

Each node is a process of its own (hivemind cannot hold two in one): one stores values, 64 at a time, and another that has not seen them gets
them. `..._bare`: the calls that our stores and gets needed, per second, against those of a bare gRPC core client and server over TLS
(benchmarks/c/bench_rpc.c). A call needed is one node told of one value, or asked for it, however many of them travel together.
"""

from benchmarks import peers
from benchmarks.frame import column
from benchmarks.programs import build_c, c_program, our_python

GOALS = {"stores_12": 50.0, "gets_12": 50.0, "stores_32": 50.0, "gets_32": 50.0, "stores_12_bare": 0.5, "gets_12_bare": 0.5}
ROUNDS = 3

SCHEDULE = """
import json, subprocess, sys, time

NODE = '''
import json, sys, time
from collections import deque
from {package} import DHT
from {clock} import get_dht_time

def many(ask, n):
    waiting, begun = deque(), time.perf_counter()
    for i in range(n):
        waiting.append(ask(i))
        if len(waiting) == 64:
            assert waiting.popleft().result()
    while waiting:
        assert waiting.popleft().result()
    return n / (time.perf_counter() - begun)

def store(name):
    return lambda i: dht.store(f"{{name}} {{i}}", i, get_dht_time() + 600, return_future=True)

def get(name):
    return lambda i: dht.get(f"{{name}} {{i}}", return_future=True)

dht = DHT(sys.argv[1:], start=True, startup_timeout=120)
print(*dht.get_visible_maddrs(), flush=True)
for line in sys.stdin:
    what, name, n = line.split()
    before = dht.state() if hasattr(dht, "state") else {{}}
    rate = many((store if what == "store" else get)(name), int(n))
    after = dht.state() if before else {{}}
    print(json.dumps([rate, *((after[of] - before[of]) / int(n) for of in ("questions", "calls") if before)]), flush=True)
dht.shutdown()
'''

def tell(node, what, name, n):
    node.stdin.write(f"{{what}} {{name}} {{n}}\\n")
    node.stdin.flush()
    return json.loads(node.stdout.readline())

def main():
    n, operations = int(sys.argv[1]), int(sys.argv[2])
    nodes, there = [], []
    for _ in range(n):  # one after another: each starts in earnest, whatever that costs
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        nodes.append(subprocess.Popen([sys.executable, "-W", "ignore", "-c", NODE, *there], **pipes))
        visible = nodes[-1].stdout.readline().split()
        assert visible, "a node did not start"
        there = there or visible
    time.sleep(2)
    out, first, last = {{}}, nodes[0], nodes[-1]
    tell(first, "store", "warm", 50)
    tell(last, "get", "warm", 50)
    for node, what in (first, "store"), (last, "get"):
        rate, *counts = tell(node, what, "key", operations)
        out[what + "s_per_s"] = rate
        for name, count in zip((f"needed_per_{{what}}", f"calls_per_{{what}}"), counts):
            out[name] = count
    for node in nodes:
        node.stdin.close()
    for node in nodes:
        try:
            node.wait(30)
        except subprocess.TimeoutExpired:
            node.kill()
    print(json.dumps(out))

if __name__ == "__main__":
    main()
"""
OURS, THEIRS = SCHEDULE.format(package="hivemind_c", clock="hivemind_c"), SCHEDULE.format(package="hivemind", clock="hivemind.utils")


def measure(run):
    build_c()
    contestants = {"bare": lambda: c_program("bench_rpc", "bare_tls")}
    for nodes in (12, 32):
        contestants[f"ours_{nodes}"] = lambda nodes=nodes: our_python(OURS, str(nodes), "12000")
        contestants[f"hivemind_{nodes}"] = lambda nodes=nodes: peers.python(THEIRS, str(nodes), "200", timeout_s=600)
    samples = run.interleave(contestants)
    bare = column(samples["bare"], "calls_per_s")
    for nodes in (12, 32):
        ours, theirs = samples[f"ours_{nodes}"], samples[f"hivemind_{nodes}"]
        for what in ("store", "get"):
            run.ratio(f"{what}s_{nodes}", column(ours, f"{what}s_per_s"), column(theirs, f"{what}s_per_s"))
            needed = [sample[f"{what}s_per_s"] * sample[f"needed_per_{what}"] for sample in ours]
            run.ratio(f"{what}s_{nodes}_bare", needed, bare)
    run.figures_of(samples)
