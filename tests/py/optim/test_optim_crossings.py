"""How often an Optimizer's Python calls the core and reads it: each crossing of a step is the training thread's time."""

import itertools
import threading

import pytest

from crossings import Crossings
from hivemind_c._record import VARIABLE
from optim_support import backward, network, settle, together, train_together

RUNS = itertools.count()
DELAYED = dict(optimizer="adamw", offload_optimizer=True, delay_grad_averaging=True, delay_state_averaging=True)


@pytest.fixture(autouse=True)
def unrecorded(monkeypatch):
    """A record reads the mark and the figures at each decision."""
    monkeypatch.delenv(VARIABLE, raising=False)


def ends_an_epoch(pair):
    """The crossings of the first one of two peers from the batch that ends an epoch until its late lane is taken over."""
    (first, second), one, done = pair, pair[0].optimizer, threading.Event()
    crossings = Crossings(one)

    def counts():
        epoch = one.local_epoch
        while one.local_epoch == epoch:
            backward(first.model, 1, 16)
            crossings.made.clear()
            with crossings:
                one.step()
            one.zero_grad()
        with crossings:
            settle(one)
        done.set()

    def trains():
        while not done.is_set():
            second.batch()
            done.wait(0.02)

    together(counts, trains)
    return crossings.made


MACHINE = 16  #: those of the machine itself, in each way


# The machine is asked once for each action: its answer has what follows. The rest are the averagers' rounds.
@pytest.mark.parametrize("way, most", [("now", 56), ("late", 44)])
def test_epoch_end_crosses_seldom(peer, way, most):
    run = dict(run_id=f"crossings {next(RUNS)}", target_batch_size=48, average_state_every=1)
    run.update(DELAYED if way == "late" else dict(optimizer="adamw"))
    pair = [peer(0, **run), peer(1, **run)]
    train_together(pair, 3)
    made = ends_an_epoch(pair)
    assert len(made) <= most and sum(name.startswith("Epoch.") for name in made) <= MACHINE, made


def test_load_of_a_joiner_crosses_seldom(peer):
    run = dict(run_id=f"crossings {next(RUNS)}", target_batch_size=48, optimizer="adamw", average_state_every=1000)
    old = [peer(0, **run), peer(1, **run)]
    train_together(old, 4)
    late = peer(2, network(seed=9), **run)
    done = threading.Event()

    crossings = Crossings(late.optimizer)

    def joins():
        while not late.optimizer.driver.hands.adopted:
            backward(late.model, 1, 16)
            crossings.made.clear()
            with crossings:
                late.optimizer.step()
            late.optimizer.zero_grad()
        done.set()

    def trains(one):
        while not done.is_set():
            one.batch()
            done.wait(0.05)

    together(joins, *(lambda one=one: trains(one) for one in old))
    assert len(crossings.made) <= 17, crossings.made
