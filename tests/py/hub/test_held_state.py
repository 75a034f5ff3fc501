"""A hub keeps the state of the run that trains now: neither one of a far epoch, nor one of another setup."""

import logging
import time

import _hivemind_c
import pytest

from hivemind_c.averaging.image import EPOCH_MAX, Image
from hivemind_c.dht.values import pack
from hivemind_c.hub.files import Checkpoints, block_of, read_block
from hivemind_c.hub.keeper import Keeper, Training
from hubs import Hub, trainer
from support import eventually
from test_hub import kept_epoch

KEY = b"held_state_averager"
SETUP, OTHER = b"target_batch_size: 64\n", b"target_batch_size: 32\n"


def state(epoch, setup=SETUP, size=20):
    return Image(epoch, pack({"metadata": {"setup": setup}}), (memoryview(bytes(size)),), ((0, 0, False),))


@pytest.fixture
def offer(dhts):
    """offer(index, image) offers a state at a node of the DHT; all end with the test."""
    nodes = [dht.core for dht in dhts]

    def start(index, image):
        parts = tuple((part, *kind) for part, kind in zip(image.parts, image.kinds))
        nodes[index].state_offer(KEY, image.epoch, image.metadata, parts, 0.0, 1000, b"").result()

    yield start
    for node in nodes:
        node.state_withdraw(KEY, True).exception()


@pytest.fixture
def keeper(dhts, tmp_path):
    """A keeper whose trainers are at keeper.now. It has two checkpoints at most."""
    made = Keeper(
        dhts[1].core, "held", 1000, 1, Checkpoints(tmp_path, "held", 2), lambda: made.now
    )
    made.now = None
    return made


def epochs(folder):
    return sorted(path.name for path in folder.iterdir())


def test_state_beyond_the_trainers_epoch_is_not_kept(keeper, offer):
    keeper.now = Training(5, SETUP)
    offer(2, state(1 << 63))
    assert not any(keeper._look() for _ in range(5)) and keeper.held is None
    offer(0, state(5))
    assert eventually(keeper._look) and keeper.held.epoch == 5
    keeper.now = Training(6, SETUP)
    offer(0, state(6))
    assert eventually(keeper._look) and keeper.held.epoch == 6


def test_nothing_new_is_kept_while_nobody_trains(keeper, offer):
    offer(0, state(5))
    assert eventually(keeper._look)  # the first one may be left by trainers that have gone
    offer(0, state(6))
    assert not any(keeper._look() for _ in range(5)) and keeper.held.epoch == 5


def test_epoch_that_no_run_reaches_is_refused(keeper):
    with pytest.raises(ValueError, match="no run reaches"):
        keeper.take(state(EPOCH_MAX + 1))
    block = bytearray(b"".join(map(bytes, block_of("held", state(EPOCH_MAX + 1)))))
    with pytest.raises(ValueError, match="out of their bounds"):
        read_block(block, "held", 1000)


def test_held_far_state_gives_way_once_with_one_warning(keeper, offer, tmp_path, caplog):
    for image in (state(4), state(1 << 40)):
        keeper._files.save(image)
    keeper.resume()
    assert keeper.held.epoch == 1 << 40
    keeper.now = Training(0, SETUP)  # a trainer that has just come may still load the state that is held
    offer(0, state(0))
    assert not any(keeper._look() for _ in range(3))
    keeper.now = Training(5, SETUP)
    offer(0, state(5))
    with caplog.at_level(logging.WARNING, "hivemind_c.hub"):
        assert eventually(keeper._look) and keeper.held.epoch == 5
        keeper.now = Training(6, SETUP)
        offer(0, state(6))
        assert eventually(keeper._look)
    (line,) = [one.getMessage() for one in caplog.records if one.name == "hivemind_c.hub"]
    assert "gives way" in line and f"held-{1 << 40}.state.aside" in line
    assert epochs(tmp_path) == [f"held-{1 << 40}.state.aside", "held-5.state", "held-6.state"]


def test_latest_checkpoints_that_were_set_aside_stay(tmp_path):
    files = Checkpoints(tmp_path, "held", 3)
    (tmp_path / "other-1.state.aside").write_bytes(b"of another run")
    for epoch in (9, 40, 7, 40, 8):  # the order in which runs began anew, not that of their epochs
        files.save(state(epoch))
        files.set_aside(0)
        time.sleep(0.02)  # the clock of a file system may step by 0.01 s
    kept = ["held-40.state.aside2", "held-7.state.aside", "held-8.state.aside"]
    assert epochs(tmp_path) == [*kept, "other-1.state.aside"]


def test_held_state_of_another_setup_gives_way(keeper, offer, tmp_path):
    keeper.take(state(48, OTHER))
    keeper.now = Training(2, SETUP)
    offer(0, state(2))
    assert eventually(keeper._look) and keeper.held.epoch == 2 and keeper.held.setup == SETUP
    assert epochs(tmp_path) == ["held-2.state", "held-48.state.aside"]


def test_state_of_another_setup_is_downloaded_once(keeper, offer, caplog):
    keeper.now = Training(5, SETUP)
    offer(2, state(5, OTHER))
    assert eventually(lambda: keeper._look() or keeper._refused) and keeper.held is None
    assert not keeper._look() and len(keeper._refused) == 1 and "setup is not that of the trainers" in caplog.text
    with pytest.raises(ValueError, match="setup is not that of the trainers"):
        keeper.take(state(5, b""))


def test_core_remembers_the_setup_of_the_state_held():
    keep, size = _hivemind_c.Keep(1), 1 << 16
    for epoch in (8, 9):
        keep.hold(epoch, b"a" * size)  # nobody else has these bytes
    rest = [b"b" * size for _ in range(8)]
    assert keep.judge(5, rest[0], (8, rest[0])) == ("REPLACE", "SETUP")
    assert keep.judge(5, b"a" * size, (8, b"a" * size)) == ("OLD", "NONE")


@pytest.mark.parametrize("training", [(), (1,), (1, "text"), (-1, b""), (1 << 64, b""), [1, b""], 1])
def test_core_refuses_trainers_of_another_form(training):
    keep = _hivemind_c.Keep(1)
    for ask in (lambda: keep.least(training), lambda: keep.look(training, 0), lambda: keep.judge(1, b"", training)):
        with pytest.raises((TypeError, OverflowError)):
            ask()


def test_two_hubs_follow_one_trainer(keeper, offer):
    keeper.now = Training(5, SETUP)
    offer(0, state(5))
    assert eventually(keeper._look)
    offer(3, state(5))  # the other hub
    keeper.now = Training(6, SETUP)
    offer(0, state(6))
    assert eventually(keeper._look) and keeper.held.epoch == 6


def test_hub_follows_a_run_that_begins_anew(started, tmp_path):
    hub = started(Hub(tmp_path, "--checkpoints", tmp_path / "states"))
    stranger = Image(10**6, pack({"metadata": {}}), (memoryview(b"four"),), ((0, 0, False),))
    Checkpoints(tmp_path / "states", "test", 3).save(stranger)
    assert hub.address and hub.end() == 0
    again = started(Hub(tmp_path, "--checkpoints", tmp_path / "states"))
    again.has_logged("offering the state of swarm epoch 1000000")
    started(trainer([again.address]))
    assert "state.aside" in again.has_logged("gives way")
    again.wait_for(kept_epoch)
