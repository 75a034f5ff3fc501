"""How often an Optimizer's Python calls the core and reads it: each crossing is the training thread's time."""

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
    """The crossings of the first peer, from the batch that ends an epoch until its late lane is taken over."""
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


WAITS = {"Epoch.next", "Epoch.time", "Future.done", "Future.exception", "Node.state_loading"}  #: as often as they last


def but_waits(made):
    return [name for name in made if name not in WAITS]


# The machine is asked once for each action, as its answer has what follows: 5 actions and 2 rounds, with a search and a
# copy of the state where they come within that step. The rest are the averagers' rounds.
@pytest.mark.parametrize("way", ["now", "late"])
def test_epoch_end_crosses_seldom(peer, way):
    run = dict(run_id=f"crossings {next(RUNS)}", target_batch_size=48, average_state_every=1)
    run.update(DELAYED if way == "late" else dict(optimizer="adamw"))
    pair = [peer(0, **run), peer(1, **run)]
    train_together(pair, 3)
    made = but_waits(ends_an_epoch(pair))
    assert len(made) <= 36 and sum(name.startswith("Epoch.") for name in made) <= 14, made


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
    made = but_waits(crossings.made)
    aside = made.index("Averager.step_aside") if "Averager.step_aside" in made else 0
    assert len(made[aside:]) <= 13, made  # with a line of the log, and one more look
