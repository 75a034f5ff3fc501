"""Buffers, such as the running statistics of a batch norm, are a part of the swarm's state."""

import itertools
import logging
import threading

import pytest
import torch
from torch import nn

import hivemind_c as hivemind
from hivemind_c.optim.buffers import Buffers
from optim_support import FEATURES, QUICK, SHARING, Peer, batch, finds_no_group, make, settle, train_together

RUNS = itertools.count()
COUNT = "1.num_batches_tracked"


def normed(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)).to(dtype)


@pytest.fixture
def swarm(dhts):
    """swarm(n, ...) makes n peers of one run whose buffers are in the state; all are shut down when the test ends."""
    made = []

    def start(n, first=0, model=normed, **options):
        options = {"run_id": f"buffers {next(RUNS)}", "target_batch_size": 16 * n, **SHARING, **options}
        peers = []
        for i in range(first, first + n):
            module = model()
            peers.append(Peer(i, dhts[i], module, **{"buffers": module, **options}))
        made.extend(peers)
        return peers

    yield start
    for peer in made:
        peer.optimizer.shutdown()


def differing(peers):
    """Names in which the peers' models differ."""
    states = [peer.model.state_dict() for peer in peers]
    return {name for name in states[0] if not all(torch.equal(states[0][name], other[name]) for other in states[1:])}


WAYS = {
    "synchronous": dict(delay_state_averaging=False),
    "delayed": dict(),
    "every second epoch": dict(average_state_every=2),
    "offloaded": dict(offload_optimizer=True, optimizer="adamw", delay_grad_averaging=True),
    "local updates": dict(use_local_updates=True, delay_state_averaging=False),
    "delayed local updates": dict(use_local_updates=True),
    "half precision": dict(model=lambda: normed(dtype=torch.bfloat16), offload_optimizer=True),
}


@pytest.mark.parametrize("way", WAYS)
def test_buffers_are_bit_equal_after_an_averaging(swarm, way, monkeypatch):
    peers = swarm(2, **WAYS[way])
    moves = []
    for peer in peers:
        monkeypatch.setattr(peer.optimizer.state_averager.lineage, "averaged", moves.append)
    train_together(peers, 4)
    rounded = set()  # where a difference is added to what training has changed
    if way == "delayed local updates":
        rounded = {name for name, _ in peers[0].model.named_parameters()}
    assert differing(peers) <= {COUNT} | rounded  # each has counted its own batches
    assert peers[0].model[1].running_mean.abs().sum() > 0
    assert not moves or "local" in way  # averages of buffers make no replica another one


def test_average_is_weighted_by_samples(dhts):
    run = dict(run_id=f"buffers {next(RUNS)}", target_batch_size=512, delay_state_averaging=False)
    seen = [torch.full((5,), float(i)) for i in range(2)]
    peers = [Peer(i, dhts[i], normed(), buffers=[seen[i]], batch_size_per_step=16 - 8 * i, **run) for i in range(2)]
    try:
        train_together(peers, 1)
        samples = [min(len(peer.used[0]) * peer.optimizer.batch_size_per_step, 512) for peer in peers]
        assert torch.equal(seen[0], seen[1]) and samples[0] != samples[1]
        torch.testing.assert_close(seen[0], torch.full((5,), samples[1] / sum(samples)))
    finally:
        for peer in peers:
            peer.optimizer.shutdown()


# ---- joiners ----


def offered(peers):
    """They offer what they have, whatever the epoch is."""
    for peer in peers:
        averager = peer.optimizer.state_averager
        averager.share_state(peer.optimizer.local_epoch)


def test_joiner_has_the_buffers_of_a_lone_donor(swarm):
    run = dict(run_id=f"buffers {next(RUNS)}", target_batch_size=16)
    (donor,) = swarm(1, **run)
    donor.train(5)
    settle(donor.optimizer)
    offered([donor])
    (late,) = swarm(1, first=1, model=lambda: normed(seed=9), **run)
    assert late.optimizer.load_state_from_peers()
    assert not differing([donor, late]) and late.model[1].num_batches_tracked == 5


def test_joiner_has_the_average_and_a_donors_count(swarm):
    run = dict(run_id=f"buffers {next(RUNS)}", target_batch_size=32)
    donors = swarm(2, **run)
    train_together(donors, 3)
    donors[0].model[1].num_batches_tracked += 100  # their counts differ for certain
    offered(donors)
    (late,) = swarm(1, first=2, model=lambda: normed(seed=9), **run)
    assert late.optimizer.load_state_from_peers()
    assert differing([donors[0], late]) <= {COUNT}
    assert int(late.model[1].num_batches_tracked) in [int(one.model[1].num_batches_tracked) for one in donors]


def test_state_loaded_in_mid_epoch_replaces_the_buffers(swarm):
    run = dict(run_id=f"buffers {next(RUNS)}", target_batch_size=10**7)  # no epoch ends
    (donor,) = swarm(1, **run)
    for _ in range(5):
        donor.batch()
    offered([donor])
    wanted = {name: tensor.clone() for name, tensor in donor.model.state_dict().items()}
    donor.batch()  # its own buffers are past what it offers
    (late,) = swarm(1, first=1, model=lambda: normed(seed=9), **run)
    for _ in range(3):
        late.batch(number=50)
    assert late.optimizer.load_state_from_peers()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in late.model.state_dict().items())
    assert late.model[1].num_batches_tracked == 5 and late.optimizer.local_samples == 0


def test_donor_without_buffers_leaves_a_joiner_its_own(swarm, caplog):
    run = dict(run_id=f"buffers {next(RUNS)}", target_batch_size=16)
    (donor,) = swarm(1, **run, buffers=None)
    donor.train(3)
    settle(donor.optimizer)
    offered([donor])
    (late,) = swarm(1, first=1, model=lambda: normed(seed=9), **run, config_mismatch="warn")
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        assert late.optimizer.load_state_from_peers() and late.optimizer.load_state_from_peers()
    assert differing([donor, late]) == {"1.running_mean", "1.running_var", COUNT}
    assert sum("lacks 3 buffers" in line for line in caplog.messages) == 1


def test_checkpoint_without_buffers_is_loaded(dhts):
    model = normed()
    with_none = make(dhts[0], model, run_id=f"buffers {next(RUNS)}", target_batch_size=16, batch_size_per_step=16)
    for number in range(3):
        nn.functional.cross_entropy(model(batch(number, 16)[0]), batch(number, 16)[1]).backward()
        with_none.step()
    settle(with_none)
    saved = with_none.state_dict()
    with_none.shutdown()
    other = normed(seed=5)
    other.load_state_dict(model.state_dict())
    made = make(dhts[0], other, run_id=f"buffers {next(RUNS)}", buffers=other)
    try:
        made.load_state_dict(saved)
        assert made.local_epoch == 3
        _, (last, *_), _ = made.state_averager.buffers.offer()
        assert torch.equal(last, model[1].running_mean)
    finally:
        made.shutdown()


def test_evaluation_is_that_of_one_machine_with_the_same_data(swarm):
    """Within 0.05 of the loss, and 0.35 standard deviations of the running means."""

    def data(number):
        inputs, targets = batch(number, 16)
        return inputs * 3 + 10, targets

    def backward(model, number):
        nn.functional.cross_entropy(model(data(number)[0]), data(number)[1]).backward()

    class Apart(Peer):
        def batch(self, number=None):
            number = 1000 * self.index + self.batches
            epoch = self.optimizer.local_epoch
            self.used.setdefault(epoch, []).append(number)
            self.batches += 1
            backward(self.model, number)
            self.optimizer.step()
            self.optimizer.zero_grad()

    peers = swarm(2, target_batch_size=160)
    for peer in peers:
        peer.__class__ = Apart
    train_together(peers, 8)
    plain = normed()
    inner = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for epoch in range(8):
        numbers = [number for peer in peers for number in peer.used[epoch]]
        for number in numbers:
            backward(plain, number)
        for p in plain.parameters():
            p.grad /= len(numbers)
        inner.step()
        inner.zero_grad()
    models = [plain, peers[0].model, peers[1].model]
    inputs, targets = (torch.cat(parts) for parts in zip(*(data(number) for number in range(5000, 5040))))
    losses = [nn.functional.cross_entropy(model.eval()(inputs), targets).item() for model in models]
    assert abs(losses[0] - losses[1]) < 0.05 and losses[1] == losses[2]
    off = (models[1][1].running_mean - plain[1].running_mean) / plain[1].running_var.sqrt()
    assert off.abs().max() < 0.35


# ---- which ones ----


def test_local_buffers_stay_and_say_so_once(swarm, caplog):
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        peers = swarm(2, buffers="local")
        train_together(peers, 2)
    assert differing(peers) >= {"1.running_mean", "1.running_var"}
    said = [line for line in caplog.messages if "buffers=" in line]
    assert len(said) == 2 and all("neither averaged nor given to joining peers" in line for line in said)


class Nest(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.twin = self.norm  # the same module twice
        self.register_buffer("mask", torch.full((2, 2), float("-inf")))
        self.register_buffer("cache", torch.zeros(4), persistent=False)
        self.register_buffer("shadow", torch.zeros(2, dtype=torch.float16))
        self.register_buffer("wave", torch.zeros(2, dtype=torch.complex64))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("wide", torch.zeros(1, 3).expand(4, 3))
        self.register_buffer("spare", None)


def rounds(made, *, weights=None):
    """A round among these buffers, as the core makes it. weights: as the test expects them."""
    for one in made:
        one.load()
    own = [one._weight for one in made]
    assert weights is None or own == weights
    total = sum(own) or 1
    for tensors in zip(*(one.averages for one in made)):
        alike = all(torch.equal(tensor, tensors[0]) for tensor in tensors)
        mean = tensors[0].clone() if alike else sum(weight / total * tensor for weight, tensor in zip(own, tensors))
        for tensor in tensors:
            tensor.copy_(mean)
    for one in made:
        one.apply()


def test_module_gives_its_persistent_buffers_once():
    described, averaged, carried = Buffers(Nest()).offer()
    assert described == {
        "averaged": ["mask", "shadow", "wave", "wide", "norm.running_mean", "norm.running_var"],
        "carried": ["flags", "norm.num_batches_tracked"],
    }
    assert [tuple(tensor.shape) for tensor in averaged] == [(2, 2), (2,), (2, 2), (4, 3), (3,), (3,)]
    assert all(tensor.dtype is torch.float32 for tensor in averaged) and carried[0].dtype is torch.bool


def test_metrics_are_not_averaged():
    torchmetrics = pytest.importorskip("torchmetrics")

    class Counting(torchmetrics.MeanMetric):
        def __init__(self):
            super().__init__()
            self.net = nn.BatchNorm1d(2)

    module = nn.ModuleDict(dict(norm=nn.BatchNorm1d(2), metric=Counting()))
    assert {name.split(".")[0] for name in module.state_dict()} == {"norm", "metric"}
    assert all(name.startswith("norm.") for name in Buffers(module).offer()[0]["averaged"])


@pytest.mark.parametrize("kind", ["shadow", "wave", "wide", "norm.running_mean"])
def test_each_kind_of_buffer_is_averaged(kind):
    modules = [Nest(), Nest()]
    for i, module in enumerate(modules):
        dict(module.named_buffers())[kind][:1] += 2.0 * i
    made = [Buffers(module) for module in modules]
    rounds(made)
    for module in modules:
        changed = dict(module.named_buffers())[kind]
        assert torch.equal(changed[:1], torch.ones_like(changed[:1]))
        assert module.mask.isinf().all()


def test_peer_without_samples_takes_the_average():
    tensors = [torch.full((3,), float(i)) for i in range(3)]
    made = [Buffers([tensor]) for tensor in tensors]
    for one, samples in zip(made, (0, 30, 10)):
        one.take(samples)
    rounds(made, weights=[0.0, 30.0, 10.0])
    assert all(torch.equal(tensor, torch.full((3,), 1.25)) for tensor in tensors)
    assert [one.samples for one in made] == [0, 0, 0]


def test_samples_add_up_until_an_average():
    one = Buffers([torch.zeros(1)])
    one.take(5)
    one.take(7)
    rounds([one], weights=[12.0])
    one.take(3)
    rounds([one], weights=[3.0])
    one.take(4, alone=True)  # what it has is the swarm's
    rounds([one], weights=[0.0])


def test_samples_that_were_given_back_count_once():
    for given, weight in (([torch.zeros(1)], 12.0), ([], None)):
        one = Buffers(given)
        for samples in (5, 12):
            one.take(samples)
            if samples == 5:  # the swarm epoch lasts
                one.give_back(5)
        assert one.samples == weight


def test_buffer_that_is_nan_is_replaced_by_the_others(caplog):
    tensors = [torch.full((3,), float(i)) for i in range(2)]
    made = [Buffers([tensor]) for tensor in tensors]
    tensors[1][0] = float("nan")
    for one in made:
        one.take(10)
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        rounds(made, weights=[10.0, 0.0])
        tensors[1][0] = float("inf")
        rounds(made)
    assert torch.equal(tensors[0], torch.zeros(3)) and torch.equal(tensors[1], torch.zeros(3))
    assert sum("not finite any more" in line for line in caplog.messages) == 1


def test_buffers_that_are_all_nan_become_the_last_average():
    tensors = [torch.full((2,), float(i)) for i in range(2)]
    made = [Buffers([tensor]) for tensor in tensors]
    rounds(made)
    for tensor in tensors:
        tensor.fill_(float("nan"))
    rounds(made, weights=[0.0, 0.0])
    assert all(torch.equal(tensor, torch.full((2,), 0.5)) for tensor in tensors)


def test_change_during_an_averaging_is_kept():
    tensors = [torch.tensor([1.0, 1.0, 0.5]), torch.tensor([3.0, 3.0, 0.0])]
    made = [Buffers([tensor]) for tensor in tensors]
    for one in made:
        one.take()
    tensors[0][1] += 0.25
    tensors[0][2] = 0.125  # a variance that fades
    rounds(made)
    assert tensors[0].tolist() == [2.0, 2.25, 0.125] and tensors[1].tolist() == [2.0, 2.0, 0.25]


def test_shared_memory_changes_once():
    whole = torch.zeros(4)
    one, other = Buffers([whole, whole[:2]]), Buffers([torch.ones(4), torch.ones(2)])
    one.take()
    whole += 1.0
    rounds([one, other])
    assert whole.tolist() == [1.5] * 4


def test_late_and_resized_buffers_stay_local(caplog):
    modules = [nn.BatchNorm1d(3), nn.BatchNorm1d(3)]
    made = [Buffers(module) for module in modules]
    modules[0].running_mean = torch.full((5,), 7.0)
    modules[0].register_buffer("late", torch.ones(2))
    modules[1].running_var = torch.full((3,), 3.0)  # exchanged, and of the same shape
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        rounds(made)
        rounds(made)
    assert modules[0].running_mean.tolist() == [7.0] * 5 and modules[0].late.tolist() == [1.0] * 2
    assert modules[0].running_var.tolist() == [2.0] * 3 and torch.equal(*(one.running_var for one in modules))
    assert sum("'running_mean' is gone or has another shape" in line for line in caplog.messages) == 1
    assert sum("came after the optimizer was made" in line for line in caplog.messages) == 1


def test_first_buffer_that_comes_late_is_named(caplog):
    module = nn.Linear(2, 2)
    one = Buffers(module)
    module.register_buffer("late", torch.ones(2))
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        one.take(4)
        one.take(4)
    assert [("'late'" in line, "stay this peer's own" in line) for line in caplog.messages] == [(True, True)]


def test_buffer_in_extra_tensors_is_averaged_once():
    norm = nn.BatchNorm1d(3)
    assert Buffers(norm, but=[norm.running_mean]).offer()[0]["averaged"] == ["running_var"]


@pytest.mark.parametrize(
    "given, sentence",
    [
        (torch.zeros(2), "buffers must be a module, or a list"),
        ("average", "buffers must be a module, or a list"),
        ([1.0], "buffers holds float"),
        ([("a", torch.zeros(1)), ("a", torch.ones(1))], "twice"),
    ],
)
def test_wrong_buffers_are_refused(given, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        Buffers(given)


@pytest.mark.parametrize(
    "described",
    [
        7,
        {"averaged": ["a"]},
        {"averaged": ["a"] * 9, "carried": []},
        {"averaged": [b"a"], "carried": []},
        {"averaged": [], "carried": [None]},
    ],
)
def test_damaged_description_is_refused(described):
    with pytest.raises(ValueError, match="damaged"):
        Buffers(nn.BatchNorm1d(1)).split({"buffers": described}, [torch.zeros(1)] * 3)


def test_values_that_do_not_fit_leave_the_module_as_it_is(caplog):
    norm = nn.BatchNorm1d(3)
    norm.running_mean.fill_(2.0)
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        Buffers(norm).replace(
            {
                "running_mean": torch.zeros(4),
                "running_var": torch.full((3,), float("nan")),
                "num_batches_tracked": torch.tensor(1.5),
                "\x1b[31mred": torch.zeros(1),
            }
        )
    assert norm.running_mean.tolist() == [2.0] * 3 and norm.running_var.tolist() == [1.0] * 3
    assert norm.num_batches_tracked == 0
    assert any("lacks 2 buffers" in line for line in caplog.messages) and "\x1b" not in caplog.text


# ---- other peers, other options ----


def test_samples_stay_counted_where_no_average_is_made(swarm, dhts):
    (one,) = swarm(1, target_batch_size=16)
    ghost = hivemind.ProgressTracker(dhts[1], one.optimizer.run_id, 16, start=True)
    ghost.report_local_progress(0, 1)
    one.wait_for(2)
    finds_no_group(one.optimizer.grad_averager)
    finds_no_group(one.optimizer.state_averager)
    one.train(1)
    settle(one.optimizer)
    assert one.optimizer.state_averager.buffers.samples >= 16
    ghost.shutdown()


def test_auxiliary_and_client_peers_take_part(swarm, dhts):
    (first,) = swarm(1, target_batch_size=32)
    run = dict(run_id=first.optimizer.run_id, target_batch_size=32)
    models = [normed() for _ in range(2)]
    helper = make(
        dhts[2], models[0], auxiliary=True, buffers=models[0], **{**run, **QUICK, "batch_size_per_step": None}
    )
    ended = threading.Event()

    def assist():
        while not ended.is_set():
            helper.step()
            ended.wait(0.01)

    with hivemind.DHT(dhts[0].get_visible_maddrs(), client_mode=True, start=True) as behind:
        client = Peer(7, behind, models[1], buffers=models[1], client_mode=True, **run)
        thread = threading.Thread(target=assist)
        try:
            thread.start()
            for epochs in (4, 8, 12):  # on a busy machine the client may be too late for the first ones
                train_together([first, client], epochs)
                if differing([first, client]) <= {COUNT}:
                    break
            assert differing([first, client]) <= {COUNT}
            assert torch.equal(models[0][1].running_mean, torch.zeros(8))  # it trains nothing, and changes nothing
        finally:
            ended.set()
            thread.join()
            client.optimizer.shutdown()
            helper.shutdown()


def test_equal_buffers_stay_exact_under_weights_and_compression(dhts):
    half = hivemind.Float16Compression()
    run = dict(run_id=f"buffers {next(RUNS)}", target_batch_size=64, delay_state_averaging=False)
    tensors = [torch.full((5,), 0.1) for _ in range(2)]
    peers = [
        Peer(
            i,
            dhts[i],
            normed(),
            buffers=[tensors[i]],
            batch_size_per_step=16 - 8 * i,
            state_averaging_compression=half,
            **run,
        )
        for i in range(2)
    ]
    try:
        train_together(peers, 2)
        assert all(torch.equal(tensor, torch.full((5,), 0.1)) for tensor in tensors)
    finally:
        for peer in peers:
            peer.optimizer.shutdown()
