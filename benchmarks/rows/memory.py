"""The host memory that training in a swarm takes: bytes a parameter, offloaded AdamW, and summing up gradients where they are

A peer that trains alone, 17 million parameters in float32 on the CPU. offload: what comes to the model and its gradients, which stand for those on a device, when
AdamW is offloaded: parameters, two moments and the gradients' mean. offers: the same while the state is offered to joiners, of which a snapshot is kept. reuse, copy: what comes
to the model and its gradients with SGD and without offload, when gradients are summed up in .grad and when they are not. Memory is what is resident after the last backward pass;
the node and the libraries were there before. bytes_each: in use; kept_bytes_each: with what malloc holds back for the next step (AdamW's temporaries). Ratios are the goal's bytes to those measured.
"""

from benchmarks.frame import column
from benchmarks.programs import our_python

GOALS = {"offload": 1.0, "reuse": 1.0}
ROUNDS = 3
LIMITS = {"offload": 16.5, "reuse": 4.5}  # bytes a parameter; of reuse 4 are the buffer in which the state is averaged

PROGRAM = """
import ctypes, gc, json, os, sys, torch
import hivemind_c
torch.set_num_threads(1)
way = sys.argv[1]
keep = way == "reuse"

def resident(trimmed=True):
    gc.collect()
    if trimmed:
        ctypes.CDLL(None).malloc_trim(0)
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

model = torch.nn.Sequential(torch.nn.Linear(4096, 2048), torch.nn.Linear(2048, 4096))
count = sum(p.numel() for p in model.parameters())
inputs = torch.randn(4, 4096)

def backward():
    model(inputs).square().mean().backward()

for kind in (torch.optim.SGD, torch.optim.AdamW):  # what torch loads when its first optimizer steps
    small = torch.nn.Linear(2, 2)
    small(torch.ones(1, 2)).sum().backward()
    kind(small.parameters(), lr=0.1).step()
for _ in range(3):
    model.zero_grad()
    backward()
dht = hivemind_c.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
before = resident()
common = dict(dht=dht, run_id="memory", target_batch_size=12, batch_size_per_step=4, average_state_every=10**6, averager_opts=dict(allow_state_sharing=way == "offers"))
if way in ("offload", "offers"):
    optimizer = hivemind_c.Optimizer(optimizer=lambda params: torch.optim.AdamW(params), params=model.parameters(), **common)
else:
    optimizer = hivemind_c.Optimizer(optimizer=torch.optim.SGD(model.parameters(), lr=1e-4), reuse_grad_buffers=keep, **common)
while optimizer.local_epoch < 4:
    backward()
    optimizer.step()
    if not keep:
        optimizer.zero_grad()
backward()
kept = resident(False)
print(json.dumps(dict(kept_bytes_each=(kept - before) / count, bytes_each=(resident() - before) / count)), flush=True)
os._exit(0)
"""


def measure(run):
    samples = run.interleave({way: lambda way=way: our_python(PROGRAM, way) for way in ("offload", "offers", "reuse", "copy")})
    for way, limit in LIMITS.items():
        measured = [max(value, 0.01) for value in column(samples[way], "bytes_each")]
        run.ratio(way, [limit] * len(measured), measured)
    run.figures_of(samples)
