"""Several Trainers, each in a process of its own, that train one network together."""

import json
import pathlib
import time

import pytest
from forking import LIGHTNING
from support import Program

TESTS = pathlib.Path(__file__).parents[1]
STALLED_S = 2.0  #: more than four batches' time and a second: docs/design/progress.md, rule 5
TRAINER = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import hashlib, json, logging, time
from trainers import *
from hivemind_c import Float16Compression, HivemindStrategy

class Warn(logging.Handler):
    def emit(self, record):
        print(json.dumps(dict(warned=record.getMessage())), flush=True)

logging.getLogger("hivemind_c").addHandler(Warn(logging.WARNING))
name, peers, together, options, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4]), int(sys.argv[5])

class Tell(lightning().Callback):
    epoch = batches = 0
    def on_train_start(self, trainer, module):
        print(json.dumps(dict(addresses=trainer.strategy.dht.get_visible_maddrs())), flush=True)
        while trainer.strategy.dht.state()["peers"] < together - 1:
            time.sleep(0.01)
    def on_train_batch_end(self, trainer, module, *args):
        strategy = trainer.strategy
        self.batches += 1
        if self.batches == stop:
            while (progress := strategy.global_progress).num_peers < together:
                time.sleep(0.01)
            print(json.dumps(dict(stopped=strategy.global_epoch, peers=progress.num_peers,
                samples=progress.samples_accumulated)), flush=True)
            sys.stdin.readline()
        if strategy.global_epoch != self.epoch:
            self.epoch = strategy.global_epoch
            weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in module.parameters())).hexdigest()
            print(json.dumps(dict(epoch=self.epoch, peers=strategy.num_peers, weights=weights,
                rate=trainer.optimizers[0].param_groups[0]["lr"])), flush=True)
        time.sleep(0.005)

module = small(scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.99))
torch.manual_seed(len(name))
strategy = HivemindStrategy(2048, run_id="together", host_maddrs="/ip4/127.0.0.1/tcp/0", initial_peers=peers,
    matchmaking_time=15, **options)
trainer(strategy, max_epochs=-1, callbacks=[Tell()]).fit(module, data(shuffle=True))
"""


class Trainer(Program):
    def __init__(self, name, peers="", together=2, options=None, stop=0):
        """stop: it stops after so many batches, until something is said to it."""
        super().__init__(TRAINER, name, peers, together, options or "{}", stop, imports=LIGHTNING)
        self.told, self.warned = {}, []

    def address(self):
        return self.next()["addresses"][0]

    def next(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                pytest.fail(f"a trainer ended: {self.finish()[2][-2000:]}")
            told = json.loads(line) if line.startswith("{") else {}
            if "warned" in told:
                self.warned.append(told["warned"])
            elif told:
                return told

    def until(self, condition):
        """Reads what it tells until the condition holds of an epoch; that epoch."""
        while True:
            told = self.next()
            self.told[told["epoch"]] = told
            if condition(told):
                return told["epoch"]


@pytest.fixture
def start():
    running = []

    def run(*arguments, **options):
        running.append(Trainer(*arguments, **options))
        return running[-1]

    yield run
    for one in running:
        one.end()


def check_equal(trainers, since, epochs=4):
    """Reads some epochs more; after each of them all trainers have the same weights and the same rate."""
    for trainer in trainers:
        trainer.until(lambda told: told["epoch"] >= since + epochs)
    common = set.intersection(*(set(trainer.told) for trainer in trainers))
    common = [epoch for epoch in common if epoch > since]
    assert len(common) >= epochs - 1
    for epoch in common:
        assert len({(trainer.told[epoch]["weights"], trainer.told[epoch]["rate"]) for trainer in trainers}) == 1, (
            f"they differ after epoch {epoch}"
        )


def test_joiner_of_a_stalled_peer_trains_on_at_once(start):
    first = start("first", together=1, stop=10)
    address = first.address()
    assert first.next()["stopped"] == 0
    time.sleep(STALLED_S)  # until then it is taken to train on, and its samples are estimated
    second = start("second", address, stop=20)
    second.address()
    told = second.next()  # no epoch has ended for samples that nobody made
    assert told["stopped"] == 0 and told["peers"] == 2 and told["samples"] < 2048
    first.say()
    second.say()
    met = max(trainer.until(lambda told: told["peers"] == 2) for trainer in (first, second))
    check_equal((first, second), met + 1)


def test_two_trainers_have_equal_weights_after_each_epoch(start):
    options = "dict(grad_compression=Float16Compression(), reuse_grad_buffers=True)"
    first = start("first", options=options)
    second = start("2", first.address(), options=options)
    second.address()
    met = max(trainer.until(lambda told: told["peers"] == 2) for trainer in (first, second))
    check_equal((first, second), met + 1)


def test_good_start_of_two_trainers_warns_of_nothing(start):
    """On a busy machine a start may not be good: one of some has no line at WARNING until they have been in step."""
    warned = []
    for _ in range(3):
        first = start("first")
        pair = first, start("2", first.address())
        pair[1].address()
        met = max(trainer.until(lambda told: told["peers"] == 2) for trainer in pair)
        check_equal(pair, met + 1)
        warned.append([trainer.warned for trainer in pair])
        if warned[-1] == [[], []]:
            return
        for trainer in pair:
            trainer.end()
    pytest.fail(f"each start warned: {warned}")
