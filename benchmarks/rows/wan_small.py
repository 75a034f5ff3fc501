"""8 peers average 1 MB over lines of 1 Gbit/s and 50 ms: against gloo's float32 over the same lines

As `wan`: peers in network namespaces, a relay between them, as root, the same congestion control for both. `rtts_...` is one round trip over the time that a
round takes beyond what its bytes need on the line: a butterfly needs one round trip, there and back. Before each line is a queue of 1 MB, which is 8 ms of it
(`shallow`: the values of all others for one peer hardly find room in it), or of 6.25 MB, which it carries in a round trip (`deep`).
"""

import sys
from functools import partial

from benchmarks.frame import column
from benchmarks.programs import C_PROGRAMS, build_c, c_program, run as run_program
from benchmarks.rows.wan import congestion

PEERS, MB, RTT_S, MBIT, TIMES = 8, 1, 0.05, 1000, 10
QUEUES_KB = {"deep": "6250", "shallow": "1000"}
GOALS = {f"{what}_{queue}": goal for what, goal in (("gloo", 3), ("rtts", 1 / 1.5)) for queue in QUEUES_KB}
ROUNDS = 5

GLOO = """
import json, os, statistics, sys, time
import torch
import torch.distributed as dist

peers, times, rank = int(sys.argv[1]), int(sys.argv[2]), int(os.environ["WAN_PEER"])
torch.set_num_threads(1)
tensor = torch.randn(250_000)
os.environ["GLOO_SOCKET_IFNAME"] = "wan"
store = dist.TCPStore("10.77.0.1", 29500, peers, rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=peers)
took = []
for number in range(times + 1):
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(tensor)
    tensor.div_(peers)
    took.append(time.perf_counter() - start)
dist.barrier()
if rank == 0:
    print(json.dumps({"median_s": statistics.median(took[1:])}), flush=True)
dist.destroy_process_group()
"""


def gloo(queue_kb):
    line = [str(PEERS), str(MBIT), str(RTT_S * 1000), "0", congestion()]
    return run_program([str(C_PROGRAMS / "bench_wan"), *line, sys.executable, "-W", "ignore", "-c", GLOO, str(PEERS), str(TIMES)], 180, {"WAN_QUEUE_KB": queue_kb})


def ours(queue_kb):
    line = ["--peers", str(PEERS), "--wan", str(MBIT), "--rtt", str(RTT_S * 1000), "--congestion", congestion(), "--queue", queue_kb]
    return c_program("bench_allreduce", *line, "--mb", str(MB), "--rounds", str(TIMES), "--insecure")


def measure(run):
    build_c()
    samples = run.interleave({f"{turn.__name__}_{name}": partial(turn, kb) for name, kb in QUEUES_KB.items() for turn in (ours, gloo)})
    transfer_s = MB * 8 * 2 * (PEERS - 1) / PEERS / MBIT
    for name in QUEUES_KB:
        times = column(samples[f"ours_{name}"], "median_s")
        run.ratio(f"gloo_{name}", column(samples[f"gloo_{name}"], "median_s"), times)
        run.ratio(f"rtts_{name}", [RTT_S] * len(times), [seconds - transfer_s for seconds in times])
    run.figures_of(samples)
