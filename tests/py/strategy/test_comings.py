"""Real processes: one trainer goes, another comes, and nobody stands still."""

import json
import pathlib
import signal
import sys

import pytest
from forking import LIGHTNING
from support import HERE, Program, eventually

TESTS = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from benchmarks.rows import comings  # noqa: E402

PATIENT_S = 4.0  # a busy machine may stand still by itself; without the goodbye's rules it is 13 s
BACK_S = 8.0  # likewise; 20 to 60 s


FIRST_OF_TWO = pytest.param(1, True, marks=pytest.mark.long, id="the first of two leaves")


@pytest.mark.parametrize("how", ["polite", "killed"])
@pytest.mark.parametrize(
    "stay, first_leaves",
    [pytest.param(1, False, id="one stays"), FIRST_OF_TWO, pytest.param(3, False, id="three stay")],
)
def test_peer_that_is_replaced_holds_up_nobody(how, stay, first_leaves):
    """A machine that is too busy holds them up once, and a rule that is broken each time."""
    seen = []
    for _ in range(2):
        seen.append(comings.story(sys.executable, "hivemind_c", how, stay, 60, first_leaves))
        if seen[-1]["wait_s"] < PATIENT_S and seen[-1]["back_s"] < BACK_S:
            return
    pytest.fail(f"they stood still, or the newcomer came late, each time: {seen}")


# A hub is the entrance, and trains nothing. A trainer that is alone leaves no epoch there that the next trainer would
# have to catch up with.
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_lone_trainer_behind_a_hub_starts_anew_at_once(dht, how):
    hub = str(dht(host_maddrs=[HERE]).get_visible_maddrs()[0])

    def first_epoch_s(epochs):
        one = comings.Trainer(sys.executable, "hivemind_c", 192, {}, hub)
        try:
            begun = one.first("begins")["t"]
            assert eventually(lambda: len(one.epochs()) >= epochs), "no epoch"
            one.process.send_signal(how)
            one.process.wait(60)
            return one.epochs()[0]["t"] - begun
        finally:
            one.process.kill()

    first_epoch_s(3)
    assert first_epoch_s(1) < BACK_S


FITS_AGAIN = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import json, time
from trainers import *
from hivemind_c import HivemindStrategy
peers, fits, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

def say(what, **more):
    print(json.dumps(dict(t=time.time(), what=what, **more)), flush=True)

class Tell(lightning().Callback):
    epoch = 0
    def on_train_start(self, trainer, module):
        self.since = time.monotonic()
        say("starts", at=trainer.strategy.dht.get_visible_maddrs())
    def on_train_batch_end(self, trainer, module, *args):
        time.sleep(0.05)
        if trainer.strategy.global_epoch != self.epoch:
            self.epoch = trainer.strategy.global_epoch
            say("epoch", n=self.epoch, peers=trainer.strategy.num_peers)
        trainer.should_stop = time.monotonic() - self.since > seconds

module = small()
for _ in range(fits):
    strategy = HivemindStrategy(192, run_id="again", host_maddrs="/ip4/127.0.0.1/tcp/0", initial_peers=peers,
        matchmaking_time=2, averaging_timeout=15)
    trainer(strategy, max_epochs=-1, callbacks=[Tell()]).fit(module, data())
    say("ended")
"""


def told(program, what):
    for line in program.process.stdout:
        if line.startswith("{") and (event := json.loads(line))["what"] == what:
            return event
    pytest.fail(f"a trainer ended: {program.finish()[2][-2000:]}")


# One trainer fits all the time. Another fits, ends, and fits again in the same process: the first one's epochs go on,
# and both average together again.
def test_fit_that_begins_again_holds_up_nobody():
    stays = Program(FITS_AGAIN, "", 1, 600, imports=LIGHTNING)
    again = None
    try:
        again = Program(FITS_AGAIN, told(stays, "starts")["at"][0], 3, 4, imports=LIGHTNING)
        told(again, "starts")
        epochs = []
        for _ in range(2):
            ended = told(again, "ended")["t"]
            while True:
                epochs.append(told(stays, "epoch"))
                if epochs[-1]["t"] > ended + 1 and epochs[-1]["peers"] == 2:
                    break
                assert epochs[-1]["t"] < ended + BACK_S, epochs
        times = [epoch["t"] for epoch in epochs]
        assert max(later - sooner for sooner, later in zip(times, times[1:])) < PATIENT_S, times
    finally:
        for one in filter(None, (stays, again)):
            one.end()
