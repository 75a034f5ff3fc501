"""what each codec loses: bits per element and relative error, against hivemind's codecs of the same name

Relative error is |x - v| / |x| (Euclidean) over a million numbers: normal ones, heavy-tailed ones (Student's t with 3 degrees of freedom), and the
gradients of a small network on made data (benchmarks/plots/codec_error.py draws them into docs/pictures/codec_error.png). No times: nothing here depends on the machine's load.
"""

from benchmarks.frame import column
from benchmarks.peers import python as their_python
from benchmarks.programs import our_python

GOALS = {f"{data}_{codec}": 1.0 for data in ("normal", "heavy", "gradient") for codec in ("uniform8", "quantile8", "blockwise8")}
ROUNDS = 1

#: the numbers that are compressed, the same on both sides
DATA = """
import json, torch
torch.manual_seed(0)
torch.set_num_threads(1)

def gradients(count):
    # Two hidden layers and an embedding, 200 steps of Adam on classes that a random teacher gives; then a fresh batch's gradients.
    words, teacher = torch.randn(2000, 64), torch.randn(64, 50)
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(2000, 128), torch.nn.Linear(128, 512), torch.nn.GELU(), torch.nn.LayerNorm(512),
                                torch.nn.Linear(512, 512), torch.nn.GELU(), torch.nn.Linear(512, 50))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    def backward():
        bags = (torch.rand(64, 12) ** 3 * 2000).long()
        labels = (words[bags].mean(1) @ teacher).argmax(1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(bags), labels).backward()
    for _ in range(200):
        backward()
        optimizer.step()
    parts = []
    while sum(map(len, parts)) < count:
        backward()
        parts += [p.grad.reshape(-1) for p in model.parameters()]
    return torch.cat(parts)[:count].clone()

COUNT = 1 << 20
normal = torch.randn(COUNT)
heavy = torch.randn(COUNT) / (torch.randn(3, COUNT).square().sum(0) / 3).sqrt()
sets = {"normal": normal, "heavy": heavy, "gradient": gradients(COUNT)}

def error(got, want):
    return float((got.double() - want.double()).norm() / want.double().norm())
"""

OURS = """
import hivemind_c.compression as hc
codecs = dict(float16=hc.Float16Compression(), scaled_float16=hc.ScaledFloat16Compression(), bfloat16=hc.BFloat16Compression(),
              uniform8=hc.Uniform8BitQuantization(), quantile8=hc.Quantile8BitQuantization(), blockwise8=hc.BlockwiseQuantization(),
              linear8=hc.Linear8BitQuantization(), linear4=hc.Linear4BitQuantization())
ROUNDS = 20
out = {}
for data, x in sets.items():
    for name, codec in codecs.items():
        sent = codec.compress(x)
        out[f"{data}_{name}_bits"] = 8 * len(sent.buffer) / len(x)
        out[f"{data}_{name}_error"] = error(codec.extract(sent), x)
    for name in ("linear8", "linear4"):  # what has arrived after many rounds, each with gradients of its own
        feedback, arrived, total = hc.ErrorFeedback(codecs[name]), torch.zeros(COUNT, dtype=torch.float64), torch.zeros(COUNT, dtype=torch.float64)
        for turn in range(ROUNDS):
            fresh = x.roll(turn * 4099)
            arrived += feedback.extract(feedback.compress(fresh))
            feedback.commit()
            total += fresh
        out[f"{data}_{name}_feedback_error"] = error(arrived, total)
print(json.dumps(out))
"""

THEIRS = """
from hivemind import compression as hc
codecs = dict(float16=hc.Float16Compression(), scaled_float16=hc.ScaledFloat16Compression(), uniform8=hc.Uniform8BitQuantization(),
              quantile8=hc.Quantile8BitQuantization(), blockwise8=hc.BlockwiseQuantization())
out = {}
for data, x in sets.items():
    for name, codec in codecs.items():
        sent = codec.compress(x.clone(), hc.CompressionInfo.from_tensor(x))
        out[f"{data}_{name}_bits"] = 8 * len(sent.buffer) / len(x)
        out[f"{data}_{name}_error"] = error(codec.extract(sent), x)
print(json.dumps(out))
"""


def measure(run):
    samples = run.interleave({"ours": lambda: our_python(DATA + OURS), "hivemind": lambda: their_python(DATA + THEIRS)})
    for name in GOALS:
        run.ratio(name, column(samples["hivemind"], f"{name}_error"), column(samples["ours"], f"{name}_error"))
    run.figures_of(samples)
