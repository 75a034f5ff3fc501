"""The layout of a run: a peer without tensors averages for others by it, and a stranger's is checked."""

import zlib

import _hivemind_c
import msgpack
import pytest
import torch

from hivemind_c import DecentralizedAverager, Float16Compression, HivemindValueError
from hivemind_c.averaging import layout_records
from hivemind_c.averaging.layout import PACKED_MAX, RunLayout, pack_layout, read_layout
from hivemind_c.dht.news import subkey_of
from hivemind_c.dht.values import get_dht_time, pack

SHAPES = (3, 5), (), (0,), (100_000,)


def averager_of(node, value, **options):
    tensors = [torch.full(shape, value) for shape in SHAPES] + [torch.full((7,), value, dtype=torch.bfloat16)]
    given = dict(prefix="laid_grad_averager", compression=Float16Compression(), start=True, **options)
    return DecentralizedAverager(tensors, node, **given)


@pytest.fixture
def layout(dht):
    with averager_of(dht(), 0.0, part_size_bytes=1 << 17, weight_max=9.0) as averager:
        return RunLayout(5.0, 30.0, (averager.layout("gradients", 1),))


def test_layout_comes_through_as_it_was_packed(layout):
    assert read_layout(pack_layout(layout)) == layout
    (one,) = layout.averagers
    assert one.values == 15 + 1 + 100_000 + 7 and [shape for *_, shape in one.tensors] == [*SHAPES, (7,)]


def test_layout_names_a_limit_of_norms_only_if_there_is_one(dht, layout):
    assert "norm_ratio" not in layout.averagers[0].settings, "an older hub reads such a layout"
    with averager_of(dht(), 0.0, norm_ratio_max=20) as averager:
        limited = RunLayout(5.0, 30.0, (averager.layout("gradients", 1),))
    (one,) = read_layout(pack_layout(limited)).averagers
    assert one.settings["norm_ratio"] == 20
    one.settings["norm_ratio"] = -1.0
    with pytest.raises(ValueError, match="out of their bounds"):
        read_layout(pack_layout(RunLayout(5.0, 30.0, (one,))))


def test_peer_with_a_layout_averages_for_clients(dht, layout):
    hub = dht()
    nodes = [dht(hub.get_visible_maddrs(), client_mode=True) for _ in range(2)]
    averagers = [averager_of(node, float(i), part_size_bytes=1 << 17, weight_max=9.0) for i, node in enumerate(nodes)]
    (one,) = read_layout(pack_layout(layout)).averagers
    settings = {**one.settings, "auxiliary": 1, "apart": 0}
    helper = _hivemind_c.Averager(hub.core, "laid_grad_averager", one.loans(), "", settings)
    helping = helper.step(pack(None), b"", 0.0, 20.0, 40.0, 3, False, True)
    steps = [averager.step(timeout=40, wait=False, expected=3) for averager in averagers]
    assert len(helping.result(40)[0]) == 3 and all(len(step.result(40)) == 3 for step in steps)
    for averager in averagers:
        with averager.get_tensors() as tensors:
            assert all(bool((tensor == 0.5).all()) for tensor in tensors)
        averager.shutdown()
    helper.close()


WRONG = [(1, (2,)), ((9, (2,)), 0), ((1, (-1,)), 0), ((1, (1 << 62, 1 << 62)), 0), ((1, [2]), 0)]


@pytest.mark.parametrize("wrong", WRONG)
def test_core_refuses_a_layout_out_of_bounds(dht, wrong):
    with pytest.raises((ValueError, TypeError)):
        _hivemind_c.Averager(dht().core, "laid", [(*wrong, None, False)], "", {"auxiliary": 1})


CHANGES = [
    {"version": 2}, {"times": [1.0]}, {"times": [-1.0, 2.0]}, {"times": [1.0, "2"]}, {"times": [1.0, float("nan")]},
    {"averagers": []}, {"averagers": 7}, {"averagers": [["other"]]},
]  # fmt: skip
WITHIN = [
    (0, "other"), (1, 0), (1, True), (1, 1 << 40), (2, "012"), (2, "0" * 65), (3, {}), (4, []), (4, [[1]]),
    (4, [[9, 0, False, 1]]), (4, [[1, 99, False, 1]]), (4, [[1, 0, 0, 1]]), (4, [[1, 0, False, -1]]),
    (4, [[1, [7, 99], False, 1]]), (4, [[1, [7], False, 1]]),
    (4, [[1, 0, False, 1 << 47, 4]]), (4, [[1, 0, False, *[1] * 65]]), (4, [[[], 0, False, 1]]), (3, 5), (4, 5),
]  # fmt: skip


@pytest.mark.parametrize("change", [*CHANGES, *WITHIN], ids=str)
def test_layout_of_a_stranger_out_of_bounds_is_refused(layout, change):
    said = msgpack.unpackb(zlib.decompress(pack_layout(layout)))
    if isinstance(change, dict):
        said.update(change)
    else:
        said["averagers"][0][change[0]] = change[1]
    with pytest.raises(ValueError):
        read_layout(zlib.compress(msgpack.packb(said)))


def test_bytes_that_are_no_layout_are_refused(layout):
    packed = pack_layout(layout)
    bomb = zlib.compress(bytes(40 << 20))
    for wrong in (b"", b"x", packed[:-5], packed + b"x", "text", None, bytes(PACKED_MAX + 1), bomb):
        with pytest.raises(ValueError):
            read_layout(wrong)


def test_layout_that_does_not_fit_into_a_record_is_an_error(layout):
    (one,) = layout.averagers
    many = tuple((1, 0, 0, False, (i * i * 7919 % 99_991, i)) for i in range(60_000))
    with pytest.raises(HivemindValueError, match="a hub cannot average for this run"):
        pack_layout(layout._replace(averagers=(one._replace(tensors=many),)))


def test_layout_that_most_trainers_store_is_fetched(dhts, layout):
    packed = pack_layout(layout)
    other = pack_layout(layout._replace(matchmaking_time=6.0))
    assert layout_records.fetch(dhts[3], "laid", 10) is None
    for node, stored in zip(dhts, (packed, packed, other, b"nonsense")):
        key, end = layout_records.key_of("laid"), get_dht_time() + 60
        assert node.store(key, stored, end, subkey=subkey_of(node.peer_id))
    assert layout_records.fetch(dhts[3], "laid", 10) == layout


def test_few_trainers_of_a_large_run_store_the_layout():
    assert all(layout_records.is_chosen(f"peer{i}", 8) for i in range(8))
    for minute in range(9):
        assert 0 < sum(layout_records.is_chosen(f"peer{i}", 1000, 60.0 * minute) for i in range(1000)) < 25
