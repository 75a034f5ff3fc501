"""Two ranks of one machine as one peer, against Lightning's DDP with as many samples in a step, and the moving of tensors against gloo's own

steps_20ms, steps_2ms: batches a second of two ranks whose batch takes 20 or 2 ms; DDP accumulates as many batches for each step. move: the time of gloo's reduce and broadcast of
256 MB, divided by that of the sums and parameters of a peer. memory: what training adds to the memory of rank 1 with DDP and AdamW, divided by what it adds with the strategy.
"""

from benchmarks.frame import column
from benchmarks.programs import our_python

GOALS = {"steps_20ms": 0.97, "steps_2ms": 0.85, "move": 1 / 1.3, "memory": 1.0}
ROUNDS = 5

PROGRAM = """
import json, os, socket, subprocess, sys
way, what = sys.argv[1:3]
if "LOCAL_RANK" not in os.environ:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    about = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE="2", NODE_RANK="0", OMP_NUM_THREADS="1")
    about["INITIAL_PEERS"] = ""
    ranks = [subprocess.Popen(sys.orig_argv, env=dict(about, LOCAL_RANK=str(rank)), stdout=subprocess.PIPE, text=True) for rank in (0, 1)]
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("a rank has failed")
    told = [json.loads(one.splitlines()[-1]) for one in said]
    print(json.dumps({**told[0], **{"rank1_" + name: value for name, value in told[1].items() if name == "bytes"}}))
    sys.exit(0)

import logging, time, warnings
import torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(os.environ["LOCAL_RANK"])

def move():
    dist.init_process_group("gloo", rank=rank, world_size=2)
    flat = torch.nn.Parameter(torch.ones(1 << 26))
    if way == "ours":
        import tempfile
        from hivemind_c.inside.channel import TIMEOUT, Channel, gloo_group
        from hivemind_c.inside.moving import broadcast_state, reduce_sums
        from hivemind_c.inside.watch import Watch
        from hivemind_c.optim.gradient_sums import GradientSums
        group, folder = gloo_group(TIMEOUT), [tempfile.mkdtemp()]
        dist.broadcast_object_list(folder, 0)
        channel = Channel(Watch(folder[0], rank, 2), group)
        flat.grad = torch.ones_like(flat)
        sums = GradientSums([flat])
        sums.accumulate_grads_(1)
        def once():
            reduce_sums(channel, sums, 1.0, "cpu")
            broadcast_state(channel, [flat.detach()])
    else:
        sums = torch.ones(1 << 26)
        def once():
            dist.reduce(sums, 0)
            dist.broadcast(flat.detach(), 0)
    once()
    times = []
    for _ in range(5):
        dist.barrier()
        began = time.perf_counter()
        once()
        dist.barrier()
        times.append(time.perf_counter() - began)
    return dict(seconds=sorted(times)[2])

def train(batch_s, batches, width):
    import lightning.pytorch as pl
    import hivemind_c
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    marks = []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(width, width)

        def training_step(self, batch, index):
            time.sleep(batch_s)
            return self.layer(batch[0]).square().mean()

        def on_train_batch_end(self, *args):
            marks.append(time.perf_counter())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    data = torch.utils.data.TensorDataset(torch.randn(batches * 2 * 4, width))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    if way == "ours":
        strategy = hivemind_c.HivemindStrategy(target_batch_size=64, host_maddrs="/ip4/127.0.0.1/tcp/0", open_port=False)
    else:
        strategy = "ddp"
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy=strategy, max_epochs=1, accumulate_grad_batches=1 if way == "ours" else 8, **quiet)
    module = Module()
    before = resident()
    most = []
    module.on_train_batch_start = lambda *args: most.append(resident())
    trainer.fit(module, loader)
    n = len(marks) // 4  # the first ones join
    return dict(batches_per_s=(len(marks) - n - 1) / (marks[-1] - marks[n]), bytes=max(most) - before)

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

result = move() if what == "move" else train(float(what) / 1000, int(sys.argv[3]), int(sys.argv[4]))
print(json.dumps(result), flush=True)
os._exit(0)
"""
STEPS = {"20ms": ("20", "160", "64"), "2ms": ("2", "800", "64")}


def measure(run):
    for name, arguments in STEPS.items():
        samples = run.interleave({way: lambda way=way: our_python(PROGRAM, way, *arguments) for way in ("ours", "ddp")})
        run.ratio(f"steps_{name}", column(samples["ours"], "batches_per_s"), column(samples["ddp"], "batches_per_s"))
        run.figures_of({f"{way}_{name}": [{"batches_per_s": one["batches_per_s"]} for one in list_of] for way, list_of in samples.items()})
    moved = run.interleave({way: lambda way=way: our_python(PROGRAM, way, "move") for way in ("ours", "gloo")})
    run.ratio("move", column(moved["gloo"], "seconds"), column(moved["ours"], "seconds"))
    big = run.interleave({way: lambda way=way: our_python(PROGRAM, way, "1", "40", "3000") for way in ("ours", "ddp")})
    run.ratio("memory", column(big["ddp"], "rank1_bytes"), column(big["ours"], "rank1_bytes"))
    run.figures_of(moved)
    run.figures_of({way: [{"rank1_bytes": one["rank1_bytes"]} for one in list_of] for way, list_of in big.items()})
