"""The codecs on a GPU, from Python. Tests that need hardware are skipped by name where there is none; the binding and
the shim above
it are tried on a stand-in of plain C, which takes the CPU's tensors."""

import itertools
import os
import re
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import _hivemind_c
import pytest
import torch

import hivemind_c
from hivemind_c import cuda
from hivemind_c.compression import codecs
from support import makes

ROOT = Path(__file__).resolve().parents[3]
DTYPES = torch.float32, torch.float16, torch.bfloat16
LOST = 1000  # a stand-in with this number, or a higher one, is lost after so many calls


@pytest.fixture(scope="module")
def stand_in():
    """Or the library itself over a driver for tests (test_cuda_driver.py)."""
    if os.environ.get("CUDA_STAND_IN"):
        return os.environ["CUDA_STAND_IN"]
    makes("cuda-stand-in")
    return str(ROOT / "csrc/build/rel/libhivemind_cuda_stand_in.so")


@pytest.fixture(params=["stand-in", "gpu"])
def place(request):
    """(kernels, the device of their tensors)"""
    if request.param == "stand-in":
        return cuda.Kernels(0, request.getfixturevalue("stand_in")), "cpu"
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    assert cuda.why_not() is None
    return cuda.Kernels(0), "cuda"


def values(n, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(n, generator=generator) / (torch.rand(n, generator=generator) + 1e-3)).to(dtype)


def on_the_cpu(name, tensor, residual=None):
    width = tensor.shape[-1] if tensor.dim() else 1
    return _hivemind_c.codec_encode(_hivemind_c.CODECS.index(name), tensor, residual, width)


def bytes_of(chunk):
    return chunk.cpu().numpy().tobytes()


def decoded(chunk, like):
    out = torch.empty_like(like)
    _hivemind_c.codec_decode(chunk, out)
    return out


def test_a_chunk_has_the_cpus_bytes_and_its_values_come_back(place):
    kernels, device = place
    for name, dtype, n in itertools.product(_hivemind_c.CODECS, DTYPES, (0, 1, 4097, 100_003, 1_100_000)):
        tensor = values(n, dtype)
        chunk = kernels.encode(name, tensor.to(device))
        assert bytes_of(chunk) == on_the_cpu(name, tensor), (name, dtype, n)
        for into in DTYPES:
            out = torch.full((n,), 7, dtype=into, device=device)
            verdict = kernels.check(chunk, name, dtype, n)
            kernels.decode(chunk, name, dtype, out, verdict)
            assert verdict.item() == 0
            assert torch.equal(out.cpu(), decoded(on_the_cpu(name, tensor), out.cpu())), (name, dtype, n, into)


def test_a_tensor_that_is_no_plain_row_is_encoded_as_its_copy_is(place):
    kernels, device = place
    tensor = values(6000, torch.float32).reshape(60, 100).to(device)
    assert bytes_of(kernels.encode("linear8", tensor.t())) == on_the_cpu("linear8", tensor.cpu().t().contiguous())
    assert bytes_of(kernels.encode("linear8", tensor.reshape(-1)[1:])) == on_the_cpu(
        "linear8", tensor.cpu().reshape(-1)[1:]
    )
    assert bytes_of(kernels.encode("linear8", torch.nn.Parameter(tensor))) == on_the_cpu("linear8", tensor.cpu())


def test_residual_equals_the_cpus(place):
    kernels, device = place
    tensor, rest = values(5000, torch.bfloat16), values(5000, torch.float32, 1)
    there = rest.to(device).clone()
    for name in _hivemind_c.CODECS[1:]:
        assert bytes_of(kernels.encode(name, tensor.to(device), there)) == on_the_cpu(name, tensor, rest)
        assert torch.equal(there.cpu(), rest)


def test_damage_is_seen_and_nothing_is_written(place):
    kernels, device = place
    chunk = bytearray(on_the_cpu("uniform8", values(5000, torch.float32)))
    chunk[-1] ^= 1
    there, out = torch.frombuffer(chunk, dtype=torch.uint8).clone().to(device), torch.full((5000,), 7.0, device=device)
    aligned = torch.empty(len(chunk) + 16, dtype=torch.uint8, device=device)
    aligned = aligned[-aligned.data_ptr() % 16 :][: len(chunk)].copy_(there)
    verdict = kernels.check(aligned, "uniform8", torch.float32, 5000)
    kernels.decode(aligned, "uniform8", torch.float32, out, verdict)
    assert _hivemind_c.STATUSES[verdict.item()] == "CORRUPT"
    assert torch.equal(out.cpu(), torch.full((5000,), 7.0))


def test_sixteen_chunks_are_added_as_the_cpu_adds_them(place):
    kernels, device = place
    total, inputs = values(9000, torch.float32), []
    expected = total.clone()
    there = total.to(device).clone()
    for i in range(16):
        name, dtype = _hivemind_c.CODECS[i % len(_hivemind_c.CODECS)], DTYPES[i % 3]
        tensor = values(9000, dtype, i).clamp(-60000, 60000)
        inputs.append((kernels.encode(name, tensor.to(device)), name, dtype, 0.1 * i))
        _hivemind_c.codec_accumulate(on_the_cpu(name, tensor), 0.1 * i, expected)
    kernels.add(there, inputs)
    assert torch.equal(there.cpu(), expected)
    with pytest.raises(hivemind_c.HivemindValueError, match="1 to 16"):
        kernels.add(there, [*inputs, inputs[0]])


def test_many_gradients_are_added_up_at_once(place):
    kernels, device = place
    tensors = [values(1 + i % 7, DTYPES[i % 3], i).to(device) for i in range(1500)]
    sums = [values(t.numel(), torch.float32, 5).to(device) for t in tensors]
    expected = [(s.cpu() + 0.5 * t.cpu().float()) for s, t in zip(sums, tensors)]  # a product with 0.5 is exact
    kernels.accumulate(0.5, tensors, sums)
    assert all(torch.equal(s.cpu(), e) for s, e in zip(sums, expected))
    kernels.accumulate(0.5, [], [])
    with pytest.raises(hivemind_c.HivemindValueError, match="as large as"):
        kernels.accumulate(1, [tensors[0]], [sums[1]])


def test_a_nan_is_found(place):
    kernels, device = place
    for dtype in DTYPES:
        tensor = torch.zeros(10_001, dtype=dtype, device=device)
        assert kernels.all_finite(tensor).item()
        tensor[-1] = float("nan")
        assert not kernels.all_finite(tensor).item()


def test_a_tensor_goes_through_the_ring_and_comes_back(place):
    kernels, device = place
    tensor = values(70_001, torch.float32)
    stage, sent = kernels.stage("blockwise8", torch.float32, 10_000), []
    stage.send(tensor.to(device), lambda index, chunk: sent.append(chunk))
    assert sent == [on_the_cpu("blockwise8", part) for part in tensor.split(10_000)]
    out = torch.zeros(70_001, device=device)
    stage.receive(out, lambda index: sent[index])
    assert torch.equal(out.cpu(), torch.cat([decoded(chunk, part) for chunk, part in zip(sent, tensor.split(10_000))]))
    with pytest.raises(ZeroDivisionError):
        stage.receive(out, lambda index: b"" if index < 0 else 1 / 0)
    with pytest.raises(hivemind_c.HivemindValueError, match="another dtype"):
        stage.send(tensor.half().to(device), print)
    with pytest.raises(hivemind_c.HivemindError, match="chunk 3"):
        stage.receive(
            out, lambda index: sent[index] if index != 3 else sent[3][:-1] + b"\0\0"[: 1 + (sent[3][-1] == 0)]
        )
    with pytest.raises(hivemind_c.HivemindError, match="page-locked"):
        kernels.stage("none", torch.float32, 1 << 20, 8, 1 << 20)


def test_wrong_tensors_are_refused_in_a_sentence(place):
    kernels, device = place
    good = torch.zeros(100, device=device)
    chunk = kernels.encode("none", good)
    with pytest.raises(hivemind_c.HivemindValueError, match="size that its header says"):
        kernels.decode(chunk, "none", torch.float32, torch.zeros(101, device=device))
    with pytest.raises(hivemind_c.HivemindValueError, match="contiguous"):
        kernels.decode(chunk, "none", torch.float32, torch.zeros(200, device=device)[::2])
    with pytest.raises(hivemind_c.HivemindValueError, match="float32"):
        kernels.encode("linear8", good, torch.zeros(99, device=device))
    if device == "cuda":
        with pytest.raises(hivemind_c.HivemindValueError, match="on the GPU"):
            kernels.add(torch.zeros(100), [(chunk, "none", torch.float32, 1.0)])


# ---- where there are no kernels ----


def test_missing_kernels_are_named_in_one_sentence(stand_in, tmp_path):
    with pytest.raises(
        hivemind_c.HivemindUnsupportedError,
        match="nowhere.so is missing from this installation; install hivemind_c again",
    ):
        cuda.Kernels(0, str(tmp_path / "nowhere.so"))
    (tmp_path / "bad.so").write_bytes(b"no library")
    with pytest.raises(hivemind_c.HivemindUnsupportedError, match="bad.so"):
        cuda.Kernels(0, str(tmp_path / "bad.so"))
    with pytest.raises(hivemind_c.HivemindLookupError, match="no GPU number 3"):
        cuda.Kernels(3, stand_in)
    if not torch.cuda.is_available():
        assert cuda.why_not() and "\n" not in cuda.why_not()
    assert cuda.kernels_for(torch.zeros(3)) is None  # not a GPU's
    assert cuda.compressed("none", torch.zeros(3)) is None


def test_a_lost_gpu_is_told_once_and_then_the_host_does_the_work(stand_in, monkeypatch, caplog):
    monkeypatch.setattr(cuda, "kernels_for", lambda tensor: cuda._opened[0][0])
    tensor, codec = values(5000, torch.float32), hivemind_c.Uniform8BitQuantization()
    for calls in range(8):  # it is lost later and later
        monkeypatch.setitem(cuda._opened, 0, (cuda.Kernels(LOST + calls, stand_in), None))
        caplog.clear()
        assert [codec.compress(tensor).buffer for _ in range(3)] == 3 * [on_the_cpu("uniform8", tensor)]
        told = [record.getMessage() for record in caplog.records]
        lost = cuda._opened[0][0] is None
        assert len(told) == lost and all("host's memory" in words for words in told)
        assert cuda.why_not() is None or lost
    assert calls == 7 and cuda._opened[0][1] is not None


def test_device_of_many_gradients_is_looked_up_once(stand_in, monkeypatch):
    kernels, asked = cuda.Kernels(0, stand_in), []
    monkeypatch.setattr(cuda, "kernels_for", lambda tensor: asked.append(tensor) or kernels)
    grads = [values(i % 7, DTYPES[i % 3]) for i in range(100)]
    assert cuda.averages(grads) and len(asked) == 1
    for odd in (values(8, torch.float64), values(8, torch.float32)[::2], values(8, torch.float32).to_sparse(), [1.0]):
        assert not cuda.averages([*grads, odd])
    monkeypatch.setattr(cuda, "kernels_for", lambda tensor: None)
    assert not cuda.averages(grads)


def test_compress_goes_by_the_kernels_where_they_are(stand_in, monkeypatch):
    kernels, seen = cuda.Kernels(0, stand_in), []

    class Watched:
        def encode(self, codec, tensor):
            seen.append(codec)
            return kernels.encode(codec, tensor)

    monkeypatch.setattr(cuda, "kernels_for", lambda tensor: Watched())
    tensor = values(5000, torch.float32).reshape(50, 100).requires_grad_()
    for codec in codecs.BUILT_IN:
        serialized = codec().compress(tensor)
        assert (
            serialized.buffer == on_the_cpu(codec.codec_name, tensor.detach())
            and serialized.size == (50, 100)
            and serialized.requires_grad
        )
    assert seen == [codec.codec_name for codec in codecs.BUILT_IN]


def test_rows_come_back_from_the_device_as_from_the_cpu(stand_in):
    kernels = cuda.Kernels(0, stand_in)
    tensor = values(6000, torch.float32).reshape(60, 100) * torch.logspace(-6, 6, 60)[:, None]
    chunk = kernels.encode("scaled_rows", tensor)
    assert bytes_of(chunk) == on_the_cpu("scaled_rows", tensor)
    assert kernels.check(chunk, "scaled_rows", torch.float32, 6000, width=100).item() == 0
    assert kernels.check(chunk, "scaled_rows", torch.float32, 6000, width=101).item() != 0
    out, want = torch.empty(60, 100), torch.empty(60, 100)
    kernels.decode(chunk, "scaled_rows", torch.float32, out)
    _hivemind_c.codec_decode(bytes_of(chunk), want)
    assert torch.equal(out, want)


def test_a_forked_child_is_told_that_it_cannot(stand_in):
    source = f"""
import os, sys
sys.path.insert(0, {str(ROOT / "python")!r})
import torch, hivemind_c
from hivemind_c import cuda
kernels = cuda.Kernels(0, {stand_in!r})
child = os.fork()
if child == 0:
    try:
        kernels.encode("none", torch.zeros(3))
    except hivemind_c.HivemindError as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert done.returncode == 7, done.stderr


def test_library_loads_without_a_driver_or_a_cuda_library():
    library = Path(cuda._LIBRARY)
    listed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"NEEDED.*\[(.*?)\]", listed)) <= {"libc.so.6", "libm.so.6", "libdl.so.2"}
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout.split()
    assert symbols[2::3] == ["hv_cuda_api_of"]
    if not torch.cuda.is_available():
        with pytest.raises(hivemind_c.HivemindError, match="no GPU can be used") as told:
            cuda.Kernels(0)
        if not find_library("cuda"):
            assert told.value.status == "NOT_FOUND" and re.search(
                "no driver for NVIDIA's GPUs here .*; install driver 530 or later", str(told.value)
            )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu_only_the_chunk_comes_to_the_host():
    tensor = values(1 << 20, torch.float32).cuda()
    want = hivemind_c.Uniform8BitQuantization().compress(tensor.cpu()).buffer
    assert hivemind_c.Uniform8BitQuantization().compress(tensor).buffer == want


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu_parallel_streams_give_the_same_chunks():
    kernels = cuda.Kernels(0)
    tensors = [values(300_000 + i, torch.float32, i).cuda() for i in range(6)]
    torch.cuda.synchronize()
    streams, chunks = [torch.cuda.Stream() for _ in tensors], []
    for turn in range(5):
        for i, (stream, tensor) in enumerate(zip(streams, tensors)):
            with torch.cuda.stream(stream):
                chunks.append((i, kernels.encode(_hivemind_c.CODECS[(turn + i) % 9], tensor)))
    torch.cuda.synchronize()
    for turn in range(5):
        for i, chunk in chunks[6 * turn : 6 * turn + 6]:
            assert bytes_of(chunk) == on_the_cpu(_hivemind_c.CODECS[(turn + i) % 9], tensors[i].cpu())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu_a_stage_keeps_its_limit_of_pinned_memory():
    kernels = cuda.Kernels(0)
    free = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        kernels.stage("none", torch.float32, 1 << 20, 4)
    assert torch.cuda.mem_get_info()[0] > free - (64 << 20)
