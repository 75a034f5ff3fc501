#include "torch/lowrank.h"

#include "torch/stable.h"

#include <algorithm>
#include <cmath>

using stable::Tensor;
using stable::value;

namespace {

/* ---- ATen's operators, as they are needed here ---- */

Tensor plus(const Tensor &a, const Tensor &b) {
  return stable::subtract(a, b, -1.0);
}

Tensor flipped(const Tensor &a) {
  return stable::transpose(a, 0, 1);
}

Tensor cast(const Tensor &a, int32_t dtype) {
  return a.dtype() == dtype ? a : stable::to_dtype(a, dtype);
}

/* The upper factor R of A'A = R'R; what comes out when A'A has none is not finite, or off, and the caller finds out. */
Tensor cholesky_upper(const Tensor &gram) {
  uint64_t stack[] = {value(gram), value(true), value(false)};
  stable::must(torch_call_dispatcher("aten::linalg_cholesky_ex", "", stack, stable::abi), "aten::linalg_cholesky_ex");
  Tensor info = stable::Take<Tensor>::from(stack[1]);
  return stable::Take<Tensor>::from(stack[0]);
}

Tensor solve_right(const Tensor &upper, const Tensor &b) {
  return stable::call("aten::linalg_solve_triangular", "", value(upper), value(b), value(true), value(false), value(false));
}

Tensor unary(const char *name, const Tensor &a) {
  return stable::call(name, "", value(a));
}

Tensor product(const Tensor &a, const Tensor &b) {
  return stable::call("aten::mul", "Tensor", value(a), value(b));
}

Tensor over(const Tensor &a, const Tensor &b) {
  return stable::call("aten::div", "Tensor", value(a), value(b));
}

/* One on the device of a: the stable ABI's dispatcher takes no plain numbers where ATen has a Scalar. */
Tensor number(const Tensor &a, double value) {
  Tensor one = stable::new_empty(a, {1});
  stable::fill_(one, value);
  return one;
}

Tensor product(const Tensor &a, double factor) {
  return product(a, number(a, factor));
}

Tensor plus(const Tensor &a, double b) {
  return plus(a, number(a, b));
}

/* Each number's sum with all before it. */
Tensor summed_up(const Tensor &a) {
  return stable::call("aten::cumsum", "", value(a), value(int64_t(0)), value(nullptr));
}

/* 1 .. n in a's dtype, on its device. */
Tensor counted(const Tensor &a, int64_t n) {
  Tensor ones = stable::new_empty(a, {n});
  stable::fill_(ones, 1.0);
  return summed_up(ones);
}

/* One after the other, along the first dimension. */
Tensor joined(const std::vector<Tensor> &parts) {
  return stable::call("aten::cat", "", value(parts), value(int64_t(0)));
}

/* out = a b, written there at once; out is contiguous, and neither of them. */
void multiply(const Tensor &out, const Tensor &a, const Tensor &b) {
  (void)stable::call("aten::mm", "out", value(a), value(b), value(out));
}

/* A row of numbers that are 1 where i == j. */
Tensor identity(const Tensor &like, int64_t n) {
  Tensor row = stable::new_zeros(like, {n * n + n}); /* a 1 every n + 1 numbers */
  Tensor wide = stable::reshape(row, {n, n + 1}), first = stable::narrow(wide, 1, 0, 1);
  stable::fill_(first, 1.0);
  return stable::reshape(stable::narrow(row, 0, 0, n * n), {n, n});
}

Tensor on_cpu(const Tensor &a) {
  return a.is_cpu() ? a : stable::to_cpu(a);
}

Tensor borrowed(AtenTensorOpaque *handle) {
  AtenTensorOpaque *own = nullptr;
  stable::must(aoti_torch_new_tensor_handle(handle, &own), "borrowing a tensor");
  return Tensor(own);
}

/* ---- the matrices of a call, checked ---- */

struct Matrix {
  Tensor grad, error, p, q, out;
  hv_lowrank_matrix raw; /* on the CPU: where they lie */
  Tensor wide;           /* keeps raw.grad when the gradient is no contiguous float32 */
  bool cpu, has_out;
};

bool plain(const Tensor &t) {
  return t.dtype() == aoti_torch_dtype_float32() && t.is_contiguous();
}

bool same_device(const Tensor &a, const Tensor &b) {
  return a.device() == b.device();
}

bool floating(const Tensor &t) {
  int32_t dtype = t.dtype();
  return dtype == aoti_torch_dtype_float32() || dtype == aoti_torch_dtype_float64() || dtype == aoti_torch_dtype_float16() ||
         dtype == aoti_torch_dtype_bfloat16();
}

const char *misfit(const Matrix &m) {
  if (!plain(m.error) || !plain(m.p) || !plain(m.q) || m.error.dim() != 2 || m.p.dim() != 2 || m.q.dim() != 2)
    return "the residual, P and Q must be contiguous float32 matrices";
  int64_t rows = m.error.size(0), cols = m.error.size(1), rank = m.p.size(1);
  if (rank < 1 || rank > rows || rank > cols || rank > HV_LOWRANK_RANK_MAX)
    return "the rank must be at least 1 and at most the smaller side";
  if (m.p.size(0) != rows || m.q.size(0) != rank || m.q.size(1) != cols || m.grad.numel() != rows * cols)
    return "the shapes of the gradient, the residual, P and Q do not fit";
  if (!floating(m.grad))
    return "the gradient must be float32, float16, bfloat16 or float64";
  if (!same_device(m.error, m.grad) || !same_device(m.error, m.p) || !same_device(m.error, m.q))
    return "the gradient, the residual, P and Q must be on one device";
  if (m.has_out && (m.out.numel() != m.grad.numel() || !floating(m.out) || !same_device(m.out, m.error)))
    return "the output must be like the gradient";
  return nullptr;
}

float *data(const Tensor &t) {
  return static_cast<float *>(t.data());
}

Tensor flat(const Tensor &t, const Matrix &m) {
  return stable::reshape(t, {m.error.size(0), m.error.size(1)});
}

hv_status gather(const hv_lowrank_call &call, std::vector<Matrix> &out, hv_error *err) {
  for (size_t i = 0; i < call.n; i++) {
    Matrix m{borrowed(call.grads[i]),
             borrowed(call.errors[i]),
             borrowed(call.ps[i]),
             borrowed(call.qs[i]),
             Tensor(),
             {},
             Tensor(),
             false,
             call.outs != nullptr};
    if (m.has_out)
      m.out = borrowed(call.outs[i]);
    if (const char *why = misfit(m))
      return hv_fail(err, HV_INVALID, "matrix %zu of %zu: %s", i, call.n, why);
    m.cpu = m.error.is_cpu() && !call.portable;
    if (m.cpu) {
      m.wide = plain(m.grad) ? m.grad : stable::contiguous(cast(m.grad, aoti_torch_dtype_float32()));
      m.raw = {data(m.wide),       data(m.error), data(m.p), data(m.q), nullptr, size_t(m.error.size(0)), size_t(m.error.size(1)),
               size_t(m.p.size(1))};
    }
    out.push_back(m);
  }
  return HV_OK;
}

/* ---- work of kern's, spread over torch's threads ---- */

struct Task {
  Matrix *m;
  size_t from, to;
};

using Pass = void (*)(const hv_lowrank_kern *kern, const Task &task, double *scratch);

/* One pass over all matrices on the CPU at once: big ones in pieces, small ones beside each other. */
struct Crew {
  const hv_lowrank_kern *kern = hv_lowrank_kern_best();
  std::vector<Task> tasks;
  size_t scratch = 0;
  Pass pass = nullptr;

  void add(Matrix &m, size_t n, size_t step) {
    for (size_t i = 0; i < n; i += step)
      tasks.push_back({&m, i, std::min(n, i + step)});
  }

  void run(Pass what) {
    pass = what;
    if (!tasks.empty())
      stable::must(torch_parallel_for(0, int64_t(tasks.size()), 1, &Crew::part, this), "the work of torch's threads");
  }

  static void part(int64_t from, int64_t to, void *self) {
    const Crew *crew = static_cast<Crew *>(self);
    std::vector<double> scratch(crew->scratch);
    for (int64_t i = from; i < to; i++)
      crew->pass(crew->kern, crew->tasks[size_t(i)], scratch.data());
  }
};

constexpr size_t piece = 1 << 18; /* elements of a matrix in a task, about */

size_t rows_step(const hv_lowrank_matrix &m) {
  return std::max<size_t>(16, piece / m.cols / 16 * 16);
}

size_t cols_step(const hv_lowrank_matrix &m) {
  return std::max<size_t>(256, piece / m.rows / 256 * 256);
}

/* ---- the steps ---- */

/* Which of these, all on one device, is the first that has NaN or Inf; at.size(): none. The host waits once: x - x is 0 or NaN, and
 * what is summed up over all of them is NaN from the first one on. */
size_t first_bad_of(const std::vector<Matrix> &all, Tensor Matrix::*what, const std::vector<size_t> &at) {
  std::vector<Tensor> rows, ends;
  int64_t end = 0;
  for (size_t i : at)
    rows.push_back(stable::reshape(all[i].*what, {(all[i].*what).numel()}));
  Tensor row = joined(rows), run = summed_up(stable::subtract(row, row));
  for (size_t i : at) {
    end += (all[i].*what).numel();
    ends.push_back(stable::narrow(run, 0, end - 1, 1));
  }
  Tensor here = on_cpu(joined(ends));
  size_t k = 0;
  while (k < at.size() && hv_lowrank_finite(data(here) + k, 1))
    k++;
  return k;
}

/* The first matrix whose tensor has NaN or Inf, or -1. Each device is waited for once. */
int64_t first_bad(const std::vector<Matrix> &all, Tensor Matrix::*what) {
  std::vector<size_t> left, some, others;
  int64_t bad = -1;
  for (size_t i = 0; i < all.size(); i++) {
    const Tensor &one = all[i].*what;
    if (!all[i].cpu)
      left.push_back(i);
    else if (bad < 0 && !hv_lowrank_finite(data(one), size_t(one.numel())))
      bad = int64_t(i);
  }
  for (; !left.empty(); left.swap(others), some.clear(), others.clear()) {
    for (size_t i : left)
      (same_device(all[i].error, all[left[0]].error) ? some : others).push_back(i);
    size_t k = first_bad_of(all, what, some);
    if (k < some.size() && (bad < 0 || int64_t(some[k]) < bad))
      bad = int64_t(some[k]);
  }
  return bad;
}

Tensor whole(const Matrix &m) {
  return plus(flat(cast(m.grad, aoti_torch_dtype_float32()), m), m.error);
}

void encode_all(std::vector<Matrix> &all) {
  Crew crew;
  for (Matrix &m : all)
    if (m.cpu)
      crew.add(m, m.raw.rows, rows_step(m.raw));
    else
      multiply(m.p, whole(m), flipped(m.q));
  crew.run([](const hv_lowrank_kern *kern, const Task &t, double *) { kern->encode_rows(&t.m->raw, t.from, t.to); });
}

/* Numbers between -0.5 and 0.5 that look random, the same on all devices of a kind. */
Tensor speckle(const Tensor &like, int64_t n) {
  Tensor wave = product(unary("aten::sin", product(counted(like, n), 12.9898)), 43758.5453);
  return plus(stable::subtract(wave, unary("aten::floor", wave)), -0.5);
}

/* Shifted Cholesky-QR in float64 by ATen, four times over, for all matrices of one shape on one device at once; no step waits for
 * it. A shift of 1e-11 of the columns' squares, far above the rounding of a Gram matrix, keeps each one positive definite, whatever
 * the columns are: all together have length 1 at first, and each at most 1 from then on. A direction of relative size x comes out
 * as x / sqrt(x^2 + shift), so that what is above 1e-9 is one of an orthonormal basis after four. Speckles of 1e-9 make sure that
 * every column has something of its own: where columns depend on each other, or are zero, the basis is filled up. (Fukaya et al.,
 * "Shifted Cholesky QR for computing the QR factorization of ill-conditioned matrices", 2020.) */
void orthogonalise(const std::vector<Matrix *> &alike) {
  int64_t n = int64_t(alike.size()), rows = alike[0]->p.size(0), rank = alike[0]->p.size(1);
  std::vector<Tensor> ps;
  for (const Matrix *m : alike)
    ps.push_back(m->p);
  Tensor a = cast(joined(ps), aoti_torch_dtype_float64()), ones = stable::new_empty(a, {rows * rank, 1}), one = identity(a, rank);
  stable::fill_(ones, 1.0);
  Tensor squares = stable::matmul(stable::reshape(product(a, a), {n, rows * rank}), ones);
  Tensor size = stable::reshape(plus(unary("aten::sqrt", squares), 1e-300), {n, 1, 1});
  Tensor grain = product(speckle(a, rows * rank), 4e-9 / std::sqrt(double(rows * rank)));
  a = plus(over(stable::reshape(a, {n, rows, rank}), size), stable::reshape(grain, {1, rows, rank}));
  Tensor first = product(one, 1e-11), later = product(one, 1e-11 * double(rank));
  for (int turn = 0; turn < 4; turn++) {
    Tensor gram = stable::matmul(stable::transpose(a, 1, 2), a);
    a = solve_right(cholesky_upper(plus(gram, turn ? later : first)), a);
  }
  for (int64_t k = 0; k < n; k++) {
    Tensor basis = stable::reshape(stable::narrow(a, 0, k, 1), {rows, rank});
    stable::copy_(alike[size_t(k)]->p, basis);
  }
}

/* All that are elsewhere, those of one shape together. */
void orthogonalise_all(std::vector<Matrix> &all) {
  std::vector<Matrix *> left, alike, others;
  for (Matrix &m : all)
    if (!m.cpu)
      left.push_back(&m);
  for (; !left.empty(); left.swap(others), alike.clear(), others.clear()) {
    for (Matrix *m : left) {
      bool same = same_device(m->p, left[0]->p) && m->p.size(0) == left[0]->p.size(0) && m->p.size(1) == left[0]->p.size(1);
      (same ? alike : others).push_back(m);
    }
    orthogonalise(alike);
  }
}

void middle_all(std::vector<Matrix> &all) {
  Crew bases, products;
  orthogonalise_all(all);
  for (Matrix &m : all) {
    if (m.cpu) {
      bases.add(m, 1, 1);
      bases.scratch = std::max(bases.scratch, hv_lowrank_scratch(m.raw.rows, m.raw.rank));
      products.add(m, m.raw.cols, cols_step(m.raw));
    } else {
      multiply(m.q, flipped(m.p), whole(m));
    }
  }
  bases.run([](const hv_lowrank_kern *kern, const Task &t, double *scratch) {
    (void)hv_lowrank_orthogonalise(kern, t.m->raw.p, t.m->raw.rows, t.m->raw.rank, scratch); /* found finite before */
  });
  products.run([](const hv_lowrank_kern *kern, const Task &t, double *) { kern->middle_cols(&t.m->raw, t.from, t.to); });
}

void decode_all(std::vector<Matrix> &all) {
  Crew crew;
  for (Matrix &m : all) {
    if (!m.cpu) {
      Tensor sum = whole(m), m_hat = plain(m.out) ? flat(m.out, m) : stable::new_empty(m.error, m.error.sizes());
      multiply(m_hat, m.p, m.q); /* over the gradient, where that is the output: it is in the sum */
      stable::copy_(m.error, stable::subtract(sum, m_hat));
      if (!plain(m.out))
        stable::copy_(m.out, stable::reshape(m_hat, m.out.sizes()));
      continue;
    }
    if (!plain(m.out) && plain(m.grad)) /* the gradient is the caller's: the average must not go there */
      m.wide = stable::clone(m.wide);
    m.raw.grad = data(m.wide);
    m.raw.out = plain(m.out) ? data(m.out) : data(m.wide);
    crew.add(m, m.raw.rows, rows_step(m.raw));
  }
  crew.run([](const hv_lowrank_kern *kern, const Task &t, double *) { kern->decode_rows(&t.m->raw, t.from, t.to); });
  for (Matrix &m : all)
    if (m.cpu && !plain(m.out))
      stable::copy_(m.out, stable::reshape(m.wide, m.out.sizes()));
}

template <typename Body> hv_status guarded(hv_error *err, Body body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return hv_fail(err, HV_NOMEM, "out of memory in the low-rank maths: lower the rank, or free some");
  } catch (const std::exception &e) {
    return hv_fail(err, HV_INTERNAL, "torch: %.900s", e.what());
  }
}

hv_status step(hv_lowrank_round *round, hv_lowrank_step which, int64_t id, const hv_lowrank_call *call, hv_error *err) {
  return guarded(err, [&]() -> hv_status {
    hv_status status = hv_lowrank_may(round, which, id, err);
    std::vector<Matrix> all;
    int64_t bad = -1;
    if (status == HV_OK)
      status = gather(*call, all, err);
    if (status != HV_OK)
      return status;
    if (which == HV_LOWRANK_ENCODE) {
      encode_all(all);
      if ((bad = first_bad(all, &Matrix::p)) >= 0)
        return hv_fail(err, HV_INVALID,
                       "gradient %lld has NaN, Inf or values too large for float32: skip this round; its residual stays as it was",
                       (long long)bad);
    } else if ((bad = first_bad(all, which == HV_LOWRANK_DECODE ? &Matrix::q : &Matrix::p)) >= 0) {
      return hv_fail(
          err, HV_INVALID,
          "the averaged %s of matrix %lld has NaN or Inf: average again or give up the round; the residual stays as it was",
          which == HV_LOWRANK_DECODE ? "Q" : "P", (long long)bad);
    } else if (which == HV_LOWRANK_DECODE) {
      decode_all(all);
    } else {
      middle_all(all);
    }
    hv_lowrank_take(round, which, id);
    return HV_OK;
  });
}

} // namespace

hv_status hv_lowrank_encode(hv_lowrank_round *round, int64_t id, const hv_lowrank_call *call, hv_error *err) {
  return step(round, HV_LOWRANK_ENCODE, id, call, err);
}

hv_status hv_lowrank_middle(hv_lowrank_round *round, int64_t id, const hv_lowrank_call *call, hv_error *err) {
  return step(round, HV_LOWRANK_AVERAGE_P, id, call, err);
}

hv_status hv_lowrank_decode(hv_lowrank_round *round, int64_t id, const hv_lowrank_call *call, hv_error *err) {
  return step(round, HV_LOWRANK_DECODE, id, call, err);
}

/* ---- the operators torch.ops.hivemind_c.lowrank_*: the same, with tensors for arrays and exceptions for errors ---- */

namespace {

void must(hv_status status, const hv_error &err) {
  if (status != HV_OK)
    throw std::runtime_error(err.text);
}

/* The round lies in a tensor of four int64 on the CPU: torch frees it, and it can be saved. */
hv_lowrank_round *round_in(const Tensor &state) {
  static_assert(sizeof(hv_lowrank_round) == 4 * sizeof(int64_t), "the round is four numbers");
  if (state.dtype() != aoti_torch_dtype_int64() || state.numel() != 4 || !state.is_cpu() || !state.is_contiguous())
    throw std::runtime_error(
        "the state of a low-rank round is a tensor of four int64 on the CPU: make it by torch.zeros(4, dtype=torch.int64)");
  return static_cast<hv_lowrank_round *>(state.data());
}

std::vector<AtenTensorOpaque *> handles(const std::vector<Tensor> &tensors, size_t n) {
  if (tensors.size() != n)
    throw std::runtime_error("the lists of gradients, residuals, P and Q must be of one length");
  std::vector<AtenTensorOpaque *> out;
  for (const Tensor &t : tensors)
    out.push_back(t.get());
  return out;
}

void run(hv_lowrank_step which, const Tensor &state, int64_t id, const std::vector<Tensor> &grads,
         const std::vector<Tensor> &errors, const std::vector<Tensor> &ps, const std::vector<Tensor> &qs,
         const std::vector<Tensor> *outs, bool portable) {
  hv_error err{};
  must(hv_lowrank_may(round_in(state), which, id, &err), err);
  size_t n = grads.size();
  auto g = handles(grads, n), e = handles(errors, n), p = handles(ps, n), q = handles(qs, n);
  auto o = outs ? handles(*outs, n) : g;
  hv_lowrank_call call{n, g.data(), e.data(), p.data(), q.data(), outs ? o.data() : nullptr, portable};
  must(step(round_in(state), which, id, &call, &err), err);
}

void op_encode(Tensor state, int64_t id, std::vector<Tensor> grads, std::vector<Tensor> errors, std::vector<Tensor> ps,
               std::vector<Tensor> qs, bool portable) {
  run(HV_LOWRANK_ENCODE, state, id, grads, errors, ps, qs, nullptr, portable);
}

void op_middle(Tensor state, int64_t id, std::vector<Tensor> grads, std::vector<Tensor> errors, std::vector<Tensor> ps,
               std::vector<Tensor> qs, bool portable) {
  run(HV_LOWRANK_AVERAGE_P, state, id, grads, errors, ps, qs, nullptr, portable);
}

void op_decode(Tensor state, int64_t id, std::vector<Tensor> grads, std::vector<Tensor> errors, std::vector<Tensor> ps,
               std::vector<Tensor> qs, std::vector<Tensor> outs, bool portable) {
  run(HV_LOWRANK_DECODE, state, id, grads, errors, ps, qs, &outs, portable);
}

void op_abort(Tensor state, int64_t id) {
  hv_error err{};
  must(hv_lowrank_may(round_in(state), HV_LOWRANK_ABORT, id, &err), err);
  hv_lowrank_take(round_in(state), HV_LOWRANK_ABORT, id);
}

void op_sketch(Tensor q, int64_t seed, int64_t round, int64_t index) {
  if (!plain(q) || !q.is_cpu())
    throw std::runtime_error("a sketch is filled on the CPU, in contiguous float32");
  hv_lowrank_sketch(uint64_t(seed), round, index, data(q), size_t(q.numel()));
}

/* Rows and columns of the matrix that stands for a tensor; none when it does not take part. */
std::vector<int64_t> op_view(std::vector<int64_t> shape, int64_t rank, double min_ratio) {
  hv_lowrank_size size;
  if (hv_lowrank_view(shape.data(), shape.size(), &size) != HV_OK || !hv_lowrank_takes_part(size, rank, min_ratio))
    return {};
  return {size.rows, size.cols};
}

#define LISTS "Tensor(a!) state, int round, Tensor[] grads, Tensor(b!)[] errors, Tensor(c!)[] ps, Tensor(d!)[] qs, "

struct Operators {
  stable::Library schemas{"hivemind_c"}, work{"hivemind_c", "CompositeExplicitAutograd"};

  Operators() {
    schemas.def("lowrank_encode(" LISTS "bool portable=False) -> ()");
    schemas.def("lowrank_middle(" LISTS "bool portable=False) -> ()");
    schemas.def("lowrank_decode(" LISTS "Tensor(e!)[] outs, bool portable=False) -> ()");
    schemas.def("lowrank_abort(Tensor(a!) state, int round) -> ()");
    schemas.def("lowrank_sketch(Tensor(a!) q, int seed, int round, int index) -> ()");
    schemas.def("lowrank_view(int[] shape, int rank, float min_ratio) -> int[]");
    work.impl<op_encode>("lowrank_encode");
    work.impl<op_middle>("lowrank_middle");
    work.impl<op_decode>("lowrank_decode");
    work.impl<op_abort>("lowrank_abort");
    work.impl<op_sketch>("lowrank_sketch");
    work.impl<op_view>("lowrank_view");
  }
} operators; /* registered when the library is loaded */

} // namespace
