"""The compressions as users see them: every class, dtype and shape, choices between them, codecs of one's own, and
hostile bytes."""

import array
import asyncio
import gc
import inspect
import itertools
import random
import sys
import threading
import time

import _hivemind_c
import numpy as np
import pytest
import torch

import hivemind_c
from hivemind_c import compression as hc

CLASSES = {one.compression_type.name: type(one) for one in hc.BASE_COMPRESSION_TYPES.values()}
LOSSY = [one for name, one in CLASSES.items() if name != "NONE"]
ALL = pytest.mark.parametrize("codec", CLASSES.values(), ids=CLASSES.keys())
ANY_LOSSY = pytest.mark.parametrize("codec", LOSSY, ids=lambda one: one.__name__)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)

#: relative error (L2) on normal numbers, at most
ERRORS = dict(
    NONE=0,
    FLOAT16=3e-4,
    MEANSTD_16BIT=3e-4,
    BFLOAT16=2.5e-3,
    UNIFORM_8BIT=0.02,
    QUANTILE_8BIT=0.012,
    BLOCKWISE_8BIT=0.02,
    LINEAR_8BIT=0.01,
    LINEAR_4BIT=0.15,
)
SHAPES = [(), (0,), (0, 7), (1,), (5,), (3, 4, 5), (63,), (64, 65), (2, 1, 3, 1), (70000,)]


def normal(shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def there_and_back(codec, tensor):
    """Through bytes, as a network would have it."""
    data = codec.compress(tensor, hc.CompressionInfo.from_tensor(tensor)).SerializeToString()
    return codec.extract(hc.SerializedTensor.FromString(data))


def relative_error(got, want):
    got, want = got.double(), want.double()
    return float((got - want).norm() / want.norm()) if want.numel() else 0.0


@ALL
@DTYPES
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_codec_returns_every_shape_and_dtype(codec, dtype, shape):
    tensor = normal(shape, dtype)
    before = tensor.clone()
    back = there_and_back(codec(), tensor)
    assert back.shape == tensor.shape and back.dtype == dtype and torch.equal(tensor, before)
    if codec is hc.NoCompression:
        assert torch.equal(back, tensor)
    elif tensor.numel() > 1000:
        own = {torch.float16: 3e-4, torch.bfloat16: 2.5e-3}.get(dtype, 0)
        assert relative_error(back, tensor) <= ERRORS[codec.compression_type.name] + own
    elif tensor.numel():
        assert (
            torch.isfinite(back).all()
            and (back.double() - tensor.double()).abs().max() <= 0.6 * tensor.double().abs().max()
        )


@ALL
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (40, 50)], ids=str)
def test_numpy_arrays_come_back_as_numpy_arrays(codec, dtype, shape):
    given = np.asarray(normal(shape).numpy().astype(dtype))
    back = there_and_back(codec(), given)
    assert isinstance(back, np.ndarray) and back.dtype == given.dtype and back.shape == given.shape
    tensor = there_and_back(codec(), torch.from_numpy(given))
    assert np.array_equal(back, tensor.numpy())


@ALL
def test_the_bound_of_each_codec_holds(codec):
    """csrc/kern/codec.h states them; here through Python, on heavy tails."""
    x = normal(20000).double() * torch.exp(2 * normal(20000, seed=1).double())
    x = x.float()
    v, x = there_and_back(codec(), x).double(), x.double()
    error, top = (x - v).abs(), x.abs().max()
    eps = top * 2**-22
    name = codec.compression_type.name
    if name == "NONE":
        bound = torch.zeros_like(x)
    elif name == "FLOAT16":
        bound = (x.abs() * 2**-11).clamp(min=2**-25)
    elif name == "BFLOAT16":
        bound = x.abs() * 2**-8
    elif name == "MEANSTD_16BIT":
        bound = ((x - x.mean()).abs() * 2**-11).clamp(min=x.std() * 2**-24) + eps
    elif name == "UNIFORM_8BIT":
        step = min(6 * x.std(), (x - x.mean()).abs().max()) / 127
        bound = torch.where((x - x.mean()).abs() < 126.4 * step, 0.501 * step + eps, 2 * top)
    elif name == "QUANTILE_8BIT":
        bound = torch.full_like(x, float(x.max() - x.min()))
        assert float((error**2).mean()) < 1e-4 * float((x**2).mean())
    elif name == "BLOCKWISE_8BIT":
        tops = torch.stack([block.abs().max() for block in x.split(4096)]).repeat_interleave(4096)[: len(x)]
        bound = tops * 0.0072 + eps
    else:
        steps, most = (128, 1.01) if name == "LINEAR_8BIT" else (8, 1.05)
        tops = torch.stack([block.abs().max() for block in x.split(64)]).repeat_interleave(64)[: len(x)]
        bound = most * 1.01 * tops / steps
    assert bool((error <= bound).all()), float((error - bound).max())


@ALL
def test_requires_grad_is_kept(codec):
    for requires_grad in (True, False):
        tensor = normal((4, 5)).requires_grad_(requires_grad)
        serialized = hc.serialize_torch_tensor(tensor, codec.compression_type)
        for back in (
            hc.deserialize_torch_tensor(serialized),
            hc.deserialize_torch_tensor(serialized.SerializeToString()),
        ):
            assert back.requires_grad is requires_grad and back.is_leaf
    parameter = torch.nn.Parameter(normal((4, 5)))
    assert there_and_back(codec(), parameter).requires_grad


STRIDED = {
    "transposed": lambda t: t.t(),
    "every other": lambda t: t[::2, 1::3],
    "expanded": lambda t: t[:1].expand(6, -1),
    "channels last": lambda t: t.reshape(2, 3, 10, 30).to(memory_format=torch.channels_last),
    "backwards": lambda t: t.flip(0),
}


@ALL
@pytest.mark.parametrize("view", STRIDED.values(), ids=STRIDED.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_strides_do_not_matter(codec, view, dtype):
    tensor = view(normal((60, 30), dtype))
    assert torch.equal(there_and_back(codec(), tensor), there_and_back(codec(), tensor.contiguous()))


def test_numpy_views_of_all_kinds_are_read_right():
    base = normal((60, 30)).numpy()
    misaligned = np.frombuffer(b"x" + base.tobytes(), np.uint8)[1:].view(np.float32).reshape(60, 30)
    for view in (
        base.T,
        base[::2, ::-1],
        np.asfortranarray(base),
        base.astype(">f4"),
        misaligned,
        np.broadcast_to(base[0], (4, 30)),
    ):
        assert np.array_equal(there_and_back(hc.NoCompression(), view), view)
    assert there_and_back(hc.NoCompression(), base[0, 0]) == base[0, 0]  # a NumPy scalar
    base.flags.writeable = False
    assert np.array_equal(there_and_back(hc.NoCompression(), base), base)


def test_any_dtype_travels_uncompressed_to_the_bit():
    numbers = torch.arange(-5, 6)
    for dtype in (
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.complex64,
        torch.complex128,
        torch.float8_e4m3fn,
        torch.uint16,
    ):
        for tensor in (
            numbers.to(dtype),
            numbers.to(dtype)[3],
            numbers.to(dtype)[:0],
            numbers.to(dtype)[1:8].reshape(7, 1),
        ):
            back = hc.deserialize_torch_tensor(hc.serialize_torch_tensor(tensor))
            assert back.dtype == dtype and back.shape == tensor.shape
            assert torch.equal(back.reshape(-1).view(torch.uint8), tensor.clone().reshape(-1).view(torch.uint8))
            if dtype not in (torch.float8_e4m3fn,):
                numbers_in_numpy = tensor.numpy()
                assert np.array_equal(there_and_back(hc.NoCompression(), numbers_in_numpy), numbers_in_numpy)
    strange = torch.tensor([0x7F800001, 0xFFC12345 - 2**32, 0x80000000 - 2**32], dtype=torch.int32).view(torch.float32)
    assert torch.equal(there_and_back(hc.NoCompression(), strange).view(torch.int32), strange.view(torch.int32))
    with pytest.raises(hivemind_c.HivemindValueError, match="send int64 with NoCompression"):
        hc.Float16Compression().compress(numbers)
    with pytest.raises(hivemind_c.HivemindValueError, match="to_dense"):
        hc.NoCompression().compress(torch.eye(3).to_sparse())
    with pytest.raises(TypeError, match="a torch tensor or a NumPy array is needed, not list"):
        hc.NoCompression().compress([1.0], hc.CompressionInfo(None, hc.TensorDescriptor((1,))))
    with pytest.raises(hivemind_c.HivemindValueError, match="cannot be sent"):
        hc.NoCompression().compress(np.array(["text"]))


def test_nan_and_infinities_become_the_documented_values():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0, -2.0] * 20)
    for codec in LOSSY:
        back = there_and_back(codec(), x)
        name = codec.compression_type.name
        if name in ("FLOAT16", "BFLOAT16", "MEANSTD_16BIT"):
            assert torch.isnan(back[0::5]).all() and not torch.isnan(back[1:5]).any()
            assert torch.isinf(back[1]).item() is (name == "BFLOAT16")
        else:
            assert torch.isfinite(back).all()
    assert _hivemind_c.codec_finite(torch.ones(9)) and not _hivemind_c.codec_finite(x)


def test_values_that_fail_in_hivemind_are_encoded():
    # With NumPy 2 its 8-bit decoding raises TypeError.
    for codec in (hc.Uniform8BitQuantization, hc.Quantile8BitQuantization, hc.BlockwiseQuantization):
        assert there_and_back(codec(), normal((100, 100))).shape == (100, 100)
    bf16 = normal((100, 100), torch.bfloat16)  # refused by its float16, and float32 on its wire
    assert relative_error(there_and_back(hc.Float16Compression(), bf16), bf16) < 3e-4
    assert len(hc.NoCompression().compress(bf16).buffer) < 2 * bf16.numel() + 100
    assert there_and_back(hc.Quantile8BitQuantization(), torch.tensor(3.0)).item() == pytest.approx(3.0)
    assert (
        there_and_back(hc.Uniform8BitQuantization(), torch.full((50,), 7.0)).tolist() == [7.0] * 50
    )  # a deviation of zero


@ALL
def test_the_estimated_ratio_is_the_real_one(codec):
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        tensor = normal((300, 1000), dtype)
        serialized = codec().compress(tensor, hc.CompressionInfo.from_tensor(tensor))
        real = len(serialized.SerializeToString()) / (tensor.numel() * tensor.element_size())
        assert codec().estimate_compression_ratio(hc.CompressionInfo.from_tensor(tensor)) == pytest.approx(
            real, rel=0.02
        )


@ANY_LOSSY
def test_adding_up_equals_decoding_and_adding(codec):
    acc, tensor = normal((3000,), seed=1), normal((3000,), torch.float16)
    serialized = codec().compress(tensor, hc.CompressionInfo.from_tensor(tensor))
    expected = acc + torch.tensor(0.3) * torch.from_numpy(codec().extract(codec().compress(tensor.float())).numpy())
    codec().accumulate(serialized, 0.3, acc)
    torch.testing.assert_close(acc, expected, rtol=1e-6, atol=1e-6)
    before = acc.clone()
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(hivemind_c.HivemindValueError, match="weight"):
            codec().accumulate(serialized, weight, acc)
    with pytest.raises(hivemind_c.HivemindValueError, match="another number of elements"):
        codec().accumulate(serialized, 1.0, acc[:2999])
    with pytest.raises(hivemind_c.HivemindValueError, match="must be float32"):
        codec().accumulate(serialized, 1.0, acc.double())
    assert torch.equal(acc, before)


def test_a_sum_takes_no_nan():
    acc = torch.zeros(10)
    bad = torch.ones(10)
    bad[7] = float("nan")
    with pytest.raises(hivemind_c.HivemindError, match="NaN or Inf"):
        hc.NoCompression().accumulate(hc.NoCompression().compress(bad), 1.0, acc)
    assert not acc.any()


# ---- error feedback ----


@pytest.mark.parametrize(
    "codec",
    [hc.Linear4BitQuantization, hc.Linear8BitQuantization, hc.Uniform8BitQuantization],
    ids=lambda c: c.__name__,
)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_error_feedback_sends_the_lost_part_later(codec, library):
    feedback, plain = hc.ErrorFeedback(codec()), codec()
    total, sent, sent_plain = (torch.zeros(5000, dtype=torch.float64) for _ in range(3))
    for round_number in range(50):
        tensor = normal((5000,), seed=round_number % 3) * 0.1 + 1
        given = tensor if library == "torch" else tensor.numpy()
        info = hc.CompressionInfo.from_tensor(given, key="w")
        for _ in range(3):  # retries within a round
            serialized = feedback.compress(given, info)
        feedback.rollback()
        serialized = feedback.compress(given, info)
        sent += torch.as_tensor(feedback.extract(serialized))
        feedback.commit()
        sent_plain += plain.extract(plain.compress(tensor))
        total += tensor
    left = feedback._kept["w", 0]
    torch.testing.assert_close(sent + torch.as_tensor(left).double(), total, rtol=0, atol=1e-3)
    assert float((sent - total).norm()) < 0.3 * float((sent_plain - total).norm())


def test_residuals_belong_to_one_key_and_part():
    feedback, a = hc.ErrorFeedback(hc.Linear4BitQuantization()), normal((100,))
    info = hc.CompressionInfo.from_tensor(a, key="a")
    first = feedback.compress(a, info)
    feedback.commit()
    assert feedback.compress(a, hc.CompressionInfo.from_tensor(a, key="b")) == first
    assert feedback.compress(a, info.get_part(1, 100)) == first
    assert feedback.compress(a[:50], info) == hc.Linear4BitQuantization().compress(a[:50])  # another size begins anew
    assert feedback.compress(a, info) != first
    with pytest.raises(TypeError, match="loses something"):
        hc.ErrorFeedback(hc.NoCompression())
    with pytest.raises(hivemind_c.HivemindValueError, match="residual must be float32"):
        hc.Linear4BitQuantization().compress(a, residual=torch.zeros(99))


# ---- choices ----


def test_size_adaptive_chooses_by_the_number_of_elements():
    chosen = hc.SizeAdaptiveCompression(threshold=100, less=hc.NoCompression(), greater_equal=hc.Float16Compression())
    for shape, number in [
        ((99,), hc.CompressionType.NONE),
        ((10, 10), hc.CompressionType.FLOAT16),
        ((), hc.CompressionType.NONE),
    ]:
        tensor = normal(shape)
        serialized = chosen.compress(tensor, hc.CompressionInfo.from_tensor(tensor))
        assert serialized.compression == number
        assert chosen.extract(serialized).shape == shape == hc.deserialize_torch_tensor(serialized).shape
        assert chosen.estimate_compression_ratio(hc.CompressionInfo.from_tensor(tensor)) == (0.5 if number else 1)
    with pytest.raises(TypeError, match="must be an instance, for example"):
        hc.SizeAdaptiveCompression(1, hc.NoCompression, hc.Float16Compression())


def test_role_adaptive_chooses_by_role():
    chosen = hc.RoleAdaptiveCompression(
        gradient=hc.Linear4BitQuantization(),
        optimizer=hc.SizeAdaptiveCompression(
            5, less=hc.BFloat16Compression(), greater_equal=hc.BlockwiseQuantization()
        ),
        default=hc.Float16Compression(),
    )
    expected = dict(
        GRADIENT="LINEAR_4BIT",
        OPTIMIZER="BLOCKWISE_8BIT",
        PARAMETER="FLOAT16",
        ACTIVATION="FLOAT16",
        UNSPECIFIED="FLOAT16",
    )
    tensor = normal((10,))
    for role, name in expected.items():
        info = hc.CompressionInfo.from_tensor(tensor, role=hc.TensorRole[role])
        assert hc.CompressionType.Name(chosen.compress(tensor, info).compression) == name
    assert hc.RoleAdaptiveCompression().choose_compression(hc.CompressionInfo.from_tensor(tensor)).compression_type == 0


def test_per_tensor_chooses_by_key():
    tensor = normal((10,))
    by_name = hc.PerTensorCompression({"w": hc.Float16Compression(), "b": hc.NoCompression()})
    by_index = hc.PerTensorCompression([hc.Float16Compression(), hc.NoCompression()])
    for chosen, keys in [(by_name, "wb"), (by_index, (0, 1))]:
        numbers = [chosen.compress(tensor, hc.CompressionInfo.from_tensor(tensor, key=key)).compression for key in keys]
        assert numbers == [hc.CompressionType.FLOAT16, hc.CompressionType.NONE]
        with pytest.raises(hivemind_c.HivemindLookupError, match="no compression for the tensor"):
            chosen.compress(tensor, hc.CompressionInfo.from_tensor(tensor, key=7))
    with pytest.raises(TypeError, match="the compression of 'w' must be an instance"):
        hc.PerTensorCompression({"w": hc.Float16Compression})


def test_info_tells_of_parts_and_tensors():
    info = hc.CompressionInfo.from_tensor(torch.zeros(3, 4, requires_grad=True), key="k", role=hc.TensorRole.GRADIENT)
    part = info.get_part(2, 5)
    assert (part.key, part.role, part.part_index, part.part_size) == ("k", hc.TensorRole.GRADIENT, 2, 5)
    assert (info.part_index, info.part_size, info.descriptor.shape, info.descriptor.numel()) == (0, None, (3, 4), 12)
    zeros = info.descriptor.make_zeros()
    assert zeros.requires_grad and zeros.shape == (3, 4) and not zeros.any()
    assert hc.CompressionInfo.from_tensor(np.zeros(3)).descriptor.dtype == np.float64


# ---- a codec of one's own ----


class Signs(hc.CompressionBase):
    """One bit for each number, and their mean magnitude."""

    compression_type = 200

    def encode(self, tensor, info):
        return np.float32(tensor.abs().mean()).tobytes() + np.packbits(tensor.numpy() >= 0).tobytes()

    def decode(self, buffer, shape, dtype):
        count = int(np.prod(shape))
        if len(buffer) != 4 + (count + 7) // 8:
            raise hivemind_c.HivemindValueError("these are no signs")
        bits = np.unpackbits(np.frombuffer(buffer, np.uint8, offset=4))[:count]
        return (
            (torch.from_numpy(bits.astype(np.float32)) * 2 - 1)
            .mul(float(np.frombuffer(buffer, np.float32, 1)[0]))
            .to(dtype)
            .reshape(shape)
        )

    def estimate_compression_ratio(self, info):
        return 1 / 32


class Whole(hc.CompressionBase):
    """In the manner of hivemind: compress and extract."""

    compression_type = 201

    def compress(self, tensor, info, allow_inplace=False):
        return hc.SerializedTensor(
            buffer=tensor.numpy().tobytes(),
            size=tensor.shape,
            dtype="float32",
            requires_grad=tensor.requires_grad,
            compression=self.compression_type,
        )

    def extract(self, serialized_tensor):
        return torch.frombuffer(bytearray(serialized_tensor.buffer), dtype=torch.float32).reshape(
            tuple(serialized_tensor.size)
        )


def test_users_bring_codecs_of_their_own():
    hc.register_compression(Signs())
    hc.register_compression(Whole())
    tensor = normal((30, 7)).requires_grad_()
    chosen = hc.RoleAdaptiveCompression(gradient=Signs())
    serialized = chosen.compress(tensor, hc.CompressionInfo.from_tensor(tensor, role=hc.TensorRole.GRADIENT))
    data = serialized.SerializeToString()
    assert len(data) < 30 * 7 / 8 + 90
    for back in (hc.deserialize_torch_tensor(data), chosen.extract(serialized)):
        assert back.requires_grad and torch.equal(torch.sign(back), torch.sign(tensor))
    assert torch.equal(
        hc.deserialize_torch_tensor(hc.serialize_torch_tensor(normal((3, 3)), Whole()).SerializeToString()),
        normal((3, 3)),
    )
    assert torch.equal(hc.deserialize_torch_tensor(hc.serialize_torch_tensor(normal((3, 3)), 201)), normal((3, 3)))
    with pytest.raises(hivemind_c.HivemindValueError, match="no signs"):
        hc.deserialize_torch_tensor(hc.SerializedTensor(b"1234", (9,), dtype="float32", compression=200))


def test_a_dtype_that_a_library_lacks_is_named():
    for codec in (Signs.compression_type, 0):
        hc.register_compression(Signs())
        chunk = _hivemind_c.codec_encode(0, torch.ones(3, dtype=torch.bfloat16))
        with pytest.raises(hivemind_c.HivemindValueError, match="NumPy here has no dtype bfloat16"):
            hc.deserialize_torch_tensor(
                hc.SerializedTensor(chunk, (3,), dtype="bfloat16", compression=codec, numpy=True)
            )


def test_numbers_and_names_of_codecs_are_watched():
    hc.register_compression(Signs())
    hc.register_compression(Signs())  # again is fine
    thief = type("Thief", (Signs,), {"__qualname__": "Thief"})
    with pytest.raises(hivemind_c.HivemindValueError, match="is Signs's already"):
        hc.register_compression(thief())
    for number in (0, 5, 127, 256, -1, None, "x"):
        with pytest.raises(hivemind_c.HivemindValueError, match="from 128 to 255"):
            hc.register_compression(type("Off", (Signs,), {"compression_type": number})())
    with pytest.raises(hivemind_c.HivemindValueError, match="already"):
        hc.register_compression(type("Off", (Signs,), {"compression_type": hc.CompressionType.FLOAT16})())
    with pytest.raises(TypeError, match="an instance"):
        hc.register_compression(Signs)
    with pytest.raises(hivemind_c.HivemindLookupError, match="number 222 .'Theirs'., which is not known here"):
        hc.deserialize_torch_tensor(hc.SerializedTensor(b"", (0,), dtype="float32", compression=222, name="Theirs"))
    with pytest.raises(hivemind_c.HivemindLookupError, match="by 'Theirs', but number 200 is Signs here"):
        hc.deserialize_torch_tensor(hc.SerializedTensor(b"", (0,), dtype="float32", compression=200, name="Theirs"))


# ---- bytes that are not to be trusted ----


@ALL
def test_damaged_bytes_are_refused_or_decode_to_their_shape(codec):
    chance = random.Random(codec.compression_type)
    tensor = normal((37, 11))
    data = hc.serialize_torch_tensor(tensor, codec()).SerializeToString()
    refused = 0
    for trial in range(1500):
        damaged = bytearray(data)
        kind = trial % 4
        if kind == 0:
            del damaged[chance.randrange(len(data)) :]
        elif kind == 1:
            damaged += bytes(chance.randrange(1, 40))
        else:
            for _ in range(kind):
                damaged[chance.randrange(len(data) if kind == 3 else 90)] = chance.randrange(256)
        if damaged == data:
            continue
        try:
            back = hc.deserialize_torch_tensor(bytes(damaged))
        except (hivemind_c.HivemindValueError, hivemind_c.HivemindLookupError, hivemind_c.HivemindUnsupportedError):
            refused += 1
        else:
            assert (
                np.prod(tuple(back.shape)) == tensor.numel()
            )  # a flag or the shape's order may change; the checksum guards the rest
    assert refused > 1300


@pytest.mark.parametrize(
    "size",
    [(1 << 40,), (1 << 35,), (1 << 63,), (2**64 - 1, 2**64 - 1), (0, 1 << 63), (0,), (1,) * 64, (12,), (2, 5)],
    ids=str,
)
@ALL
def test_lying_sizes_allocate_nothing(codec, size):
    serialized = hc.serialize_torch_tensor(normal((10,)), codec())
    lie = hc.SerializedTensor(serialized.buffer, size, dtype="float32", compression=serialized.compression)
    started = time.perf_counter()
    if size == (2, 5):
        assert hc.deserialize_torch_tensor(lie).shape == size
        return
    with pytest.raises(hivemind_c.HivemindValueError, match="shape|contradict"):
        hc.deserialize_torch_tensor(lie)
    with pytest.raises(hivemind_c.HivemindValueError):
        hc.deserialize_torch_tensor(lie.SerializeToString())
    assert time.perf_counter() - started < 1


@ALL
def test_lying_headers_are_refused(codec):
    serialized = hc.serialize_torch_tensor(normal((10,)), codec())
    number = serialized.compression
    others = [n for n in hc.CompressionType if n != number]
    lies = [dict(compression=n) for n in others] + [
        dict(dtype=d) for d in ("float64", "bfloat16", "int64", "object", "", "nn", "load")
    ]
    for lie in lies:
        fields = dict(buffer=serialized.buffer, size=(10,), dtype="float32", compression=number)
        with pytest.raises(hivemind_c.HivemindValueError):
            hc.deserialize_torch_tensor(hc.SerializedTensor(**{**fields, **lie}))
    with pytest.raises(hivemind_c.HivemindValueError, match="compressed by number"):
        codec().extract(hc.SerializedTensor(serialized.buffer, (10,), dtype="float32", compression=others[0]))


def test_bytes_of_something_else_say_so():
    good = hc.serialize_torch_tensor(normal((10,))).SerializeToString()
    for bad, words in [
        (b"", "too short"),
        (b"x" * 100, "written by another program"),
        (good[:-1], "length"),
        (good + b"x", "length"),
        (good[:4] + b"\x02" + good[5:], "another version"),
        (good[:8] + b"\xff" + good[9:], "length"),
    ]:
        with pytest.raises(hivemind_c.HivemindValueError, match=words):
            hc.SerializedTensor.FromString(bad)
    chunk = hc.serialize_torch_tensor(normal((10,)))
    for buffer, words in [
        (chunk.buffer[:-1], "not a complete chunk"),
        (chunk.buffer[:-1] + b"\x99", "checksum"),
        (b"", "not a complete chunk"),
    ]:
        with pytest.raises(hivemind_c.HivemindValueError, match=words):
            hc.deserialize_torch_tensor(hc.SerializedTensor(buffer, (10,), dtype="float32"))


def test_messages_are_read_and_written_like_protobuf():
    serialized = hc.serialize_torch_tensor(normal((10, 3)), hc.CompressionType.FLOAT16)
    data = serialized.SerializeToString()
    assert serialized.ByteSize() == len(data)
    other = hc.SerializedTensor()
    assert other.ParseFromString(data) == len(data) and other == serialized
    assert (other.size, other.dtype, other.requires_grad, other.compression) == ((10, 3), "float32", False, 2)
    assert hc.CompressionType.Value("UNIFORM_8BIT") == 4 and hc.CompressionType.Name(4) == "UNIFORM_8BIT"
    assert hc.CompressionType.keys()[:3] == ["NONE", "MEANSTD_16BIT", "FLOAT16"]
    assert hc.CompressionType.values() == list(range(9)) and {type(n) for n in hc.CompressionType.values()} == {int}
    assert dict(hc.CompressionType.items()) == dict(zip(hc.CompressionType.keys(), range(9)))
    with pytest.raises(hivemind_c.HivemindValueError, match="cannot be written"):
        hc.SerializedTensor(b"", (1,) * 300).SerializeToString()


# ---- in parts ----


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
def test_parts_of_a_tensor_come_together_again(size):
    serialized = hc.serialize_torch_tensor(normal((13, 5)).requires_grad_(), hc.CompressionType.UNIFORM_8BIT)
    parts = [
        hc.SerializedTensor.FromString(part.SerializeToString()) for part in hc.split_for_streaming(serialized, size)
    ]
    assert hc.combine_from_streaming(parts) == serialized
    assert len(parts) == parts[0].chunks == -(-len(serialized.buffer) // size)
    for wrong in (parts[:-1], parts + parts[-1:], []):
        with pytest.raises(hivemind_c.HivemindValueError, match="parts of a tensor came"):
            hc.combine_from_streaming(wrong)


def test_a_stream_brings_several_tensors():
    tensors = [normal((50,)), normal((3, 3)), normal(()), torch.zeros(0)]
    parts = [part for t in tensors for part in hc.split_for_streaming(hc.serialize_torch_tensor(t), 40)]

    async def stream():
        for start in range(0, len(parts), 3):
            yield parts[start : start + 3]

    back = asyncio.run(hc.deserialize_tensor_stream(stream()))
    assert len(back) == 4 and all(torch.equal(a, b) for a, b in zip(back, tensors))


# ---- the binding ----


def test_the_gil_is_let_go_while_a_kernel_runs():
    """Another thread counts on while one long call runs; without that it would stand still for all of it."""
    tensor = normal((4_000_000,)).repeat(8)
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        for _ in range(20):
            started = time.perf_counter()
            chunk = _hivemind_c.codec_encode(_hivemind_c.CODECS.index("quantile8"), tensor)
            ended = time.perf_counter()
            inside = [t for t in ticks if started + 0.1 * (ended - started) < t < ended - 0.1 * (ended - started)]
            if len(inside) >= 3:
                break
    finally:
        stop.set()
        thread.join()
    assert len(inside) >= 3 and len(chunk) > len(tensor)


# Capsules without a version, and those with one where torch makes them: torch 2.6 does not.
VERSIONED = [False, True] if "max_version" in inspect.signature(torch.Tensor.__dlpack__).parameters else [False]


class Lender:
    """Lends by __dlpack__ alone, as older libraries do."""

    def __init__(self, tensor, versioned):
        self.tensor, self.versioned = tensor, versioned

    def __dlpack__(self):
        return self.tensor.__dlpack__(**({"max_version": (1, 0)} if self.versioned else {}))

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("versioned", VERSIONED)
@DTYPES
def test_memory_is_borrowed_through_plain_dlpack_too(versioned, dtype):
    tensor = normal((30, 5), dtype)
    chunk = _hivemind_c.codec_encode(0, Lender(tensor, versioned))
    assert chunk == _hivemind_c.codec_encode(0, tensor)
    out = torch.zeros(30, 5, dtype=dtype)
    _hivemind_c.codec_decode(chunk, Lender(out, versioned))
    assert torch.equal(out, tensor)


def test_all_ways_of_borrowing_agree():
    tensor = normal((1000,))
    lends_parameters = hasattr(
        torch.Tensor, "__dlpack_c_exchange_api__"
    )  # an older torch wants them detached, as the package does
    parameter = torch.nn.Parameter(tensor) if lends_parameters else torch.nn.Parameter(tensor).detach()
    chunks = {
        _hivemind_c.codec_encode(1, one)
        for one in (tensor, tensor.numpy(), memoryview(tensor.numpy()), Lender(tensor, VERSIONED[-1]), parameter)
    }
    assert len(chunks) == 1
    assert _hivemind_c.codec_encode(0, array.array("d", [1.5, 2.5])) == _hivemind_c.codec_encode(
        0, np.array([1.5, 2.5])
    )
    for chunk_as in (bytearray, memoryview, lambda c: np.frombuffer(c, np.uint8)):
        out = np.empty(1000, np.float32)
        _hivemind_c.codec_decode(chunk_as(chunks.copy().pop()), out)
        assert np.allclose(out, tensor, atol=1e-2)


def test_unusable_buffers_are_refused_by_name():
    chunk = _hivemind_c.codec_encode(0, torch.ones(4))
    frozen = np.ones(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-only|not writable"):
        _hivemind_c.codec_decode(chunk, frozen)
    for wrong, words in [
        (torch.ones(4, dtype=torch.int32), "must hold float32"),
        (np.ones(4, ">f4"), "must hold float32"),
        (np.ones(4, [("a", "f4")]), "must hold float32"),
        (torch.ones(8)[::2], "must be contiguous"),
        (np.ones(8, np.float32)[::-1], "must be contiguous"),
        (np.frombuffer(b"123456789", np.uint8)[1:].view(np.float32), "must be contiguous"),
    ]:
        with pytest.raises(hivemind_c.HivemindValueError, match=words):
            _hivemind_c.codec_encode(0, wrong)
    for nothing in (None, 7, "text", object()):
        with pytest.raises(TypeError, match="a torch tensor or a NumPy array is needed"):
            _hivemind_c.codec_encode(0, nothing)
    with pytest.raises(TypeError):
        _hivemind_c.codec_decode("text", np.ones(4, np.float32))


def refused(call, *arguments):
    with pytest.raises(hivemind_c.HivemindValueError):
        call(*arguments)


def borrow_often(chunk, *lenders):
    for one in lenders:
        for _ in range(200):
            _hivemind_c.codec_encode(3, one)
            _hivemind_c.codec_decode(chunk, one)
            refused(_hivemind_c.codec_encode, 99, one)
            refused(_hivemind_c.codec_decode, chunk[:-1], one)


def test_borrowing_leaks_nothing():
    tensor, array, lender = normal((100,)), np.ones(100, np.float32), Lender(normal((100,)), VERSIONED[-1])
    chunk = _hivemind_c.codec_encode(0, tensor)
    objects = tensor, array, lender, lender.tensor, chunk
    before = [sys.getrefcount(one) for one in objects]
    borrow_often(chunk, tensor, array, lender)
    gc.collect()
    assert [sys.getrefcount(one) for one in objects] == before


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["torch", "numpy", "hivemind_c.compression"])), ids=", ".join
)
def test_codecs_work_with_any_import_order_of_torch_and_numpy(program, order):
    code, out, err = program(
        f"""
        import {order[0]}
        import {order[1]}
        import {order[2]}
        from hivemind_c import Linear8BitQuantization

        for ones in (torch.ones(100), numpy.ones(100, numpy.float32)):
            codec = Linear8BitQuantization()
            print(float(codec.extract(codec.compress(ones)).sum()))
        """
    ).finish(timeout=120)
    assert (code, out, err) == (0, "100.0\n100.0\n", "")


def test_neither_torch_nor_numpy_is_needed_to_import_it(program):
    code, out, err = program(
        """
        import sys
        import hivemind_c.compression
        print("torch" in sys.modules, "numpy" in sys.modules)
        """
    ).finish()
    assert (code, out, err) == (0, "False False\n", "")


def test_public_names_are_at_the_top_too():
    for name in (
        "NoCompression Float16Compression ScaledFloat16Compression Uniform8BitQuantization Quantile8BitQuantization "
        "BlockwiseQuantization "
        "SizeAdaptiveCompression RoleAdaptiveCompression PerTensorCompression CompressionBase CompressionInfo "
        "TensorRole "
        "serialize_torch_tensor deserialize_torch_tensor"
    ).split():
        assert getattr(hivemind_c, name) is getattr(hc, name)
    assert repr(hc.Float16Compression()) == "hivemind_c.Float16Compression()"
