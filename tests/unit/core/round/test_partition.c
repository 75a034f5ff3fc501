/* Shares of the run: all of it, once, and no link waits for a slower one. */
#include "lib/check.h"

#include "core/round/partition.h"

#include <math.h>

static hv_partition_member peer(double bandwidth) {
  return (hv_partition_member){.bandwidth = bandwidth, .owns = 1, .contributes = 1};
}

static void covers_every_chunk_once(const hv_partition_member *m, size_t n, uint32_t chunks) {
  uint32_t at = 0;
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(m[i].first, at);
    at += m[i].count;
    if (!m[i].owns)
      assert_int_equal(m[i].count, 0);
  }
  assert_int_equal(at, chunks);
}

/* How long the round takes: the slowest link, in volumes. */
static double slowest(const hv_partition_member *m, size_t n, const double *share) {
  double contributors = 0, worst = 0;
  for (size_t i = 0; i < n; i++)
    contributors += m[i].contributes;
  for (size_t i = 0; i < n; i++) {
    double carried = m[i].contributes ? 1 + share[i] * (contributors - 2) : share[i] * fmax(contributors, 1);
    worst = fmax(worst, carried / m[i].bandwidth);
  }
  return worst;
}

static void equal_peers_get_equal_spans(void **state) {
  (void)state;
  hv_partition_member m[4] = {peer(1), peer(1), peer(1), peer(1)};
  assert_int_equal(hv_partition(m, 4, 1000), HV_OK);
  for (int i = 0; i < 4; i++)
    assert_int_equal(m[i].count, 250);
  covers_every_chunk_once(m, 4, 1000);
}

static void a_slow_peer_owns_nothing(void **state) {
  (void)state;
  hv_partition_member m[4] = {peer(100), peer(100), peer(1), peer(100)};
  assert_int_equal(hv_partition(m, 4, 999), HV_OK);
  assert_int_equal(m[2].count, 0);
  assert_int_equal(m[0].count, 333);
  covers_every_chunk_once(m, 4, 999);
}

static void clients_own_nothing_and_auxiliaries_do(void **state) {
  (void)state;
  hv_partition_member m[4] = {peer(1), peer(1), peer(1), peer(10)};
  m[1].owns = 0;
  m[3].contributes = 0;
  assert_int_equal(hv_partition(m, 4, 500), HV_OK);
  assert_int_equal(m[1].count, 0);
  assert_true(m[3].count > m[0].count);
  covers_every_chunk_once(m, 4, 500);
}

static void an_unknown_bandwidth_is_taken_as_the_usual_one(void **state) {
  (void)state;
  hv_partition_member m[5] = {peer(NAN), peer(5), peer(-1), peer(5), peer(INFINITY)};
  assert_int_equal(hv_partition(m, 5, 100), HV_OK);
  for (int i = 0; i < 5; i++)
    assert_int_equal(m[i].count, 20);
  hv_partition_member none[3] = {peer(0), peer(0), peer(0)};
  assert_int_equal(hv_partition(none, 3, 9), HV_OK);
  assert_int_equal(none[1].count, 3);
}

static void partition_without_an_owner_is_an_error(void **state) {
  (void)state;
  hv_partition_member m[2] = {peer(1), peer(1)};
  m[0].owns = m[1].owns = 0;
  assert_int_equal(hv_partition(m, 2, 10), HV_STATE);
  assert_int_equal(hv_partition(m, 0, 10), HV_INVALID);
}

static void small_and_empty_runs_are_partitioned(void **state) {
  (void)state;
  hv_partition_member one[1] = {peer(3)};
  assert_int_equal(hv_partition(one, 1, 7), HV_OK);
  assert_int_equal(one[0].count, 7);
  hv_partition_member many[16];
  for (int i = 0; i < 16; i++)
    many[i] = peer(1 + i);
  assert_int_equal(hv_partition(many, 16, 0), HV_OK);
  covers_every_chunk_once(many, 16, 0);
  assert_int_equal(hv_partition(many, 16, 1), HV_OK);
  covers_every_chunk_once(many, 16, 1);
}

static void random_shares_are_never_faster_than_the_partition(void **state) {
  (void)state;
  check_rng rng = {7};
  for (int round = 0; round < 300; round++) {
    enum { MAX = 12, CHUNKS = 100000 };
    hv_partition_member m[MAX];
    size_t n = 2 + check_random(&rng) % (MAX - 1), owners = 0;
    for (size_t i = 0; i < n; i++) {
      m[i] = peer(exp(3 * check_normal(&rng)));
      m[i].owns = check_uniform(&rng) < 0.8;
      m[i].contributes = check_uniform(&rng) < 0.85;
      owners += m[i].owns;
    }
    if (owners == 0) {
      assert_int_equal(hv_partition(m, n, CHUNKS), HV_STATE);
      continue;
    }
    assert_int_equal(hv_partition(m, n, CHUNKS), HV_OK);
    covers_every_chunk_once(m, n, CHUNKS);
    double share[MAX], sum = 0;
    for (size_t i = 0; i < n; i++) {
      share[i] = m[i].share;
      sum += share[i];
      assert_true(fabs(share[i] * CHUNKS - m[i].count) <= 1.0001);
    }
    assert_true(fabs(sum - 1) < 1e-9);
    double ours = slowest(m, n, share);
    for (int other = 0; other < 50; other++) { /* move some of a share from one owner to another */
      size_t a = check_random(&rng) % n, b = check_random(&rng) % n;
      if (!m[a].owns || !m[b].owns || a == b)
        continue;
      double some = share[a] * check_uniform(&rng);
      share[a] -= some, share[b] += some;
      assert_true(slowest(m, n, share) >= ours * (1 - 1e-9));
      share[a] += some, share[b] -= some;
    }
  }
}

/* The time of the round with that limit of one member's share, over the time without it. */
static double price(hv_partition_member *m, size_t n, uint32_t most) {
  double share[64], time[2];
  for (int limited = 0; limited < 2; limited++) {
    for (size_t i = 0; i < n; i++)
      m[i].most = limited ? most : 0;
    assert_int_equal(hv_partition(m, n, 4000), HV_OK);
    covers_every_chunk_once(m, n, 4000);
    for (size_t i = 0; i < n; i++) {
      share[i] = m[i].share;
      assert_true(!limited || (share[i] * 4000 <= most + 1e-5 && m[i].count <= most));
    }
    time[limited] = slowest(m, n, share);
  }
  return time[1] / time[0];
}

/* One fast line and k slow ones: where all can own, the limit costs a quarter at most; where half can, a half. */
static void limit_of_one_share_costs_a_star_little(void **state) {
  (void)state;
  for (size_t k = 2; k < 32; k++)
    for (int half = 0; half < 2; half++) {
      hv_partition_member m[64] = {peer(1e6)};
      for (size_t i = 1; i <= 2 * k; i++)
        m[i] = peer(1);
      size_t n = 1 + (half ? 2 * k : k);
      for (size_t i = k + 1; i < n; i++)
        m[i].owns = 0;
      hv_partition_crowd crowd = {.owners = 1 + k, .contributors = n, .both = 1 + k};
      assert_int_equal(hv_partition_most(&crowd, 4000), 3000);
      assert_in_range((int)(1000 * price(m, n, 3000)), 999, half ? 1500 : 1250);
    }
}

static void one_member_may_own_all_where_few_others_can(void **state) {
  (void)state;
  static const struct {
    hv_partition_crowd crowd;
    uint32_t chunks, most;
  } cases[] = {
      {{1, 9, 1}, 100, 100},
      {{2, 2, 2}, 100, 100},
      {{3, 3, 3}, 100, 75},
      {{3, 6, 3}, 100, 75},
      {{3, 7, 3}, 100, 100},
      {{5, 2, 2}, 100, 100},
      {{3, 1, 0}, 100, 75},
      {{9, 9, 9}, 1, 1},
      {{9, 9, 9}, 0, 0},
      {{9, 9, 9}, 101, 76},
      {{9, 9, 9}, 3, 3},
      {{9, 9, 9}, 4, 3},
      {{256, 256, 256}, UINT32_MAX, 3221225472u},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(hv_partition_most(&cases[i].crowd, cases[i].chunks), cases[i].most);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equal_peers_get_equal_spans),
      cmocka_unit_test(a_slow_peer_owns_nothing),
      cmocka_unit_test(clients_own_nothing_and_auxiliaries_do),
      cmocka_unit_test(an_unknown_bandwidth_is_taken_as_the_usual_one),
      cmocka_unit_test(partition_without_an_owner_is_an_error),
      cmocka_unit_test(small_and_empty_runs_are_partitioned),
      cmocka_unit_test(random_shares_are_never_faster_than_the_partition),
      cmocka_unit_test(limit_of_one_share_costs_a_star_little),
      cmocka_unit_test(one_member_may_own_all_where_few_others_can),
  };
  return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
