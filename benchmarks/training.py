"""Two processes that train an MLP of 1.3 million parameters at the same time: the programs of the rows `step` and `train`."""

BODY = """
import json, os, subprocess, sys, time, torch
torch.set_num_threads(1)
BATCH, N, SETTLED_S = 32, 2, 4.0

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))

def backward(model, inputs=torch.randn(BATCH, 784), targets=torch.randint(10, (BATCH,))):
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()

def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=1e-4)

class Plain:
    # the sum in .grad, a step when this process has its share
    def __init__(self, model, target, keep):
        self.opt, self.share, self.done, self.keep = sgd(model), target // N, 0, keep
        self.epoch = 0
    def after(self):
        self.done += BATCH
        if self.done >= self.share:
            self.opt.step()
            self.opt.zero_grad()
            self.done = 0
            self.epoch += 1
        elif not self.keep:
            self.opt.zero_grad()

class Swarm:
    def __init__(self, hivemind, model, target, keep, first):
        more = {}
        here = ["/ip4/127.0.0.1/tcp/0"]
        self.dht = hivemind.DHT(initial_peers=first or None, host_maddrs=here, start=True)
        self.opt = hivemind.Optimizer(
            dht=self.dht, run_id="bench", target_batch_size=target, batch_size_per_step=BATCH, optimizer=sgd(model), reuse_grad_buffers=keep,
            matchmaking_time=2.0, averaging_timeout=20.0, average_state_every=10**6, delay_state_averaging=False,
            tracker_opts=dict(min_refresh_period=0.1, default_refresh_period=0.2), **more)
        self.keep = keep
    def addresses(self):
        return [str(a) for a in self.dht.get_visible_maddrs()]
    @property
    def epoch(self):
        return self.opt.local_epoch
    def after(self):
        self.opt.step()
        if not self.keep:
            self.opt.zero_grad()

def make(side, target, keep, first=()):
    model = network()
    if side == "plain":
        return model, Plain(model, target, keep)
    if side == "hivemind":
        import hivemind
    else:
        import hivemind_c as hivemind
    return model, Swarm(hivemind, model, target, keep, list(first))

def measure(model, trainer, seconds, epochs):
    def batch():
        backward(model)
        trainer.after()
    for _ in range(30):
        batch()
    if epochs:  # from the end of one epoch to that of another, when groups do not wait any more for peers that are not known yet (docs/design/matchmaking.md)
        begin, settled, ended = trainer.epoch, time.monotonic() + SETTLED_S, False
        while not ended or trainer.epoch < begin + 2 or time.monotonic() < settled:
            last = trainer.epoch
            batch()
            ended = trainer.epoch > last
    samples, start, first = 0, time.perf_counter(), trainer.epoch
    while time.perf_counter() - start < seconds:
        batch()
        samples += BATCH
    if epochs:
        last = trainer.epoch
        while trainer.epoch == last:
            batch()
            samples += BATCH
    return dict(samples_per_s=samples / (time.perf_counter() - start), epochs=float(trainer.epoch - first))

def go_on(model, trainer):  # who is measured longer must not wait for this one
    import threading
    def train():
        while True:
            backward(model)
            trainer.after()
    threading.Thread(target=train, daemon=True).start()

side, target, keep, seconds, epochs = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "keep", float(sys.argv[4]), sys.argv[5] == "epochs"
if len(sys.argv) > 6:  # the second
    model, trainer = make(side, target, keep, json.loads(sys.argv[6]))
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(measure(model, trainer, seconds, epochs)), flush=True)
    if epochs and side != "plain":
        go_on(model, trainer)
    sys.stdin.readline()
    os._exit(0)
model, trainer = make(side, target, keep)
addresses = trainer.addresses() if side != "plain" else []
other = subprocess.Popen([sys.executable, "-W", "ignore", "-c", "SOURCE = %r; exec(SOURCE)" % SOURCE, *sys.argv[1:6], json.dumps(addresses)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert other.stdout.readline().strip() == "ready"
other.stdin.write("go\\n"); other.stdin.flush()
mine = measure(model, trainer, seconds, epochs)
if epochs and side != "plain":
    go_on(model, trainer)
theirs = json.loads(other.stdout.readline())
print(json.dumps(dict(samples_per_s=mine["samples_per_s"] + theirs["samples_per_s"], epochs=mine["epochs"])), flush=True)
other.kill()
os._exit(0)
"""


def program(side: str, target: int, *, keep: bool = False, seconds: float = 5.0, epochs: bool = False) -> dict:
    """One turn: samples per second of both processes together."""
    from benchmarks.peers import python as their_python
    from benchmarks.programs import our_python

    run = their_python if side == "hivemind" else our_python
    return run(f"SOURCE = {BODY!r}\nexec(SOURCE)", side, str(target), "keep" if keep else "zero", str(seconds), "epochs" if epochs else "steps")
