"""Two or three ranks train what one device trains with the same samples, to the bit where sums are exact."""

import pytest

STRATEGIES = {
    "plain": {},
    "offload": dict(offload_optimizer=True),
    "delayed step": dict(delay_optimizer_step=True),
    "delayed gradients": dict(delay_grad_averaging=True),
    "delayed state": dict(delay_state_averaging=True),
    "reused buffers": dict(reuse_grad_buffers=True),
    "local updates": dict(use_local_updates=True),
    "local steps": dict(local_steps=True),
    "local updates, delayed": dict(use_local_updates=True, delay_optimizer_step=True),
    "PowerSGD": dict(grad_averager_factory="PowerSGD"),
    "clipped": dict(max_grad_norm=0.01),
}
_alone = {}


def alone(peer, **options):
    """The result of one device, asked once."""
    key = repr(sorted(options.items()))
    if key not in _alone:
        _alone[key] = peer(1, **{"batch": 16, **options}).results()[0]
    return _alone[key]


def assert_equal(one, several):
    assert {rank["parameters"] for rank in several} == {one["parameters"]}, (one, several)
    assert {rank["epoch"] for rank in several} == {one["epoch"]} != {0}
    assert all(rank["progress"] and rank["peers"] == 1 for rank in several)


@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_train_as_one_device(peer, name):
    options = dict(strategy=STRATEGIES[name], optimizer="sgd" if name == "clipped" else "adam")
    if name == "PowerSGD":
        options["optimizer"] = "sgd"
    two = peer(2, **options).results()
    assert_equal(alone(peer, **options), two)
    assert two[1]["states"] == 0, "the state of the optimizer is on rank 0 alone"


@pytest.mark.parametrize("namespace", ["lightning.pytorch", "pytorch_lightning"])
def test_strategy_is_the_ddp_strategy_of_its_lightning(peer, namespace):
    for devices, base in ((1, "SingleDeviceStrategy"), (2, "DDPStrategy")):
        running = peer(devices, namespace=namespace)
        bases = running.ranks[0].wait_for("training")["base"]
        assert base in bases and len({"SingleDeviceStrategy", "DDPStrategy"} & set(bases)) == 1
        assert len({rank["parameters"] for rank in running.results()}) == 1


def test_second_trainer_takes_the_strategy_of_ranks_over(peer):
    again = peer(2, trainer_before=dict(max_epochs=1))
    assert_equal(alone(peer), again.results())
    assert again.ranks[1].said("before")["devices"] == 2


def test_three_ranks_with_random_data_end_with_equal_parameters(peer):
    three = peer(3, noise=True, random=True).results()
    assert len({rank["parameters"] for rank in three}) == 1 and three[0]["epoch"] == 3


def test_buffers_of_all_ranks_are_those_of_rank_0(peer):
    two = peer(2, norm=True).results()
    assert len({(rank["parameters"], rank["buffers"]) for rank in two}) == 1


def test_overflow_costs_the_batch_of_one_rank(peer):
    whole, less = (peer(2, precision=overflow).results() for overflow in ([9, 9], [1, 2]))
    assert_equal(alone(peer), whole)
    assert [rank["epoch"] for rank in less] == [2, 2], "3 * 64 samples but for 8 are 2 epochs"
    assert less[0]["parameters"] == less[1]["parameters"]


def assert_counted(several, produced, lost=0, epochs=2):
    """Each sample of any rank is in the ledger once, and those of the epochs are those that the ranks summed."""
    ledger = several[0]["ledger"]
    counts = [record["samples"] for record in several[0]["records"]]
    assert ledger["holds"] and (ledger["produced"], ledger["lost"]) == (produced, lost), ledger
    assert ledger["lost_by"]["OVERFLOW"] == lost, ledger
    assert len(counts) == epochs and sum(counts) + ledger["sums"] == produced - lost, several[0]
    assert several[0]["epoch"] == epochs and len({rank["parameters"] for rank in several}) == 1


OVERFLOWS = {"of rank 0": ([0, 2], {}, 8), "of rank 1": ([1, 2], {}, 8)}
OVERFLOWS["of rank 0, with local steps"] = [0, 2], dict(local_steps=True), 8
OVERFLOWS["of rank 1, with local steps"] = [1, 2], dict(local_steps=True), 8
REUSED = dict(reuse_grad_buffers=True)  # the batch before lay in .grad, too
OVERFLOWS.update({f"{name}, in .grad": (at, REUSED, 16) for name, (at, _, _) in OVERFLOWS.items()})


@pytest.mark.parametrize("name", OVERFLOWS)
def test_overflow_loses_the_samples_of_its_rank_alone(peer, name):
    overflow, strategy, lost = OVERFLOWS[name]
    assert_counted(peer(2, precision=overflow, strategy=strategy).results(), 3 * 64, lost)


@pytest.mark.parametrize(
    "strategy", [{}, dict(reuse_grad_buffers=True), dict(use_local_updates=True), dict(local_steps=True)], ids=str
)
def test_batches_without_a_loss_do_not_count(peer, strategy):
    both, first = [[0, 2], [1, 2], [1, 3]], [[0, 1], [1, 1]]
    assert_counted(peer(2, skip=both, strategy=strategy).results(), 3 * 64 - 24)
    assert_counted(peer(2, skip=first, strategy=strategy).results(), 3 * 64 - 16)


def test_samples_of_three_ranks_are_those_of_the_epoch(peer):
    three = peer(3, batch=4, target=48, samples=96, passes=2).results()
    assert_counted(three, 2 * 96, epochs=4)
    assert {record["samples"] for record in three[0]["records"]} == {48}


def test_short_batch_is_weighted_by_its_samples(peer):
    # each rank has batches of 16, 16 and 8 samples
    many = dict(samples=80, target=80)
    assert_equal(alone(peer, **many), peer(2, batch=16, **many).results())


WIDE = 1 << 20  # values that do not train, 4 bytes each


@pytest.mark.parametrize("optimizer", ["sgd", "chosen"])
@pytest.mark.parametrize("strategy", [{}, dict(use_local_updates=True)], ids=["gradients", "local"])
def test_frozen_parameters_are_broadcast_once(peer, optimizer, strategy):
    two = peer(2, passes=4, optimizer=optimizer, strategy=strategy, frozen=[WIDE, 3]).results()
    assert 4 * WIDE <= two[1]["moved"] < 4 * WIDE + 20_000, two[1]["moved"]
    assert_equal(alone(peer, passes=4, optimizer=optimizer, strategy=strategy, frozen=[WIDE, 3]), two)


@pytest.mark.parametrize("optimizer", ["sgd", "chosen"])
def test_frozen_parameters_are_broadcast_after_a_change(peer, optimizer):
    two = peer(2, passes=4, optimizer=optimizer, frozen=[WIDE, 3], thaw=6).results()
    assert two[0]["base"] == two[1]["base"] == [4.0, 4.0] and two[0]["parameters"] == two[1]["parameters"]
    assert 8 * WIDE <= two[1]["moved"] < 8 * WIDE + 20_000, two[1]["moved"]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "16-true", "64-true"])
def test_two_ranks_train_as_one_device_in_each_precision(peer, precision):
    options = dict(trainer=dict(precision=precision))
    assert_equal(alone(peer, **options), peer(2, **options).results())


def test_collectives_of_the_model_meet_at_the_same_batch(peer):
    options = dict(norm="together", passes=4)
    assert_equal(alone(peer, **options), peer(2, **options).results())


def test_batch_norm_of_all_ranks_is_that_of_one_device(peer):
    two = peer(2, norm="sync", trainer=dict(sync_batchnorm=True)).results()
    assert len({(rank["parameters"], rank["buffers"]) for rank in two}) == 1
    one = alone(peer, norm="sync")
    for name in "norm", "weight":
        assert two[0][name] == pytest.approx(one[name], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("workers", [0, 1])
def test_two_ranks_train_as_one_device_on_data_without_a_length(peer, workers):
    options = dict(loader="endless", workers=workers)
    assert_equal(alone(peer, **options), peer(2, **options).results())


def test_rate_follows_a_plateau_of_the_validation(peer):
    options = dict(optimizer="plateau", slow_validation=0.0)
    two = peer(2, **options).results()
    assert two[0]["rates"] == two[1]["rates"] and two[0]["rates"][-1] < 0.5
    assert_equal(alone(peer, **options), two)


def test_progress_is_alike_on_all_ranks_after_each_batch(peer):
    two = peer(2, passes=4, step_s=0.02).results()
    assert two[0]["progress"] == two[1]["progress"] and len(two[0]["progress"]) == 16


def test_rates_of_all_ranks_follow_the_scheduler(peer):
    two = peer(2, optimizer="scheduled").results()
    assert two[0]["rates"] == two[1]["rates"] and two[1]["rates"][-1] == 0.5 * 0.5**3
    assert_equal(alone(peer, optimizer="scheduled"), two)
