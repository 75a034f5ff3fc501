"""One training of the row `local-steps`: two workers in one process. Prints its loss on held-out bytes.

    diloco.py WAY SEED STEPS OUTER     WAY: exact, plain, late, late_once, late_lost, or one of CODECS or BESIDE
"""

import json
import math
import sys

import torch

from benchmarks.byte_model import CONTEXT, held_out_loss, loss_of, network, texts

WORKERS, ROWS, RATE, WARM_UP = 2, 4, 2e-3, 50  #: ROWS: of each worker in a step
LR, MOMENTUM = 0.7, 0.5  #: of the outer step
CODECS = {"float32": "NoCompression", "bits8": "Linear8BitQuantization", "bits4": "Linear4BitQuantization"}
BESIDE = {"overlap_quarter": 0.25, "overlap_half": 0.5, "overlap_whole": 1.0}  #: part of an epoch of plain rounds


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class Worker:
    """A model with its optimizer, whose rate follows a cosine over all steps."""

    def __init__(self, seed, steps):
        self.model = network(seed)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, betas=(0.9, 0.99))

        def rate(step):
            decay = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps))
            return min(1.0, (step + 1) / WARM_UP) * decay

        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, rate)

    def step(self, text, starts):
        self.optimizer.zero_grad()
        loss_of(self.model, text, starts).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()

    def become(self, anchor):
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(anchor.clone(), self.model.parameters())


def weights_of(way, since, every):
    """The weights of differences in an average.

    Args:
        way: late: each batch of a difference counts. Else no difference counts more than another.
        since: Batches of each worker since its difference was in an average.
        every: Batches between two outer steps.
    """
    return [float(n if way == "late" else every) for n in since]


class TorchStep:
    """The outer step of plain PyTorch, in float32."""

    def __init__(self, anchor):
        self.anchor = torch.nn.Parameter(anchor.clone())
        self._sgd = torch.optim.SGD([self.anchor], lr=LR, momentum=MOMENTUM, nesterov=True)

    def step(self, differences, weights):
        self.anchor.grad = sum(n * difference for n, difference in zip(weights, differences)) / sum(weights)
        self._sgd.step()
        return self.anchor.detach()


class OurStep:
    """The outer step of the product's kernels: its codec both ways, as in a round, and its SGD."""

    def __init__(self, anchor, codec):
        import hivemind_c

        self._codec, self._decoded = getattr(hivemind_c, codec)(), hivemind_c.deserialize_torch_tensor
        self.anchor, self._momentum, self._begins = anchor.clone(), torch.zeros_like(anchor), True

    def _sent(self, tensor):
        return self._decoded(self._codec.compress(tensor))

    def step(self, differences, weights):
        import _hivemind_c

        assert len(set(weights)) == 1
        average = self._sent(sum(map(self._sent, differences)) / len(differences))
        _hivemind_c.outer_step(((self.anchor, self._momentum, average, self._begins),), LR, MOMENTUM, True)
        self._begins = False
        return self.anchor


def trained_beside(workers, rule, text, starts, every, lasts):
    """Trains with rounds beside batches, and returns a model.

    Args:
        workers: All, with the same model.
        rule: Of the outer step.
        text: To train on.
        starts: Of the rows of each worker in each step.
        every: Batches of each worker in an epoch.
        lasts: Batches of each worker during a round, 1 or more.
    """

    def ends(bases, differences):
        anchor = rule.step(differences, [1.0] * len(workers)).clone()
        for base, worker in zip(bases, workers):
            worker.become(anchor + flat(worker.model) - base)

    travels = None
    for step in range(1, len(starts) // every * every + 1):
        for which, worker in enumerate(workers):
            worker.step(text, starts[step - 1, which])
        if travels and step % every == lasts % every:
            ends(*travels)
            travels = None
        if step % every == 0:
            bases = [flat(worker.model) for worker in workers]
            travels = bases, [rule.anchor.detach() - base for base in bases]
    ends(*travels)
    return workers[0].model


def train(way, seed, steps, outer):
    torch.set_num_threads(1)
    text, held_out = texts()
    generator = torch.Generator().manual_seed(5 + seed)
    starts = torch.randint(len(text) - CONTEXT - 1, (steps, WORKERS, ROWS), generator=generator)
    if way == "exact":
        worker = Worker(seed, steps)
        for step in range(steps):
            worker.step(text, starts[step].reshape(-1))
        return held_out_loss(worker.model, held_out)
    workers = [Worker(seed, steps) for _ in range(WORKERS)]
    anchor = flat(workers[0].model)
    rule = OurStep(anchor, CODECS[way]) if way in CODECS else TorchStep(anchor)
    every, since = steps // outer, [0] * WORKERS
    if way in BESIDE:
        return held_out_loss(trained_beside(workers, rule, text, starts, every, round(BESIDE[way] * every)), held_out)
    for step in range(every * outer):
        for which, worker in enumerate(workers):
            worker.step(text, starts[step, which])
            since[which] += 1
        if (step + 1) % every:
            continue
        number = (step + 1) // every
        here = workers[:-1] if way.startswith("late") and number % 3 == 0 and number < outer else workers
        before, weights = anchor, weights_of(way, since[: len(here)], every)
        anchor = rule.step([before - flat(worker.model) for worker in here], weights).clone()
        for which, worker in enumerate(workers):
            is_kept = worker not in here and way != "late_lost"
            worker.become(flat(worker.model) + anchor - before if is_kept else anchor)
            since[which] = since[which] if is_kept else 0
    return held_out_loss(workers[0].model, held_out)


if __name__ == "__main__":
    print(json.dumps({"loss": train(sys.argv[1], *map(int, sys.argv[2:5]))}))
