"""PowerSGD's arithmetic against its matrix products alone, and against hivemind's

The large matrices of four layers of a transformer (width 768, 28 million numbers), rank 4 and 32, all of torch's threads, no network: the averages are what
one peer has itself. ours: encode, middle and decode of hivemind_c._lowrank. products: the three products as torch multiplies them fastest, nothing else
(no residual, no basis, no subtraction). hivemind: the steps of its averager with its own orthogonalisation, in .venv-peers.
"""

from benchmarks.frame import column
from benchmarks.peers import python as their_python
from benchmarks.programs import our_python

GOALS = {"products_rank4": 1 / 1.3, "products_rank32": 1 / 1.3, "hivemind_rank4": 5.0, "hivemind_rank32": 5.0}
ROUNDS = 7
SECONDS = 1.5

COMMON = f"""
import json, sys, time, torch
rank = int(sys.argv[1])
torch.manual_seed(0)
grads = [torch.randn(*shape) for shape in ([(768, 768)] * 4 + [(3072, 768), (768, 3072)]) * 4]

def measure(once):
    for _ in range(2):
        once()
    times, until = [], time.perf_counter() + {SECONDS}
    while time.perf_counter() < until or len(times) < 3:
        started = time.perf_counter()
        once()
        times.append(time.perf_counter() - started)
    print(json.dumps({{"ms": sorted(times)[len(times) // 2] * 1e3}}))
"""

OURS = """
from hivemind_c._lowrank import LowRank
peer, round_id = LowRank(grads, rank), 0
assert len(peer.indices) == len(grads)

def once():
    global round_id
    round_id += 1
    peer.decode(round_id, peer.middle(round_id, peer.encode(round_id, grads)))  # over the gradients, as averagers do

measure(once)
"""

PRODUCTS = """
ps = [torch.randn(g.shape[0], rank) for g in grads]
right = [torch.randn(g.shape[1], rank) for g in grads]
qs = [torch.randn(rank, g.shape[1]) for g in grads]
outs = [torch.empty_like(g) for g in grads]

def once():
    for g, p, r, q, out in zip(grads, ps, right, qs, outs):
        torch.mm(g, r, out=p)
        torch.mm(p.t(), g, out=q)
        torch.mm(p, q, out=out)

measure(once)
"""

THEIRS = """
from hivemind.utils.math import orthogonalize_
residuals = [torch.zeros_like(g) for g in grads]
qs = [torch.rand(g.shape[1], rank) for g in grads]

def once():
    ps = [torch.zeros(g.shape[0], rank) for g in grads]
    for g, e, p, q in zip(grads, residuals, ps, qs):
        torch.matmul(e.add_(g), q, out=p)
    for p in ps:
        orthogonalize_(p)
    for e, p, q in zip(residuals, ps, qs):
        torch.matmul(e.t(), p, out=q)
    for g, e, p, q in zip(grads, residuals, ps, qs):
        product = p @ q.t()
        e.sub_(product)
        g.copy_(product)

measure(once)
"""


def measure(run):
    for rank in (4, 32):
        samples = run.interleave(
            {
                f"ours_rank{rank}": lambda: our_python(COMMON + OURS, str(rank)),
                f"products_rank{rank}": lambda: our_python(COMMON + PRODUCTS, str(rank)),
                f"hivemind_rank{rank}": lambda: their_python(COMMON + THEIRS, str(rank)),
            }
        )
        for other in ("products", "hivemind"):
            theirs = column(samples[f"{other}_rank{rank}"], "ms")
            run.ratio(f"{other}_rank{rank}", theirs, column(samples[f"ours_rank{rank}"], "ms"))
        run.figures_of(samples)
