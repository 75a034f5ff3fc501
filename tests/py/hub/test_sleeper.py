"""A trainer that stands still for longer than all keepalives, as a laptop does that sleeps."""

import json
import os
import signal
import time

import pytest
from hubs import Process
from support import PATIENCE

STOPPED_S = 75  #: longer than keepalives (15 s), records of progress (10 s) and declarations (60 s)
BACK_S = 10  #: from SIGCONT to a common epoch

TRAINER = """
import hashlib, json, sys, time
import torch
import hivemind_c as hivemind
from optim_support import QUICK, backward, flat, network

dht = hivemind.DHT(sys.argv[1] or None, start=True)
model = network(0)
optimizer = hivemind.Optimizer(
    dht=dht, run_id="test", target_batch_size=48, batch_size_per_step=8,
    optimizer=torch.optim.Adam(model.parameters(), lr=0.01), **QUICK,
)
print(json.dumps({"at": str(dht.get_visible_maddrs()[0])}), flush=True)
number, epoch = 0, 0
while True:
    backward(model, number, 8)
    optimizer.step()
    optimizer.zero_grad()
    number += 1
    time.sleep(0.1)
    if optimizer.local_epoch != epoch:
        epoch, last = optimizer.local_epoch, optimizer.last_epoch
        replica = hashlib.sha256(flat(model).numpy().tobytes()).hexdigest()[:16]
        told = {"epoch": epoch, "replica": replica, "outcome": last.outcome, "members": last.members}
        print(json.dumps({**told, "me": str(dht.peer_id)}), flush=True)
"""


def epochs(one, members):
    """Its epochs that ended in a round of so many."""
    told = [json.loads(line) for line in list(one.out) if line.startswith('{"epoch"')]
    return {of["epoch"]: of for of in told if of["outcome"] == "averaged" and of["members"] == members}


def equal(trainers, after):
    """The first epoch after that one whose round had all trainers, who hold the same bits; or None."""
    told = [epochs(one, len(trainers)) for one in trainers]
    common = [n for n in sorted(set.intersection(*map(set, told))) if n > after]
    return next((n for n in common if len({of[n]["replica"] for of in told}) == 1), None)


#: a state that comes within 0.3 s is loaded rather than to repeat steps
SLOW_LOADS = """
fetch = optimizer.state_averager.fetch_state
optimizer.state_averager.fetch_state = lambda *how: (fetch(*how), time.sleep(0.5))[0]
"""
#: the same with swarm epochs that are long enough for a log, and no step by itself
SLOW_TRAINER = (
    TRAINER.replace("time.sleep(0.1)", "time.sleep(0.8)")
    .replace("local_epoch != epoch:", "local_epoch != epoch and optimizer.last_epoch:")
    .replace("**QUICK,", "**QUICK, when_alone='wait', log_memory=1 << 20, grad_compression=EIGHT_BITS,")
    .replace("EIGHT_BITS", "hivemind.Uniform8BitQuantization()")
    .replace('"members": last.members}', '"members": last.members, "loads": hands.adopted, "repeats": hands.repeated}')
    .replace("number, epoch = 0, 0", "number, epoch, hands = 0, 0, optimizer.driver.hands" + SLOW_LOADS)
)
MISSED = 2  #: swarm epochs, at least


def three(started, program):
    trainers = [started(Process(program, ""))]
    first = json.loads(trainers[0].wait_for(lambda p: next(iter(p.out), None)))["at"]
    return trainers + [started(Process(program, first)) for _ in range(2)]


@pytest.mark.long
@pytest.mark.timeout(200)
def test_trainer_that_stood_still_repeats_and_loads_nothing(started):
    trainers = three(started, SLOW_TRAINER)
    together_at = trainers[0].wait_for(lambda p: equal(trainers, 0), PATIENCE)
    sleeper, others = trainers[2], trainers[:2]
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    try:
        missed_at = others[0].wait_for(lambda p: equal(others, together_at + MISSED), PATIENCE)
    finally:
        os.kill(sleeper.process.pid, signal.SIGCONT)
    loads = max(of["loads"] for of in epochs(sleeper, 3).values())
    common = trainers[0].wait_for(lambda p: equal(trainers, missed_at), PATIENCE)
    back = epochs(sleeper, 3)[common]
    assert back["loads"] == loads and back["repeats"] >= 1, (back, sleeper.log[-20:])


@pytest.mark.long
@pytest.mark.timeout(400)
def test_trainer_that_slept_averages_again_within_seconds(started):
    trainers = three(started, TRAINER)
    trainers[0].wait_for(lambda p: equal(trainers, 0), PATIENCE)
    sleeper, others = trainers[2], trainers[:2]
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    asleep = time.monotonic()
    others[0].wait_for(lambda p: equal(others, max(epochs(sleeper, 3))), PATIENCE)
    time.sleep(max(0.0, asleep + STOPPED_S - time.monotonic()))
    slept_at = max(max(epochs(one, 2)) for one in others)
    os.kill(sleeper.process.pid, signal.SIGCONT)
    awake = time.monotonic()
    trainers[0].wait_for(lambda p: equal(trainers, slept_at), PATIENCE)
    took = time.monotonic() - awake
    print(f"a common epoch {took:.1f} s after SIGCONT")
    assert took < BACK_S, sleeper.log[-20:]
    assert len({of["me"] for of in epochs(sleeper, 3).values()}) == 1 and sleeper.process.poll() is None
