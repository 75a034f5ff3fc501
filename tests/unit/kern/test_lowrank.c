/* PowerSGD's arithmetic and rounds: every set of kernels against plain sums in float64. */
#include "lib/check.h"

#include "base/mem.h"
#include "kern/lowrank.h"

#include <math.h>
#include <string.h>

typedef struct bench {
  hv_mem mem;
  hv_lowrank_matrix m;
  float *grad, *before;
  double *scratch;
} bench;

static void open_bench(bench *b, size_t rows, size_t cols, size_t rank) {
  hv_mem_init(&b->mem, NULL, HV_MEM_UNLIMITED);
  b->grad = hv_mem_array(&b->mem, rows * cols, 4);
  b->before = hv_mem_array(&b->mem, rows * cols, 4);
  b->scratch = hv_mem_array(&b->mem, hv_lowrank_scratch(rows, rank), 8);
  b->m = (hv_lowrank_matrix){b->grad,
                             hv_mem_array(&b->mem, rows * cols, 4),
                             hv_mem_array(&b->mem, rows * rank, 4),
                             hv_mem_array(&b->mem, cols * rank, 4),
                             hv_mem_array(&b->mem, rows * cols, 4),
                             rows,
                             cols,
                             rank};
  hv_lowrank_sketch(7, 1, 0, b->grad, rows * cols);
  hv_lowrank_sketch(7, 1, 1, b->m.error, rows * cols);
  hv_lowrank_sketch(7, 1, 2, b->m.q, cols * rank);
  memcpy(b->before, b->m.error, rows * cols * 4);
}

static void close_bench(bench *b) {
  hv_mem_free(b->grad);
  hv_mem_free(b->before);
  hv_mem_free(b->scratch);
  hv_mem_free(b->m.error);
  hv_mem_free(b->m.p);
  hv_mem_free(b->m.q);
  hv_mem_free(b->m.out);
  assert_int_equal(b->mem.blocks, 0);
}

static double whole(const bench *b, size_t i, size_t j) {
  return (double)b->grad[i * b->m.cols + j] + b->before[i * b->m.cols + j];
}

static void expect_near(double got, double want, double tolerance) {
  if (!(fabs(got - want) <= tolerance))
    fail_msg("%.9g is not within %.3g of %.9g", got, tolerance, want);
}

static void expect_p(const bench *b) {
  for (size_t i = 0; i < b->m.rows; i++)
    for (size_t k = 0; k < b->m.rank; k++) {
      double want = 0;
      for (size_t j = 0; j < b->m.cols; j++)
        want += whole(b, i, j) * b->m.q[k * b->m.cols + j];
      expect_near(b->m.p[i * b->m.rank + k], want, 2e-6 * (double)b->m.cols + 1e-4);
    }
}

static void expect_orthonormal(const float *p, size_t rows, size_t rank) {
  for (size_t x = 0; x < rank; x++)
    for (size_t y = 0; y <= x; y++) {
      double dot = 0;
      for (size_t i = 0; i < rows; i++)
        dot += (double)p[i * rank + x] * p[i * rank + y];
      expect_near(dot, x == y, 2e-6);
    }
}

static void expect_q(const bench *b) {
  for (size_t k = 0; k < b->m.rank; k++)
    for (size_t j = 0; j < b->m.cols; j++) {
      double want = 0;
      for (size_t i = 0; i < b->m.rows; i++)
        want += whole(b, i, j) * b->m.p[i * b->m.rank + k];
      expect_near(b->m.q[k * b->m.cols + j], want, 2e-6 * (double)b->m.rows + 1e-4);
    }
}

static void expect_out(const bench *b) {
  for (size_t i = 0; i < b->m.rows; i++)
    for (size_t j = 0; j < b->m.cols; j++) {
      double want = 0;
      for (size_t k = 0; k < b->m.rank; k++)
        want += (double)b->m.p[i * b->m.rank + k] * b->m.q[k * b->m.cols + j];
      expect_near(b->m.out[i * b->m.cols + j], want, 2e-4);
      expect_near(b->m.error[i * b->m.cols + j], whole(b, i, j) - want, 2e-4);
    }
}

static const size_t sizes[][3] = {{1, 1, 1},    {5, 3, 2},     {3, 5, 3},      {4, 64, 4},     {17, 65, 5},
                                  {66, 130, 1}, {33, 1030, 7}, {130, 257, 33}, {40, 2100, 16}, {300, 300, 256}};

static void every_set_of_kernels_computes_the_same_maths(void **state) {
  (void)state;
  size_t levels = 0;
  for (size_t level = 0; level < HV_LOWRANK_LEVELS; level++) {
    const hv_lowrank_kern *kern = hv_lowrank_kern_at(level);
    levels += kern != NULL;
    for (size_t s = 0; kern && s < sizeof sizes / sizeof *sizes; s++) {
      bench b;
      size_t rows = sizes[s][0], cols = sizes[s][1], rank = sizes[s][2];
      open_bench(&b, rows, cols, rank);
      kern->encode_rows(&b.m, 0, rows / 2);
      kern->encode_rows(&b.m, rows / 2, rows);
      expect_p(&b);
      assert_int_equal(hv_lowrank_orthogonalise(kern, b.m.p, rows, rank, b.scratch), HV_OK);
      expect_orthonormal(b.m.p, rows, rank);
      kern->middle_cols(&b.m, 0, cols / 3);
      kern->middle_cols(&b.m, cols / 3, cols);
      expect_q(&b);
      assert_memory_equal(b.before, b.m.error, rows * cols * 4); /* nothing but decode touches it */
      kern->decode_rows(&b.m, 0, rows / 3);
      kern->decode_rows(&b.m, rows / 3, rows);
      expect_out(&b);
      close_bench(&b);
    }
  }
  assert_true(levels >= 1);
}

static void basis_and_product_are_the_same_on_every_set_of_kernels(void **state) {
  (void)state;
  const size_t rows = 77, cols = 203, rank = 19;
  bench a, b;
  for (size_t level = 1; level < HV_LOWRANK_LEVELS; level++) {
    const hv_lowrank_kern *kern = hv_lowrank_kern_at(level);
    if (!kern)
      continue;
    open_bench(&a, rows, cols, rank);
    open_bench(&b, rows, cols, rank);
    hv_lowrank_sketch(1, 2, 3, a.m.p, rows * rank);
    memset(a.m.p, 0, 40 * rank * 4); /* zeros of both signs must come out alike too */
    memcpy(b.m.p, a.m.p, rows * rank * 4);
    assert_int_equal(hv_lowrank_orthogonalise(hv_lowrank_kern_at(0), a.m.p, rows, rank, a.scratch), HV_OK);
    assert_int_equal(hv_lowrank_orthogonalise(kern, b.m.p, rows, rank, b.scratch), HV_OK);
    assert_memory_equal(a.m.p, b.m.p, rows * rank * 4);
    hv_lowrank_kern_at(0)->decode_rows(&a.m, 0, rows);
    kern->decode_rows(&b.m, 0, rows);
    assert_memory_equal(a.m.out, b.m.out, rows * cols * 4);
    assert_memory_equal(a.m.error, b.m.error, rows * cols * 4);
    hv_lowrank_kern_at(0)->sketch(5, a.m.out, rows * cols);
    kern->sketch(5, b.m.out, rows * cols);
    assert_memory_equal(a.m.out, b.m.out, rows * cols * 4);
    close_bench(&a);
    close_bench(&b);
  }
}

static void dependent_columns_still_give_an_orthonormal_basis(void **state) {
  (void)state;
  enum { ROWS = 60, RANK = 6 };
  float p[ROWS * RANK], start[ROWS * RANK];
  double scratch[2 * ROWS * RANK + 2 * RANK * RANK];
  assert_int_equal(sizeof scratch / sizeof *scratch, hv_lowrank_scratch(ROWS, RANK));
  for (int kind = 0; kind < 5; kind++) {
    hv_lowrank_sketch(3, kind, 0, p, ROWS * RANK);
    for (size_t i = 0; i < ROWS; i++) {
      float *row = p + i * RANK;
      if (kind == 0)
        memset(row, 0, RANK * sizeof *row);
      if (kind == 1)
        row[4] = row[1] + 2 * row[2];
      if (kind == 2)
        row[3] = 0;
      if (kind == 3)
        for (size_t k = 1; k < RANK; k++)
          row[k] = row[0] * (1 + 1e-7f * (float)k);
      if (kind == 4)
        for (size_t k = 0; k < RANK; k++)
          row[k] *= k % 2 ? 1e-30f : 1e30f;
    }
    memcpy(start, p, sizeof p);
    assert_int_equal(hv_lowrank_orthogonalise(hv_lowrank_kern_best(), p, ROWS, RANK, scratch), HV_OK);
    expect_orthonormal(p, ROWS, RANK);
    for (size_t c = 0; c < RANK; c++) { /* each column is its projection on the basis */
      double dots[RANK] = {0}, length = 0;
      for (size_t i = 0; i < ROWS; i++) {
        length += (double)start[i * RANK + c] * start[i * RANK + c];
        for (size_t k = 0; k < RANK; k++)
          dots[k] += (double)p[i * RANK + k] * start[i * RANK + c];
      }
      for (size_t i = 0; i < ROWS; i++) {
        double x = 0;
        for (size_t k = 0; k < RANK; k++)
          x += dots[k] * p[i * RANK + k];
        expect_near(x, start[i * RANK + c], 2e-6 * sqrt(length));
      }
    }
  }
}

static void non_finite_matrix_is_refused_and_unchanged(void **state) {
  (void)state;
  float p[6] = {1, 2, 3, 4, 5, 6}, was[6];
  double scratch[2 * 6 + 2 * 4];
  const float bad[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < 3; i++) {
    p[4] = bad[i];
    memcpy(was, p, sizeof p);
    assert_int_equal(hv_lowrank_finite(p, 6), 0);
    assert_int_equal(hv_lowrank_finite(p, 4), 1);
    assert_int_equal(hv_lowrank_orthogonalise(hv_lowrank_kern_best(), p, 3, 2, scratch), HV_INVALID);
    assert_memory_equal(p, was, sizeof p);
  }
}

static void a_sketch_depends_on_seed_round_and_index_alone(void **state) {
  (void)state;
  static float a[100000], b[100000];
  hv_lowrank_sketch(1, 2, 3, a, 100000);
  uint32_t bits[4];
  memcpy(bits, a, sizeof bits); /* the same on every machine, for good: a swarm's peers must agree */
  assert_int_equal(bits[0], 0xbd5efae9);
  assert_int_equal(bits[1], 0x3fb1199b);
  assert_int_equal(bits[2], 0x3fde0073);
  assert_int_equal(bits[3], 0x3f16d34f);
  hv_lowrank_sketch(1, 2, 3, b, 500);
  assert_memory_equal(a, b, 2000);
  const int64_t others[][3] = {{2, 2, 3}, {1, 3, 3}, {1, 2, 2}, {1, 3, 2}, {0, 0, 0}};
  for (size_t o = 0; o < 5; o++) {
    double dot = 0;
    hv_lowrank_sketch((uint64_t)others[o][0], others[o][1], others[o][2], b, 100000);
    for (size_t i = 0; i < 100000; i++)
      dot += (double)a[i] * b[i];
    expect_near(dot / 100000, 0, 0.015);
  }
  double sum = 0, squares = 0, fourth = 0;
  for (size_t i = 0; i < 100000; i++) {
    sum += a[i];
    squares += (double)a[i] * a[i];
    fourth += (double)a[i] * a[i] * a[i] * a[i];
  }
  expect_near(sum / 100000, 0, 0.015);
  expect_near(squares / 100000, 1, 0.02);
  expect_near(fourth / 100000, 2.85, 0.1); /* 3 - 1.2 / 8 */
}

static void tensors_are_cut_where_they_compress_best(void **state) {
  (void)state;
  hv_lowrank_size size;
  const struct {
    int64_t shape[4];
    size_t n;
    int64_t rows, cols;
  } cases[] = {{{30, 20}, 2, 30, 20},
               {{256, 128, 3, 3}, 4, 256, 1152},
               {{8, 512, 512}, 3, 4096, 512},
               {{1, 1, 64, 64}, 4, 64, 64},
               {{2, 2, 2, 2}, 4, 4, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    assert_int_equal(hv_lowrank_view(cases[i].shape, cases[i].n, &size), HV_OK);
    assert_int_equal(size.rows, cases[i].rows);
    assert_int_equal(size.cols, cases[i].cols);
  }
  const int64_t bad[][3] = {{0, 5, 5}, {5, -1, 5}, {INT64_MAX, 2, 2}, {(int64_t)1 << 40, (int64_t)1 << 40, 2}};
  for (size_t i = 0; i < 4; i++)
    assert_int_equal(hv_lowrank_view(bad[i], 3, &size), HV_INVALID);
  assert_int_equal(hv_lowrank_view(bad[0], 1, &size), HV_INVALID);
  assert_int_equal(hv_lowrank_view(NULL, 0, &size), HV_INVALID);
}

static void a_tensor_takes_part_when_it_shrinks_enough(void **state) {
  (void)state;
  const hv_lowrank_size square = {100, 100}; /* rank r leaves 2 r % */
  assert_true(hv_lowrank_takes_part(square, 25, 0.5));
  assert_false(hv_lowrank_takes_part(square, 26, 0.5));
  assert_true(hv_lowrank_takes_part(square, 50, 0));
  assert_false(hv_lowrank_takes_part(square, 51, 0));
  assert_false(hv_lowrank_takes_part(square, 1, 1));
  assert_false(hv_lowrank_takes_part(square, 101, -100));
  assert_false(hv_lowrank_takes_part(square, 0, 0));
  assert_false(hv_lowrank_takes_part(square, -3, 0));
  assert_false(hv_lowrank_takes_part(square, 1, NAN));
  assert_false(hv_lowrank_takes_part((hv_lowrank_size){100000, 100000}, HV_LOWRANK_RANK_MAX + 1, 0));
}

static hv_status try(hv_lowrank_round *round, hv_lowrank_step step, int64_t id) {
  hv_error err = {0};
  hv_status status = hv_lowrank_may(round, step, id, &err);
  assert_int_equal(status == HV_OK, err.text[0] == 0);
  if (status == HV_OK)
    hv_lowrank_take(round, step, id);
  return status;
}

static void round_counts_once_though_its_steps_are_repeated(void **state) {
  (void)state;
  hv_lowrank_round r = {0};
  assert_int_equal(try(&r, HV_LOWRANK_DECODE, 5), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_AVERAGE_P, 5), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_ABORT, 5), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_ENCODE, 5), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_DECODE, 5), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_ENCODE, 5), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_AVERAGE_P, 6), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_AVERAGE_P, 5), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_AVERAGE_P, 5), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_ENCODE, 5), HV_OK); /* back to the start */
  assert_int_equal(try(&r, HV_LOWRANK_DECODE, 5), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_AVERAGE_P, 5), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_ABORT, 4), HV_OK); /* another one: nothing happens */
  assert_int_equal(try(&r, HV_LOWRANK_DECODE, 5), HV_OK);
  assert_int_equal(r.committed, 1);
  assert_int_equal(try(&r, HV_LOWRANK_DECODE, 5), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_ENCODE, 5), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_ENCODE, 6), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_ENCODE, 7), HV_OK); /* gives 6 up */
  assert_int_equal(try(&r, HV_LOWRANK_AVERAGE_P, 6), HV_STATE);
  assert_int_equal(try(&r, HV_LOWRANK_ABORT, 7), HV_OK);
  assert_int_equal(try(&r, HV_LOWRANK_AVERAGE_P, 7), HV_STATE);
  assert_int_equal(r.committed, 1);
  r.phase = 99;
  assert_int_equal(try(&r, HV_LOWRANK_ENCODE, 8), HV_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_set_of_kernels_computes_the_same_maths),
      cmocka_unit_test(basis_and_product_are_the_same_on_every_set_of_kernels),
      cmocka_unit_test(dependent_columns_still_give_an_orthonormal_basis),
      cmocka_unit_test(non_finite_matrix_is_refused_and_unchanged),
      cmocka_unit_test(a_sketch_depends_on_seed_round_and_index_alone),
      cmocka_unit_test(tensors_are_cut_where_they_compress_best),
      cmocka_unit_test(a_tensor_takes_part_when_it_shrinks_enough),
      cmocka_unit_test(round_counts_once_though_its_steps_are_repeated),
  };
  return cmocka_run_group_tests_name("lowrank", tests, NULL, NULL);
}
