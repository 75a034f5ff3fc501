"""PowerSGD on torch's tensors: against float64, through whole rounds of several peers, and whatever may go wrong in
them."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from hivemind_c._lowrank import LowRank
from support import makes

ROOT = Path(__file__).resolve().parents[3]
PORTABLE = pytest.mark.parametrize("portable", [False, True], ids=["kernels", "aten"])


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def average(lists):
    return [torch.stack(list(same)).mean(0) for same in zip(*lists)]


def play(peers, grads, round_id):
    """One round of all peers; what each of them ends with."""
    ps = average([[p.clone() for p in peer.encode(round_id, g)] for peer, g in zip(peers, grads)])
    qs = average([[q.clone() for q in peer.middle(round_id, ps)] for peer in peers])
    outs = [[torch.empty_like(t) for t in g] for g in grads]
    for peer, out in zip(peers, outs):
        peer.decode(round_id, qs, out)
    return outs


@PORTABLE
@pytest.mark.parametrize("shape", [(40, 30), (17, 201), (300, 5), (3, 5, 7, 11), (64, 32, 3, 3)])
def test_a_round_equals_the_formulas_in_float64(shape, portable):
    rank = 2
    grads = [randn(*shape, seed=i) for i in range(3)]
    peers = [LowRank([g], rank, 0.0, seed=9, portable=portable) for g in grads]
    rows, cols = peers[0].residuals[0].shape
    for i, peer in enumerate(peers):
        peer.residuals[0].copy_(randn(rows, cols, seed=10 + i))
    matrices = [g.double().reshape(rows, cols) + peer.residuals[0].double() for g, peer in zip(grads, peers)]
    outs = play(peers, [[g] for g in grads], 1)

    sketch = peers[0]._sketches[0].double()
    basis, _ = torch.linalg.qr(sum(m @ sketch.t() for m in matrices) / 3)
    mean = sum(matrices) / 3
    want = basis @ (basis.t() @ mean)
    for out, peer, matrix in zip(outs, peers, matrices):
        assert torch.equal(out[0], outs[0][0])
        assert out[0].shape == shape
        torch.testing.assert_close(out[0].double().reshape(rows, cols), want, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(peer.residuals[0].double(), matrix - want, rtol=1e-4, atol=1e-4)


@PORTABLE
def test_nothing_is_lost_over_rounds(portable):
    """The sent values and the residuals add up to all gradients, whatever the rank."""
    peer = LowRank([torch.empty(30, 50)], 2, 0.0, portable=portable)
    total, sent = torch.zeros(30, 50, dtype=torch.float64), torch.zeros(30, 50, dtype=torch.float64)
    for round_id in range(20):
        grad = randn(30, 50, seed=round_id)
        total += grad
        sent += play([peer], [[grad]], round_id)[0][0]
    torch.testing.assert_close(sent + peer.residuals[0], total, rtol=0, atol=1e-4)
    assert peer.residuals[0].norm() < 0.95 * total.norm()


@PORTABLE
def test_a_matrix_of_low_rank_arrives_whole(portable):
    grad = randn(60, 3, seed=1) @ randn(3, 80, seed=2)
    peer = LowRank([grad], 4, 0.0, portable=portable)
    out = play([peer], [[grad]], 0)[0][0]
    torch.testing.assert_close(out, grad, rtol=1e-4, atol=1e-4)
    assert peer.residuals[0].abs().max() < 1e-4


@PORTABLE
def test_a_retried_round_counts_once(portable):
    grad = randn(40, 60, seed=1)
    calm, retrying = (LowRank([grad], 4, 0.0, seed=3, portable=portable) for _ in range(2))
    for peer in (calm, retrying):
        play([peer], [[randn(40, 60, seed=5)]], 1)
    for _ in range(3):
        retrying.encode(2, [grad])
    ps = [p.clone() for p in retrying.encode(2, [grad])]
    retrying.middle(2, ps)
    retrying.encode(2, [grad])
    for _ in range(3):
        qs = [q.clone() for q in retrying.middle(2, ps)]
    out = [torch.empty_like(grad)]
    retrying.decode(2, qs, out)
    want = play([calm], [[grad]], 2)[0]
    assert torch.equal(out[0], want[0])
    assert torch.equal(retrying.residuals[0], calm.residuals[0])


def test_a_round_given_up_leaves_no_trace():
    peer = LowRank([torch.empty(40, 60)], 4, 0.0)
    play([peer], [[randn(40, 60, seed=5)]], 1)
    before = peer.residuals[0].clone()
    peer.middle(2, peer.encode(2, [randn(40, 60)]))
    peer.abort(2)
    peer.middle(3, peer.encode(3, [randn(40, 60)]))  # round 3 is left open: 4 takes its place
    peer.encode(4, [randn(40, 60)])
    with pytest.raises(RuntimeError, match="round 3 is not open"):
        peer.middle(3, peer._sent)
    assert torch.equal(peer.residuals[0], before)


def test_steps_out_of_order_name_the_missing_step():
    grad = randn(40, 60)
    peer = LowRank([grad], 4, 0.0)
    with pytest.raises(RuntimeError, match="round 1 is not open: call encode"):
        peer.decode(1, peer._qs, [grad])
    ps = peer.encode(1, [grad])
    with pytest.raises(RuntimeError, match="no middle yet"):
        peer.decode(1, peer._qs, [grad])
    peer.decode(1, peer.middle(1, ps), [torch.empty_like(grad)])
    for step in (lambda: peer.encode(1, [grad]), lambda: peer.middle(1, ps), lambda: peer.decode(1, peer._qs, [grad])):
        with pytest.raises(RuntimeError, match="round 1 has been decoded"):
            step()


@PORTABLE
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(bad, portable):
    peer = LowRank([torch.empty(40, 60), torch.empty(50, 70)], 4, 0.0, portable=portable)
    play([peer], [[randn(40, 60, seed=5), randn(50, 70, seed=6)]], 1)
    before = [e.clone() for e in peer.residuals]
    grads = [randn(40, 60), randn(50, 70)]
    grads[1][49, 69] = bad
    with pytest.raises(RuntimeError, match="gradient 1 has NaN, Inf"):
        peer.encode(2, grads)
    grads[1][49, 69] = 0
    ps = [p.clone() for p in peer.encode(2, grads)]
    ps[0][0, 0] = bad
    with pytest.raises(RuntimeError, match="averaged P of matrix 0"):
        peer.middle(2, ps)
    ps[0][0, 0] = 0
    qs = [q.clone() for q in peer.middle(2, ps)]
    qs[1][3, 0] = bad
    outs = [torch.ones(40, 60), torch.ones(50, 70)]
    with pytest.raises(RuntimeError, match="averaged Q of matrix 1"):
        peer.decode(2, qs, outs)
    assert all(torch.equal(a, b) for a, b in zip(peer.residuals, before))
    assert all(bool((out == 1).all()) for out in outs)
    qs[1][3, 0] = 0
    peer.decode(2, qs, outs)


@PORTABLE
@pytest.mark.parametrize("make", [torch.zeros, torch.ones], ids=["zero", "rank-one"])
def test_matrices_without_full_rank_come_back_exactly(make, portable):
    grad = make(50, 70)
    peer = LowRank([grad], 8, 0.0, portable=portable)
    basis_of = peer.middle(1, peer.encode(1, [grad])) and peer._bases[0]
    torch.testing.assert_close(basis_of.t() @ basis_of, torch.eye(8), rtol=0, atol=1e-5)
    out = [torch.full_like(grad, 7)]
    peer.decode(1, peer._qs, out)
    torch.testing.assert_close(out[0], grad, rtol=0, atol=1e-5)


@PORTABLE
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes_count_in_float32(dtype, portable):
    grad = randn(40, 60, dtype=dtype)
    narrow, wide = (LowRank([grad], 4, 0.0, portable=portable) for _ in range(2))
    out = play([narrow], [[grad]], 1)[0][0]
    want = play([wide], [[grad.float()]], 1)[0][0]
    assert out.dtype == dtype and torch.equal(out, want.to(dtype))
    assert narrow.residuals[0].dtype == torch.float32 and torch.equal(narrow.residuals[0], wide.residuals[0])


@PORTABLE
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_strided_gradients_and_outputs_work_in_place_and_apart(dtype, portable):
    base = randn(60, 80, dtype=dtype)
    strided = base.t()[::2]  # 40 x 60
    want = play([LowRank([strided], 3, 0.0, portable=portable)], [[strided.contiguous()]], 1)[0][0]
    peer, kept = LowRank([strided], 3, 0.0, portable=portable), strided.clone()
    wide = torch.zeros(40, 120, dtype=dtype)
    peer.decode(1, peer.middle(1, peer.encode(1, [strided])), [wide[:, ::2]])
    close = dict(
        rtol=0, atol=0 if not portable else 1e-5 if dtype == torch.float32 else 1e-2
    )  # ATen's products follow the strides
    torch.testing.assert_close(wide[:, ::2], want, **close)
    assert not wide[:, 1::2].any()
    assert torch.equal(strided, kept)  # given apart, the gradient stays
    again = LowRank([strided], 3, 0.0, portable=portable)
    again.decode(1, again.middle(1, again.encode(1, [strided])))
    torch.testing.assert_close(strided, want, **close)
    assert torch.equal(again.residuals[0], peer.residuals[0])


def test_contiguous_gradient_stays_if_the_output_is_strided():
    grad, wide = randn(40, 60), torch.zeros(40, 120)
    peer, kept = LowRank([grad], 3, 0.0), grad.clone()
    peer.decode(1, peer.middle(1, peer.encode(1, [grad])), [wide[:, ::2]])
    assert torch.equal(grad, kept)
    torch.testing.assert_close(wide[:, ::2] + peer.residuals[0], grad, rtol=0, atol=1e-5)


def test_tensors_that_would_not_shrink_are_left_to_the_caller():
    tensors = [
        torch.empty(100, 100),
        torch.empty(100),
        torch.empty(()),
        torch.empty(0, 7),
        torch.empty(4, 4),
        torch.empty(8, 512, 512),
    ]
    assert LowRank(tensors, 25, 0.5).indices == (0, 5)
    assert LowRank(tensors, 26, 0.5).indices == (5,)
    assert LowRank(tensors, 1, 0.5).indices == (0, 4, 5)
    assert LowRank([], 4).indices == ()
    big = LowRank(tensors, 4)
    assert [tuple(e.shape) for e in big.residuals] == [(100, 100), (4096, 512)]
    grads = [torch.zeros_like(t) for t in tensors]
    assert [tuple(p.shape) for p in big.encode(1, grads)] == [(100, 4), (4096, 4)]  # all of them, or its own alone
    assert len(big.encode(1, [grads[0], grads[5]])) == 2
    with pytest.raises(ValueError, match="3 tensors were given: expected 2, or all"):
        big.encode(1, grads[:3])
    for rank, ratio in [(0, 0.5), (-1, 0.5), (257, 0.5), (4, 1.5), (4, -0.1), (4, float("nan"))]:
        with pytest.raises(ValueError, match="must be"):
            LowRank(tensors, rank, ratio)


def test_tensors_that_do_not_fit_are_refused():
    peer = LowRank([torch.empty(40, 60)], 4, 0.0)
    with pytest.raises(RuntimeError, match="do not fit"):
        peer.encode(1, [torch.zeros(40, 61)])
    with pytest.raises(RuntimeError, match="must be float32, float16"):
        peer.encode(1, [torch.zeros(40, 60, dtype=torch.int32)])
    with pytest.raises(ValueError, match="P must have the shapes"):
        peer.middle(1, [torch.zeros(40, 5)])
    ps = peer.encode(1, [torch.zeros(40, 60)])
    with pytest.raises(ValueError, match="Q must have the shapes"):
        peer.decode(1, [torch.zeros(40, 5)])
    qs = peer.middle(1, ps)
    with pytest.raises(RuntimeError, match="output must be like"):
        peer.decode(1, qs, [torch.zeros(39, 60)])
    ops = torch.ops.hivemind_c
    for state in (torch.zeros(4), torch.zeros(3, dtype=torch.int64), torch.full((4,), -1)):
        with pytest.raises(RuntimeError, match="low-rank round"):
            ops.lowrank_encode(state, 1, [], [], [], [])
    with pytest.raises(RuntimeError, match="one length"):
        ops.lowrank_encode(torch.zeros(4, dtype=torch.int64), 1, [torch.zeros(2, 2)], [], [], [])


def test_only_peers_with_one_seed_share_their_sketches():
    def sketch(seed, round_id):
        peer = LowRank([torch.empty(40, 60), torch.empty(40, 60)], 4, 0.0, seed=seed)
        peer.encode(round_id, [torch.zeros(40, 60)] * 2)
        return peer._sketches

    torch.manual_seed(1)
    first = sketch(7, 3)
    torch.manual_seed(2)
    assert all(torch.equal(a, b) for a, b in zip(first, sketch(7, 3)))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], sketch(8, 3)[0]) and not torch.equal(first[0], sketch(7, 4)[0])


def test_any_number_of_threads_gives_the_same_bytes():
    grads, threads = [randn(500, 700), randn(64, 3000)], torch.get_num_threads()
    try:
        outs = []
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            outs.append(play([LowRank(grads, 8, 0.0)], [grads], 1)[0])
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for out in outs for a, b in zip(out, outs[0]))


def test_a_peer_goes_on_where_it_was_saved():
    first, second = (LowRank([torch.empty(40, 60)], 4, 0.0, seed=s) for s in (1, 2))
    play([first], [[randn(40, 60, seed=1)]], 1)
    first.encode(2, [randn(40, 60)])  # open rounds are not saved
    second.load_state_dict(first.state_dict())
    with pytest.raises(RuntimeError, match="round 1 has been decoded"):
        second.encode(1, [randn(40, 60)])
    a, b = (play([peer], [[randn(40, 60, seed=2)]], 2)[0][0] for peer in (first, second))
    assert torch.equal(a, b) and torch.equal(first.residuals[0], second.residuals[0])


def test_gradients_that_require_grad_are_taken_as_numbers():
    grad = randn(40, 60).requires_grad_()
    peer = LowRank([grad], 4, 0.0)
    out = [torch.empty(40, 60)]
    peer.decode(1, peer.middle(1, peer.encode(1, [grad])), out)
    assert not out[0].requires_grad and grad.grad is None


LOADS = """if 1:
    import sys, torch, hivemind_c._lowrank as lowrank
    lowrank._LIBRARY, torch.__version__, why = sys.argv[1:]
    if why:
        def load(path):
            raise OSError(why)
        torch.ops.load_library = load
    try:
        lowrank.LowRank([torch.empty(9, 9)], 1)
    except ImportError as error:
        print(error)
"""


def why_not(library, version=torch.__version__, error=""):
    """The sentence of a process that cannot load the library beside this torch, because of this error of the system's
    if one is given."""
    done = subprocess.run(
        [sys.executable, "-c", LOADS, library, version, error], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout.startswith(f"PowerSGD cannot be loaded beside torch {version}: "), (
        done.stderr
    )
    return done.stdout.rstrip()


def test_a_missing_library_is_named_with_its_remedy():
    assert why_not("/nowhere/libhivemind_lowrank.so").endswith("install hivemind_c again")


def test_an_older_torch_is_named_with_its_remedy():
    """A libtorch_cpu.so without any function is what the library is built against."""
    from hivemind_c._lowrank import _LIBRARY

    makes("lowrank")
    loads = "import ctypes, sys\ntry:\n  ctypes.CDLL(sys.argv[1])\nexcept OSError as error:\n  print(error, end='')"
    old = {**os.environ, "LD_LIBRARY_PATH": str(ROOT / "csrc/build/rel/import")}
    error = subprocess.run(
        [sys.executable, "-c", loads, _LIBRARY], capture_output=True, text=True, timeout=120, env=old
    ).stdout
    assert "undefined symbol" in error and why_not(_LIBRARY, "2.9.1+cpu", error).endswith("install torch 2.10 or later")


def test_the_library_asks_torch_for_its_stable_c_functions_alone():
    """No C++ of libtorch's, and no function younger than 2.10: one build serves every torch from there on."""
    from hivemind_c._lowrank import _LIBRARY

    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", _LIBRARY], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    wanted = {line.split()[-1] for line in listed.splitlines()}
    of_torch = {name for name in wanted if "torch" in name or "c10" in name or name.startswith("_ZN2at")}
    assert of_torch and all(name.startswith(("aoti_torch_", "torch_")) for name in of_torch), sorted(of_torch)
    younger = {name for name in of_torch if name.startswith("torch_")} - {
        "torch_call_dispatcher",
        "torch_library_impl",
        "torch_parallel_for",
        "torch_get_mutable_data_ptr",
        "torch_get_const_data_ptr",
        "torch_new_list_reserve_size",
        "torch_list_size",
        "torch_list_get_item",
        "torch_list_set_item",
        "torch_list_push_back",
        "torch_delete_list",
        "torch_new_string_handle",
        "torch_delete_string",
    }
    assert not younger


@pytest.mark.parametrize(
    "make",
    [
        lambda: randn(400, 8, seed=1),
        lambda: randn(400, 8, seed=1) * torch.logspace(0, -5, 8),
        lambda: randn(400, 8, seed=1) * 1e30,
        lambda: randn(400, 8, seed=1) * 1e-30,
        lambda: randn(400, 4, seed=1) @ randn(4, 8, seed=2) + 1e-4 * randn(400, 8, seed=3),
        lambda: randn(400, 1, seed=1),
    ],
    ids=["well", "badly scaled", "huge", "tiny", "nearly rank 4", "one column"],
)
def test_cholesky_qr_spans_the_basis_of_the_cpus_kernel(make):
    """Not the same vectors to the bit, but the same space: what P P' makes of any matrix."""
    p = make()
    rows, rank = p.shape
    bases = []
    for portable in (False, True):
        peer = LowRank([torch.empty(rows, 40)], rank, 0.0, portable=portable)
        peer.encode(1, [randn(rows, 40, seed=5)])
        peer.middle(1, [p])
        bases.append(peer._bases[0].double())
    for basis in bases:
        torch.testing.assert_close(basis.t() @ basis, torch.eye(rank, dtype=torch.float64), rtol=0, atol=1e-5)
    torch.testing.assert_close(bases[0] @ bases[0].t(), bases[1] @ bases[1].t(), rtol=0, atol=2e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(200, 6),
        lambda: randn(200, 1, seed=1).repeat(1, 6),
        lambda: torch.cat([randn(200, 3, seed=1), torch.zeros(200, 3)], 1),
        lambda: torch.eye(200)[:, [0, 0, 1, 1, 2, 2]],
        lambda: randn(200, 2, seed=1) @ randn(2, 6, seed=2),
    ],
    ids=["zero", "one column six times", "half zero", "unit vectors twice", "rank 2"],
)
def test_cholesky_qr_fills_up_a_basis_that_lacks_columns(make):
    p = make()
    peer = LowRank([torch.empty(200, 40)], 6, 0.0, portable=True)
    peer.encode(1, [randn(200, 40, seed=5)])
    peer.middle(1, [p])
    basis = peer._bases[0].double()
    torch.testing.assert_close(basis.t() @ basis, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-5)
    torch.testing.assert_close(basis @ (basis.t() @ p.double()), p.double(), rtol=0, atol=1e-5)


def test_no_step_on_a_device_asks_for_a_number_in_between():
    """The operators that ATen runs: none of those that make the host wait for a value, and no Householder QR."""
    grads = [randn(60, 50, seed=i) for i in range(3)]
    peer = LowRank(grads, 4, 0.0, portable=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        play([peer], [grads], 1)
    names = {event.name for event in profile.events()}
    assert "aten::linalg_cholesky_ex" in names and "aten::linalg_solve_triangular" in names
    assert not names & {
        "aten::item",
        "aten::_local_scalar_dense",
        "aten::is_nonzero",
        "aten::nonzero",
        "aten::equal",
        "aten::linalg_qr",
        "aten::linalg_cholesky",
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu_a_round_is_the_hosts_but_for_rounding():
    grads = [randn(300, 200, seed=i) for i in range(4)] + [torch.ones(50, 70), torch.zeros(50, 70)]
    here, there = LowRank(grads, 4, 0.0), LowRank([g.cuda() for g in grads], 4, 0.0)
    for number in range(5):
        want, got = play([here], [grads], number)[0], play([there], [[g.cuda() for g in grads]], number)[0]
        for one, other in zip(want, got):
            torch.testing.assert_close(other.cpu(), one, rtol=1e-3, atol=1e-3)


def test_matrices_of_one_shape_are_factored_together_on_a_device():
    """One that is zero, or of a lower rank, among them: the others are none the worse for it."""
    shapes = [(60, 50)] * 5 + [(40, 80)] * 3
    ps = [randn(rows, 4, seed=i) for i, (rows, _) in enumerate(shapes)]
    ps[1].zero_(), ps[3][:, 2:].copy_(ps[3][:, :2]), ps[6].mul_(1e-20)
    peer = LowRank([torch.empty(shape) for shape in shapes], 4, 0.0, portable=True)
    peer.encode(1, [randn(*shape, seed=50 + i) for i, shape in enumerate(shapes)])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        peer.middle(1, ps)
    assert (
        sum(event.name == "aten::linalg_cholesky_ex" for event in profile.events()) == 4 * 2
    )  # four turns for each of two shapes
    for i, (shape, basis) in enumerate(zip(shapes, peer._bases)):
        alone = LowRank([torch.empty(shape)], 4, 0.0, portable=True)
        alone.encode(1, [randn(*shape, seed=50 + i)])
        alone.middle(1, [ps[i]])
        torch.testing.assert_close(basis, alone._bases[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(basis.t() @ basis, torch.eye(4), rtol=0, atol=1e-5)


def test_first_bad_matrix_on_a_device_is_named():
    shapes = [(60, 50)] * 3 + [(40, 80)] * 3
    for bad in ([5], [0], [2, 4], [3, 1]):
        grads = [randn(*shape, seed=i) for i, shape in enumerate(shapes)]
        for i in bad:
            grads[i][-1, -1] = float("-inf")
        with pytest.raises(RuntimeError, match=f"gradient {min(bad)} has NaN"):
            LowRank(grads, 4, 0.0, portable=True).encode(1, grads)


def test_sketches_reach_a_gpu_from_pinned_memory_unwaited():
    """Shown on tensors without memory, which say that they are a GPU's."""
    with FakeTensorMode():
        peer = LowRank([torch.empty(60, 50, device="cuda"), torch.empty(40, 80, device="cuda")], 4, 0.0)
        peer._torch_ops = SimpleNamespace(lowrank_sketch=lambda here, *rest: seen.append(here.device.type))
        seen, empty = [], torch.empty
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                torch,
                "empty",
                lambda *args, pin_memory=False, **kwargs: seen.append(pin_memory) or empty(*args, **kwargs),
            )
            patch.setattr(
                torch.Tensor,
                "copy_",
                lambda to, source, non_blocking=False: seen.append((to.device.type, source.device.type, non_blocking)),
            )
            peer._sketch(1)
    assert seen == 2 * [True, "cpu", ("cuda", "cpu", True)]
