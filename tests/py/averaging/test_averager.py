"""DecentralizedAverager between nodes of one process."""

import logging
import pathlib
import re
import threading
import time

import numpy
import pytest
import torch

import hivemind_c
from hivemind_c import DHT, DecentralizedAverager, HivemindError, HivemindValueError, get_dht_time
from hivemind_c.averaging import on_demand
from hivemind_c.averaging.state import StateSharing
from hivemind_c.averaging.tensors import CHUNK_VALUES_MAX, check_apart
from support import PATIENCE, at_best, eventually

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def swarm():
    """swarm(n) makes n DHTs that know each other; averagers made by swarm.averager are shut down with them."""

    class Swarm:
        def __init__(self):
            self.dhts, self.averagers = [], []

        def __call__(self, n, **options):
            for _ in range(n):
                known = self.dhts[0].get_visible_maddrs() if self.dhts else None
                self.dhts.append(DHT(known, start=True, wait_timeout=30, startup_timeout=90, **options))
            serving = sum(not dht.client_mode for dht in self.dhts)
            for dht in self.dhts:
                assert eventually(lambda: dht.state()["peers"] >= serving - (not dht.client_mode))
            return self.dhts

        def averager(self, dht, tensors, prefix="test", **options):
            options.setdefault("min_matchmaking_time", 20)
            self.averagers.append(DecentralizedAverager(tensors, dht, prefix=prefix, start=True, **options))
            return self.averagers[-1]

        def together(self, averagers, options=None, **common):
            """One step of all; what each gathered."""
            controls = [a.step(wait=False, timeout=60, expected=len(averagers), **{**common, **(options[i] if options else {})}) for i, a in enumerate(averagers)]
            return [control.result(70) for control in controls]

    made = Swarm()
    yield made
    for averager in made.averagers:
        averager.shutdown()
    for dht in made.dhts:
        dht.shutdown()


def test_two_peers_hold_the_mean_and_both_gathers(swarm):
    first, second = swarm(2)
    mine, theirs = torch.full((1000, 37), 1.0), torch.full((1000, 37), 4.0)
    a, b = swarm.averager(first, [mine]), swarm.averager(second, [theirs])
    gathered = swarm.together([a, b], [dict(gather={"loss": 0.5}), dict(gather=("two", 2))])
    assert gathered[0] == gathered[1] == {a.peer_id: {"loss": 0.5}, b.peer_id: ("two", 2)}
    assert torch.equal(mine, torch.full_like(mine, 2.5)) and torch.equal(mine, theirs)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_weighted_means_of_mixed_dtypes(swarm, n):
    dhts = swarm(n)
    torch.manual_seed(n)
    shapes = [(300, 100), (1,), (), (7, 5, 3), (0, 4), (5000,)]
    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float32, torch.float16]
    tensors = [[torch.randn(shape, dtype=torch.float64).to(dtype) for shape, dtype in zip(shapes, dtypes)] for _ in dhts]
    weights = [1.0 + i for i in range(n)]
    expected = [sum(w * one[k].double() for w, one in zip(weights, tensors)) / sum(weights) for k in range(len(shapes))]
    averagers = [swarm.averager(dht, own, part_size_bytes=4096) for dht, own in zip(dhts, tensors)]
    swarm.together(averagers, [dict(weight=w) for w in weights])
    for k, dtype in enumerate(dtypes):
        close = {torch.float32: 1e-5, torch.float64: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}[dtype]
        assert torch.allclose(tensors[0][k].double(), expected[k], atol=close, rtol=close), k
        assert all(torch.equal(own[k], tensors[0][k]) for own in tensors), k


@pytest.mark.parametrize("name", ["Float16Compression", "ScaledFloat16Compression", "BFloat16Compression", "Uniform8BitQuantization", "Quantile8BitQuantization", "BlockwiseQuantization"])
def test_replicas_are_equal_to_the_bit_under_every_codec(swarm, name):
    dhts = swarm(3)
    tensors = [torch.randn(70_001) for _ in dhts]
    mean = sum(tensors) / 3
    averagers = [swarm.averager(dht, [own], compression=getattr(hivemind_c, name)()) for dht, own in zip(dhts, tensors)]
    swarm.together(averagers)
    assert all(torch.equal(own, tensors[0]) for own in tensors)
    assert (tensors[0] - mean).abs().mean() < 0.05


def test_numpy_arrays_are_averaged_where_they_lie(swarm):
    dhts = swarm(2)
    arrays = [numpy.full((10, 10), float(i), dtype=numpy.float32) for i in range(2)]
    averagers = [swarm.averager(dht, [own]) for dht, own in zip(dhts, arrays)]
    swarm.together(averagers)
    assert (arrays[0] == 0.5).all() and (arrays[1] == 0.5).all()


def test_alpha_goes_part_of_the_way(swarm):
    dhts = swarm(2)
    tensors = [torch.full((5000,), 0.0), torch.full((5000,), 8.0, dtype=torch.float32)]
    averagers = [swarm.averager(dht, [own], averaging_alpha=0.25) for dht, own in zip(dhts, tensors)]
    swarm.together(averagers)
    assert (tensors[0] == 1).all() and (tensors[1] == 7).all()


def test_adaptive_compressions_choose_for_each_tensor(swarm):
    dhts = swarm(2)
    compression = hivemind_c.SizeAdaptiveCompression(1000, less=hivemind_c.NoCompression(), greater_equal=hivemind_c.Uniform8BitQuantization())
    tensors = [[torch.randn(999), torch.randn(50_000)] for _ in dhts]
    small, large = (tensors[0][0] + tensors[1][0]) / 2, (tensors[0][1] + tensors[1][1]) / 2
    swarm.together([swarm.averager(dht, own, compression=compression) for dht, own in zip(dhts, tensors)])
    assert torch.allclose(tensors[0][0], small, atol=1e-6)
    assert not torch.equal(tensors[0][1], large) and torch.allclose(tensors[0][1], large, atol=0.1)


def test_a_codec_of_the_users_own_is_refused_by_name(swarm):
    class Mine(hivemind_c.CompressionBase):
        compression_type = 200

    with pytest.raises(HivemindValueError, match="Mine cannot be used for averaging.*Float16Compression"):
        swarm.averager(swarm(1)[0], [torch.zeros(1)], compression=Mine())


def test_a_step_waits_for_its_trigger(swarm):
    dhts = swarm(2)
    tensors = [torch.zeros(100), torch.zeros(100)]
    a, b = [swarm.averager(dht, [own]) for dht, own in zip(dhts, tensors)]
    controls = [one.step(wait=False, require_trigger=True, timeout=60, expected=2) for one in (a, b)]
    time.sleep(0.5)
    assert not any(control.done() for control in controls) and not controls[0].triggered
    tensors[0].fill_(3)  # until the trigger the tensors are the program's
    controls[0].weight = 2
    for control in controls:
        control.allow_allreduce()
    assert controls[0].result(60).keys() == {a.peer_id, b.peer_id}
    controls[1].result(60)
    assert (tensors[0] == 2).all() and (tensors[1] == 2).all()


def test_a_step_can_be_cancelled(swarm):
    dhts = swarm(2)
    own = torch.ones(10)
    averager = swarm.averager(dhts[0], [own])
    control = averager.step(wait=False)
    assert not control.done() and control.cancel()
    assert control.done() and control.cancelled()
    with pytest.raises(hivemind_c.HivemindCancelledError):
        control.result()
    assert not control.cancel() and (own == 1).all()
    assert averager.step(timeout=0.3) is None  # the next step is none the worse


# A request alone would let a program see a step that it has cancelled as running, a few times in a thousand.
def test_cancelled_step_is_done_at_once(swarm):
    averager = swarm.averager(swarm(1)[0], [torch.ones(10)])
    for _ in range(300):
        control = averager.step(wait=False, require_trigger=True, timeout=60)
        assert control.cancel() and control.done() and not control.cancel()


def test_lone_step_fails_in_its_time_and_changes_nothing(swarm, caplog):
    own = torch.randn(1000)
    before = own.clone()
    averager = swarm.averager(swarm(1)[0], [own])

    def attempt():
        start = time.monotonic()
        assert averager.step(timeout=1) is None
        return time.monotonic() - start

    at_best(2, attempt)
    assert torch.equal(own, before) and "averaging failed" in caplog.text


def test_lone_step_succeeds_if_a_group_of_one_is_allowed(swarm):
    own = torch.randn(1000)
    before = own.clone()
    averager = swarm.averager(swarm(1)[0], [own], min_group_size=1, min_matchmaking_time=0.5, compression=hivemind_c.Uniform8BitQuantization())
    assert averager.step(gather=7, timeout=10) == {averager.peer_id: 7}
    assert torch.equal(own, before)


def test_clients_and_auxiliaries_take_part(swarm):
    swarm(2)
    dhts = swarm(1, client_mode=True)
    tensors = [torch.full((20_000,), float(i)) for i in range(3)]
    averagers = [swarm.averager(dhts[0], [tensors[0]], auxiliary=True), swarm.averager(dhts[1], [tensors[1]]), swarm.averager(dhts[2], [tensors[2]])]
    assert averagers[2].client_mode and averagers[0].auxiliary
    gathered = swarm.together(averagers)
    assert all(len(one) == 3 for one in gathered)
    assert (tensors[0] == 0).all()  # it helps, and neither gives nor gets
    assert (tensors[1] == 1.5).all() and (tensors[2] == 1.5).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
def test_poison_of_a_peer_is_excluded_logged_and_counted(swarm, caplog, bad):
    dhts = swarm(3)
    tensors = [torch.full((50_000,), 1.0), torch.full((50_000,), 3.0), torch.full((50_000,), bad)]
    averagers = [swarm.averager(dht, [own], part_size_bytes=1 << 14) for dht, own in zip(dhts, tensors)]
    caplog.set_level(logging.WARNING)
    controls = [a.step(wait=False, timeout=60, expected=3) for a in averagers]
    assert controls[0].exception(70) is None and controls[1].exception(70) is None
    assert (tensors[0] == 2).all() and torch.equal(tensors[0], tensors[1])
    counted = {member[0]: member[5] for member in controls[0].details()[0]}
    assert [counted[a.peer_id] for a in averagers] == [1, 1, 0]
    controls[2].exception(70)
    assert eventually(lambda: "skipping this member's" in caplog.text), caplog.text


def test_other_tensors_are_refused_with_the_first_difference(swarm, caplog):
    dhts = swarm(2)
    caplog.set_level(logging.INFO)
    a = swarm.averager(dhts[0], [torch.zeros(10), torch.zeros(20, 3)])
    b = swarm.averager(dhts[1], [torch.zeros(10), torch.zeros(3, 20)])
    controls = [one.step(wait=False, timeout=PATIENCE, expected=2) for one in (a, b)]

    def named():
        errors = [str(control.exception()) for control in controls if control.done()]
        return any("tensor 1: float32 (20, 3)" in text or "tensor 1: float32 (3, 20)" in text for text in [*errors, caplog.text])

    assert eventually(named), caplog.text
    for control in controls:
        control.cancel()


def test_members_agree_on_an_epoch_if_they_name_one(swarm):
    dhts = swarm(2)
    tensors = [torch.zeros(10), torch.ones(10)]
    a, b = [swarm.averager(dht, [own]) for dht, own in zip(dhts, tensors)]
    for epoch in (5, "six"):
        assert all(len(one) == 2 for one in swarm.together([a, b], epoch=epoch))
    late, other = a.step(wait=False, timeout=3, epoch=7, expected=2), b.step(wait=False, timeout=3, epoch=8, expected=2)
    assert late.exception(PATIENCE) is not None and other.exception(PATIENCE) is not None


def test_peer_in_an_earlier_epoch_learns_so_at_once(swarm):
    dhts = swarm(2)
    tensors = [torch.zeros(10), torch.ones(10)]
    a, b = [swarm.averager(dht, [own]) for dht, own in zip(dhts, tensors)]
    assert all(len(one) == 2 for one in swarm.together([a, b], epoch=5))
    a.reached(7)  # it passed an epoch alone
    late = b.step(wait=False, timeout=60, epoch=6, allow_retries=True)
    error = late.exception(70)
    assert isinstance(error, HivemindError) and error.status == "EXISTS" and "in swarm epoch 7 already" in str(error)
    assert all(len(one) == 2 for one in swarm.together([a, b], epoch=7))
    for wrong in (-1, "7", 2**63, True):
        with pytest.raises(ValueError, match="an epoch must be a whole number"):
            a.reached(wrong)


@pytest.mark.parametrize("least, most_by_least", [(0, 1), (1024, 1), (9000, 1.5), (10**9, 1.5)])
def test_peer_with_too_little_to_reduce_reduces_nothing(swarm, least, most_by_least):
    tensors = [torch.full((8192,), value) for value in (1.0, 2.0, 3.0)]
    options = dict(part_size_bytes=1024, min_vector_size=least)
    averagers = [swarm.averager(dht, [own], **options) for dht, own in zip(swarm(3), tensors)]
    controls = [averager.step(wait=False, timeout=60, expected=3) for averager in averagers]
    moved = [control.details(70)[3] for control in controls]
    assert all(torch.equal(own, torch.full((8192,), 2.0)) for own in tensors)
    assert abs(max(moved) / min(moved) - most_by_least) < 0.1  # two own it: no member may own more than three quarters
    parts = sorted(control.details(0)[-2] for control in controls)
    assert abs(sum(parts) - 1) < 1e-9 and (parts == [0, 0.5, 0.5] if most_by_least == 1.5 else parts[0] > 0.3)


def test_held_tensors_receive_no_average(swarm):
    dhts = swarm(2)
    tensors = [torch.zeros(1000), torch.ones(1000)]
    a, b = [swarm.averager(dht, [own]) for dht, own in zip(dhts, tensors)]
    with a.get_tensors() as held:
        assert held[0] is tensors[0]
        controls = [one.step(wait=False, timeout=60, expected=2) for one in (a, b)]
        time.sleep(0.7)
        assert not controls[0].done() and (tensors[0] == 0).all()
        tensors[0].fill_(3)
    controls[0].result(60), controls[1].result(60)
    assert (tensors[0] == 2).all() and torch.equal(*tensors)


def test_the_lock_on_the_tensors_is_for_one_thread_at_a_time(swarm):
    averager = swarm.averager(swarm(1)[0], [torch.zeros(10)])
    inside, most, lock = [], [], threading.Lock()

    def work():
        for _ in range(20):
            with averager.get_tensors():
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(most) == 80 and max(most) == 1
    with averager.get_tensors(), pytest.raises(HivemindValueError, match="wait for itself"):
        with averager.get_tensors():
            pass
    with averager.get_tensors(), pytest.raises(HivemindValueError, match="wait for itself"):
        averager.step(timeout=1)


def test_lent_tensors_cannot_be_moved_away(swarm):
    own = torch.zeros(100)
    averager = swarm.averager(swarm(1)[0], [own])
    with pytest.raises(RuntimeError):
        own.resize_(100_000)  # torch refuses: their memory is in use
    own.resize_(50)
    with pytest.raises(HivemindValueError, match="averaged_tensors\\[0\\] has been resized"):
        averager.step(timeout=1)
    other = torch.zeros(100)
    second = swarm.averager(swarm.dhts[0], [other], prefix="second")
    other.data = torch.ones(100)
    with pytest.raises(HivemindValueError, match="memory exchanged"):
        second.step(timeout=1)


def test_memory_exchanged_before_the_round_is_noticed(swarm):
    own = torch.zeros(100)
    averager = swarm.averager(swarm(1)[0], [own])
    control = averager.step(wait=False, require_trigger=True, timeout=60)
    own.data = torch.ones(100)
    with pytest.raises(HivemindValueError, match="memory exchanged"):
        control.allow_allreduce()
    assert isinstance(control.exception(PATIENCE), hivemind_c.HivemindCancelledError)  # nobody waits for it
    assert (own == 1).all()


def test_memory_exchanged_during_the_round_is_an_error(swarm):
    tensors = [torch.zeros(100), torch.ones(100)]
    averagers = [swarm.averager(dht, [own]) for dht, own in zip(swarm(2), tensors)]
    controls = [averager.step(wait=False, timeout=60, expected=2, epoch=0) for averager in averagers[:1]]
    tensors[0].data = torch.full((100,), 7.0)
    controls.append(averagers[1].step(wait=False, timeout=60, expected=2, epoch=0))
    for ask in (controls[0].result, controls[0].details, lambda patience: controls[0].stamp):
        with pytest.raises(HivemindValueError, match="averaged_tensors\\[0\\] .* memory exchanged"):
            ask(PATIENCE)
    assert "memory exchanged" in str(controls[0].exception()) and controls[0].done() and not controls[0].cancelled()
    assert controls[1].result(PATIENCE).keys() == {one.peer_id for one in averagers}  # the other has its average
    assert (tensors[0] == 7).all() and (tensors[1] == 0.5).all()


def test_a_step_that_failed_anyway_says_why_it_did(swarm):
    own = torch.zeros(100)
    control = swarm.averager(swarm(1)[0], [own]).step(wait=False)
    own.data = torch.ones(100)
    control.cancel()
    assert isinstance(control.exception(PATIENCE), hivemind_c.HivemindCancelledError)


@pytest.mark.parametrize(
    "tensors, options, error",
    [
        ([], {}, "there are no tensors"),
        ([torch.zeros(4, 4).t()[:2]], {}, "averaged_tensors\\[0\\]"),
        ([torch.zeros(3, dtype=torch.int64)], {}, "only dense floating"),
        ([torch.zeros(3)], {"averaging_alpha": float("nan")}, "averaging_alpha"),
        ([torch.zeros(3)], {"bandwidth": -1.0}, "bandwidth"),
        ([torch.zeros(3)], {"min_vector_size": -1}, "min_vector_size"),
        ([torch.zeros(3)], {"min_vector_size": 1.5}, "min_vector_size"),
        ([torch.zeros(3)], {"request_timeout": 0}, "request_timeout"),
        ([torch.zeros(3)], {"declare_state_period": -1}, "declare_state_period must be more than 0"),
        ([torch.zeros(3)], {"prefix": ""}, "prefix"),
        ([torch.zeros(3)], {"sender_timeout": 5, "reducer_timeout": 2}, "reducer_timeout of 2 s is shorter"),
        ([torch.zeros(3)], {"sender_timeout": 1, "next_chunk_timeout": 5}, "next_chunk_timeout of 5 s is longer"),
        ([torch.zeros(3)], {"sender_timeout": 9, "allreduce_timeout": 3}, "allreduce_timeout of 3 s"),
        ([torch.zeros(3)], {"reducer_timeout": 20, "allreduce_timeout": 3}, "allreduce_timeout of 3 s"),
        ([torch.zeros(3)], {"tensor_infos": []}, "tensor_infos has 0 entries"),
    ],
)
def test_invalid_tensors_are_refused_at_once(swarm, tensors, options, error):
    with pytest.raises(HivemindError, match=error):
        swarm.averager(swarm(1)[0], tensors, **options)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"sender_timeout": 5, "reducer_timeout": 30}, "ignoring reducer_timeout of 30 s: twice the sender_timeout of 5 s applies"),
        ({"next_chunk_timeout": 5, "reducer_timeout": 6}, "ignoring reducer_timeout of 6 s"),
        ({"sender_timeout": 5, "next_chunk_timeout": 2}, "ignoring next_chunk_timeout of 2 s: sender_timeout of 5 s applies"),
        ({"sender_timeout": 5, "next_chunk_timeout": 5, "reducer_timeout": 10, "allreduce_timeout": 20}, ""),
        ({"reducer_timeout": 10, "allreduce_timeout": 5}, ""),
        ({"allreduce_timeout": 3}, ""),
    ],
)
def test_a_time_that_has_no_effect_is_told_of(swarm, caplog, options, words):
    with caplog.at_level(logging.WARNING, "hivemind_c.averaging"):
        swarm.averager(swarm(1)[0], [torch.zeros(3)], **options)
    said = [record.getMessage() for record in caplog.records if record.name == "hivemind_c.averaging"]
    assert words in said[0] if words else not said


def same_memory():
    flat, numbers = torch.zeros(100), numpy.zeros(10, numpy.float32)
    return {
        "a tensor twice": [flat, torch.zeros(3), flat],
        "a view of it": [flat.view(10, 10), torch.zeros(3), flat],
        "overlapping views": [flat[40:], torch.zeros(3), flat[:60]],
        "one within another": [flat, torch.zeros(3), flat[70:80]],
        "a tensor's array": [torch.from_numpy(numbers), torch.zeros(3), numbers],
    }


@pytest.mark.parametrize("how", same_memory())
def test_memory_that_is_given_twice_is_refused(swarm, how):
    with pytest.raises(HivemindValueError, match="averaged_tensors\\[0\\] and averaged_tensors\\[2\\] lie in the same memory"):
        swarm.averager(swarm(1)[0], same_memory()[how])


def test_tensors_may_lie_side_by_side_and_be_empty(swarm):
    flats = [torch.full((100,), float(i)) for i in range(2)]
    tensors = [[flat[50:], flat[:20], flat[20:20], flat[10:10], flat[20:50]] for flat in flats]
    swarm.together([swarm.averager(dht, own) for dht, own in zip(swarm(2), tensors)])
    assert all((flat == 0.5).all() for flat in flats)


def test_memory_between_rows_is_not_counted_as_an_overlap():
    rows = torch.zeros(4, 10)
    check_apart([rows[:, :5], rows[:, 5:]])  # on a device they would be copied, each for itself
    with pytest.raises(HivemindValueError, match="same memory"):
        check_apart([rows.t(), rows])


def test_the_largest_chunk_is_the_cores():
    sources = "".join((ROOT / "csrc" / name).read_text() for name in ("core/round/run.h", "kern/codec.h")).replace("\\\n", " ")
    said = dict(re.findall(r"^#define (HV_RUN_CHUNK_MAX|HV_CODEC_HEADER)\s+(.*?)\s*(?:/\*.*)?$", sources, re.M))
    number = said["HV_RUN_CHUNK_MAX"].replace("HV_CODEC_HEADER", said["HV_CODEC_HEADER"]).replace("1u", "1").replace("/", "//")
    assert eval(number) == CHUNK_VALUES_MAX


def test_overstated_weight_is_cut_and_named_once(swarm, caplog):
    """The liar, in client mode, owns no span: the others make all averages."""
    swarm(2)
    liar = DHT(swarm.dhts[0].get_visible_maddrs(), start=True, client_mode=True, wait_timeout=30, startup_timeout=90)
    swarm.dhts.append(liar)
    tensors = [torch.full((500,), value) for value in (1.0, 3.0, 8.0)]
    limits = [dict(weight_max=2.0), dict(weight_max=2.0), {}]
    averagers = [swarm.averager(dht, [t], **limit) for dht, t, limit in zip(swarm.dhts, tensors, limits)]
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        for _ in range(2):
            swarm.together(averagers, [dict(weight=2.0), dict(weight=5.0), dict(weight=1e18)])
            assert all(torch.equal(t, tensors[0]) for t in tensors[1:]), "all hold the same bits"
            torch.testing.assert_close(tensors[0], torch.full((500,), 4.0))
            for tensor, value in zip(tensors, (1.0, 3.0, 8.0)):
                tensor.fill_(value)
        assert eventually(lambda: any("states a weight of" in line for line in caplog.messages))
        named = [line for line in caplog.messages if "states a weight of" in line]
        assert all("1e+18" in line and "counts with 2" in line for line in named)
    assert 1 <= len(named) <= 2, "each of the two owners names it once, however many rounds there are"
    for weight in (0, -1.0, float("nan"), float("inf"), True, "1"):
        with pytest.raises(ValueError, match="weight_max"):
            DecentralizedAverager([torch.zeros(3)], swarm.dhts[0], prefix="w", start=False, weight_max=weight)


def test_million_fold_values_are_refused_by_all_owners(swarm, caplog):
    """The liar, in client mode, owns no span: the others make all averages."""
    swarm(3)
    liar = DHT(swarm.dhts[0].get_visible_maddrs(), start=True, client_mode=True, wait_timeout=30, startup_timeout=90)
    swarm.dhts.append(liar)
    tensors = [torch.empty(500) for _ in range(4)]
    limits = [dict(norm_ratio_max=10)] * 3 + [{}]
    averagers = [swarm.averager(dht, [t], **limit) for dht, t, limit in zip(swarm.dhts, tensors, limits)]
    with caplog.at_level(logging.WARNING, "hivemind_c"):
        for last, mean in ((6e6, 2.0), (6.0, 3.0)):  # the second time it is honest, and counts
            for tensor, value in zip(tensors, (1.0, 2.0, 3.0, last)):
                tensor.fill_(value)
            swarm.together(averagers, [dict(weight=1.0)] * 4)
            assert all(torch.equal(t, tensors[0]) for t in tensors[1:]), "all hold the same bits"
            torch.testing.assert_close(tensors[0], torch.full((500,), mean))
        assert eventually(lambda: any("values are too large" in line for line in caplog.messages))
    for ratio in (0, 0.5, -1.0, float("nan"), float("inf"), 2e9, True, "1"):
        with pytest.raises(ValueError, match="norm_ratio_max"):
            DecentralizedAverager([torch.zeros(3)], swarm.dhts[0], prefix="w", start=False, norm_ratio_max=ratio)


def test_values_that_grow_at_all_members_all_count(swarm):
    swarm(4)
    tensors = [torch.empty(500) for _ in range(4)]
    averagers = [swarm.averager(dht, [t], norm_ratio_max=3) for dht, t in zip(swarm.dhts, tensors)]
    for scale in (1.0, 100.0, 1e6):
        for tensor, value in zip(tensors, (1.0, 2.0, 3.0, 6.0)):
            tensor.fill_(value * scale)
        swarm.together(averagers, [dict(weight=1.0)] * 4)
        assert all(torch.equal(t, tensors[0]) for t in tensors[1:])
        torch.testing.assert_close(tensors[0], torch.full((500,), 3.0 * scale))


def test_contradictory_steps_are_refused_at_once(swarm):
    averager = swarm.averager(swarm(1)[0], [torch.zeros(3)])
    with pytest.raises(ValueError, match="scheduled_time is .* the step ends after 1 s"):
        averager.step(scheduled_time=get_dht_time() + 10, timeout=1)
    with pytest.raises(ValueError, match="require_trigger needs wait=False"):
        averager.step(require_trigger=True)
    for weight in (-1.0, float("nan"), float("inf"), "1"):
        with pytest.raises(ValueError, match="weight"):
            averager.step(weight=weight, timeout=1)
    with pytest.raises(ValueError, match="timeout"):
        averager.step(timeout=0)
    with pytest.raises(TypeError, match="gather"):
        averager.step(gather=object(), timeout=1)
    first = averager.step(wait=False, timeout=30)
    second = averager.step(wait=False, timeout=30)
    assert second.exception(PATIENCE).status == "BUSY"
    first.cancel()


def test_two_averagers_of_one_prefix_do_not_live_on_one_node(swarm):
    dht = swarm(1)[0]
    swarm.averager(dht, [torch.zeros(1)])
    with pytest.raises(HivemindError, match="already"):
        swarm.averager(dht, [torch.zeros(1)])


def test_shutdown_ends_a_step_within_two_seconds_and_is_final(swarm):
    dht = swarm(1)[0]
    averagers = []

    def attempt():
        averagers.append(swarm.averager(dht, [torch.zeros(3)]))
        control = averagers[-1].step(wait=False)
        start = time.monotonic()
        averagers[-1].shutdown()
        averagers[-1].shutdown()
        took = time.monotonic() - start
        assert control.exception(PATIENCE) is not None
        return took

    at_best(2, attempt)
    averager = averagers[-1]
    with pytest.raises(HivemindError, match="shut down"):
        averager.step()
    with averager.get_tensors() as tensors:
        assert len(tensors) == 1


CANCELLED_WHILE_CLOSING = """
    import threading, time, torch
    from hivemind_c import DHT, DecentralizedAverager

    first = DHT(start=True, wait_timeout=30, startup_timeout=90)
    dhts = first, DHT(first.get_visible_maddrs(), start=True, wait_timeout=30, startup_timeout=90)
    tensors = [torch.full((3_000_000,), float(i)) for i in range(2)]
    for turn in range(8):
        averagers = [DecentralizedAverager([own], dht, prefix=f"{turn}", start=True, averaging_alpha=0.5, min_matchmaking_time=20) for own, dht in zip(tensors, dhts)]
        controls = [one.step(wait=False, require_trigger=True, timeout=60, expected=2) for one in averagers]
        for control in controls:
            control.allow_allreduce()
        while averagers[0]._averager.lock(0):  # until the round has the tensors
            averagers[0]._averager.unlock()
            time.sleep(0.001)
        time.sleep(turn * 0.005)
        closing = threading.Thread(target=averagers[0].shutdown)
        closing.start()
        while closing.is_alive():
            controls[0].cancel()
        controls[0].exception(60)
        controls[1].cancel()
        averagers[1].shutdown()
    print("fine")
"""


def test_a_step_may_be_cancelled_while_its_averager_is_shut_down(program):
    code, out, err = program(CANCELLED_WHILE_CLOSING).finish()
    assert (code, out) == (0, "fine\n"), err


def test_a_number_that_shuts_the_averager_down_is_told_so(program):
    code, out, err = program(
        """
        import torch
        from hivemind_c import DHT, DecentralizedAverager, HivemindError

        averager = DecentralizedAverager([torch.zeros(3)], DHT(start=True), prefix="number", start=True)

        class Number:
            def __float__(self):
                averager.shutdown()
                return 1.0

        try:
            averager._averager.step(b"", b"", 1.0, Number(), None, 0, False, False)
        except HivemindError as error:
            print(error)
        """
    ).finish()
    assert (code, out) == (0, "cannot use this averager: it was shut down\n"), err


def test_averager_outlives_its_dht(swarm):
    dht = swarm(1)[0]
    averager = swarm.averager(dht, [torch.zeros(3)])
    control = averager.step(wait=False)
    dht.shutdown()
    assert control.exception(PATIENCE) is not None
    averager.shutdown()


def test_tensors_are_free_after_the_dht_ends_within_a_round(swarm):
    """The other one is a client: there is nobody to say goodbye to, for whose answer a node would wait."""
    dht, client = swarm(1)[0], swarm(1, client_mode=True)[1]
    own = torch.zeros(20_000_000)
    averagers = [swarm.averager(dht, [own]), swarm.averager(client, [torch.ones(20_000_000)])]
    controls = [averager.step(wait=False, timeout=60, expected=2) for averager in averagers]
    assert eventually(lambda: own[0] != 0)  # the first averages are there
    dht.shutdown()
    held = []

    def hold():
        with averagers[0].get_tensors() as tensors:
            held.append(tensors[0])

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert held and held[0] is own
    averagers[0].shutdown()
    controls[1].cancel()


def test_joiner_loads_the_majoritys_state_and_changes_nothing(swarm):
    dhts = swarm(3)
    donors = [swarm.averager(dht, [torch.full((1000,), 7.0)], allow_state_sharing=False) for dht in dhts[:2]]
    joiner = swarm.averager(dhts[2], [torch.zeros(1000)])
    assert joiner.load_state_from_peers(timeout=10) is None  # nobody offers one
    for donor in donors:
        donor.allow_state_sharing = True
        donor.share_state(epoch=3)
    metadata, loaded = joiner.load_state_from_peers(timeout=30)
    assert torch.equal(loaded[0], torch.full((1000,), 7.0)) and metadata == {"group_key": "test"}
    with joiner.get_tensors() as tensors:
        assert (tensors[0] == 0).all()
    assert torch.equal(joiner.load_state_from_peers(wait=False, timeout=30).result(40)[1][0], loaded[0])
    for donor in donors:
        donor.allow_state_sharing = False
        donor.share_state(epoch=4)
    assert eventually(lambda: joiner.load_state_from_peers(timeout=10) is None, 90)


def test_state_is_offered_on_demand_as_it_is_then(swarm):
    """Without share_state() a joiner gets what a donor has when it asks, one of them where they differ, and nothing once they do not share."""
    calls = []

    class Counting(DecentralizedAverager):
        def get_current_state(self):
            calls.append(self.peer_id)
            return {"rate": 0.5}, *super().get_current_state()[1:]

    dhts = swarm(3)
    own = [torch.full((1000,), 7.0), torch.full((1000,), 8.0)]
    donors = [Counting([tensor], dht, prefix="test", start=True, min_matchmaking_time=20) for dht, tensor in zip(dhts, own)]
    swarm.averagers += donors
    joiner = swarm.averager(dhts[2], [torch.zeros(1000)])
    assert joiner.shares_on_demand
    time.sleep(1.5)
    assert not calls  # nobody has asked
    metadata, loaded = joiner.load_state_from_peers(timeout=60)
    assert metadata == {"rate": 0.5} and loaded[0].unique().tolist() in ([7.0], [8.0]) and len(calls) <= 2
    for donor in donors:
        with donor.get_tensors() as tensors:
            tensors[0].fill_(9)
    assert joiner.load_state_from_peers(timeout=60)[1][0].unique().tolist() == [9.0]
    for donor in donors:
        donor.allow_state_sharing = False
    assert eventually(lambda: joiner.load_state_from_peers(timeout=10) is None)


def test_number_from_the_future_does_not_silence_later_joiners(swarm):
    dhts = swarm(3)
    swarm.averager(dhts[0], [torch.full((1000,), 7.0)])
    stranger = dhts[1].core
    assert eventually(lambda: stranger.state_want(b"test", 1).exception(10) is None)  # the donor is declared
    for number in (1 << 47, round(1000 * (get_dht_time() + 3600))):
        now = round(1000 * get_dht_time())
        assert now - 1000 <= stranger.state_want(b"test", number).result(10) <= now + 20_000  # the donor's own
    joiner = swarm.averager(dhts[2], [torch.zeros(1000)])
    assert joiner.load_state_from_peers(timeout=60)[1][0].unique().tolist() == [7.0]


def test_joiner_with_a_slow_clock_gets_the_state_of_now(swarm, monkeypatch):
    dhts = swarm(3)
    donor = swarm.averager(dhts[0], [torch.full((1000,), 7.0)])
    joiners = [swarm.averager(dht, [torch.zeros(1000)], allow_state_sharing=False) for dht in dhts[1:]]
    assert joiners[0].load_state_from_peers(timeout=60)[1][0].unique().tolist() == [7.0]
    with donor.get_tensors() as tensors:
        tensors[0].fill_(8)
    monkeypatch.setattr(on_demand, "_clock", lambda: int((get_dht_time() - 3600) * 1000))
    assert joiners[1].load_state_from_peers(timeout=60)[1][0].unique().tolist() == [8.0]


def test_share_state_ends_the_offers_on_demand(swarm):
    dhts = swarm(2)
    donor = swarm.averager(dhts[0], [torch.full((1000,), 7.0)])
    joiner = swarm.averager(dhts[1], [torch.zeros(1000)], allow_state_sharing=False)
    assert joiner.load_state_from_peers(timeout=60)[1][0].unique().tolist() == [7.0]
    with donor.get_tensors() as tensors:
        tensors[0].fill_(8)
    donor.share_state(epoch=3)
    with donor.get_tensors() as tensors:
        tensors[0].fill_(9)
    for _ in range(2):
        assert joiner.load_state_from_peers(timeout=60)[1][0].unique().tolist() == [8.0]
    assert not donor.shares_on_demand
    assert eventually(lambda: "hivemind_c-on-demand" not in [thread.name for thread in threading.enumerate()])


def test_offer_on_demand_is_dropped_when_none_asks(swarm, monkeypatch):
    monkeypatch.setattr(on_demand, "LINGER_S", 1.0)
    dhts = swarm(2)
    donor = swarm.averager(dhts[0], [torch.full((1000,), 7.0)])
    joiner = swarm.averager(dhts[1], [torch.zeros(1000)], allow_state_sharing=False)
    assert joiner.load_state_from_peers(timeout=60)[1][0].unique().tolist() == [7.0]
    sharing = StateSharing(dhts[1], "test")

    def nothing_is_offered():
        try:
            sharing.look(timeout=10)
        except HivemindError as error:
            return error.status == "NOT_FOUND"
        return False

    assert eventually(nothing_is_offered)
    assert donor.shares_on_demand and joiner.load_state_from_peers(timeout=60)[1][0].unique().tolist() == [7.0]


def test_averager_in_client_mode_has_its_own_node(swarm):
    dhts, tensors = swarm(2), [torch.full((20_000,), float(i)) for i in (1, 3)]
    averagers = [swarm.averager(dht, [own], client_mode=mode) for dht, own, mode in zip(dhts, tensors, (None, True))]
    assert averagers[1].client_mode and not dhts[1].client_mode and averagers[1].peer_id != dhts[1].peer_id and averagers[0].peer_id == dhts[0].peer_id
    gathered = swarm.together(averagers, [dict(gather=0), dict(gather=1)])
    assert gathered[0] == {averagers[0].peer_id: 0, averagers[1].peer_id: 1} and all((own == 2).all() for own in tensors)
    averagers[1].shutdown()
    assert dhts[1].is_alive()
    closed = DHT(dhts[0].get_visible_maddrs(), start=True, client_mode=True)
    with closed, pytest.raises(HivemindError, match="client_mode=False is not possible"):
        DecentralizedAverager([torch.zeros(3)], closed, prefix="test", start=True, client_mode=False)


def test_small_target_makes_a_small_group(swarm):
    """min_group_size is 2 by default, and a group of one is what the program asks for."""
    averager = swarm.averager(swarm(1)[0], [torch.zeros(3)], target_group_size=1, min_matchmaking_time=None, request_timeout=None)
    assert averager.step(gather=1, timeout=20) == {averager.peer_id: 1}
    with pytest.raises(HivemindError, match=r"min_group_size \(3\) is larger than target_group_size \(2\)"):
        swarm.averager(swarm.dhts[0], [torch.zeros(3)], prefix="larger", target_group_size=2, min_group_size=3)


def test_subclass_shares_its_own_state(swarm):
    class Mine(DecentralizedAverager):
        def get_current_state(self):
            return {"rate": 0.5}, [torch.arange(10.0), torch.arange(5)]

    dhts = swarm(2)
    donor = Mine([torch.zeros(3)], dhts[0], prefix="mine", start=True)
    swarm.averagers.append(donor)
    donor.state_sharing_priority = 2.0
    donor.share_state(epoch=1)
    joiner = Mine([torch.zeros(3)], dhts[1], prefix="mine", start=True)  # another class takes no more than its tensors
    swarm.averagers.append(joiner)
    metadata, (floats, ints) = joiner.load_state_from_peers(timeout=30)
    assert metadata == {"rate": 0.5} and floats.tolist() == list(range(10)) and ints.tolist() == list(range(5))
    assert donor.state_sharing_priority == 2.0


def test_steps_from_threads(swarm):
    dhts = swarm(2)
    tensors = [torch.full((1000,), float(i)) for i in range(2)]
    averagers = [swarm.averager(dht, [own]) for dht, own in zip(dhts, tensors)]
    results = [None, None]

    def work(i):
        results[i] = averagers[i].step(timeout=60, expected=2)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(70)
    assert results[0] and results[0] == results[1] and (tensors[0] == 0.5).all()
