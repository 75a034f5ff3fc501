"""A wait of the training thread ends with news, or when it is due: it asks for nothing meanwhile."""

import threading
import time

import _hivemind_c
import torch

from hivemind_c.optim import ProgressTracker
from hivemind_c.optim.lineage import Lineage
from support import eventually

NOW, LATE = 0, 1
TARGET = 16


def machine_of(node, record):
    """The machine of a trainer that trains alone, and steps later."""
    return _hivemind_c.Epoch(
        progress=ProgressTracker(node, "run", TARGET, start=True).core,
        lineage=Lineage(lambda: [torch.zeros(1)]),
        ledger=_hivemind_c.SampleLedger(),
        plan=_hivemind_c.EpochPlan(False, False, True, True, True, False, 1),
        peer_id=str(node.peer_id),
        target=TARGET,
        matchmaking=1.0,
        averaging=5.0,
        company=0,
        alone=30.0,
        begins_run=True,
        reachable=True,
        differs=False,
        epoch=0,
        record=str(record),
    )


def acts(machine, actions):
    """Does what is to be done in lane NOW until the training thread may go on."""
    while (order := machine.next(NOW)) is not None:
        if order[0] == "ACT":
            actions.append(order[1])
            machine.done(NOW, order[3], 1)


def late_action(machine):
    """The number of the next action of lane LATE."""
    while (order := machine.next(LATE)) is not None:
        if order[0] == "ACT":
            return order[3]


def test_training_thread_sleeps_while_the_late_lane_works(dht, tmp_path):
    machine, record, actions = machine_of(dht(), tmp_path / "one.events"), tmp_path / "one.events", []
    machine.batch(TARGET)
    acts(machine, actions)
    if not machine.has_late:  # the first batch began the epoch
        machine.batch(TARGET)
        acts(machine, actions)
    number = late_action(machine)
    machine.batch(TARGET)
    before = record.read_text().count("\non TIME")
    waiting = threading.Thread(target=acts, args=(machine, actions))
    waiting.start()
    time.sleep(1.5)
    times = record.read_text().count("\non TIME") - before
    assert waiting.is_alive() and machine.state == "ENDING" and times < 15, f"{times} looks in 1.5 s"
    while number is not None:
        machine.done(LATE, number, 1)
        number = late_action(machine)
    assert eventually(lambda: not waiting.is_alive(), 30) and actions.count("APPLY") == 1
    waiting.join()
