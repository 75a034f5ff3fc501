"""A trainer that starts again from its checkpoint has what the swarm has, or what the others' log still reaches."""

import itertools

import pytest
import torch

import hivemind_c as hivemind
from optim_support import Peer, are_alike, assert_alike_under_marks, flat, meet, network, settle, together, train_until
from support import eventually
from test_optim_repeat import LATE, Training

RUNS = itertools.count()
PAUSE, TARGET = 0.5, 128  #: seconds of a batch, and epochs of 1.4 s by three peers: below 0.1 s there is no log
#: the others' records count for 30 s, and are renewed each 20 s
REFRESH = dict(min_refresh_period=0.1, default_refresh_period=0.1)
LOCAL = dict(
    tracker_opts=REFRESH,
    target_batch_size=TARGET,
    use_local_updates=True,
    outer_optimizer=lambda params: torch.optim.SGD(params, lr=0.7, momentum=0.5, nesterov=True),
    grad_compression=hivemind.Linear8BitQuantization(),  # several averages are fewer bytes than a state
)
EXACT = dict(average_state_every=50, tracker_opts=REFRESH, target_batch_size=TARGET)
MODES = pytest.mark.parametrize(
    "mode", [EXACT, dict(EXACT, **LATE, delay_grad_averaging=True), LOCAL], ids=["now", "gradients late", "local steps"]
)


@pytest.fixture
def peers(dhts):
    """peers(n, **options) makes n more of one run. The first three have one model."""
    made, run = [], f"restart-{next(RUNS)}"

    def make(n, **options):
        options = dict(dict(run_id=run, optimizer="adamw", scheduler="cosine", log_memory=1 << 20), **options)
        made.extend(Peer(i, dhts[i], network(seed=i // 3), **options) for i in range(len(made), len(made) + n))
        return made[-n:]

    yield make
    for peer in made:
        peer.optimizer.shutdown()


def stopped(peer, path):
    """Writes the peer's checkpoint, ends the peer, and returns what a new process reads."""
    settle(peer.optimizer)
    torch.save({"optimizer": peer.optimizer.state_dict(), "model": peer.model.state_dict()}, path)
    peer.optimizer.shutdown()
    return torch.load(path, weights_only=True)


def restore(peer, saved):
    """As Lightning does, and as a program may: one of them comes first."""
    peer.optimizer.load_state_dict(saved["optimizer"])
    peer.model.load_state_dict(saved["model"])


def loads(peer):
    """Returns the numbers of states that it loaded, of steps that it repeated, and of verdicts against its replica."""
    driver = peer.optimizer.driver
    return driver.hands.adopted, driver.hands.repeated, driver.machine.moves_wrong


@MODES
def test_restart_within_the_epoch_loads_nothing(peers, mode, tmp_path):
    three = peers(3, **mode)
    meet(three)
    together(*(lambda peer=peer: peer.train(3, PAUSE) for peer in three))
    *two, gone = three
    for peer in two:
        settle(peer.optimizer)
    saved = stopped(gone, tmp_path / "checkpoint")
    (again,) = peers(1, **mode)
    restore(again, saved)
    again.wait_for(3)
    goal = again.optimizer.local_epoch + 2
    is_there = lambda: again.optimizer.local_epoch >= goal and are_alike(again, two[0])  # noqa: E731
    train_until([*two, again], is_there, pause=PAUSE)
    assert again.optimizer.driver.machine.has_met and loads(again) == (0, 0, 0)
    assert_alike_under_marks(again, two[0])


@MODES
def test_restart_some_epochs_later_repeats_from_the_log(peers, mode, tmp_path):
    three = peers(3, **mode)
    meet(three)
    together(*(lambda peer=peer: peer.train(3, PAUSE) for peer in three))
    *two, gone = three
    saved = stopped(gone, tmp_path / "checkpoint")
    epoch = saved["optimizer"]["hivemind_c"]["local_epoch"]
    with Training(*two, pause=PAUSE):
        assert eventually(lambda: two[0].optimizer.local_epoch >= epoch + 2)
        (again,) = peers(1, **mode)
        restore(again, saved)
        with Training(again, pause=PAUSE):
            assert eventually(lambda: again.optimizer.driver.machine.has_met and are_alike(again, two[0]))
    for peer in (*two, again):
        settle(peer.optimizer)
    states, steps, wrong = loads(again)
    assert states == wrong == 0 and steps >= 2
    assert_alike_under_marks(again, two[0])
    assert flat(again.model).isfinite().all()
