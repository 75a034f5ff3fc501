"""ScaledFloat16Compression: each row of the last dimension has a mean and a deviation of its own."""

import _hivemind_c
import numpy as np
import pytest
import torch

from hivemind_c import DHT, DecentralizedAverager
from hivemind_c import compression as hc
from hivemind_c.averaging.state import StateSharing
from support import eventually

CODEC = hc.ScaledFloat16Compression()
#: rows from 1e-8 to 1e8
SCALES = torch.logspace(-8, 8, 64)


def rows(width=256, seed=0):
    return torch.randn(64, width, generator=torch.Generator().manual_seed(seed)) * SCALES[:, None]


def misses(got, want):
    """The largest error of each row, as a share of its deviation."""
    return (got.double() - want.double()).abs().amax(-1) / want.double().std(-1, correction=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_small_rows_keep_their_precision_beside_large_ones(dtype):
    tensor = rows().to(dtype)
    serialized = hc.serialize_torch_tensor(tensor, hc.CompressionType.MEANSTD_16BIT)
    assert misses(hc.deserialize_torch_tensor(serialized), tensor).max() < 0.003
    assert len(serialized.buffer) == pytest.approx(2 * tensor.numel() + 8 * 64, abs=64)


@pytest.mark.parametrize("shape", [(8, 8, 256), (1, 64, 256), (4, 2, 8, 256)], ids=str)
def test_rows_are_the_last_dimension_of_any_shape(shape):
    tensor = rows().reshape(shape)
    assert torch.equal(CODEC.extract(CODEC.compress(tensor)).reshape(64, 256), CODEC.extract(CODEC.compress(rows())))


def test_numpy_rows_are_those_of_torch():
    tensor = rows()
    got = CODEC.extract(CODEC.compress(tensor.numpy()))
    assert np.array_equal(got, CODEC.extract(CODEC.compress(tensor)).numpy())


@pytest.mark.parametrize(
    "tensor",
    [torch.tensor(3.3), torch.tensor([-1e20]), torch.randn(50, 1), torch.full((3, 7), 0.1), torch.zeros(0, 5)],
    ids=["scalar", "one", "column", "equal", "empty"],
)
def test_rows_without_deviation_come_back_exactly(tensor):
    assert torch.equal(CODEC.extract(CODEC.compress(tensor)), tensor)


def test_a_row_with_nan_leaves_the_others_whole():
    tensor = rows()
    tensor[3, 5] = float("nan")
    got = CODEC.extract(CODEC.compress(tensor))
    assert torch.isnan(got[3, 5]) and torch.isfinite(got).sum() == got.numel() - 1
    keep = [i for i in range(64) if i != 3]
    assert misses(got[keep], tensor[keep]).max() < 0.003


def test_tensors_of_the_older_codec_are_still_read():
    tensor = rows(seed=1)
    chunk = _hivemind_c.codec_encode(_hivemind_c.CODECS.index("scaled_float16"), tensor)
    stored = hc.SerializedTensor(chunk, tensor.shape, False, "float32", int(hc.CompressionType.MEANSTD_16BIT), 0)
    want = torch.empty_like(tensor)
    _hivemind_c.codec_decode(chunk, want)
    assert torch.equal(hc.deserialize_torch_tensor(stored.SerializeToString()), want)
    total = torch.ones_like(tensor)
    CODEC.accumulate(stored, 1.0, total)
    assert torch.equal(total, want + 1)


def test_ratio_counts_the_scales_of_rows():
    for tensor in (torch.zeros(100, 8), torch.zeros(4, 4096), torch.zeros(1000)):
        ratio = CODEC.estimate_compression_ratio(hc.CompressionInfo.from_tensor(tensor))
        assert len(CODEC.compress(tensor).buffer) / (4 * tensor.numel()) == pytest.approx(ratio, rel=0.05)


@pytest.fixture
def dhts():
    first = DHT(start=True)
    second = DHT(first.get_visible_maddrs(), start=True)
    assert eventually(lambda: first.state()["peers"] and second.state()["peers"])
    yield first, second
    first.shutdown()
    second.shutdown()


def average(dhts, tensors, **options):
    averagers = [
        DecentralizedAverager(
            own, dht, prefix="rows", start=True, min_matchmaking_time=20, compression=CODEC, **options
        )
        for dht, own in zip(dhts, tensors)
    ]
    try:
        for control in [one.step(wait=False, timeout=60, expected=2) for one in averagers]:
            control.result(70)
    finally:
        for one in averagers:
            one.shutdown()


def test_rows_of_a_round_keep_their_precision(dhts):
    """Chunks of 1,000 values cut rows of 256; a bias and a scalar travel beside them."""
    tensors = [[rows(seed=i), torch.randn(64) * 1e-4, torch.tensor(1.5 + i)] for i in range(2)]
    mean = (tensors[0][0] + tensors[1][0]) / 2
    average(dhts, tensors, part_size_bytes=4000)
    assert all(torch.equal(a, b) for a, b in zip(*tensors))
    assert misses(tensors[0][0], mean).max() < 0.005
    assert tensors[0][2] == 2.0


def test_small_tensors_of_a_round_travel_as_they_are(dhts):
    tensors = [[torch.randn(15), torch.randn(3, 5), torch.randn(())] for _ in range(2)]
    want = [(a + b) / 2 for a, b in zip(*tensors)]
    average(dhts, tensors)
    assert all(torch.allclose(got, mean, atol=1e-7, rtol=3e-7) for got, mean in zip(tensors[0], want))


def test_a_state_travels_under_the_older_codec(pair):
    donor, joiner = pair
    tensor = rows(seed=2)
    StateSharing(donor, "rows", compression=CODEC).offer(1, [tensor], {})
    (loaded,) = StateSharing(joiner, "rows", compression=CODEC).load(timeout=30).tensors
    flat, want = tensor.reshape(-1), torch.empty(64 * 256)
    _hivemind_c.codec_decode(_hivemind_c.codec_encode(_hivemind_c.CODECS.index("scaled_float16"), flat), want)
    assert torch.equal(loaded.reshape(-1), want)
