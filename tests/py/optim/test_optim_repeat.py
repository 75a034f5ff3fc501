"""A peer that was absent makes the steps of the others again, by the averages that they kept (docs/design/log.md)."""

import itertools
import threading
import time
from functools import partial

import pytest
import torch

import hivemind_c
from hivemind_c.optim.load_progress import Repeating
from optim_support import Peer, are_alike, assert_alike_under_marks, flat, loads_slowly, meet, network, settle, together
from support import eventually

RUNS = itertools.count()
PAUSE = 1.4  #: seconds of a batch; epochs of less than 0.1 s have no log


@pytest.fixture
def peers(dhts):
    """peers(n, seed, **options) makes n more of one run, with the model of that seed."""
    made, run = [], f"repeat-{next(RUNS)}"

    def make(n, seed, **options):
        first = len(made)
        for i in range(first, first + n):
            options.setdefault("log_memory", 1 << 20)
            made.append(Peer(i, dhts[i], network(seed=seed), run_id=run, **options))
        return made[first:]

    yield make
    for peer in made:
        peer.optimizer.shutdown()


class Training:
    """Peers that train in threads of their own until the block ends."""

    def __init__(self, *peers, pause=PAUSE):
        self.stop, self.pause = threading.Event(), pause
        self.threads = [threading.Thread(target=self.train, args=(peer,), daemon=True) for peer in peers]

    def train(self, peer):
        while not self.stop.is_set():
            peer.batch()
            time.sleep(self.pause)

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *error):
        self.stop.set()
        for thread in self.threads:
            thread.join()


LATE = dict(offload_optimizer=True, delay_optimizer_step=True, delay_state_averaging=True)


@pytest.mark.parametrize(
    "options", [{}, LATE, dict(LATE, delay_grad_averaging=True)], ids=["now", "late", "gradients late"]
)
def test_joiner_with_an_old_state_repeats_the_steps_since(peers, caplog, options):
    caplog.set_level("INFO", logger="hivemind_c.optim")
    options = dict(optimizer="adamw", average_state_every=50, **options)
    two = peers(2, 0, **options)
    meet(two)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in two))
    (joiner,) = peers(1, 1, **options)
    state, repeated = joiner.optimizer.state_averager, []
    joiner.optimizer.on_epoch = lambda record: repeated.append(record.repeated_steps)
    loads_slowly(state, 3 * PAUSE)
    shown, progress = [], joiner.optimizer.ledger.load_progress
    progress.show = lambda: shown.append(progress.now)
    with Training(*two):
        hands = joiner.optimizer.driver.hands
        with Training(joiner):
            machine = joiner.optimizer.driver.machine
            assert eventually(lambda: sum(repeated) >= 1 and machine.has_met and are_alike(joiner, two[0]))
    assert [now for now in shown if isinstance(now, Repeating) and now.epoch < now.swarm] and progress.now is None
    for peer in (*two, joiner):
        settle(peer.optimizer)
    assert "this peer catches up" in caplog.text and sum(repeated) <= hands.repeated
    assert_alike_under_marks(joiner, two[0])
    assert machine.moves_wrong == 0
    assert flat(joiner.model).isfinite().all()


def test_averages_come_beside_a_load_of_several_epochs(peers):
    """Each keeper has the latest average alone, so after the load the others would be gone."""
    options = dict(optimizer="adamw", average_state_every=50, log_memory=None)
    two = peers(2, 0, **options)
    meet(two)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in two))
    (joiner,) = peers(1, 1, **options)
    state = joiner.optimizer.state_averager
    fetch = state.fetch_state

    def fetch_slowly(timeout, epoch_least):
        loaded = fetch(timeout, epoch_least)
        for second in range(6):
            state.watch_load(loaded[0]["epoch"], second, 6, 2)
            time.sleep(1)
        return loaded

    state.fetch_state = fetch_slowly
    hands, machine = joiner.optimizer.driver.hands, joiner.optimizer.driver.machine
    with Training(*two), Training(joiner):
        assert eventually(lambda: machine.has_met)
        assert hands.adopted == 1 and hands.repeated >= 2
        assert eventually(lambda: are_alike(joiner, two[0]))
    for peer in (*two, joiner):
        settle(peer.optimizer)
    assert_alike_under_marks(joiner, two[0])


LOCAL = dict(use_local_updates=True, outer_optimizer=partial(torch.optim.SGD, lr=0.7, momentum=0.5, nesterov=True))


@pytest.mark.parametrize(
    "options", [{}, dict(LATE, delay_grad_averaging=True), LOCAL], ids=["now", "gradients late", "local steps"]
)
def test_newcomer_of_a_lone_founder_repeats_its_own_steps(peers, options):
    """Its load takes longer than the founder waits, and nobody but the founder has made the steps since."""
    eight = dict(grad_compression=hivemind_c.Uniform8BitQuantization())
    exact = {} if "outer_optimizer" in options else dict(average_state_every=50)
    options = dict(optimizer="adamw", log_memory=1 << 20, **exact, **eight, **options)
    (founder,) = peers(1, 0, **options)
    founder.train(2, PAUSE)
    (joiner,) = peers(1, 1, **options)
    loads_slowly(joiner.optimizer.state_averager, 9 * PAUSE)
    hands, machine = joiner.optimizer.driver.hands, joiner.optimizer.driver.machine
    with Training(founder), Training(joiner):
        assert eventually(lambda: machine.has_met)
        assert hands.adopted <= 2 and hands.repeated >= 1  # beside other tests the first state may be too old
    for peer in (founder, joiner):
        settle(peer.optimizer)
        assert peer.optimizer.ledger.samples.figures()["lost"] == 0 or peer is joiner
    assert joiner.optimizer.state_averager.lineage.mark == founder.optimizer.state_averager.lineage.mark
    for mine, others in zip(*(peer.optimizer.state_averager.parameters.main for peer in (joiner, founder))):
        assert torch.equal(mine, others)
    assert machine.moves_wrong == founder.optimizer.driver.machine.moves_wrong == 0


class SlowLog:
    """The core's log on a line on which each average of others comes so many seconds after it was looked up."""

    def __init__(self, core, seconds):
        self._core, self._seconds, self._since = core, seconds, {}
        self.heard = []  #: swarm epochs to whose rounds this peer listened

    def __getattr__(self, name):
        return getattr(self._core, name)

    def hear(self, averager, epoch, before, stamps):
        self._core.hear(averager, epoch, before, stamps)
        self.heard.append(epoch)

    def look(self, epoch):
        found = self._core.look(epoch)
        if found[0] != "THERE" or epoch in self.heard:
            return found
        since = self._since.setdefault(epoch, time.monotonic())
        return found if time.monotonic() >= since + self._seconds else ("COMES", None, None)


@pytest.mark.parametrize("options", [{}, dict(LATE, delay_grad_averaging=True)], ids=["now", "gradients late"])
def test_peer_that_has_each_average_late_listens_and_is_in(peers, options):
    """Each average comes after the next group has formed, so without listening this peer is never in step."""
    options = dict(optimizer="adamw", average_state_every=50, **options)
    two = peers(2, 0, **options)
    meet(two)
    together(*(lambda peer=peer: peer.train(2, PAUSE) for peer in two))
    (joiner,) = peers(1, 1, **options)
    loads_slowly(joiner.optimizer.state_averager, 3 * PAUSE)
    log, machine = joiner.optimizer.driver.hands.log, joiner.optimizer.driver.machine
    log.core = slow = SlowLog(log.core, 1.2 * PAUSE)
    with Training(*two), Training(joiner):
        assert eventually(lambda: machine.has_met and are_alike(joiner, two[0]))
    assert slow.heard
    for peer in (*two, joiner):
        settle(peer.optimizer)
    assert_alike_under_marks(joiner, two[0])
    assert machine.moves_wrong == 0
