"""stores and gets per second of 12 and 32 DHT nodes in processes, against hivemind's on the same schedule and against bare calls

Each node is a process of its own (hivemind cannot hold two in one), and they start one after another: 32 of hivemind's take about a minute on
two free cores, and several on a busy machine. One stores values, 64 at a time, and another that has not seen them gets
them. `..._bare`: the calls that our stores and gets needed, per second, against those of a bare gRPC core client and server over TLS
(benchmarks/c/bench_rpc.c). A call needed is one node told of one value, or asked for it, however many of them travel together.
"""

from benchmarks import peers
from benchmarks.frame import column
from benchmarks.programs import build_c, c_program, our_python

GOALS = {"stores_12": 50.0, "gets_12": 50.0, "stores_32": 50.0, "gets_32": 50.0, "stores_12_bare": 0.5, "gets_12_bare": 0.5}
ROUNDS = 3

SCHEDULE = """
import json, multiprocessing, sys, time
from collections import deque
from {package} import DHT  # once, before the nodes part from this process: importing it 32 times takes minutes
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

def node(pipe, there):
    try:
        serve(pipe, there)
    except Exception as error:
        pipe.send(error)

def serve(pipe, there):
    dht = DHT(there, start=True, startup_timeout=120)
    asks = {{
        "store": lambda key, i: dht.store(key, i, get_dht_time() + 600, return_future=True),
        "get": lambda key, i: dht.get(key, return_future=True),
    }}
    pipe.send([str(address) for address in dht.get_visible_maddrs()])
    for what, name, n in iter(pipe.recv, None):
        before = dht.state() if hasattr(dht, "state") else {{}}
        rate = many(lambda i: asks[what](f"{{name}} {{i}}", i), n)
        after = dht.state() if before else {{}}
        pipe.send([rate, *((after[of] - before[of]) / n for of in ("questions", "calls") if before)])
    dht.shutdown()

def main():
    n, operations = int(sys.argv[1]), int(sys.argv[2])
    fork = multiprocessing.get_context("fork")
    nodes, pipes, there = [], [], []

    def told(pipe):
        answer = pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tell(pipe, *what):
        pipe.send(what)
        return told(pipe)

    try:
        for _ in range(n):  # one after another: each starts in earnest, whatever that costs
            ours, its = fork.Pipe()
            nodes.append(fork.Process(target=node, args=(its, there)))
            nodes[-1].start()
            its.close()  # a node that dies is an error here, not a wait
            pipes.append(ours)
            visible = told(ours)
            there = there or visible
        time.sleep(2)
        out, first, last = {{}}, pipes[0], pipes[-1]
        tell(first, "store", "warm", 50)
        tell(last, "get", "warm", 50)
        for pipe, what in (first, "store"), (last, "get"):
            rate, *counts = tell(pipe, what, "key", operations)
            out[what + "s_per_s"] = rate
            for name, count in zip((f"needed_per_{{what}}", f"calls_per_{{what}}"), counts):
                out[name] = count
        for pipe in pipes:
            pipe.send(None)
        for process in nodes:
            process.join(30)
    finally:
        for process in nodes:
            process.kill()
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
        contestants[f"hivemind_{nodes}"] = lambda nodes=nodes: peers.python(THEIRS, str(nodes), "200")
    samples = run.interleave(contestants, warm_up=["bare", "ours_12", "hivemind_12"])
    bare = column(samples["bare"], "calls_per_s")
    for nodes in (12, 32):
        ours, theirs = samples[f"ours_{nodes}"], samples[f"hivemind_{nodes}"]
        for what in ("store", "get"):
            run.ratio(f"{what}s_{nodes}", column(ours, f"{what}s_per_s"), column(theirs, f"{what}s_per_s"))
            needed = [sample[f"{what}s_per_s"] * sample[f"needed_per_{what}"] for sample in ours]
            run.ratio(f"{what}s_{nodes}_bare", needed, bare)
    run.figures_of(samples)
