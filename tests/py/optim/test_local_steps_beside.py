"""Local steps of a peer that is late, or comes: it trains on while a state comes, and while it repeats outer steps."""

import copy
import functools
import threading
import time

import pytest
import torch

import hivemind_c as hivemind
from optim_support import are_alike, assert_alike_under_marks, loads_slowly, meet, together
from support import eventually
from test_local_steps import SIZE, flat, normed_swarm, swarm  # noqa: F401

PAUSE = 0.7  #: seconds of a batch; epochs of less than 1 s have no log
#: five averages are fewer bytes than a state
LATE = dict(log_memory=1 << 20, matchmaking_time=3.0, grad_compression=hivemind.Linear8BitQuantization())


def trains_until(peers, condition):
    """Peers train, each in its thread, until the condition is true after a batch of the first one."""
    over = threading.Event()

    def trains(peer):
        while not over.is_set():
            peer.batch()
            if peer is peers[0] and condition():
                over.set()
            time.sleep(PAUSE)

    together(*(functools.partial(trains, peer) for peer in peers))


def averages_of_buffers(peer):
    """Returns a dict that gets them, by the epoch whose step took them over."""
    buffers, hands, averages = peer.optimizer.state_averager.buffers, peer.optimizer.driver.hands, {}
    apply = buffers.apply

    def applied():
        apply()
        averages[hands.end.epoch] = torch.cat([average.flatten() for average in buffers.offer()[1]])

    buffers.apply = applied
    return averages


def test_peer_three_rounds_late_repeats_them_and_loses_nothing(normed_swarm):
    """It makes no batch for three swarm epochs, after one that no average has."""
    peers = normed_swarm(3, width=32, **LATE)
    meet(peers)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in peers))
    *others, late = peers
    here, there = averages_of_buffers(late), averages_of_buffers(others[0])
    late.batch()
    goal = late.optimizer.local_epoch + 3
    trains_until(others, lambda: others[0].optimizer.local_epoch >= goal)
    machine, hands = late.optimizer.driver.machine, late.optimizer.driver.hands
    trains_until(peers, lambda: max(others[0].after) > goal and max(late.after, default=0) > goal)
    assert hands.repeated >= 3 and hands.adopted == 0 and machine.moves_wrong == 0
    places = late.optimizer.ledger.samples.figures()
    assert places["lost"] == 0, places
    common = set(late.after) & set(others[0].after)
    assert max(common) >= goal
    for epoch in common:
        assert torch.equal(late.after[epoch], others[0].after[epoch]), epoch
    for epoch in range(goal - 3, goal):
        assert torch.equal(here[epoch], there[epoch]), epoch
    assert torch.isfinite(flat(late.model)).all()


def states_of_batches(peer):
    """Returns a dict that gets the number of the peer's batches by the state in which each of them was made."""
    machine, made, whole = peer.optimizer.driver.machine, {}, peer.optimizer.step

    def step(*args, **kwargs):
        made[machine.state] = made.get(machine.state, 0) + 1
        return whole(*args, **kwargs)

    peer.optimizer.step = step
    return made


def test_joiner_trains_from_its_first_second(swarm):
    """Epochs pass while the state comes. Steps of a model of its own are lost; from the swarm's anchor on all count,
    also those beside the outer steps that it repeats.
    """
    two = swarm(2, **LATE)
    meet(two)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in two))
    (joiner,) = swarm(1, first=2, seed=5, run_id=two[0].optimizer.run_id, **{**LATE, "target_batch_size": 4 * SIZE})
    state = joiner.optimizer.state_averager
    loads_slowly(state, 6 * PAUSE)
    machine, hands = joiner.optimizer.driver.machine, joiner.optimizer.driver.hands
    made = states_of_batches(joiner)
    trains_until([joiner, *two], lambda: hands.repeated >= 1 and machine.has_met and are_alike(joiner, two[0]))
    assert made["LOADING"] >= 4 and machine.moves_wrong == 0
    places = joiner.optimizer.ledger.samples.figures()
    assert places["lost"] == places["lost_by"]["REPLACED"] <= SIZE * (1 + made["LOADING"]), (places, made)
    assert places["averaged"] >= SIZE * made["REPEATING"] > 0, (places, made)
    assert places["produced"] == SIZE * joiner.batches
    assert_alike_under_marks(joiner, two[0])


def made_late(peers, goal):
    """The last one makes no batch until the others are in that epoch."""
    others = peers[:-1]
    trains_until(others, lambda: others[0].optimizer.local_epoch >= goal)


def test_late_peer_trains_beside_its_load_and_loses_nothing(swarm):
    """Nobody keeps averages, so it loads the state, and its progress moves with the anchor."""
    peers = swarm(3, **{**LATE, "log_memory": 0})
    meet(peers)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in peers))
    *others, late = peers
    loads_slowly(late.optimizer.state_averager, 3 * PAUSE)
    made, saved, machine = states_of_batches(late), [], late.optimizer.driver.machine
    late.batch()
    made_late(peers, late.optimizer.local_epoch + 2)
    met = late.optimizer.ledger.samples

    def has_averaged():
        if made.get("LOADING", 0) == 2 and not saved:
            saved.append(late.optimizer.state_dict())  # it waits for no download
            assert machine.state == "LOADING"
        if late.optimizer.driver.hands.adopted == 0:
            return False
        return met.figures()["averaged"] >= SIZE * (2 + made["LOADING"]) and are_alike(late, others[0])

    trains_until([late, *others], has_averaged)
    assert made["LOADING"] >= 2 and machine.moves_wrong == 0
    assert met.figures()["lost"] == 0, met.figures()
    assert met.figures()["produced"] == SIZE * late.batches
    assert saved[0]["hivemind_c"]["samples"] >= 2 * SIZE
    assert_alike_under_marks(late, others[0])


def test_loaded_state_is_there_for_the_next_newcomer(swarm):
    """Those who made it leave before its epoch is over; the two that are left would train apart."""
    makers = swarm(2, target_batch_size=100 * SIZE)
    meet(makers)
    together(*(lambda peer=peer: peer.train(2) for peer in makers))
    run = dict(run_id=makers[0].optimizer.run_id, target_batch_size=100 * SIZE)
    (first,), (second,) = (swarm(1, first=at, seed=at, **run) for at in (2, 3))
    assert eventually(first.optimizer.load_state_from_peers)
    epoch = first.optimizer.local_epoch
    for peer in makers:
        peer.optimizer.shutdown()
    over = threading.Event()

    def trains():
        while not over.wait(0.2):
            first.batch()

    thread = threading.Thread(target=trains)
    thread.start()
    try:
        assert eventually(second.optimizer.load_state_from_peers)
    finally:
        over.set()
        thread.join()
    assert second.optimizer.local_epoch == epoch == first.optimizer.local_epoch
    assert first.optimizer.driver.hands.adopted == 1


class StubbornState:
    """A load of which nothing comes, until it is no more needed; or until it fails."""

    def __init__(self, state):
        self.state, self.begun, self.ended, self.error = state, threading.Event(), threading.Event(), None
        state.fetch_state = self.fetch

    def fetch(self, timeout, epoch_least):
        self.begun.set()
        try:
            while True:
                if self.error is not None:
                    raise self.error
                self.state.watch_load(epoch_least, 1, 100, 1)
                time.sleep(0.05)
        finally:
            self.ended.set()


def loads_beside(swarm):
    """Returns (late, StubbornState): a peer that is two swarm epochs late makes batches beside a load."""
    peers = swarm(3, **{**LATE, "log_memory": 0})
    meet(peers)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in peers))
    late = peers[-1]
    stubborn = StubbornState(late.optimizer.state_averager)
    made_late(peers, late.optimizer.local_epoch + 2)
    while not stubborn.begun.is_set():
        late.batch()
    late.batch()
    assert late.optimizer.driver.machine.state == "LOADING" and not stubborn.ended.is_set()
    return late, stubborn


def test_error_of_a_load_beside_the_training_is_raised_by_step(swarm):
    late, stubborn = loads_beside(swarm)
    stubborn.error = ZeroDivisionError("of the load")
    assert stubborn.ended.wait(10)
    with pytest.raises(ZeroDivisionError, match="of the load"):
        for _ in range(10):
            late.batch()
            time.sleep(0.1)
    assert late.optimizer.driver.machine.state in ("RESTING", "COMING", "LOADING")
    stubborn.error = None
    late.batch()  # and it trains on
    assert late.optimizer.ledger.samples.figures()["lost"] == 0


def test_restored_checkpoint_and_shutdown_end_a_load(swarm):
    late, stubborn = loads_beside(swarm)
    saved = copy.deepcopy(late.optimizer.state_dict())
    late.batch()
    late.optimizer.load_state_dict(saved)
    assert stubborn.ended.is_set()
    assert late.optimizer.local_samples == saved["hivemind_c"]["samples"] > 0
    stubborn.begun.clear(), stubborn.ended.clear()
    while not stubborn.begun.is_set():
        late.batch()
    late.optimizer.shutdown()
    assert stubborn.ended.is_set()
