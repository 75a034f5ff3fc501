"""TrainingStateAverager by itself: a program that says when to step, when to average and when an epoch has passed."""

import logging
import threading

import pytest
import torch

import hivemind_c as hivemind
from optim_support import OPTIMIZERS, SCHEDULERS, backward, flat, network, train_plainly
from support import eventually

ROUND = dict(timeout=60.0)


class Alone:
    """A model and its averager."""

    def __init__(self, dht, optimizer="adamw", scheduler="none", seed=0, **options):
        self.model = network(seed)
        self.averager = hivemind.TrainingStateAverager(
            dht=dht, prefix=options.pop("prefix", "stepping"), optimizer=OPTIMIZERS[optimizer],
            params=self.model.parameters(), scheduler=SCHEDULERS[scheduler],
            start=True, min_matchmaking_time=30.0, **options,
        )  # fmt: skip
        self.batches = 0

    def batch(self, **options):
        backward(self.model, self.batches, 32)
        self.batches += 1
        return self.averager.step(optimizer_step=True, zero_grad=True, **options)

    def average(self, **options):
        return self.averager.step(averaging_round=True, **{"averaging_opts": ROUND, **options})


@pytest.fixture
def make(dhts):
    made = []

    def start(index=0, **options):
        made.append(Alone(dhts[index], **options))
        return made[-1]

    yield start
    for one in made:
        one.averager.shutdown()


def both(*calls):
    """At the same time, as they must to meet; what each gave."""
    results, errors = [None] * len(calls), []

    def run(i, call):
        try:
            results[i] = call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("offload", [False, True])
def test_steps_are_those_of_plain_training(make, offload, late):
    one = make(scheduler="cosine", offload_optimizer=offload)
    if late and not offload:
        with pytest.raises(ValueError, match="offload_optimizer=True"):
            one.batch(delay_optimizer_step=True)
        return
    for epoch in range(6):
        one.batch(increment_epoch=True, delay_optimizer_step=late)
        assert one.averager.local_epoch == epoch + 1  # at once
        if late:
            one.averager.step(wait_for_delayed_updates=True)
    assert all(p.grad is None for p in one.model.parameters())
    model = network()
    optimizer = OPTIMIZERS["adamw"](model.parameters())
    scheduler = SCHEDULERS["cosine"](optimizer)
    train_plainly(model, optimizer, scheduler, epochs=6)
    torch.testing.assert_close(flat(one.model), flat(model), rtol=0, atol=0)
    assert one.averager.optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(
    "options", [{}, {"offload_optimizer": True}, {"average_opt_statistics": ("exp_avg", "exp_avg_sq")}]
)
def test_an_averaging_makes_two_peers_one(make, options):
    peers = [make(i, seed=i, **options) for i in range(2)]
    for peer in peers:
        peer.batch()
    mean = (flat(peers[0].model) + flat(peers[1].model)) / 2
    told = both(*(peer.average for peer in peers))
    assert all(set(members) == {peer.averager.peer_id for peer in peers} for members in told)
    assert torch.equal(flat(peers[0].model), flat(peers[1].model))
    torch.testing.assert_close(flat(peers[0].model), mean)
    if "average_opt_statistics" in options:
        first, second = ([state["exp_avg"] for state in peer.averager.optimizer.state.values()] for peer in peers)
        assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_late_average_is_added_to_later_training(make):
    peers = [make(i, seed=i, optimizer="sgd", delta_rule_averaging=True) for i in range(2)]
    before = [flat(peer.model) for peer in peers]
    both(*(lambda peer=peer: peer.average(delay_averaging=True) for peer in peers))
    for peer in peers:
        peer.batch(wait_for_delayed_updates=False, apply_delayed_updates=False)
    moved = [flat(peer.model) - was for peer, was in zip(peers, before)]
    for peer in peers:
        peer.averager.step(wait_for_delayed_updates=True)
    for peer, own in zip(peers, moved):
        assert own.abs().max() > 1e-3
        torch.testing.assert_close(flat(peer.model), (before[0] + before[1]) / 2 + own, rtol=1e-4, atol=1e-6)


def test_batches_are_stepped_beside_averagings(make):
    """The loop of docs/reference/optimizer.md, with fewer batches between averagings."""
    peers = [make(i, seed=i, optimizer="sgd", delta_rule_averaging=True) for i in range(2)]
    apart = (flat(peers[0].model) - flat(peers[1].model)).norm()

    def train(peer):
        for number in range(60):
            peer.batch(wait_for_delayed_updates=False)
            if number % 10 == 9:
                peer.average(increment_epoch=True, delay_averaging=True)
        peer.averager.step(wait_for_delayed_updates=True)

    both(*(lambda peer=peer: train(peer) for peer in peers))
    assert [peer.averager.local_epoch for peer in peers] == [6, 6]
    assert (flat(peers[0].model) - flat(peers[1].model)).norm() < apart / 2
    both(*(peer.average for peer in peers))
    torch.testing.assert_close(flat(peers[0].model), flat(peers[1].model), rtol=1e-4, atol=1e-6)


def test_a_late_step_and_its_average_come_with_a_later_call(make):
    peers = [make(i, seed=i, offload_optimizer=True) for i in range(2)]
    before = [flat(peer.model) for peer in peers]
    go = threading.Event()
    for peer in peers:
        peer.batch(
            delay_optimizer_step=True,
            averaging_round=True,
            averaging_opts=ROUND,
            wait_for_trigger=go.wait,
            increment_epoch=True,
        )
    for peer, was in zip(peers, before):
        peer.averager.step()  # nothing is there to be taken over
        assert torch.equal(flat(peer.model), was)
    go.set()
    for peer in peers:
        peer.averager.step(wait_for_delayed_updates=True)
    assert torch.equal(flat(peers[0].model), flat(peers[1].model))
    assert not torch.allclose(flat(peers[0].model), (before[0] + before[1]) / 2)


def test_error_of_a_late_step_is_raised_by_the_next_call(make):
    one = make(offload_optimizer=True, scheduler="lambda")
    before = flat(one.model)

    def fails():
        raise RuntimeError("the gradients did not come")

    one.batch(delay_optimizer_step=True, increment_epoch=True, wait_for_trigger=fails)
    with pytest.raises(RuntimeError, match="did not come"):
        one.averager.step(wait_for_delayed_updates=True)
    assert one.averager.local_epoch == 0 and one.averager.scheduler.last_epoch == 0
    assert torch.equal(flat(one.model), before)
    one.batch(increment_epoch=True)
    assert one.averager.local_epoch == 1


def test_gradients_may_become_zeros(make):
    one = make()
    backward(one.model, 0, 32)
    one.averager.step(optimizer_step=True, zero_grad=True, set_to_none=False)
    assert all(p.grad is not None and not p.grad.any() for p in one.model.parameters())


def test_an_epoch_counted_by_itself_comes_after_a_late_step(make):
    one = make(offload_optimizer=True, scheduler="lambda")
    rates, inner = [], one.averager.optimizer.step
    one.averager.optimizer.step = lambda: (rates.append(one.averager.optimizer.param_groups[0]["lr"]), inner())
    one.batch(delay_optimizer_step=True)
    one.averager.step(increment_epoch=True)
    assert rates == [0.01] and one.averager.optimizer.param_groups[0]["lr"] == 0.005


@pytest.mark.parametrize("fails", [False, True])
def test_background_step_does_not_change_a_loaded_state(make, fails):
    """A step that still runs in the background when a state is loaded is dropped."""
    donor = make(0, scheduler="lambda", offload_optimizer=True)
    donor.batch(increment_epoch=True)
    late, go = make(1, seed=7, scheduler="lambda", offload_optimizer=True), threading.Event()

    def trigger():
        go.wait()
        if fails:
            raise RuntimeError("the gradients did not come")

    late.batch(delay_optimizer_step=True, increment_epoch=True, wait_for_trigger=trigger)
    threading.Timer(0.5, go.set).start()
    assert eventually(lambda: late.averager.load_state_from_peers(timeout=10))
    late.averager.step(wait_for_delayed_updates=True)
    assert late.averager.local_epoch == late.averager.scheduler.last_epoch == 1
    assert torch.equal(flat(late.model), flat(donor.model))


def test_trigger_that_never_comes_does_not_hang_the_program(program):
    code, out, err = program(
        """
        import threading

        import torch

        import hivemind_c as hivemind

        dht = hivemind.DHT(host_maddrs=["/ip4/127.0.0.1/tcp/0"], start=True)
        model = torch.nn.Linear(2, 2)
        averager = hivemind.TrainingStateAverager(
            dht=dht, prefix="never", start=True, params=model.parameters(),
            optimizer=lambda params: torch.optim.SGD(params, lr=0.1), offload_optimizer=True
        )
        model(torch.ones(1, 2)).sum().backward()
        averager.step(optimizer_step=True, delay_optimizer_step=True, wait_for_trigger=threading.Event().wait)
        raise RuntimeError("something else")
        """
    ).finish(timeout=60)
    assert code == 1 and "something else" in err


def test_averaged_variances_are_never_negative(make):
    """A batch norm's and Adam's: the average is below what this peer had, and what it has by then even more so."""
    norm = torch.nn.BatchNorm1d(4)
    one = make(
        delta_rule_averaging=True,
        average_opt_statistics=("exp_avg_sq",),
        extra_tensors=[norm.running_mean, norm.running_var],
    )
    one.batch()
    norm.running_mean.fill_(-3.0), norm.running_var.fill_(100.0)
    second = [state["exp_avg_sq"] for state in one.averager.optimizer.state.values()]
    was = [tensor.clone() for tensor in second]
    assert one.averager.load_state_into_averager_()
    *parameters, mean, variance = one.averager.tensors_to_average
    for averaged in (*parameters[4:], variance):
        averaged.mul_(0.5)
    mean.fill_(-5.0)
    for tensor in (*second, norm.running_var, norm.running_mean):
        tensor.mul_(0.1)
    one.averager.apply_averaged_state_()
    assert torch.equal(norm.running_var, torch.full((4,), 10.0))
    torch.testing.assert_close(norm.running_mean, torch.full((4,), -2.3))
    for tensor, before in zip(second, was):
        torch.testing.assert_close(tensor, 0.1 * before)


def test_gradients_of_the_programs_own(make):
    one = make(optimizer="sgd", offload_optimizer=True, custom_gradients=True)
    before = flat(one.model)
    for parameter in one.averager.parameters.main:
        parameter.grad = torch.ones_like(parameter)
    backward(one.model, 0, 32)  # which do not count
    one.averager.step(optimizer_step=True, zero_grad=True)
    torch.testing.assert_close(flat(one.model), before - 0.1 * (1 + 0.01 * before))
    assert all(p.grad is None for p in (*one.model.parameters(), *one.averager.parameters.main))


def test_epochs_are_brought_together(make):
    peers = [make(i, scheduler="lambda", sync_epoch_when_averaging=True) for i in range(2)]
    for _ in range(3):
        peers[0].batch(increment_epoch=True)
    peers[1].batch()
    told = both(*(peer.average for peer in peers))
    assert [peer.averager.local_epoch for peer in peers] == [3, 3]
    assert sorted(told[0].values()) == [0, 3]
    assert len({peer.averager.optimizer.param_groups[0]["lr"] for peer in peers}) == 1


@pytest.mark.parametrize(
    "told, then",
    [
        ([2, 9, 2, 1], 2),
        ([2, 2, 1 << 40], 2),
        ([2, "9", None, -1, True], 2),
        ([2, 7], 7),
        ([], 2),
        ([9, 9, 2, 2], 9),
        ([1, 1], 2),
        ([2, 9, 2], 2),
        ([1, 1, 1, 1, 9, 9], 2),
        ([2, None, None, 9], 2),
        ([9, 9, 1], 9),
    ],
)
def test_an_epoch_that_one_of_four_claims_is_nobodys(make, told, then):
    one = make(scheduler="lambda")
    for _ in range(2):
        one.batch(increment_epoch=True)
    one.averager._reach(told)
    assert one.averager.local_epoch == one.averager.scheduler.last_epoch == then


def test_an_averaging_that_was_arranged_before(make):
    peers = [make(i, seed=i) for i in range(2)]
    controls = [
        peer.averager.schedule_step(hivemind.get_dht_time() + 30, timeout=60.0, gather=i)
        for i, peer in enumerate(peers)
    ]
    told = both(
        *(
            lambda peer=peer, control=control: peer.average(averaging_control=control, averaging_opts=None)
            for peer, control in zip(peers, controls)
        )
    )
    assert sorted(told[0].values()) == [0, 1]
    assert torch.equal(flat(peers[0].model), flat(peers[1].model))


def test_a_control_is_good_for_one_averaging_of_its_averager(make):
    one, other = (make(min_group_size=1, prefix=f"control {i}") for i in range(2))
    used = one.averager.schedule_step(hivemind.get_dht_time() + 0.2, timeout=60.0)
    assert one.average(averaging_control=used, averaging_opts=None)
    foreign = other.averager.schedule_step(timeout=60.0)
    before = flat(one.model)
    for control, words in (
        (used, "was already used.*make a new one with schedule_step\\(\\)"),
        (foreign, "belongs to another averager"),
    ):
        backward(one.model, 0, 32)
        with pytest.raises(ValueError, match=words):
            one.averager.step(
                optimizer_step=True, increment_epoch=True, averaging_round=True, averaging_control=control
            )
        assert one.averager.load_state_into_averager_()
        with pytest.raises(ValueError, match=words):
            one.averager.average_loaded(control)
    assert torch.equal(flat(one.model), before) and one.averager.local_epoch == 0
    assert not foreign.done() and not foreign.triggered


def test_an_averaging_without_others_leaves_a_peer_its_own(make, caplog):
    one = make()
    one.batch()
    before = flat(one.model)
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        assert one.average(averaging_opts=dict(timeout=0.5)) is None
    assert any("averaging the state failed" in line for line in caplog.messages)
    assert torch.equal(flat(one.model), before)


@pytest.mark.parametrize("late", [False, True])
def test_statistics_before_the_first_step_are_not_averaged(make, caplog, late):
    one = make(average_opt_statistics=("exp_avg",))
    with caplog.at_level(logging.WARNING, "hivemind_c.optim"):
        assert one.average(delay_averaging=late) is None
    assert any("has not stepped yet" in line for line in caplog.messages)
    assert not one.averager.background.waiting


def test_an_auxiliary_peer_helps_to_average(make):
    peers = [make(i, seed=i, auxiliary=i == 2) for i in range(3)]
    before = [flat(peer.model) for peer in peers]
    told = both(*(lambda peer=peer: peer.average(averaging_opts=dict(ROUND, expected=3)) for peer in peers))
    assert [len(members) for members in told] == [3, 3, 3]
    torch.testing.assert_close(flat(peers[0].model), (before[0] + before[1]) / 2)
    assert torch.equal(flat(peers[2].model), before[2])
    with pytest.raises(ValueError, match="trains nothing"):
        peers[2].averager.step(optimizer_step=True)


def test_joiner_gets_the_last_averaged_state(make):
    peers = [make(i, seed=i) for i in range(2)]
    for peer in peers:
        peer.batch(increment_epoch=True)
    both(*(peer.average for peer in peers))
    state = flat(peers[0].model)
    for peer in peers:
        peer.batch()  # of its own, which joiners need not have
    late = make(2, seed=7)
    # who comes while the first one is being replaced by the average may still get that one
    assert eventually(
        lambda: late.averager.load_state_from_peers(timeout=10) and torch.equal(flat(late.model), state)
    )
    assert late.averager.local_epoch == 1


def test_joiner_of_a_lone_peer_takes_its_state(make):
    first = make(0, scheduler="lambda")
    first.batch(increment_epoch=True)
    late = make(1, seed=7, scheduler="lambda")
    assert eventually(lambda: late.averager.load_state_from_peers(timeout=10))
    assert late.averager.local_epoch == late.averager.scheduler.last_epoch == 1
    assert torch.equal(flat(late.model), flat(first.model))


@pytest.mark.parametrize("scaler", [hivemind.GradScaler, torch.amp.GradScaler])
def test_overflow_with_a_scaler_is_no_step(make, scaler):
    one, scaler = make(optimizer="sgd"), scaler("cpu", init_scale=8.0)
    before = flat(one.model)
    for factor in (float("inf"), 1.0):
        assert torch.equal(flat(one.model), before)
        inputs = torch.ones(4, 12)
        scaler.scale(one.model(inputs).sum() * factor).backward()
        one.averager.step(optimizer_step=True, zero_grad=True, grad_scaler=scaler)
        scaler.update()
    plain = network()
    plain(torch.ones(4, 12)).sum().backward()
    OPTIMIZERS["sgd"](plain.parameters()).step()
    torch.testing.assert_close(flat(one.model), flat(plain))


@pytest.mark.parametrize(
    "options, says",
    [
        (dict(delay_optimizer_step=True), "optimizer_step=True"),
        (
            dict(delay_optimizer_step=True, optimizer_step=True, averaging_round=True, delay_averaging=False),
            "delayed, too",
        ),
        (
            dict(delay_optimizer_step=True, optimizer_step=True, grad_scaler=torch.amp.GradScaler("cpu")),
            "unscale gradients yourself",
        ),
        (dict(wait_for_trigger=print), "optimizer_step=True"),
        (dict(averaging_opts=dict(timeout=1.0)), "averaging_round=True"),
        (dict(averaging_round=True, averaging_opts=dict(gather="mine")), "remove gather"),
    ],
)
def test_contradictory_options_are_refused_and_change_nothing(make, options, says):
    one = make(offload_optimizer=True, sync_epoch_when_averaging=True)
    backward(one.model, 0, 32)
    before = flat(one.model)
    with pytest.raises(ValueError, match=says):
        one.averager.step(increment_epoch=True, **options)
    assert torch.equal(flat(one.model), before)
    assert one.averager.local_epoch == 0


@pytest.mark.parametrize("late", [False, True])
def test_parameters_averaged_in_place_are_waited_for(make, late):
    """With reuse_tensors the averaged tensors are the parameters themselves, so averaging late is refused."""
    peers = [make(i, seed=i, reuse_tensors=True) for i in range(1 if late else 2)]
    if late:
        with pytest.raises(ValueError, match="reuse_tensors"):
            peers[0].average(delay_averaging=True)
        return
    both(*(peer.average for peer in peers))
    assert torch.equal(flat(peers[0].model), flat(peers[1].model))


def test_an_update_that_is_not_taken_over_is_not_overtaken(make):
    one, go = make(offload_optimizer=True), threading.Event()
    one.batch(delay_optimizer_step=True, wait_for_trigger=go.wait)
    assert one.averager.averaging_in_progress
    backward(one.model, 1, 32)
    for options in (
        dict(optimizer_step=True),
        dict(averaging_round=True),
        dict(zero_grad=True),
        dict(increment_epoch=True),
    ):
        with pytest.raises(ValueError, match="must wait for the result of an earlier call"):
            one.averager.step(wait_for_delayed_updates=False, **options)
    go.set()
    one.averager.step(wait_for_delayed_updates=True)
    assert not one.averager.averaging_in_progress
    assert not torch.equal(flat(one.model), flat(network()))


@pytest.mark.parametrize("compression", [hivemind.NoCompression(), hivemind.Float16Compression()])
def test_average_with_a_rounded_replica_moves_the_mark(make, compression):
    """A joiner that came through a lossy codec has its donor's mark and not its bits, until both are averaged."""
    options = dict(optimizer="sgd", prefix=f"rounded {type(compression).__name__}", state_compression=compression)
    donor, joiner = make(0, **options), make(1, seed=5, **options)
    for one in (donor, joiner):
        one.batch()  # what is averaged is there
    donor.averager.share_state(1)
    assert joiner.averager.load_state_from_peers(timeout=60)
    is_lossy = not isinstance(compression, hivemind.NoCompression)
    assert torch.equal(flat(donor.model), flat(joiner.model)) != is_lossy
    alike = []
    for one in (donor, joiner):
        one.averager.follow = lambda control, one=one: alike.append(one.averager.were_alike())
    for _ in range(2):
        assert all(both(donor.average, joiner.average))
        assert torch.equal(flat(donor.model), flat(joiner.model))
    assert alike == [not is_lossy] * 2 + [True] * 2
