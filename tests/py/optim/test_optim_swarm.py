"""Several peers in one process: together they are one machine with a large batch, and they stay equal to the bit."""

import functools
import gc
import itertools
import logging
import math
import re
import time

import pytest
import torch

import hivemind_c as hivemind
from hivemind_c.optim.parameters import all_finite
from optim_support import (
    Peer,
    QUICK,
    backward,
    batch,
    controls_of,
    finds_no_group,
    flat,
    in_one_process,
    loss_of,
    make,
    meet,
    network,
    settle,
    together,
    train_together,
    train_until,
)
from support import PATIENCE, eventually, files, resident, threads

RUNS = itertools.count()


@pytest.fixture
def swarm(dhts):
    """swarm(n, ...) makes n peers of one run; all are shut down when the test ends."""
    made = []

    def start(n, **options):
        run = f"swarm {next(RUNS)}"
        peers = [
            Peer(i, dhts[i], network(), **{"run_id": run, "target_batch_size": 16 * n, **options}) for i in range(n)
        ]
        made.extend(peers)
        return peers

    yield start
    for peer in made:
        peer.optimizer.shutdown()


def the_same(peers, epochs):
    for epoch in range(epochs):
        for peer in peers[1:]:
            assert torch.equal(peer.after[epoch], peers[0].after[epoch]), (
                f"peer {peer.index} differs after epoch {epoch}"
            )


EXACT = {
    "plainly": {},
    "with reused buffers": dict(reuse_grad_buffers=True),
    "offloaded": dict(offload_optimizer=True),
    "with state averaged at once": dict(delay_state_averaging=False),
    "with gradients alone": dict(average_state_every=1000),
}


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("way", EXACT)
def test_peers_are_one_process_with_the_large_batch(swarm, n, way):
    peers = swarm(n, optimizer="sgd", scheduler="cosine", **EXACT[way])
    train_together(peers, 4)
    the_same(peers, 4)
    for ours, expected in zip(peers[0].after.values(), in_one_process(peers, 4, "sgd", "cosine")):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=2e-6)


def test_samples_above_the_target_do_not_count_and_are_lost(swarm, caplog):
    peers = swarm(2, target_batch_size=30, batch_size_per_step=40)
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        train_together(peers, 3)
    the_same(peers, 3)
    for peer in peers:
        assert peer.optimizer.grad_averager.allreduce_kwargs["weight_max"] == 30
        assert peer.optimizer.state_averager.allreduce_kwargs["weight_max"] == 1
        above = sum(40 * len(peer.used[epoch]) - 30 for epoch in range(3) if peer.used.get(epoch))
        assert peer.optimizer.reporter.samples_lost == above > 0
    assert sum("do not count: a peer counts with at most" in line for line in caplog.messages) == 2, "once each"
    assert not any("states a weight" in line for line in caplog.messages), "an honest peer overstates nothing"


def test_peers_with_adamw_and_all_of_its_statistics_averaged(swarm):
    peers = swarm(3, optimizer="adamw", average_opt_statistics=("exp_avg", "exp_avg_sq"))
    train_together(peers, 4)
    the_same(peers, 4)
    for ours, expected in zip(peers[0].after.values(), in_one_process(peers, 4, "adamw")):
        torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("frozen_first", [False, True])
def test_peers_that_freeze_a_layer_in_one_epoch_stay_equal(swarm, frozen_first):
    peers = swarm(2, optimizer="adamw", average_state_every=1000)
    meet(peers)

    def train(peer):
        for epoch in range(4):
            peer.model[0].requires_grad_((epoch < 2) is not frozen_first)
            peer.train(epoch + 1)

    together(*(lambda peer=peer: train(peer) for peer in peers))
    the_same(peers, 4)
    first, size = peers[0].after, peers[0].model[0].weight.numel()
    assert torch.equal(first[1][:size], first[2][:size]) is not frozen_first and not torch.equal(
        first[2][size:], first[3][size:]
    )
    assert len({peer.optimizer.state_averager.lineage.mark for peer in peers}) == 1


def test_peers_with_different_used_parameters_stay_equal(swarm):
    peers = swarm(3, optimizer="adamw", average_state_every=1000)
    meet(peers)
    inner = [peer.optimizer.grad_averager.accumulate_grads_ for peer in peers]

    def accumulate(peer, batch_size):
        if peer.index == 0 or peer.optimizer.local_epoch > 1:  # then nobody uses it
            peer.model[2].bias.grad = None
        inner[peer.index](batch_size)

    for peer in peers:
        peer.optimizer.grad_averager.accumulate_grads_ = functools.partial(accumulate, peer)
    together(*(lambda peer=peer: peer.train(4) for peer in peers))
    the_same(peers, 4)
    assert len({peer.optimizer.state_averager.lineage.mark for peer in peers}) == 1


def test_peer_with_other_frozen_layers_has_another_mark(swarm):
    peers = swarm(2, average_state_every=1000)
    meet(peers)

    def train(peer):
        peer.model[0].requires_grad_(peer.index == 0)
        peer.train(1)

    together(*(lambda peer=peer: train(peer) for peer in peers))
    assert not torch.equal(peers[0].after[0], peers[1].after[0])
    assert len({peer.optimizer.state_averager.lineage.mark for peer in peers}) == 2


COMPRESSED = {
    "fp16": (hivemind.Float16Compression(), 2e-3),
    "scaled fp16": (hivemind.ScaledFloat16Compression(), 2e-3),
    "uniform8": (hivemind.Uniform8BitQuantization(), 5e-2),
    "quantile8": (hivemind.Quantile8BitQuantization(), 5e-2),
    "blockwise8": (hivemind.BlockwiseQuantization(), 5e-2),
    "bfloat16": (hivemind.BFloat16Compression(), 2e-2),
    "linear8": (hivemind.Linear8BitQuantization(), 2e-2),
    "linear4": (hivemind.Linear4BitQuantization(), 1e-1),
}


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_peers_stay_equal_and_near_the_exact_result(swarm, codec):
    compression, bound = COMPRESSED[codec]
    peers = swarm(3, grad_compression=compression, state_averaging_compression=compression, average_state_every=2)
    train_together(peers, 4)
    the_same(peers, 4)
    exact = in_one_process(peers, 4)[-1]
    assert (peers[0].after[3] - exact).norm() <= bound * 4 * exact.norm()


@pytest.mark.parametrize("codec", ["fp16", "bfloat16", "uniform8"])
def test_defect_09_bfloat16_models_train_with_either_codec(dhts, codec):
    compression, bound = COMPRESSED[codec]
    options = dict(
        run_id=f"bfloat16 {codec}",
        target_batch_size=32,
        grad_compression=compression,
        state_averaging_compression=compression,
    )
    peers = [Peer(i, dhts[i], network(dtype=torch.bfloat16), **options) for i in range(2)]
    try:
        train_together(peers, 3)
        the_same(peers, 3)
        assert peers[0].after[2].dtype is torch.bfloat16
        exact = in_one_process(peers, 3)[-1]
        assert (peers[0].after[2].float() - exact).norm() <= (bound * 3 + 2e-2) * exact.norm()
    finally:
        for peer in peers:
            peer.optimizer.shutdown()


def test_accumulate_grads_on_places_the_sums_only(swarm, dhts):
    factory = functools.partial(hivemind.GradientAverager, accumulate_grads_on=torch.device("cpu"))
    peers = swarm(2, grad_averager_factory=factory)
    train_together(peers, 3)
    the_same(peers, 3)
    torch.testing.assert_close(peers[0].after[2], in_one_process(peers, 3)[-1], rtol=1e-4, atol=2e-6)
    parameters = list(network().parameters())
    with pytest.raises(ValueError, match="leave accumulate_grads_on out"):
        hivemind.GradientAverager(
            parameters, dht=dhts[0], prefix="sums", reuse_grad_buffers=True, accumulate_grads_on="cpu"
        )
    averager = hivemind.GradientAverager(parameters, dht=dhts[0], prefix="sums", accumulate_grads_on="cpu")
    try:
        for p in parameters:
            p.grad = torch.ones_like(p)
        averager.accumulate_grads_(4)
        for p in parameters:
            p.grad = torch.full_like(p, 3.0)
        averager.accumulate_grads_(4)
        assert all(torch.equal(p.grad, torch.full_like(p, 3.0)) for p in parameters)
        averager.load_accumulators_into_averager_()
        assert all(
            grad.device.type == "cpu" and torch.equal(grad, torch.full_like(grad, 2.0))
            for grad in averager.averaged_grads
        )
    finally:
        averager.shutdown()


def test_defect_08_power_sgd_counts_a_round_once(swarm):
    factory = functools.partial(hivemind.PowerSGDGradientAverager, averager_rank=2, min_compression_ratio=0.2)
    peers = swarm(3, grad_averager_factory=factory, average_state_every=1000)
    train_together(peers, 5)
    the_same(peers, 5)
    exact = in_one_process(peers, 5)[-1]
    assert (peers[0].after[4] - exact).norm() < 0.1 * exact.norm()
    residuals = [
        sum(e.norm() for e in peer.optimizer.state_dict()["hivemind_c"]["grad_averager"]["residuals"]) for peer in peers
    ]
    assert all(residual > 0 for residual in residuals)


def test_power_sgd_of_all_ranks_is_exact(swarm):
    factory = functools.partial(hivemind.PowerSGDGradientAverager, averager_rank=12, min_compression_ratio=0.0)
    peers = swarm(2, grad_averager_factory=factory, average_state_every=1000)
    train_together(peers, 3)
    the_same(peers, 3)
    torch.testing.assert_close(peers[0].after[2], in_one_process(peers, 3)[-1], rtol=1e-3, atol=1e-5)


DELAYED = {
    "step": dict(delay_optimizer_step=True),
    "gradients": dict(delay_grad_averaging=True),
    "gradients, reusing buffers": dict(delay_grad_averaging=True, reuse_grad_buffers=True),
}


@pytest.mark.parametrize("way", DELAYED)
def test_delayed_peers_end_equal(swarm, way):
    peers = swarm(3, offload_optimizer=True, scheduler="cosine", **DELAYED[way])
    train_together(peers, 5)
    assert all(torch.equal(flat(peer.model), flat(peers[0].model)) for peer in peers)
    assert not torch.equal(flat(peers[0].model), flat(network()))
    assert len({peer.optimizer.opt.param_groups[0]["lr"] for peer in peers}) == 1


@pytest.mark.parametrize("offload", [False, True])
def test_local_updates_meet_in_the_average(swarm, offload):
    peers = swarm(3, use_local_updates=True, delay_state_averaging=False, offload_optimizer=offload)
    train_together(peers, 4)
    the_same(peers, 4)


def test_local_updates_take_late_averages_as_a_difference(swarm):
    peers = swarm(2, use_local_updates=True, target_batch_size=32)
    before = [flat(peer.model) for peer in peers]
    train_together(peers, 4)
    assert all(not torch.equal(flat(peer.model), old) for peer, old in zip(peers, before))
    apart = (flat(peers[0].model) - flat(peers[1].model)).norm()
    assert apart < 0.5 * (flat(peers[0].model) - before[0]).norm()


class WithSpare(torch.nn.Module):
    """A network with a layer that is used only where and when somebody says so."""

    def __init__(self):
        super().__init__()
        self.net, self.spare, self.uses_spare = network(), torch.nn.Linear(12, 3), False
        torch.nn.init.ones_(self.spare.weight)
        torch.nn.init.zeros_(self.spare.bias)

    def forward(self, inputs):
        return self.net(inputs) + self.spare(inputs) if self.uses_spare else self.net(inputs)


OF_TWO = dict(
    use_local_updates=True, optimizer="adamw", average_opt_statistics=("exp_avg", "exp_avg_sq"), target_batch_size=32
)


@pytest.fixture
def spared(dhts):
    """Two with a spare layer and local updates, who average what AdamW remembers."""
    made = []

    def start(**more):
        run = f"swarm {next(RUNS)}"
        made.extend(Peer(i, dhts[i], WithSpare(), run_id=run, **{**OF_TWO, **more}) for i in range(2))
        return made

    yield start
    for peer in made:
        peer.optimizer.shutdown()


def remembers(peer, name="exp_avg_sq"):
    return peer.optimizer.opt.state.get(peer.model.spare.weight, {}).get(name)


def test_unused_layer_does_not_stop_the_averaging(spared, caplog):
    peers = spared(delay_state_averaging=False)
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        train_together(peers, 4)
    the_same(peers, 4)
    assert [remembers(peer) for peer in peers] == [None, None] and not [
        line for line in caplog.messages if "averag" in line
    ]
    peers[0].model.uses_spare = True  # torch begins its state whole
    train_together(peers, 5)
    assert remembers(peers[0]).any() and remembers(peers[1]) is None


def test_statistics_of_one_peer_are_not_lowered_by_nonusers(spared):
    """One peer has used a layer once. The other peers' missing statistics do not draw its statistics down."""
    peers = spared(delay_state_averaging=False)
    peers[0].model.uses_spare = True
    train_together(peers, 1)
    peers[0].model.uses_spare = False
    first = remembers(peers[0]).clone()
    assert first.any()
    train_together(peers, 4)
    the_same(peers, 4)
    assert torch.equal(remembers(peers[0]), first) and remembers(peers[1]) is None


def test_late_averages_leave_a_new_state_unchanged(spared):
    first, second = peers = spared()
    first.model.uses_spare = True
    train_together(peers, 3)
    second.model.uses_spare = True
    train_together(peers, 6)
    for peer in peers:
        assert (remembers(peer) >= 0).all() and flat(peer.model).isfinite().all()


@pytest.mark.parametrize("began", [False, True])
def test_joiner_takes_averaged_statistics_if_it_has_the_rest(spared, dhts, began):
    peers = spared(delay_state_averaging=False, average_opt_statistics=("exp_avg_sq",))
    train_together(peers, 2)
    for peer in peers:
        peer.optimizer.state_averager.share_state(2)
    late = Peer(
        2,
        dhts[2],
        WithSpare(),
        **{**OF_TWO, "run_id": peers[0].optimizer.run_id, "average_opt_statistics": ("exp_avg_sq",)},
    )
    try:
        if began:  # by itself: its batch() would load the state of the others
            backward(late.model, 0, 16)
            late.optimizer.opt.step()
            late.optimizer.zero_grad()
        assert late.optimizer.load_state_from_peers()
        assert torch.equal(flat(late.model), peers[0].after[1]) and late.optimizer.local_epoch == 2
        states = [peer.optimizer.opt.state.get(peer.model.net[0].weight, {}) for peer in (late, peers[0])]
        assert torch.equal(states[0]["exp_avg_sq"], states[1]["exp_avg_sq"]) if began else not states[0]
        late.batch()
        assert flat(late.model).isfinite().all() and remembers(late) is None
    finally:
        late.optimizer.shutdown()


def test_peer_without_values_to_average_holds_no_group(dhts, caplog):
    peer, ghost = lonely(
        dhts, use_local_updates=True, optimizer="adamw", average_opt_statistics="exp_avg", delay_state_averaging=False
    )
    try:
        controls = controls_of(peer.optimizer.state_averager)
        with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
            while not (controls and controls[-1].done()):
                ghost.report_local_progress(0, 16)
                peer.optimizer.step()  # a batch without any gradient
                time.sleep(0.05)
        assert eventually(controls[0].cancelled)
        assert any("averaged after its first step" in line for line in caplog.messages)
    finally:
        ghost.shutdown()
        peer.optimizer.shutdown()


def test_shutdown_returns_with_the_last_late_average_applied(swarm):
    peers = swarm(2, use_local_updates=True, target_batch_size=32, shutdown_timeout=PATIENCE)
    meet(peers)
    together(*(lambda peer=peer: peer.train(1) for peer in peers))
    assert not torch.equal(flat(peers[0].model), flat(peers[1].model))
    together(*(peer.optimizer.shutdown for peer in peers))
    assert torch.allclose(flat(peers[0].model), flat(peers[1].model), atol=1e-6)


def test_an_auxiliary_peer_helps_and_changes_nothing(swarm, dhts, caplog):
    caplog.set_level(logging.INFO, "hivemind_c.optim")
    peers = swarm(2, verbose=True)
    model, loads = network(seed=9), []
    helper = make(
        dhts[2],
        model,
        run_id=peers[0].optimizer.run_id,
        auxiliary=True,
        **{**QUICK, "batch_size_per_step": None, "target_batch_size": 32},
    )
    ended, before = [], flat(model)
    helper.state_averager.load_state_from_peers = lambda *_, **__: loads.append(helper.local_epoch)

    def assist():
        while not ended:
            helper.step()
            time.sleep(0.01)

    def train():
        try:
            meet(peers)
            train_until(
                peers,
                lambda: (
                    min(one.optimizer.local_epoch for one in peers) >= 5
                    and "Averaged tensors successfully with 3 peers" in caplog.messages
                ),
            )
        finally:
            ended.append(True)

    try:
        together(train, assist)
    finally:
        helper.shutdown()
    assert not loads and torch.equal(flat(model), before)
    the_same(peers, 5)
    for ours, expected in zip(peers[0].after.values(), in_one_process(peers, 5)):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=2e-6)


def test_defect_02_a_peer_in_client_mode_trains_with_the_others(swarm, dhts):
    peers = swarm(2)
    with hivemind.DHT(dhts[0].get_visible_maddrs(), client_mode=True, start=True) as behind:
        client = Peer(7, behind, network(), run_id=peers[0].optimizer.run_id, target_batch_size=32, client_mode=True)
        try:
            assert client.optimizer.client_mode
            meet([*peers, client])
            assert peers[0].optimizer.tracker.global_progress.num_clients == 1
            train_together([*peers, client], 4)
            the_same([*peers, client], 4)
        finally:
            client.optimizer.shutdown()


def test_extra_tensors_are_averaged_with_the_parameters(dhts):
    run = dict(run_id=f"swarm {next(RUNS)}", target_batch_size=32, delay_state_averaging=False)
    running = [
        torch.full((5,), float(i)) for i in range(2)
    ]  # a batch norm's statistics, say: each peer's own until they are averaged
    peers = [Peer(i, dhts[i], network(), extra_tensors=[running[i]], **run) for i in range(2)]
    try:
        train_together(peers, 1)
        assert all(torch.equal(tensor, torch.full((5,), 0.5)) for tensor in running)
    finally:
        for peer in peers:
            peer.optimizer.shutdown()


# ---- what goes wrong ----


def lonely(dhts, n=1, **options):
    """A peer that believes in another, who never comes to average."""
    run = f"lonely {next(RUNS)}"
    ghost = hivemind.ProgressTracker(dhts[1], run, 16, start=True)
    ghost.report_local_progress(0, 1)
    peer = Peer(
        0,
        dhts[0],
        network(),
        run_id=run,
        **{"target_batch_size": 16, "matchmaking_time": 0.2, "averaging_timeout": 5.0, **options},
    )
    peer.wait_for(2)
    return peer, ghost


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reuse_grad_buffers": True},
        {"offload_optimizer": True},
        {"offload_optimizer": True, "delay_grad_averaging": True},
    ],
)
def test_defect_01_failed_averaging_steps_with_own_gradient(dhts, caplog, options):
    peer, ghost = lonely(dhts, average_state_every=1000, **options)
    try:
        ghost.report_local_progress(0, 16)
        with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
            while peer.optimizer.local_epoch < 1:
                peer.batch()
            settle(peer.optimizer)
        torch.testing.assert_close(flat(peer.model), in_one_process([peer], 1)[0], rtol=1e-5, atol=1e-6)
        assert not torch.equal(flat(peer.model), flat(network()))
        assert any("averaging gradients failed" in line and "own" in line for line in caplog.messages)
    finally:
        ghost.shutdown()
        peer.optimizer.shutdown()


@pytest.mark.parametrize("options", [{}, {"reuse_grad_buffers": True}, {"offload_optimizer": True}])
def test_samples_stay_in_the_sums_if_an_epoch_lasts(dhts, caplog, options):
    """A peer leaves whose samples made this one end the epoch. Nobody comes to the round; another is still counted."""
    peer, ghost = lonely(dhts, average_state_every=1000, target_batch_size=48, **options)
    leaver = hivemind.ProgressTracker(dhts[1], peer.optimizer.run_id, 48, start=True)

    def counts(n, samples):
        figures = peer.optimizer.tracker.figures()
        return figures.peers == n and figures.samples >= samples

    def leaves():
        leaver.withdraw()
        return eventually(lambda: counts(2, 0))

    def batch_with(metric):
        peer.optimizer.report_metric(metric)
        peer.batch()

    finds_no_group(peer.optimizer.grad_averager, leaves)
    try:
        leaver.report_local_progress(0, 40)
        assert eventually(lambda: counts(3, 40))
        with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
            batch_with(1.0)
        (said,) = (line for line in caplog.messages if "averaging gradients failed" in line)
        assert "its 16 samples go into its next average" in said
        assert (peer.optimizer.local_epoch, peer.optimizer.local_samples) == (0, 16)
        assert torch.equal(flat(peer.model), flat(network()))
        batch_with(2.0)
        batch_with(6.0)
        assert peer.optimizer.local_epoch == 1
        torch.testing.assert_close(flat(peer.model), in_one_process([peer], 1)[0], rtol=1e-5, atol=1e-6)
        assert peer.optimizer.driver.hands.end.metric == 3.0
        assert peer.optimizer.ledger.samples.lost == 0
    finally:
        leaver.shutdown()
        ghost.shutdown()
        peer.optimizer.shutdown()


def test_defect_01_without_any_gradient_there_is_no_step_at_all(dhts):
    peer, ghost = lonely(dhts, average_state_every=1000)
    try:
        before = flat(peer.model)
        ghost.report_local_progress(0, 16)
        assert eventually(lambda: peer.optimizer.tracker.ready_to_update_epoch)
        peer.optimizer.find_swarm()
        peer.optimizer.driver.batch(0)  # a batch that overflowed, say, has brought it here
        assert peer.optimizer.local_epoch == 0
        assert torch.equal(flat(peer.model), before)
    finally:
        ghost.shutdown()
        peer.optimizer.shutdown()


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("power_sgd", [False, True])
def test_defect_04_a_gradient_that_is_not_finite_reaches_nobody(swarm, value, power_sgd):
    factory = (
        functools.partial(hivemind.PowerSGDGradientAverager, averager_rank=2, min_compression_ratio=0.2)
        if power_sgd
        else None
    )
    peers = swarm(3, grad_averager_factory=factory)
    meet(peers)
    poisoned = []

    def train(peer):
        if peer.index == 1:
            backward(peer.model, 5, 16)
            next(peer.model.parameters()).grad[0, 0] = value
            peer.optimizer.step()
            peer.optimizer.zero_grad()
            poisoned.append(peer.optimizer.local_epoch)
        peer.train(3)

    together(*(lambda peer=peer: train(peer) for peer in peers))
    for peer in peers:
        settle(peer.optimizer)
        assert flat(peer.model).isfinite().all()
    assert torch.equal(flat(peers[0].model), flat(peers[2].model))
    assert poisoned


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_defect_04_large_finite_values_count_as_finite(dtype):
    largest = torch.full((3, 5), torch.finfo(dtype).max, dtype=dtype)
    assert all_finite([largest, -largest, torch.zeros(0, dtype=dtype)]) and all_finite([])
    for value in (math.nan, math.inf, -math.inf):
        bad = largest.clone()
        bad[1, 2] = value
        assert not all_finite([largest, bad])


def test_defect_07_options_reach_both_averagers(dhts):
    optimizer = make(
        dhts[0], network(), run_id=f"options {next(RUNS)}", averager_opts=dict(bandwidth=12345.0, part_size_bytes=2**16)
    )
    for averager in (optimizer.grad_averager, optimizer.state_averager):
        assert averager._settings["bandwidth"] == 12345.0
        assert averager._settings["part_bytes"] == 2**16
    optimizer.shutdown()


def test_defect_11_two_optimizers_in_one_process_are_two_peers(swarm):
    peers = swarm(2)
    meet(peers)
    assert [peer.optimizer.tracker.global_progress.num_peers for peer in peers] == [2, 2]
    train_together(peers, 2)


def test_defect_11_node_trains_in_two_runs_but_once_in_each(dhts):
    first, second = (
        Peer(0, dhts[0], network(seed), run_id=f"of two {next(RUNS)}", target_batch_size=16) for seed in (0, 1)
    )
    for peer in (first, second):
        peer.train(2)
    assert [peer.optimizer.tracker.global_progress.num_peers for peer in (first, second)] == [1, 1]
    with pytest.raises(
        ValueError, match=r"call shutdown\(\) on the first one, or give the second one a DHT of its own"
    ):
        Peer(0, dhts[0], network(), run_id=first.optimizer.run_id)
    for peer in (first, second):
        peer.optimizer.shutdown()
    Peer(0, dhts[0], network(), run_id=first.optimizer.run_id).optimizer.shutdown()


def test_defect_18_rounds_that_fail_leave_nothing_behind(dhts):
    peer, ghost = lonely(dhts, matchmaking_time=0.05)

    def fail(epochs):
        until = peer.optimizer.local_epoch + epochs
        while peer.optimizer.local_epoch < until:
            ghost.report_local_progress(peer.optimizer.local_epoch, 16)
            peer.batch()
        settle(peer.optimizer)
        gc.collect()

    try:
        fail(3)
        before = files(), threads(), resident()
        fail(12)
        assert eventually(lambda: files() <= before[0] and threads() <= before[1]), (files(), threads(), before)
        assert resident() - before[2] < 8 << 20
    finally:
        ghost.shutdown()
        peer.optimizer.shutdown()


# ---- what peers tell each other besides gradients ----


def test_a_plateau_is_seen_in_the_swarms_mean(swarm):
    plateau = dict(scheduler="plateau", as_factory=True)
    peers = swarm(2, **plateau)
    meet(peers)

    def train(peer):
        while peer.optimizer.local_epoch < 4:
            # one sees its loss fall, the other more quickly rise
            peer.optimizer.report_metric(
                10.0 - peer.optimizer.local_epoch if peer.index == 0 else 10.0 + 99 * peer.optimizer.local_epoch
            )
            peer.batch()
            time.sleep(0.01)

    together(*(lambda peer=peer: train(peer) for peer in peers))
    assert [peer.optimizer.opt.param_groups[0]["lr"] for peer in peers] == [0.1 * 0.5**3] * 2


@pytest.mark.parametrize("reuse", [False, True])
def test_an_overflow_on_one_peer_is_not_the_swarms(swarm, reuse):
    peers = swarm(2, reuse_grad_buffers=reuse)
    meet(peers)
    overflown = []

    def train(peer):
        scaler = hivemind.GradScaler("cpu", init_scale=256.0)
        for step in itertools.count():
            optimizer = peer.optimizer
            if optimizer.local_epoch >= 3:
                break
            scaler.scale(loss_of(peer.model, *batch(1000 * peer.index + step, 16))).backward()
            if peer.index == 1 and step % 3 == 1:
                next(peer.model.parameters()).grad[0, 0] = math.inf
                overflown.append(step)
            scaler.step(optimizer)
            scaler.update()
            if not reuse:
                optimizer.zero_grad()
            time.sleep(0.01)

    together(*(lambda peer=peer: train(peer) for peer in peers))
    for peer in peers:
        settle(peer.optimizer)
    assert overflown
    assert torch.equal(flat(peers[0].model), flat(peers[1].model)) and flat(peers[0].model).isfinite().all()


def test_a_healthy_peer_says_so(swarm, caplog):
    promised = (
        r"^Collaboration accumulated \d+ samples from 2 peers; ETA \d+\.\d\d seconds",
        r"^Averaged tensors successfully with 2 peers",
        r"^Optimizer step: done! This peer contributed \d+ samples",
    )
    peers = swarm(2, verbose=True, target_batch_size=640)
    meet(peers)
    with caplog.at_level(logging.INFO, "hivemind_c.optim"):
        train_until(
            peers, lambda: all(any(re.search(line, said) for said in list(caplog.messages)) for line in promised)
        )
