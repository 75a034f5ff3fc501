"""Replicas that have one history and not the same bits: other hardware rounds otherwise, or a state came through a
lossy codec."""

import itertools
import logging

import pytest
import torch

import hivemind_c as hivemind
from hivemind_c.compression import CompressionInfo, TensorRole
from hivemind_c.optim.uncompressed import uncompressed_statistics
from optim_support import OPTIMIZERS, flat, network, train_together, train_until

RUNS = itertools.count()


class Elsewhere(torch.optim.AdamW):
    """AdamW on hardware that rounds otherwise: an ulp more on whatever it writes."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                for tensor in (p, self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"]):
                    tensor.copy_(torch.nextafter(tensor, torch.full_like(tensor, torch.inf)))


Elsewhere.__name__ = "AdamW"  # as on other hardware: the setups are alike
OPTIMIZERS["adamw elsewhere"] = lambda params: Elsewhere(params, lr=0.01, weight_decay=0.1)


def a_run(**options):
    return {**dict(run_id=f"rounding {next(RUNS)}", target_batch_size=32, optimizer="adamw"), **options}


def nobody_loads(caplog):
    return not any("loaded the swarm's state" in line or "loads the swarm's" in line for line in caplog.messages)


def common_epochs(peers, after=0):
    """Epochs that each of them has ended, by a step or by a state that it loaded."""
    return {epoch for epoch in set.intersection(*(set(one.after) for one in peers)) if epoch > after}


def moments(one):
    return torch.cat([one.optimizer.opt.state[p]["exp_avg_sq"].flatten() for p in one.model.parameters()])


def train_in_one_group(peer, caplog, epochs, **options):
    """Two peers after these epochs. A machine that stands still for seconds parts them, and then one of them loads the
    other's state: such a run says so in its log, and is played again."""
    for _ in range(3):
        caplog.clear()
        run = a_run(**options)
        peers = [peer(0, **run), peer(1, **{**run, "optimizer": "adamw elsewhere"})]
        with caplog.at_level(logging.INFO, "hivemind_c"):
            train_together(peers, epochs)
        if not any("averaging gradients failed" in line for line in caplog.messages):
            return peers
    raise AssertionError("in each of three runs a peer averaged without the other")


def test_averaging_the_state_levels_different_rounding(peer, caplog):
    here, elsewhere = train_in_one_group(peer, caplog, 6, delay_state_averaging=False)
    assert nobody_loads(caplog)
    for epoch in range(6):
        assert torch.equal(here.after[epoch], elsewhere.after[epoch])
    assert not any(one.optimizer.state_averager.has_changed for one in (here, elsewhere))  # so no mark has moved by it
    assert not torch.equal(moments(here), moments(elsewhere))  # nobody averages these, unless told to


def test_statistics_are_made_equal_where_they_are_averaged(peer):
    run = a_run(delay_state_averaging=False, average_opt_statistics=("exp_avg", "exp_avg_sq"))
    here, elsewhere = peers = [peer(0, **run), peer(1, **{**run, "optimizer": "adamw elsewhere"})]
    train_together(peers, 4)
    assert torch.equal(moments(here), moments(elsewhere))


def test_different_rounding_stays_small_without_averaging(peer, caplog):
    here, elsewhere = train_in_one_group(peer, caplog, 8, average_state_every=1000)
    assert nobody_loads(caplog)
    assert not torch.equal(flat(here.model), flat(elsewhere.model))
    torch.testing.assert_close(flat(here.model), flat(elsewhere.model), rtol=1e-5, atol=1e-6)


WAYS = {
    "other hardware": dict(average_state_every=1000),
    "other hardware, parameters averaged": dict(delay_state_averaging=False),
    "fp16 on the way": dict(average_state_every=1000, load_state_compression=hivemind.Float16Compression()),
}


def ended_alike(everyone):
    """All have three epochs in common, of which the latest ended with the same parameters but for rounding."""
    common = common_epochs(everyone, after=3)
    latest = [one.after[max(common)] for one in everyone] if len(common) >= 3 else []
    return bool(latest) and all(torch.allclose(one, latest[0], rtol=2e-3, atol=1e-3) for one in latest)


@pytest.mark.parametrize("way", WAYS)
def test_joiners_find_a_state_though_no_two_offer_the_same(peer, way):
    """One after the other: each that came makes one more that differs."""
    run = a_run(target_batch_size=64, **WAYS[way])
    other = "adamw elsewhere" if "hardware" in way else "adamw"
    everyone = [peer(0, **run), peer(1, **{**run, "optimizer": other})]
    train_together(everyone, 3)
    for index in (2, 3):
        late = peer(index, network(seed=9), **{**run, "optimizer": other if index == 3 else "adamw"})
        everyone.append(late)
        # a peer to which nobody gives a state in time may make a step alone, and loads one after it
        train_until(everyone, lambda: ended_alike(everyone))


def test_optimizer_statistics_travel_exactly_unless_named():
    tensor = torch.full((4,), 1e-9)
    statistic, parameter = (
        CompressionInfo.from_tensor(tensor, key=0, role=role) for role in (TensorRole.OPTIMIZER, TensorRole.PARAMETER)
    )
    half = hivemind.Float16Compression()
    chosen = uncompressed_statistics(half)
    assert (
        isinstance(chosen.choose_compression(statistic), hivemind.NoCompression)
        and chosen.choose_compression(parameter) is half
    )
    named = hivemind.RoleAdaptiveCompression(optimizer=half, default=hivemind.NoCompression())
    assert uncompressed_statistics(named) is named
