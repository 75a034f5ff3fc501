"""what each mode does to the loss: two peers against one machine, with as many samples

Two peers in one process train a small network on scikit-learn's digits, 60 steps of 256 samples, in each mode of docs/howto/choose-settings.md.
The other side is plain PyTorch with the same steps. A ratio is the loss on held-out digits of one machine against that of the mode; 1: the same.
"""

from benchmarks.frame import column
from benchmarks.programs import our_python

GOALS = {"exact": 0.95}
ROUNDS = 3
WITHIN_S = 280  # for one mode on a busy machine

TASK = """
import functools, json, sys, threading
import torch
from sklearn.datasets import load_digits

torch.set_num_threads(1)
EPOCHS, TARGET, BATCH = 60, 256, 64
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
train, held = order[:1400], order[1400:]

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))

def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = train[torch.randint(len(train), (BATCH,), generator=generator)]
        yield x[chosen], y[chosen]

def loss_of(model):
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(x[held]), y[held]))

make = lambda parameters: torch.optim.AdamW(parameters, lr=0.003)
"""

ONE = """
seed, model = int(sys.argv[1]), network()
optimizer, data = make(model.parameters()), batches(seed)
for epoch in range(EPOCHS):
    optimizer.zero_grad()
    for _ in range(TARGET // BATCH):
        inputs, targets = next(data)
        (torch.nn.functional.cross_entropy(model(inputs), targets) * BATCH / TARGET).backward()
    optimizer.step()
print(json.dumps({"loss": loss_of(model)}))
"""

SWARM = """
import hivemind_c
seed, options = int(sys.argv[1]), eval(sys.argv[2])
place = dict(host_maddrs="/ip4/127.0.0.1/tcp/0", start=True)
torch.manual_seed(seed)
dhts = [hivemind_c.DHT(**place)]
dhts.append(hivemind_c.DHT(dhts[0].get_visible_maddrs(), **place))
models = [network() for _ in "12"]
meet = threading.Barrier(2)

def peer(i):
    model, data = models[i], batches(seed + 100 * i)
    optimizer = hivemind_c.Optimizer(
        dht=dhts[i], run_id="loss", target_batch_size=TARGET, batch_size_per_step=BATCH, optimizer=make, params=model.parameters(),
        matchmaking_time=2, averaging_timeout=60, **{"delay_state_averaging": False, "offload_optimizer": False, **options})
    def batch():
        inputs, targets = next(data)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    while optimizer.tracker.global_progress.num_peers < 2 or optimizer.local_samples == 0:
        batch() if optimizer.local_samples == 0 else threading.Event().wait(0.1)
    meet.wait()
    while optimizer.local_epoch < EPOCHS:
        threading.Event().wait(0.05)  # so that a step has hardly more samples than the target
        batch()
    optimizer.state_dict()  # takes over what is under way
    meet.wait()

threads = [threading.Thread(target=peer, args=(i,)) for i in (0, 1)]
for one in threads: one.start()
for one in threads: one.join()
print(json.dumps({"loss": sum(map(loss_of, models)) / 2}), flush=True)
import os
os._exit(0)
"""

MODES = {
    "exact": "{}",
    "float16": "dict(grad_compression=hivemind_c.Float16Compression(), state_averaging_compression=hivemind_c.Float16Compression())",
    "uniform8": "dict(grad_compression=hivemind_c.Uniform8BitQuantization())",
    "powersgd": "dict(grad_averager_factory=functools.partial(hivemind_c.PowerSGDGradientAverager, averager_rank=4))",
    "delayed": "dict(delay_grad_averaging=True, offload_optimizer=True)",
    "local_updates": "dict(use_local_updates=True)",
}


def measure(run):
    seeds = {name: iter(range(1, 99)) for name in ("one", *MODES)}
    contestants = {"one": lambda: our_python(TASK + ONE, str(next(seeds["one"])))}
    for name, options in MODES.items():
        contestants[name] = lambda name=name, options=options: our_python(TASK + SWARM, str(next(seeds[name])), options, timeout_s=WITHIN_S)
    samples = run.interleave(contestants, warm_up=())
    for name in MODES:
        run.ratio(name, column(samples["one"], "loss"), column(samples[name], "loss"))
    run.figures_of(samples)
