"""Rounds over tensors on a GPU: one peer has its tensors there, the other in the host's memory, and both end with the
same bits. Where
there is no GPU a stand-in of plain C takes the CPU's tensors; what only hardware can show is skipped by name."""

import contextlib
import logging
from pathlib import Path

import _hivemind_c
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import hivemind_c
from hivemind_c import DHT, DecentralizedAverager, HivemindError, cuda
from hivemind_c.averaging.tensors import LentTensors
from hivemind_c.compression import codecs
from hivemind_c.optim import parameters
from hivemind_c.optim.grad_averager import GradientAverager
from hivemind_c.optim.parameters import add_up
from optim_support import Peer, network
from optim_support import together as in_threads
from support import eventually, makes

ROOT = Path(__file__).resolve().parents[3]
LOST = 1000  # a stand-in with this number, or a higher one, is lost after so many calls


@pytest.fixture(scope="module")
def stand_in():
    makes("cuda-stand-in")
    return str(ROOT / "csrc/build/rel/libhivemind_cuda_stand_in.so")


class Place:
    """Where the tensors of a peer on a GPU are; within on_gpu() tensors of the CPU are taken for a stand-in's."""

    def __init__(self, device, library, monkeypatch):
        self.device, self.library, self.inside = device, library, False
        self.kernels = None
        if device == "cpu":
            monkeypatch.setattr(
                cuda, "kernels_for", lambda tensor: self.kernels if self.inside and cuda.Kernels.takes(tensor) else None
            )
            monkeypatch.setattr(cuda, "_opened", {})

    @contextlib.contextmanager
    def on_gpu(self, number=0):
        if self.device == "cpu":
            self.kernels = cuda.Kernels(number, self.library)
        self.inside = True
        yield
        self.inside = False


@pytest.fixture(params=["stand-in", "gpu"])
def place(request, monkeypatch):
    if request.param == "stand-in":
        return Place("cpu", request.getfixturevalue("stand_in"), monkeypatch)
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    assert cuda.why_not() is None
    return Place("cuda", None, monkeypatch)


@pytest.fixture
def dhts():
    first = DHT(start=True)
    second = DHT(first.get_visible_maddrs(), start=True, wait_timeout=30, startup_timeout=90)
    assert eventually(lambda: first.state()["peers"] and second.state()["peers"])
    yield first, second
    first.shutdown(), second.shutdown()


def tensors_of(seed):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(300, 100), (1,), (7, 5, 3), (0, 4), (70_001,), (4000,), (), (5000,)]
    dtypes = [
        torch.float32,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.bfloat16,
        torch.float64,
        torch.float16,
    ]
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape, dtype in zip(shapes, dtypes)
    ]


def together(*averagers, **options):
    controls = [one.step(wait=False, timeout=60, expected=len(averagers), **options) for one in averagers]
    return [control.exception(70) or control.result() for control in controls]


def both(place, dhts, there, here, number=0, **options):
    options = {"prefix": "test", "start": True, "min_matchmaking_time": 20, "part_size_bytes": 40_000, **options}
    with place.on_gpu(number):
        on_gpu = DecentralizedAverager(there, dhts[0], **options)
    return on_gpu, DecentralizedAverager(here, dhts[1], **options)


def test_gpu_and_host_hold_the_same_average_under_every_codec(place, dhts):
    for codec in codecs.BUILT_IN:
        there, here = [t.to(place.device) for t in tensors_of(1)], tensors_of(2)
        before = [(a.cpu().double() + b.double()) / 2 for a, b in zip(there, here)]
        on_gpu, on_host = both(place, dhts, there, here, compression=codec(), prefix=codec.__name__)
        assert len(on_gpu._tensors._transfers_by_device) == 1 and not on_host._tensors._transfers_by_device
        assert (
            sum(transfers is not None for _, _, transfers, *_ in on_gpu._tensors.loans) == 7
        )  # all but the one in float64
        gathered = together(on_gpu, on_host)
        assert gathered[0] == gathered[1] and len(gathered[0]) == 2
        assert all(torch.equal(a.cpu(), b) for a, b in zip(there, here)), codec
        if codec is hivemind_c.NoCompression:
            assert all(torch.allclose(b.double(), mean, atol=2e-2) for b, mean in zip(here, before))
        on_gpu.shutdown(), on_host.shutdown()


def test_changes_within_get_tensors_are_averaged(place, dhts):
    there, here = [torch.zeros(50_000, device=place.device)], [torch.zeros(50_000)]
    on_gpu, on_host = both(place, dhts, there, here)
    for turn in range(3):
        with on_gpu.get_tensors() as (tensor,):
            for _ in range(20):
                tensor.add_(0.1)
        together(on_gpu, on_host)
        assert torch.equal(there[0].cpu(), here[0])
        assert here[0][0].item() == pytest.approx(turn + 1, rel=1e-5)
    on_gpu.shutdown(), on_host.shutdown()


def test_tensors_without_a_kernel_go_through_the_host(place):
    with place.on_gpu():
        lent = LentTensors(
            [torch.zeros(5, dtype=torch.float64, device=place.device)], hivemind_c.NoCompression(), chunk_values=100
        )
        assert lent.loans[0][2] is None and lent.staged == (place.device == "cuda")
        lent = LentTensors([torch.zeros(5, device=place.device)], hivemind_c.NoCompression(), chunk_values=0)
        assert lent.loans[0][2] is None
        lent = LentTensors([torch.zeros(5, device=place.device)], hivemind_c.NoCompression(), chunk_values=100)
        assert (
            lent.loans[0][2] is not None
            and not lent.staged
            and lent.loans[0][0].data_ptr() == lent.tensors[0].data_ptr()
        )


def test_failed_gpu_is_reported_once_and_the_host_takes_over(stand_in, dhts, monkeypatch, caplog):
    place = Place("cpu", stand_in, monkeypatch)
    there, here = [torch.full((30_000,), 1.0)], [torch.full((30_000,), 3.0)]
    on_gpu, on_host = both(place, dhts, there, here, LOST + 30, sender_timeout=3)
    with caplog.at_level(logging.WARNING):
        first = together(on_gpu, on_host)
        assert isinstance(first[0], HivemindError) and "device" in str(first[0])
        assert set(there[0].tolist()) <= {1.0, 2.0}  # the average or what was there
        there[0].fill_(1), here[0].fill_(3)
        assert not isinstance(together(on_gpu, on_host)[0], HivemindError)
    assert torch.equal(there[0], here[0]) and here[0][0] == 2
    told = [record.getMessage() for record in caplog.records if record.name == "hivemind_c.cuda"]
    assert len(told) == 1 and "tensors now go through the host's memory" in told[0]
    on_gpu.shutdown(), on_host.shutdown()


def test_full_gpu_is_reported_once_and_the_host_takes_over(stand_in, dhts, monkeypatch, caplog):
    place = Place("cpu", stand_in, monkeypatch)
    there, here = [torch.full((30_000,), 1.0)], [torch.full((30_000,), 3.0)]
    with caplog.at_level(logging.WARNING):
        on_gpu, on_host = both(place, dhts, there, here, LOST + 2)
        together(on_gpu, on_host)
    assert torch.equal(there[0], here[0]) and here[0][0] == 2
    assert len([record for record in caplog.records if record.name == "hivemind_c.cuda"]) == 1
    on_gpu.shutdown(), on_host.shutdown()


def test_sums_are_averaged_on_the_gpu_without_new_memory(place, dhts):
    """With reuse_grad_buffers the sums are the gradients' own memory; without it there is one copy of them, the
    sums."""
    for reuse in (True, False):
        model = network().to(place.device)
        with place.on_gpu():
            averager = GradientAverager(
                model.parameters(), dht=dhts[0], prefix=f"reuse {reuse}", reuse_grad_buffers=reuse, start=False
            )
        memory = {view.untyped_storage().data_ptr() for view in averager._views}
        assert len(memory) == 1 and averager.averaged_grads is averager._views
        lent = {
            tensor.untyped_storage().data_ptr()
            for tensor, _, transfers, *_ in averager._tensors.loans
            if tensor.numel() > 2
        }
        assert lent == memory
        if reuse:
            assert {p.grad.untyped_storage().data_ptr() for p in model.parameters()} == memory
        averager.shutdown()


def test_mixed_gradients_are_added_up_as_torch_adds_them(place):
    grads = [
        torch.randn(1 + i, generator=torch.Generator().manual_seed(i)).to(torch.bfloat16).to(place.device)
        for i in range(50)
    ]
    sums = [torch.randn(1 + i, generator=torch.Generator().manual_seed(99 + i)).to(place.device) for i in range(50)]
    expected = [
        total.cpu() + 0.5 * grad.cpu().float() for grad, total in zip(grads, sums)
    ]  # a product with 0.5 is exact
    with place.on_gpu():
        add_up(sums, grads, 0.5)
    assert all(torch.equal(total.cpu(), want) for total, want in zip(sums, expected))


class Watched(TorchDispatchMode):
    """The calls of torch: copies, and what is allocated where."""

    def __init__(self):
        super().__init__()
        self.copies, self.allocated, self.pinned = [], [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = function.__name__.split(".")[0]
        self.pinned += bool(kwargs.pop("pin_memory", False))  # there is none without a GPU
        out = function(*args, **kwargs)
        if name == "_foreach_copy_":
            self.copies += [
                (
                    one.device.type,
                    other.device.type,
                    one.dtype == other.dtype,
                    kwargs.get("non_blocking", args[2] if len(args) > 2 else False),
                )
                for one, other in zip(*args[:2])
            ]
        elif isinstance(out, torch.Tensor) and name in (
            "zeros",
            "empty",
            "_to_copy",
            "clone",
            "empty_like",
            "zeros_like",
        ):
            self.allocated.append(out.device.type)
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_offloaded_values_cross_by_pinned_copies_unwaited(dtype, monkeypatch):
    """Nobody waits for the copies, and nothing is allocated on the GPU. Shown on tensors without memory that claim a
    GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: type("Stream", (), {"record_event": lambda self: "recorded"})()
    )
    with FakeTensorMode():
        model = [torch.empty(shape, dtype=dtype, device="cuda") for shape in ((30, 20), (7,))]
        sums = [torch.empty(t.shape, device="cuda") for t in model]
        with Watched() as seen:
            main = parameters.flat_views(model, device="cpu", pin=True)
            grads = parameters.flat_views(main, pin=True)
            assert all(t.dtype is torch.float32 and t.device.type == "cpu" for t in main + grads) and seen.pinned == 2
            assert parameters.copy_soon(grads, sums) == ["recorded"]
            assert seen.copies == 2 * [("cpu", "cuda", True, True)]
            assert parameters.copy_soon(model, main) == ["recorded"]
            assert seen.copies[2:] == 2 * [("cuda", "cpu", True, True)]
            assert seen.pinned == (2 if dtype is torch.float32 else 4)
            assert "cuda" not in seen.allocated and seen.allocated


def test_sums_of_16_bits_are_widened_on_the_host_in_parts(monkeypatch):
    """Torch would widen them on the GPU, and take memory there: with reuse_grad_buffers nothing may be."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    waits = []
    event = type("Event", (), {"synchronize": lambda self: waits.append(1)})
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: type("Stream", (), {"record_event": lambda self: event()})()
    )
    monkeypatch.setattr(parameters, "LANDING", 600)
    with FakeTensorMode():
        sums = [torch.empty(shape, dtype=torch.bfloat16, device="cuda") for shape in ((30, 20), (7,), (9,), (40, 40))]
        plain = torch.empty(5, device="cuda")
        averaged = parameters.flat_views([*sums, plain], device="cpu", pin=True)
        with Watched() as seen:
            parameters.copy_all(averaged, [*sums, plain])
    came, widened = ("cpu", "cuda", True, True), ("cpu", "cpu", False, False)
    assert seen.copies == [came, came, widened, came, came, widened, widened, came, widened] and len(waits) == 4
    assert seen.pinned == 4 and "cuda" not in seen.allocated


def test_sums_begin_where_kernels_read_16_bytes_at_a_time():
    like = [torch.zeros(n, dtype=dtype) for n in (1, 7, 0, 33, 64, 5) for dtype in (torch.float32, torch.bfloat16)]
    for views in (parameters.flat_views(like), parameters.flat_views(like, halves=True)):
        assert all(view.data_ptr() % 16 == 0 for view in views if view.numel()) and [view.shape for view in views] == [
            t.shape for t in like
        ]
        for i, view in enumerate(views):
            view.fill_(i)
        assert all(torch.equal(view, torch.full_like(view, i)) for i, view in enumerate(views))  # none lies in another


@pytest.mark.parametrize(
    "options", [{}, {"reuse_grad_buffers": True}, {"offload_optimizer": True}], ids=["", "reusing buffers", "offloaded"]
)
def test_a_gpu_and_a_host_train_to_the_same_bits(place, dhts, options):
    """On the stand-in the models end alike to the bit; on a GPU torch's own arithmetic may round otherwise, so there
    the averaged gradients are compared."""
    models, seen = [network().to(place.device), network()], ([], [])
    options = {"grad_compression": hivemind_c.Uniform8BitQuantization(), **options}
    with place.on_gpu():
        first = Peer(0, dhts[0], models[0], **options)
    peers = first, Peer(1, dhts[1], models[1], **options)
    if place.device == "cuda" or "offload_optimizer" not in options:
        assert bool(first.optimizer.grad_averager._tensors._transfers_by_device) == ("offload_optimizer" not in options)
    for peer, averages in zip(peers, seen):
        peer.optimizer.averaged_grad_hook = lambda parameters, averages=averages: averages.append(
            torch.cat([p.grad.flatten().cpu() for p in parameters])
        )
    in_threads(*(lambda peer=peer: peer.wait_for(2) for peer in peers))
    in_threads(*(lambda peer=peer: peer.train(4) for peer in peers))
    assert len(seen[0]) >= 4 and all(torch.equal(one, other) for one, other in zip(*seen))
    if place.device == "cpu":
        assert all(torch.equal(first.after[epoch], peers[1].after[epoch]) for epoch in range(3))
    for peer in peers:
        peer.optimizer.shutdown()
