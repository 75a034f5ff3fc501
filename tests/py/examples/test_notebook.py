"""A cell of a notebook that is run again while what its first run made still runs: IPython itself, in a process of its
own."""

import json

import pytest

from support import free_port

SHELL = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="nocolor")
told = []
shell.user_ns["tell"] = lambda *what: told.append(what)
for cell in json.loads(sys.argv[1]):
    done = shell.run_cell(cell, store_history=True)
    if not done.success:
        told.append([repr(done.error_in_exec or done.error_before_exec)])
print("TOLD", json.dumps(told))
"""
BEGIN = """
import torch
from hivemind_c import DHT, DecentralizedAverager, Node, Optimizer
root = DHT(start=True)
"""
TRAIN = """
model = torch.nn.Linear(4, 2)
optimizer = Optimizer(dht=dht, run_id="again", target_batch_size=64, optimizer=torch.optim.SGD(model.parameters(),
    lr=0.1), matchmaking_time=3, averaging_timeout=10)
for batch in range(24):
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step(batch_size=8)
    optimizer.zero_grad()
    at_batch(batch)
tell(optimizer.local_epoch, optimizer.tracker.global_progress.num_peers)
"""


@pytest.fixture
def notebook(program):
    """notebook(cells...) runs them one after the other: what they told, and what was written on stderr."""

    def run(*cells):
        code, out, err = program(SHELL, json.dumps(cells)).finish()
        assert code == 0, err
        return json.loads(out.split("TOLD ")[1]), err

    return run


def test_cell_with_an_optimizer_and_its_dht_trains_again(notebook):
    cell = "dht = DHT(root.get_visible_maddrs(), start=True)" + TRAIN
    told, err = notebook(BEGIN + "at_batch = lambda batch: None", cell, cell, cell)
    assert told == [[3, 1]] * 3, (
        err + "\nthe optimizer of the run before is no peer any more, whose state would be waited for"
    )
    assert "earlier cell" not in err


def test_cell_that_was_interrupted_trains_again(notebook):
    begin = (
        BEGIN + "runs = 0\ndef at_batch(batch):\n    if runs == 1 and batch == 11:\n        raise KeyboardInterrupt\n"
    )
    cell = "runs += 1\ndht = DHT(root.get_visible_maddrs(), start=True)" + TRAIN
    told, _ = notebook(begin, cell, cell)
    assert told == [["KeyboardInterrupt()"], [3, 1]]


def test_cell_with_an_optimizer_on_an_old_dht_replaces_it(notebook):
    told, err = notebook(BEGIN + "at_batch = lambda batch: None\ndht = root", TRAIN, TRAIN)
    assert told == [[3, 1]] * 2
    assert (
        err.count("\n") == 1
        and "the optimizer of 'again' of an earlier cell is shut down, because this cell makes another in its place"
        in err
    )


def test_two_optimizers_of_one_cell_are_still_refused(notebook):
    told, _ = notebook(BEGIN + "at_batch = lambda batch: None\ndht = root", TRAIN + TRAIN)
    assert told[0] == [3, 1] and "call shutdown() on the first one" in told[1][0]


def test_two_optimizers_that_variables_hold_are_two_peers(notebook):
    cell = "dht = DHT(root.get_visible_maddrs(), start=True)" + TRAIN.split("tell(")[0]
    told, _ = notebook(
        BEGIN + "at_batch = lambda batch: None",
        cell + "first = optimizer",
        cell + "tell(first.is_alive(), first is optimizer)",
    )
    assert told == [[True, False]]


@pytest.mark.parametrize(
    "made",
    ["DHT(start=True, host_maddrs={address!r})", "Node({address!r})", "DHT(start=True, identity_path='the.key')"],
)
def test_cell_with_a_fixed_port_or_a_key_runs_again(notebook, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell = (
        "thing = "
        + made.format(address=f"/ip4/127.0.0.1/tcp/{free_port()}")
        + "\ntell(getattr(thing, 'peer_id') != '')"
    )
    told, err = notebook(BEGIN, cell, cell)
    assert told == [[True]] * 2 and err.count("the node of an earlier cell is shut down") == 1


def test_cell_with_an_averager_runs_again(notebook):
    cell = "averager = DecentralizedAverager([torch.ones(3)], root, prefix='p', start=True)\ntell(averager.is_alive())"
    assert notebook(BEGIN, cell, cell)[0] == [[True]] * 2


TRAINER = """
strategy = HivemindStrategy(BATCH, host_maddrs=ADDRESS, identity_path="peer.key")
strategy.dht
{fit}
tell(strategy.global_epoch)
"""


@pytest.mark.parametrize(
    "cell, epochs",
    [
        (TRAINER.format(fit="fit(strategy)"), [8, 8]),
        (TRAINER.format(fit=""), [0, 0]),
        ("fit(strategy)\ntell(strategy.global_epoch)", [8, 8]),
    ],
)
def test_cell_with_a_strategy_and_a_trainer_runs_again(notebook, cell, epochs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begin = (
        f"from trainers import *\nfrom hivemind_c import HivemindStrategy\nADDRESS = "
        f"'/ip4/127.0.0.1/tcp/{free_port()}'\nstrategy = HivemindStrategy(BATCH)"
    )
    assert notebook(begin, cell, cell)[0] == [[epoch] for epoch in epochs]


def test_second_optimizer_outside_of_ipython_is_refused(program):
    code, out, err = program(
        BEGIN + "tell = print\nat_batch = lambda batch: None\ndht = root" + TRAIN + "first = optimizer" + TRAIN
    ).finish()
    assert (
        code == 1
        and "ValueError: no second optimizer can be made for 'again' on this DHT: the first one is still running; "
        "call shutdown() on the first one"
        in err
    )
