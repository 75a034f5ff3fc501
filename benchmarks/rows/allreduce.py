"""4 peers average 256 MB of float32: against gloo in torch.distributed, and hivemind with the same codec

Ours goes without TLS, as gloo does; the ratio `tls` is ours with it against ours without. All sides are processes of one machine on loopback; the time is that of the slowest peer, from the call to the average, when all are ready. hivemind's figure
includes its matchmaking, as its users wait for it; ours is given both ways. `..._cpu_s` is for all rounds of a turn together.
`..._cpu_s_per_gb` is processor time for each GB of tensors that all peers put in, in one round; the start of the processes is not in it.
ALLREDUCE_MB, ALLREDUCE_PEERS and ALLREDUCE_TIMES (rounds in a turn, 3) choose others. hivemind's peers are started one after another: a daemon for each, which fail when
they start at once. `..._missing` is how many were not in the group (at most): hivemind's groups are often not whole, ours are.
"""

import json
import os

from benchmarks import peers
from benchmarks.frame import column
from benchmarks.programs import our_python

PEERS, MB = int(os.environ.get("ALLREDUCE_PEERS", 4)), int(os.environ.get("ALLREDUCE_MB", 256))
TIMES = int(os.environ.get("ALLREDUCE_TIMES", 3))
GOALS = {"fp32": 0.65, "fp16": 1.1, "uniform8": 1.8, "tls": 0.6, "hivemind_fp32": 6, "hivemind_fp16": 10, "hivemind_uniform8": 15}
ROUNDS = 5

#: Starts one process for each peer, and prints the median time of a round.
PARENT = """
import json, statistics, subprocess, sys

code, config = sys.argv[1], json.loads(sys.argv[2])
first = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, json.dumps({**config, "rank": 0, "where": ""})], stdin=-1, stdout=-1, text=True)
where = first.stdout.readline().strip()
all_of = [first]
for rank in range(1, config["peers"]):
    all_of.append(subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, json.dumps({**config, "rank": rank, "where": where})], stdin=-1, stdout=-1, text=True))
    if config["one_by_one"]:
        all_of[-1].stdout.readline()
for one in all_of[1:] * (not config["one_by_one"]):
    one.stdout.readline()
times = []
for number in range(config["times"] + 1):
    for one in all_of:
        one.stdin.write("go\\n")
        one.stdin.flush()
    said = [json.loads(one.stdout.readline()) for one in all_of]
    if number:
        times.append({name: (sum if name == "round_cpu_s" else max)(one[name] for one in said) for name in said[0]})
for one in all_of:
    one.stdin.close()
for one in all_of:
    one.wait(30)
print(json.dumps({name: statistics.median(one[name] for one in times) for name in times[0]}))
"""

OURS = """
import json, sys, time
import torch
import hivemind_c
from hivemind_c.dht import DHT

config = json.loads(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(config["rank"])
tensor = torch.randn(config["mb"] << 18)
dht = DHT([config["where"]] if config["where"] else [], start=False)
dht._node._config["insecure"] = config["insecure"]
dht.run_in_background()
print(dht.get_visible_maddrs()[0], flush=True)
averager = hivemind_c.DecentralizedAverager([tensor], dht, start=True, prefix="bench", compression=getattr(hivemind_c, config["codec"])(), min_matchmaking_time=60, **config["options"])
for line in sys.stdin:
    time.sleep(0.5)
    start, cpu = time.perf_counter(), time.process_time()
    control = averager.step(wait=False, expected=config["peers"], timeout=120)
    details = control.details()
    took = time.perf_counter() - start
    print(json.dumps({"s": took, "reduce_s": details[6], "match_s": details[4], "round_cpu_s": time.process_time() - cpu}), flush=True)
averager.shutdown()
dht.shutdown()
"""

GLOO = """
import json, os, sys, time
import torch
import torch.distributed as dist

config = json.loads(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(config["rank"])
tensor = torch.randn(config["mb"] << 18)
if config["rank"] == 0:
    store = dist.TCPStore("127.0.0.1", 0, config["peers"], True, wait_for_workers=False)
    print(store.port, flush=True)
else:
    store = dist.TCPStore("127.0.0.1", int(config["where"]), config["peers"], False)
    print("ready", flush=True)
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
dist.init_process_group("gloo", store=store, rank=config["rank"], world_size=config["peers"])
for line in sys.stdin:
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(tensor)
    tensor.div_(config["peers"])
    print(json.dumps({"s": time.perf_counter() - start}), flush=True)
"""

HIVEMIND = """
import json, sys, time
import torch
import hivemind

config = json.loads(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(config["rank"])
tensor = torch.randn(config["mb"] << 18)
dht = hivemind.DHT([config["where"]] if config["where"] else [], start=True, startup_timeout=120)
print(dht.get_visible_maddrs()[0], flush=True)
averager = hivemind.averaging.DecentralizedAverager([tensor], dht, start=True, prefix="bench", target_group_size=config["peers"], min_matchmaking_time=5,
    compression=getattr(hivemind.compression, config["codec"])())
for line in sys.stdin:
    start = time.perf_counter()
    group = None
    while not group:
        group = averager.step(timeout=120)
    print(json.dumps({"s": time.perf_counter() - start, "missing": config["peers"] - len(group)}), flush=True)
averager.shutdown()
dht.shutdown()
"""

CODECS = {"fp32": "NoCompression", "fp16": "Float16Compression", "uniform8": "Uniform8BitQuantization"}


def config(**more):
    return json.dumps({"peers": PEERS, "mb": MB, "times": TIMES, "insecure": True, "options": {}, "one_by_one": False, **more})


def measure(run):
    ours = {name: (lambda codec=codec: our_python(PARENT, OURS, config(codec=codec), timeout_s=300)) for name, codec in CODECS.items()}
    ours["fp32_tls"] = lambda: our_python(PARENT, OURS, config(codec=CODECS["fp32"], insecure=False), timeout_s=300)
    contestants = {**ours, "gloo": lambda: our_python(PARENT, GLOO, config(), timeout_s=300)}
    theirs = {f"hivemind_{name}": (lambda codec=codec: peers.python(PARENT, HIVEMIND, config(codec=codec, one_by_one=True), timeout_s=600)) for name, codec in CODECS.items()}
    if peers.stands():
        contestants.update(theirs)
    samples = run.interleave(contestants)
    for name in CODECS:
        run.ratio(name, column(samples["gloo"], "s"), column(samples[name], "reduce_s"))
        if peers.stands():
            run.ratio(f"hivemind_{name}", column(samples[f"hivemind_{name}"], "s"), column(samples[name], "s"))
    run.ratio("tls", column(samples["fp32"], "reduce_s"), column(samples["fp32_tls"], "reduce_s"))
    for name in ours:
        run.figure(f"{name}_cpu_s_per_gb", [spent / (PEERS * MB / 1024) for spent in column(samples[name], "round_cpu_s")])
    run.figures_of(samples)
