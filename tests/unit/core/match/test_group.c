/* A BEGIN is held against what a member knows; what a host plans is what members accept. */
#include "lib/check.h"

#include "core/match/group.h"
#include "core/peers/contact.h"
#include "lib/fake_env.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 6, CHUNKS = 40, TOLD = 3 };

typedef struct bench {
  fake_env world;
  hv_peers peers;
  hv_roster roster;
  hv_match_member members[N + 1];
  uint64_t bandwidth[N + 1];
  uint8_t addrs[HV_CONTACT_ADDRS_MAX], told[TOLD * N];
  hv_msg_begin begin;
  hv_payload *gathers;
  hv_group_facts facts;
} bench;

/* Six members, the fifth a client, the sixth an auxiliary; member `me` reads. */
static void open_bench(bench *b, size_t me) {
  memset(b, 0, sizeof *b);
  fake_env_init(&b->world, 7);
  b->roster.peers = &b->peers;
  b->peers.seen.is_private = 1; /* the members are in one private network */
  hv_addr addr = {.kind = HV_ADDR_IP4, .port = 99, .host.ip = {10, 0, 0, 1}};
  hv_span addrs = hv_span_of(b->addrs, hv_contact_pack(&addr, 1, b->addrs));
  for (size_t i = 0; i < N; i++)
    b->members[i] = (hv_match_member){
        .id = fake_peer(10 + i), .addrs = i == 4 ? hv_span_of(NULL, 0) : addrs, .auxiliary = i == 5, .gather_size = TOLD};
  for (size_t i = 0; i < sizeof b->told; i++)
    b->told[i] = (uint8_t)(i * 11);
  b->begin = (hv_msg_begin){.nonce = {1, 2, 3}, .members = b->members, .n_members = N};
  assert_int_equal(hv_group_plan(&b->world.env, b->members, b->bandwidth, N, CHUNKS, 0, &b->begin.leader), HV_OK);
  b->gathers = hv_payload_copy(&b->world.mem, b->told, sizeof b->told);
  b->facts = (hv_group_facts){.key = hv_span_of("run.", 4),
                              .epoch = hv_span_of("5", 1),
                              .n_chunks = CHUNKS,
                              .me = b->members[me].id,
                              .client = me == 4,
                              .auxiliary = me == 5,
                              .gather = hv_span_of(b->told + TOLD * me, TOLD),
                              .roster = &b->roster};
}

static void close_bench(bench *b) {
  hv_payload_release(b->gathers);
  assert_int_equal(b->world.mem.blocks, 0);
}

static hv_status read_group(bench *b, hv_match_group **out, hv_error *err) {
  return hv_group_read(&b->world.env, &b->facts, &b->begin, b->gathers, out, err);
}

static void members_read_the_same_group_from_a_begin(void **unused) {
  (void)unused;
  uint8_t id[HV_ROUND_ID_SIZE];
  for (size_t me = 0; me < N; me++) {
    bench b;
    hv_match_group *group;
    open_bench(&b, me);
    assert_int_equal(read_group(&b, &group, NULL), HV_OK);
    if (me == 0)
      memcpy(id, group->id, sizeof id);
    assert_memory_equal(id, group->id, sizeof id);
    assert_int_equal(group->me, me);
    assert_int_equal(group->n_members, N);
    assert_int_equal(group->leader, 0);
    uint32_t at = 0;
    for (size_t i = 0; i < N; i++) {
      const hv_round_member *m = &group->members[i];
      assert_true(hv_peer_equal(&m->at.id, &b.members[i].id));
      assert_int_equal(m->client, i == 4);
      assert_int_equal(m->auxiliary, i == 5);
      assert_int_equal(m->at.addr.port, i == 4 ? 0 : 99);
      assert_true(hv_span_equal(group->gathers[i], hv_span_of(b.told + TOLD * i, TOLD)));
      if (m->count)
        assert_int_equal(m->first, at);
      at += m->count;
    }
    assert_int_equal(at, CHUNKS);
    hv_mem_free(group);
    close_bench(&b);
  }
}

/* ---- forgeries ---- */

static void not_me(bench *b) {
  b->facts.me = fake_peer(99);
}
static void me_as_an_auxiliary(bench *b) {
  b->facts.auxiliary = 1;
}
static void me_as_a_client(bench *b) {
  b->facts.client = 1;
}
static void somebody_twice(bench *b) {
  b->members[3].id = b->members[2].id;
}
static void nobody(bench *b) {
  memset(&b->members[3].id, 0, sizeof b->members[3].id);
}
static void a_gap(bench *b) {
  b->members[1].first++;
}
static void an_overlap(bench *b) {
  b->members[1].first--;
}
static void too_few_chunks(bench *b) {
  b->members[5].count--;
}
static void too_many_chunks(bench *b) {
  b->members[5].count++;
}
static void a_sum_that_wraps(bench *b) {
  b->members[1].count = UINT32_MAX;
  b->members[2].first = b->members[0].count + UINT32_MAX;
  b->members[2].count = CHUNKS - b->members[0].count + 1;
  b->members[3].count = b->members[5].count = 0;
}
static void a_client_that_owns(bench *b) {
  b->members[4].first = b->members[3].first + b->members[3].count;
  b->members[4].count = 1;
  b->members[5].first++;
  b->members[5].count--;
}
static void a_leader_beyond(bench *b) {
  b->begin.leader = N;
}
static void a_client_that_leads(bench *b) {
  b->begin.leader = 4;
}
/* The host makes itself the owner of everything. */
static void one_owner(bench *b) {
  for (size_t i = 0; i < N; i++)
    b->members[i].first = b->members[i].count = 0;
  b->members[0].count = CHUNKS;
}
/* The most that one may own is 30 of 40. */
static void too_large_an_owner(bench *b) {
  one_owner(b);
  b->members[0].count = b->members[1].first = 31;
  b->members[1].count = 9;
}
static void no_members(bench *b) {
  b->begin.n_members = 0;
}
static void nobody_contributes(bench *b) {
  for (size_t i = 0; i < N; i++)
    b->members[i].auxiliary = 1;
  b->facts.auxiliary = 1;
}
static void less_told_than_said(bench *b) {
  b->members[3].gather_size++;
}
static void more_told_than_said(bench *b) {
  b->members[3].gather_size--;
}
static void sizes_that_wrap(bench *b) {
  b->members[2].gather_size = UINT32_MAX;
  b->members[3].gather_size = 2 * TOLD + 1;
}
static void nothing_told(bench *b) {
  hv_payload_release(b->gathers);
  b->gathers = NULL;
}
static void my_words_altered(bench *b) {
  b->facts.gather = hv_span_of("abc", TOLD);
}

static void invalid_begin_is_refused(void **unused) {
  (void)unused;
  void (*const forgeries[])(bench *) = {
      not_me,
      me_as_an_auxiliary,
      me_as_a_client,
      somebody_twice,
      nobody,
      a_gap,
      an_overlap,
      too_few_chunks,
      too_many_chunks,
      a_sum_that_wraps,
      a_client_that_owns,
      a_leader_beyond,
      a_client_that_leads,
      one_owner,
      too_large_an_owner,
      no_members,
      nobody_contributes,
      less_told_than_said,
      more_told_than_said,
      sizes_that_wrap,
      nothing_told,
      my_words_altered,
  };
  for (size_t i = 0; i < sizeof forgeries / sizeof *forgeries; i++) {
    bench b;
    hv_match_group *group = NULL;
    hv_error err = {0};
    open_bench(&b, 1);
    forgeries[i](&b);
    if (read_group(&b, &group, &err) != HV_MALFORMED)
      fail_msg("forgery %zu was taken", i);
    assert_null(group);
    assert_true(err.text[0] != 0);
    close_bench(&b);
  }
}

/* For any bytes: it is refused, or it is a group that a round can begin with. */
static void random_begins_are_refused_or_right(void **unused) {
  (void)unused;
  check_rng rng = {11};
  size_t taken = 0;
  for (int k = 0; k < 20000; k++) {
    bench b;
    hv_match_group *group = NULL;
    open_bench(&b, (size_t)(check_random(&rng) % N));
    for (uint64_t changes = 1 + check_random(&rng) % 3; changes > 0; changes--) {
      hv_match_member *m = &b.members[check_random(&rng) % N];
      uint32_t small = (uint32_t)(check_random(&rng) % 9) - 4;
      switch (check_random(&rng) % 8) {
      case 0:
        m->first += small;
        break;
      case 1:
        m->count += small;
        break;
      case 2:
        m->gather_size += small;
        break;
      case 3:
        m->id = b.members[check_random(&rng) % N].id;
        break;
      case 4:
        m->auxiliary ^= 1;
        break;
      case 5:
        m->addrs.size = m->addrs.size ? 0 : 4; /* cut, or from nowhere: it need not be readable */
        m->addrs.data = b.addrs;
        break;
      case 6:
        b.begin.leader = (uint32_t)(check_random(&rng) % (N + 2));
        break;
      default:
        b.begin.n_members = (size_t)(check_random(&rng) % (N + 1));
      }
    }
    if (read_group(&b, &group, NULL) == HV_OK) {
      uint32_t at = 0;
      taken++;
      assert_true(hv_peer_equal(&group->members[group->me].at.id, &b.facts.me));
      assert_false(group->members[group->leader].client);
      for (size_t i = 0; i < group->n_members; i++) {
        assert_true(!group->members[i].count || (group->members[i].first == at && !group->members[i].client));
        at += group->members[i].count;
      }
      assert_int_equal(at, CHUNKS);
    }
    hv_mem_free(group);
    close_bench(&b);
  }
  assert_true(taken > 100);
}

static uint32_t largest(bench *b, size_t n) {
  uint32_t most = 0, at = 0;
  assert_int_equal(hv_group_plan(&b->world.env, b->members, b->bandwidth, n, CHUNKS, 0, &b->begin.leader), HV_OK);
  for (size_t i = 0; i < n; i++) {
    most = b->members[i].count > most ? b->members[i].count : most;
    at += b->members[i].count;
  }
  assert_int_equal(at, CHUNKS);
  return most;
}

/* The host's word of its own line gives it three quarters at most, unless hardly anybody else can own a span. */
static void host_with_an_endless_line_owns_three_quarters(void **unused) {
  (void)unused;
  bench b;
  hv_match_group *group;
  for (size_t least = 0; least <= CHUNKS; least += CHUNKS) {
    open_bench(&b, 1);
    for (size_t i = 0; i < N; i++)
      b.bandwidth[i] = i == 0 ? (uint64_t)1e18 : 1000000;
    assert_int_equal(hv_group_plan(&b.world.env, b.members, b.bandwidth, N, CHUNKS, (uint32_t)least, &b.begin.leader), HV_OK);
    assert_int_equal(b.members[0].count, CHUNKS * 3 / 4);
    assert_int_equal(read_group(&b, &group, NULL), HV_OK);
    hv_mem_free(group);
    close_bench(&b);
  }
  open_bench(&b, 1);
  b.bandwidth[0] = (uint64_t)1e18;
  b.bandwidth[1] = b.bandwidth[2] = 1000000;
  b.members[2].addrs.size = 0; /* of three members a client */
  assert_int_equal(largest(&b, 3), CHUNKS);
  close_bench(&b);
}

/* One fast line at each place among two slow ones, and three clients: rounding may carry the fast one's span over the limit. */
static void plan_passes_the_members_check(void **unused) {
  (void)unused;
  bench b;
  hv_match_group *group;
  open_bench(&b, 0);
  b.members[3].addrs = b.members[5].addrs = hv_span_of(NULL, 0);
  b.members[5].auxiliary = 0;
  for (uint32_t chunks = 0; chunks <= 1024; chunks++)
    for (size_t place = 0; place < 3; place++)
      for (uint64_t slow = 2500000; slow <= 40000000; slow *= 4) {
        hv_error err = {0};
        for (size_t i = 0; i < N; i++)
          b.bandwidth[i] = i == place ? 100000000 : slow;
        b.facts.n_chunks = chunks;
        assert_int_equal(hv_group_plan(&b.world.env, b.members, b.bandwidth, N, chunks, 0, &b.begin.leader), HV_OK);
        if (read_group(&b, &group, &err) != HV_OK)
          fail_msg("%u chunks, the fast member at %zu: %s", chunks, place, err.text);
        hv_mem_free(group);
      }
  close_bench(&b);
}

/* Members that are told different things are in different rounds. */
static void different_begins_have_different_round_ids(void **unused) {
  (void)unused;
  uint8_t ids[12][HV_ROUND_ID_SIZE];
  for (size_t k = 0; k < 12; k++) {
    bench b;
    hv_match_group *group;
    open_bench(&b, 1);
    if (k == 1)
      b.begin.nonce[15]++;
    if (k == 2)
      b.begin.leader = 2;
    if (k == 3)
      b.members[3].id = fake_peer(77);
    if (k == 4)
      b.members[2].count += b.members[3].count, b.members[3].count = 0;
    if (k == 5)
      b.members[0].auxiliary = 1;
    if (k == 6)
      b.facts.epoch = hv_span_of("6", 1);
    if (k == 7)
      b.facts.key = hv_span_of("run", 3), b.facts.epoch = hv_span_of(".5", 2);
    if (k == 8)
      b.facts.schema.bytes[31] = 1;
    if (k == 9)
      b.members[2].gather_size++, b.members[3].gather_size--;
    if (k == 10) {
      hv_payload_release(b.gathers);
      b.told[0] ^= 1;
      b.gathers = hv_payload_copy(&b.world.mem, b.told, sizeof b.told);
    }
    if (k == 11)
      b.members[0].addrs.size = b.members[0].addrs.size - 1; /* it cannot be read, and is told */
    assert_int_equal(read_group(&b, &group, NULL), HV_OK);
    memcpy(ids[k], group->id, sizeof ids[k]);
    for (size_t other = 0; other < k; other++)
      assert_memory_not_equal(ids[k], ids[other], sizeof ids[k]);
    hv_mem_free(group);
    close_bench(&b);
  }
}

static hv_status plan_and_read(hv_mem *mem, void *arg) {
  bench b;
  hv_match_group *group = NULL;
  (void)arg;
  open_bench(&b, 2);
  hv_mem *before = b.world.env.mem;
  b.world.env.mem = mem;
  hv_status status = hv_group_plan(&b.world.env, b.members, b.bandwidth, N, CHUNKS, 0, &b.begin.leader);
  if (status == HV_OK)
    status = read_group(&b, &group, NULL);
  hv_mem_free(group);
  b.world.env.mem = before;
  close_bench(&b);
  return status;
}

static void every_allocation_may_fail(void **unused) {
  (void)unused;
  assert_true(check_out_of_memory(plan_and_read, NULL) >= 3);
}

static void member_that_would_own_too_little_owns_nothing(void **unused) {
  (void)unused;
  for (uint32_t least = 0; least <= CHUNKS; least++) {
    bench b;
    uint32_t leader, at = 0;
    size_t owners = 0;
    open_bench(&b, 0);
    for (size_t i = 0; i < N; i++)
      b.bandwidth[i] = 1000 + 50 * i;
    assert_int_equal(hv_group_plan(&b.world.env, b.members, b.bandwidth, N, CHUNKS, least, &leader), HV_OK);
    for (size_t i = 0; i < N; i++)
      owners += b.members[i].count > 0;
    for (size_t i = 0; i < N; i++) {
      assert_true(b.members[i].count == 0 || b.members[i].count >= least || owners == 2);
      assert_int_equal(b.members[i].first, at);
      at += b.members[i].count;
    }
    assert_int_equal(at, CHUNKS); /* whatever is asked for, every chunk has an owner */
    assert_true(owners >= 2 && (least > 1 || owners == N - 1));
    assert_true(least <= CHUNKS / 2 || owners == 2); /* no member owns everything where two others can own */
    close_bench(&b);
  }
}

static void a_plan_needs_an_owner_and_a_contributor(void **unused) {
  (void)unused;
  bench b;
  uint32_t leader;
  open_bench(&b, 0);
  for (size_t i = 0; i < N; i++)
    b.members[i].auxiliary = 1;
  assert_int_equal(hv_group_plan(&b.world.env, b.members, b.bandwidth, N, CHUNKS, 0, &leader), HV_STATE);
  for (size_t i = 0; i < N; i++)
    b.members[i].auxiliary = 0, b.members[i].addrs = hv_span_of(NULL, 0);
  assert_int_equal(hv_group_plan(&b.world.env, b.members, b.bandwidth, N, CHUNKS, 0, &leader), HV_STATE);
  close_bench(&b);
}

/* ---- descriptions ---- */

static void difference(const char *mine, const char *theirs, const char *expected) {
  char out[300];
  hv_group_difference(hv_span_of(mine, strlen(mine)), hv_span_of(theirs, strlen(theirs)), out, sizeof out);
  if (!strstr(out, expected))
    fail_msg("\"%s\" does not say \"%s\"", out, expected);
}

static void first_differing_line_is_named(void **unused) {
  (void)unused;
  difference("a\nb\nc", "a\nx\ny", "it has x where this peer has b");
  difference("a\nb", "a", "it ends before b");
  difference("a", "a\nb", "it goes on with b");
  difference("a\n", "a", "equal");
  difference("", "a", "not described");
  difference("a", "\nnothing", "it has  where this peer has a");
  difference("a", "\x01\x02", "??");
}

/* ---- group bits ---- */

static void members_of_a_group_get_different_bits(void **unused) {
  (void)unused;
  for (size_t target = 2; target <= 32; target++)
    for (size_t n = 1; n <= target; n++) {
      char seen[32][HV_MATCH_BITS_MAX + 1];
      for (size_t me = 0; me < n; me++) {
        hv_match_group group = {.id = {(uint8_t)target, (uint8_t)n}, .n_members = n, .me = me};
        hv_match_next_bits(hv_span_of("0110100110", 10), target, &group, seen[me]);
        assert_int_equal(strlen(seen[me]), 10);
        for (size_t other = 0; other < me; other++)
          assert_string_not_equal(seen[me], seen[other]);
      }
    }
}

static void oldest_bit_is_dropped(void **unused) {
  (void)unused;
  char out[HV_MATCH_BITS_MAX + 1];
  hv_match_group group = {.n_members = 16, .me = 3};
  hv_match_next_bits(hv_span_of("00001111", 8), 16, &group, out);
  assert_memory_equal(out, "1111", 4);
  hv_match_next_bits(hv_span_of("", 0), 16, &group, out);
  assert_string_equal(out, "");
  hv_match_next_bits(hv_span_of("01", 2), 0, &group, out);
  assert_string_equal(out, "01");
  hv_match_next_bits(hv_span_of("01", 2), 16, &group, out);
  assert_int_equal(strlen(out), 2);
}

/* ---- a large swarm, by bits alone: who shares a key averages; a key with more than ROOM splits evenly ---- */

enum { MANY = 4096, BASE = 16, ROOM = 24, DIGITS = 2, WIDTH = 8 };

typedef struct walker {
  char bits[HV_MATCH_BITS_MAX + 1];
  double value;
  uint64_t order; /* drawn anew in each round */
  int misses;
} walker;

static int by_key(const void *a, const void *b) {
  const walker *x = a, *y = b;
  int order = strcmp(x->bits, y->bits);
  return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

static void average_group(check_rng *rng, walker *w, size_t n) {
  hv_match_group group = {.n_members = n};
  double sum = 0;
  for (size_t i = 0; i < sizeof group.id; i++)
    group.id[i] = (uint8_t)check_random(rng);
  for (size_t i = 0; i < n; i++)
    sum += w[i].value;
  for (size_t i = 0; i < n; i++) {
    char before[HV_MATCH_BITS_MAX + 1];
    memcpy(before, w[i].bits, sizeof before);
    w[i].value = sum / (double)n;
    group.me = i;
    hv_match_next_bits(hv_span_of(before, WIDTH), BASE, &group, w[i].bits);
  }
}

/* One round; how many groups there were, those who missed it among them. */
static size_t play_round(check_rng *rng, walker *w) {
  size_t groups = 0, here = 0;
  for (size_t i = 0; i < MANY; i++)
    w[i].order = check_random(rng), w[i].misses = check_random(rng) % 10 == 0;
  qsort(w, MANY, sizeof *w, by_key);
  for (size_t i = 0; i < MANY; i++) /* those who miss it go to the end */
    if (!w[i].misses) {
      walker kept = w[here];
      w[here++] = w[i];
      w[i] = kept;
    }
  qsort(w, here, sizeof *w, by_key);
  for (size_t from = 0, to; from < here; from = to) {
    for (to = from + 1; to < here && strcmp(w[from].bits, w[to].bits) == 0;)
      to++;
    size_t n = to - from, parts = (n + ROOM - 1) / ROOM;
    for (size_t k = 0, at = from; k < parts; k++) {
      size_t size = (n + parts - 1 - k) / parts;
      average_group(rng, w + at, size);
      at += size;
    }
    groups += parts;
  }
  return groups + MANY - here;
}

/* Moshpit SGD's theorem on random groups: in a round with r groups (who misses it is one by himself) the mean square of the
 * deviations goes down by (r - 1) / N + r / N^2. When it is e^2 / N, all are within e. */
static void thousands_of_peers_mix_as_fast_as_in_the_paper(void **unused) {
  (void)unused;
  for (uint64_t seed = 1; seed <= 5; seed++) {
    static walker w[MANY];
    check_rng rng = {seed};
    double mean = 0, most = 1, square = 1, bound = 1, r = 0.9 * MANY / BASE + 0.1 * MANY;
    unsigned rounds = 0, square_rounds = 0, bound_rounds = 0, bound_square_rounds = 0;
    memset(w, 0, sizeof w);
    for (size_t i = 0; i < MANY; i++) {
      w[i].value = check_normal(&rng);
      mean += w[i].value / MANY;
      for (size_t b = 0; b < WIDTH; b++)
        w[i].bits[b] = check_random(&rng) & 1 ? '1' : '0';
    }
    for (; bound > 1e-6 / MANY; bound_rounds++) {
      bound_square_rounds += bound > 1e-6;
      bound *= (r - 1) / MANY + r / ((double)MANY * MANY);
    }
    for (; most > 1e-3 && rounds < 100; rounds++) {
      square_rounds += square > 1e-6;
      play_round(&rng, w);
      most = square = 0;
      for (size_t i = 0; i < MANY; i++) {
        most = fmax(most, fabs(w[i].value - mean));
        square += (w[i].value - mean) * (w[i].value - mean) / MANY;
      }
    }
    print_message("%u peers, groups of %d, a tenth missing: mean square 1e-6 after %u rounds (the paper: %u), all within 1e-3 "
                  "after %u (%u)\n",
                  MANY, BASE, square_rounds, bound_square_rounds, rounds, bound_rounds);
    assert_true(square_rounds <= bound_square_rounds * 1.25 && rounds <= bound_rounds * 1.25);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_read_the_same_group_from_a_begin),
      cmocka_unit_test(host_with_an_endless_line_owns_three_quarters),
      cmocka_unit_test(plan_passes_the_members_check),
      cmocka_unit_test(invalid_begin_is_refused),
      cmocka_unit_test(random_begins_are_refused_or_right),
      cmocka_unit_test(different_begins_have_different_round_ids),
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(member_that_would_own_too_little_owns_nothing),
      cmocka_unit_test(a_plan_needs_an_owner_and_a_contributor),
      cmocka_unit_test(first_differing_line_is_named),
      cmocka_unit_test(members_of_a_group_get_different_bits),
      cmocka_unit_test(oldest_bit_is_dropped),
      cmocka_unit_test(thousands_of_peers_mix_as_fast_as_in_the_paper),
  };
  return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
