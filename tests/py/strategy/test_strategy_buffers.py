"""HivemindStrategy gives the swarm the buffers of the LightningModule."""

import json
import logging
import pathlib

import pytest
import torch
from trainers import BATCH, fit, lightning, small

from hivemind_c import HivemindStrategy
from forking import LIGHTNING
from support import HERE, Program

pytestmark = pytest.mark.filterwarnings("ignore")
TESTS = pathlib.Path(__file__).parents[1]
MEAN = 10  #: of the swarm's data
TRAINER = f"""
import sys; sys.path.insert(0, {str(TESTS)!r})
import hashlib, json, time
from trainers import *
from hivemind_c import HivemindStrategy
name, peers, together = sys.argv[1], sys.argv[2], int(sys.argv[3])

def bits(tensors):
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()

class Tell(lightning().Callback):
    epoch = 0
    def on_train_start(self, trainer, module):
        print(json.dumps(dict(addresses=trainer.strategy.dht.get_visible_maddrs())), flush=True)
    def on_train_batch_end(self, trainer, module, *args):
        strategy = trainer.strategy
        if strategy.global_epoch != self.epoch:
            self.epoch = strategy.global_epoch
            norm = module.norm
            module.eval()
            loss = torch.nn.functional.cross_entropy(module(fixed), targets).item()
            module.train()
            told = dict(epoch=self.epoch, peers=strategy.num_peers, weights=bits(module.parameters()), loss=loss,
                buffers=bits((norm.running_mean, norm.running_var)), mean=norm.running_mean.mean().item())
            print(json.dumps(told), flush=True)
        time.sleep(0.005)

class Normed(type(small())):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
    def forward(self, x):
        return self.net(self.norm(x + {MEAN}))
    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

torch.manual_seed(len(name))
module = Normed()
fixed, targets = data(shuffle=False).dataset.tensors
strategy = HivemindStrategy(256, run_id="buffers", host_maddrs="/ip4/127.0.0.1/tcp/0", initial_peers=peers,
    matchmaking_time=15)
trainer(strategy, max_epochs=-1, callbacks=[Tell()]).fit(module, data(shuffle=True))
"""


class Trainer(Program):
    def __init__(self, name, peers="", together=2):
        super().__init__(TRAINER, name, peers, together, imports=LIGHTNING)
        self.told = {}

    def next(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                pytest.fail(f"a trainer ended: {self.finish()[2][-2000:]}")
            if line.startswith("{"):
                return json.loads(line)

    def until(self, condition):
        while True:
            told = self.next()
            self.told[told["epoch"]] = told
            if condition(told):
                return told


def test_two_trainers_evaluate_alike_after_each_epoch():
    running = [Trainer("first", together=1)]
    try:
        first = running[0]
        address = first.next()["addresses"][0]
        first.until(lambda told: told["epoch"] >= 4)  # by then its running mean is that of its data
        running.append(Trainer("the second", address))
        second = running[1]
        second.next()
        joined = second.until(lambda told: told["peers"] == 2)
        assert abs(joined["mean"] - MEAN) < 1.5  # a joiner that begins by itself has a few batches behind it
        last = second.until(lambda told: told["epoch"] >= joined["epoch"] + 5)["epoch"]
        first.until(lambda told: told["epoch"] >= last)
        common = [epoch for epoch in first.told if epoch in second.told and epoch > joined["epoch"] + 1]
        pairs = [(first.told[epoch], second.told[epoch]) for epoch in common]
        alike = [one for one, other in pairs if one["buffers"] == other["buffers"]]
        assert len(alike) >= 3 and len(alike) >= len(pairs) - 1, pairs
        for one, other in pairs:
            if one["buffers"] == other["buffers"] and one["weights"] == other["weights"]:
                assert one["loss"] == other["loss"]
    finally:
        for one in running:
            one.end()


def module_with_buffers():
    module = small()
    module.norm = torch.nn.BatchNorm1d(8)
    module.training_step = lambda batch, batch_idx: module.net(module.norm(batch[0])).square().mean()
    return module


def alone(**options):
    return HivemindStrategy(BATCH, host_maddrs=HERE, **options)


def test_lone_trainer_leaves_buffers_as_lightning_does():
    with_swarm, _ = fit(alone(), module_with_buffers())
    plain, _ = fit("auto", module_with_buffers())
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(with_swarm.state_dict()[name], tensor)


def test_local_buffers_are_named_in_one_line(caplog):
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        fit(alone(buffers="local"), module_with_buffers(), max_steps=2)
        fit(alone(buffers="local"), max_steps=2)  # it has none
    said = [line for line in caplog.messages if "buffers=" in line]
    assert len(said) == 1 and "3 buffers of the module ('norm.running_mean' and" in said[0]


def test_unknown_choice_of_buffers_is_refused():
    with pytest.raises(ValueError, match='buffers must be "average" or "local"'):
        alone(buffers="none")


def test_checkpoint_of_a_run_without_buffers_resumes(tmp_path):
    """Its optimizer's state is that of a version that had no buffers in the swarm's state."""
    module, first = fit(alone(buffers="local"), module_with_buffers(), max_steps=3)
    first.save_checkpoint(tmp_path / "old.ckpt")
    saved = torch.load(tmp_path / "old.ckpt", weights_only=False)
    assert "buffers" not in str(saved["optimizer_states"][0]["hivemind_c"].keys())
    seen = []

    class Look(lightning().Callback):
        def on_train_start(self, trainer, module):
            seen.append((trainer.strategy.global_epoch, module.norm.running_mean.clone()))

    fit(alone(), module_with_buffers(), callbacks=[Look()], ckpt_path=str(tmp_path / "old.ckpt"), max_steps=5)
    assert seen[0][0] == 3 and torch.equal(seen[0][1], saved["state_dict"]["norm.running_mean"])
