"""Shared by the tests of the optimizer: a small problem, a plain way to train on it, and a swarm's way."""

import concurrent.futures
import functools
import threading
import time

import torch
from torch import nn

import hivemind_c as hivemind
from support import PATIENCE

torch.set_num_threads(1)  # the tests share their machine
FEATURES, CLASSES = 12, 3
SHARING = dict(averager_opts=dict(declare_state_period=1.0))


def network(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 24), nn.Tanh(), nn.Linear(24, CLASSES)).to(dtype)


def batch(number, size, dtype=torch.float32):
    """The same numbers for the same number, whoever asks."""
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(size, FEATURES, generator=generator)
    return inputs.to(dtype), (inputs[:, :CLASSES] * 3).argmax(1)


def loss_of(model, inputs, targets):
    return nn.functional.cross_entropy(model(inputs).float(), targets)


def backward(model, number, size):
    like = next(model.parameters())
    loss = loss_of(model, *(tensor.to(like.device) for tensor in batch(number, size, like.dtype)))
    loss.backward()
    return loss.detach()


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def anchor_of(optimizer):
    return torch.cat([p.detach().flatten() for p in optimizer.anchor])


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01, weight_decay=0.1),
    "adam without foreach": lambda params: torch.optim.Adam(params, lr=0.01, foreach=False),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=0.05),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01, momentum=0.5),
}
SCHEDULERS = {
    "none": None,
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12),
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch)),
    "plateau": lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=0, threshold=0
    ),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.2, total_steps=13, cycle_momentum=False
    ),
}


def train_plainly(model, optimizer, scheduler=None, *, epochs=12, size=32, first=0):
    """One machine's training on the batches `first`, `first` + 1, ..."""
    for number in range(first, first + epochs):
        optimizer.zero_grad()
        backward(model, number, size)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return model


def make(dht, model, *, optimizer="sgd", scheduler="none", as_factory=False, **options):
    """An Optimizer with this test's usual options."""
    if as_factory or options.get("offload_optimizer"):
        options.update(optimizer=OPTIMIZERS[optimizer], params=model.parameters(), scheduler=SCHEDULERS[scheduler])
        options.setdefault("offload_optimizer", False)
    else:
        options["optimizer"] = OPTIMIZERS[optimizer](model.parameters())
        options["scheduler"] = SCHEDULERS[scheduler] and SCHEDULERS[scheduler](options["optimizer"])
    return hivemind.Optimizer(
        dht=dht, **{"run_id": "test", "target_batch_size": 32, "batch_size_per_step": 32, **options}
    )


def train(model, optimizer, *, steps=12, size=32, first=0):
    """The same with an Optimizer."""
    for number in range(first, first + steps):
        backward(model, number, size)
        optimizer.step()
        if not optimizer.reuse_grad_buffers:
            optimizer.zero_grad()
    settle(optimizer)
    return model


def settle(optimizer):
    """Takes over what is still under way in the background."""
    optimizer.state_averager.background.take(wait=True)


# ---- several peers in one process ----

QUICK = dict(
    matchmaking_time=10.0,  # a machine may be slow: nobody waits for so long for those who come
    averaging_timeout=60.0,
    tracker_opts=dict(min_refresh_period=0.1, default_refresh_period=0.1, max_refresh_period=0.5),
)


class Peer:
    """One of several: its model, its Optimizer, and what it did in each epoch."""

    def __init__(self, index, dht, model, **options):
        self.begin(index, dht, model, make(dht, model, **{**QUICK, "batch_size_per_step": 16, **options}))

    def begin(self, index, dht, model, optimizer):
        self.index, self.dht, self.model, self.optimizer = index, dht, model, optimizer
        self.batches = 0
        self.used = {}  # epoch: numbers of the batches in it
        self.after = {}  # epoch: the model when it had ended; with local steps the anchor, which no batch moves
        self.marks = {}  # epoch: the mark of that

    def enter(self):
        """Others count it, and expect it in their groups, before its first batch."""
        self.optimizer.find_swarm()

    def wait_for(self, n, timeout=PATIENCE):
        """Until it knows of n peers in the run, itself among them."""
        tracker = self.optimizer.tracker
        self.enter()
        deadline = time.monotonic() + timeout
        while tracker.global_progress.num_peers < n:
            assert time.monotonic() < deadline, (
                f"peer {self.index} knows {tracker.global_progress.num_peers} peers of {n}"
            )
            tracker.fetch_global_progress()
            time.sleep(0.05)

    def batch(self, number=None):
        number = 1000 * self.index + self.batches if number is None else number
        optimizer, epoch = self.optimizer, self.optimizer.local_epoch
        self.used.setdefault(epoch, []).append(number)
        self.batches += 1
        backward(self.model, number, optimizer.batch_size_per_step)
        optimizer.step()
        if not optimizer.reuse_grad_buffers:
            optimizer.zero_grad()
        if optimizer.local_epoch != epoch:  # by a step, or by a state that was loaded
            ended = optimizer.local_epoch - 1
            self.after[ended] = anchor_of(optimizer) if optimizer.schedule.outer else flat(self.model)
            self.marks[ended] = optimizer.state_averager.lineage.mark

    def train(self, epochs, pause=0.01):
        while self.optimizer.local_epoch < epochs:
            self.batch()
            time.sleep(pause)  # the others share this machine, and the interpreter


def are_alike(one, two):
    """Whether the newest epoch that both have seen the end of made their models equal to the bit. A group may form
    without a peer that comes late, which repeats that step in a later epoch.
    """
    common = set(one.after) & set(two.after)
    return bool(common) and torch.equal(one.after[max(common)], two.after[max(common)])


def assert_alike_under_marks(one, two):
    """In each epoch that both ended with the same mark they have the same bits, and there is one."""
    marked = [epoch for epoch in set(one.marks) & set(two.marks) if one.marks[epoch] == two.marks[epoch]]
    assert marked
    for epoch in marked:
        assert torch.equal(one.after[epoch], two.after[epoch]), epoch


def together(*jobs, timeout=4 * PATIENCE):
    """Runs functions in threads of their own; the first exception is raised here."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job) for job in jobs]
        done, late = concurrent.futures.wait(running, timeout, concurrent.futures.FIRST_EXCEPTION)
        for one in done:
            one.result()
        assert not late, "peers that should have ended train on"


def loads_slowly(state, seconds):
    """Lets a state averager hold each state that has come for so long, in which the others train on."""
    fetch = state.fetch_state

    def fetch_slowly(timeout, epoch_least):
        loaded = fetch(timeout, epoch_least)
        time.sleep(seconds)
        return loaded

    state.fetch_state = fetch_slowly


def meet(peers):
    """Each knows all of them."""
    for peer in peers:
        peer.enter()
    for peer in peers:
        peer.wait_for(len(peers))


def train_together(peers, epochs):
    meet(peers)
    together(*(lambda peer=peer: peer.train(epochs) for peer in peers))
    for peer in peers:
        settle(peer.optimizer)


def train_until(peers, condition, pause=0.02):
    """All train until it is so; then they settle."""
    stop = threading.Event()

    def train(one):
        while not stop.is_set():
            one.batch()
            time.sleep(pause)

    def watch():
        deadline = time.monotonic() + 3 * PATIENCE
        try:
            while not condition():
                assert time.monotonic() < deadline, [one.optimizer.local_epoch for one in peers]
                time.sleep(0.05)
        finally:
            stop.set()

    together(watch, *(functools.partial(train, one) for one in peers))
    for one in peers:
        settle(one.optimizer)


def in_one_process(peers, epochs, optimizer="sgd", scheduler="none"):
    """Plain torch's result of the batches that the peers used: the model after each epoch. A peer that was quicker than
    the count has more samples than the target, and counts with the target."""
    model, most = network(), peers[0].optimizer.target_batch_size
    inner = OPTIMIZERS[optimizer](model.parameters())
    steps = SCHEDULERS[scheduler] and SCHEDULERS[scheduler](inner)
    after = []
    for epoch in range(epochs):
        inner.zero_grad()
        used = [numbers for peer in peers if (numbers := peer.used.get(epoch))]
        weights = [min(16 * len(numbers), most) for numbers in used]
        for numbers, weight in zip(used, weights):
            for number in numbers:
                (loss_of(model, *batch(number, 16)) * (weight / len(numbers) / sum(weights))).backward()
        inner.step()
        if steps:
            steps.step()
        after.append(flat(model))
    return after


def finds_no_group(averager, when=lambda: True):
    """While `when` says so, the search for this averager's groups fails at once."""
    inner = averager.schedule_step

    def schedule_step(*args, **kwargs):
        if when():
            raise hivemind.HivemindError("there is no group, says this test")
        return inner(*args, **kwargs)

    averager.schedule_step = schedule_step


def controls_of(averager):
    """A list that receives the control of each search of this averager."""
    inner, controls = averager.schedule_step, []
    averager.schedule_step = lambda *args, **kwargs: controls.append(inner(*args, **kwargs)) or controls[-1]
    return controls
