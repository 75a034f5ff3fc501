"""the start of a Lightning Trainer with HivemindStrategy, in a swarm of its own, against Lightning's default strategy

Each time in a fresh process, an MLP of 1.3 million parameters on the CPU. import_s: `import hivemind_c` after torch and Lightning. fit_s: from the making of
the strategy to the end of the first batch. stop_s: from the end of the last batch until fit() has returned.
"""

from benchmarks.frame import column
from benchmarks.programs import our_python

GOALS = {}
ROUNDS = 5

PROGRAM = """
import json, logging, os, sys, time, warnings
import torch
torch.set_num_threads(1)
import lightning as L
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
way = sys.argv[1]
begun = time.perf_counter()
if way == "ours":
    from hivemind_c import HivemindStrategy
imported = time.perf_counter()

class Network(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

class Clock(L.Callback):
    times = []
    def on_train_batch_end(self, *more):
        self.times.append(time.perf_counter())

data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(1024, 784), torch.randint(10, (1024,))), batch_size=32)
made = time.perf_counter()
strategy = HivemindStrategy(target_batch_size=256, run_id="start", host_maddrs="/ip4/127.0.0.1/tcp/0") if way == "ours" else "auto"
trainer = L.Trainer(strategy=strategy, callbacks=[Clock()], max_steps=16, max_epochs=-1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False, limit_train_batches=16)
trainer.fit(Network(), data)
over = time.perf_counter()
print(json.dumps(dict(import_s=imported - begun, fit_s=Clock.times[0] - made, stop_s=over - Clock.times[-1])), flush=True)
os._exit(0)
"""


def measure(run):
    samples = run.interleave({way: lambda way=way: our_python(PROGRAM, way) for way in ("ours", "plain")})
    run.ratio("fit", column(samples["plain"], "fit_s"), column(samples["ours"], "fit_s"))
    run.figures_of(samples)
