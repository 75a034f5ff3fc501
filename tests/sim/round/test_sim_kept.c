/* The encoded averages that a round keeps: the same bytes at all members, and the averages when decoded. */
#include "lib/scene.h"

#include <string.h>

static const hv_sim_link slow = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20};

static const struct {
  hv_codec codec;
  uint64_t row;
} codecs[] = {{HV_CODEC_NONE, 0},       {HV_CODEC_FLOAT16, 0}, {HV_CODEC_BFLOAT16, 0},      {HV_CODEC_UNIFORM8, 0},
              {HV_CODEC_BLOCKWISE8, 0}, {HV_CODEC_LINEAR4, 0}, {HV_CODEC_SCALED_ROWS, 1000}};

static scene_setup keepers(size_t n, uint64_t seed) {
  return (scene_setup){.n = n, .n_values = 50000, .chunk_values = 2000, .seed = seed, .link = slow, .keep = 1};
}

/* Takes the averages that these members kept, NULL if none; all are the same. Returns the number of members with averages. */
static size_t take_kept(scene *s, unsigned set, hv_payload *out[SCENE_MEMBERS_MAX]) {
  const hv_payload *first = NULL;
  size_t n = 0;
  for (size_t i = 0; i < s->n; i++) {
    out[i] = set >> i & 1 && s->members[i].status == HV_OK ? hv_allreduce_kept(s->members[i].allreduce) : NULL;
    if (!out[i])
      continue;
    n++;
    first = first ? first : out[i];
    assert_int_equal(out[i]->n_parts, s->members[i].in_run.n_chunks);
    for (size_t k = 0; k < out[i]->n_parts; k++) {
      assert_int_equal(out[i]->parts[k].size, first->parts[k].size);
      assert_memory_equal(out[i]->parts[k].data, first->parts[k].data, first->parts[k].size);
    }
  }
  return n;
}

static void drop_kept(hv_payload *kept[SCENE_MEMBERS_MAX]) {
  for (size_t i = 0; i < SCENE_MEMBERS_MAX; i++)
    hv_payload_release(kept[i]);
}

/* Decoded into other memory, it is the average of this member to the bit. */
static void is_the_average(scene *s, const hv_payload *kept, size_t member, const scene_setup *how) {
  scene_member *m = &s->members[member];
  float *values = hv_mem_aligned(&s->mem, s->n_values * sizeof(float));
  hv_run_part part = {values, HV_DTYPE_FLOAT32, s->n_values, how->codec, NULL, how->row, 0, how->narrow};
  hv_run run;
  assert_int_equal(hv_run_init(&run, &s->mem, &part, 1, how->chunk_values, NULL), HV_OK);
  for (uint32_t i = 0; i < run.n_chunks; i++)
    assert_int_equal(hv_run_decode(&run, hv_cpu_best(), i, &kept->parts[i], 1), HV_OK);
  assert_memory_equal(values, m->out, s->n_values * sizeof(float));
  hv_run_fini(&run);
  hv_mem_free(values);
}

static void members_keep_the_same_bytes(void **unused) {
  (void)unused;
  for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++)
    for (uint64_t seed = 1; seed <= 4; seed++) {
      scene s;
      hv_payload *kept[SCENE_MEMBERS_MAX] = {NULL};
      scene_setup how = keepers(4, seed);
      how.codec = codecs[c].codec;
      how.row = codecs[c].row;
      how.in_place = seed & 1;
      how.client = seed & 2 ? 3 : 0;
      scene_open(&s, &how);
      scene_begin_all(&s);
      scene_run(&s, 30);
      scene_all_have_the_same(&s, 15);
      assert_int_equal(take_kept(&s, 15, kept), 4);
      for (size_t i = 0; i < 4; i++)
        is_the_average(&s, kept[0], i, &how);
      drop_kept(kept);
      scene_close(&s);
    }
}

static hv_codec codec_of(const hv_span *chunk) {
  hv_codec_info info;
  assert_int_equal(hv_codec_peek(chunk, 1, &info), HV_OK);
  return info.codec;
}

/* Members whose lines differ send under two codecs. One average goes to all, under the narrow one if somebody's values came so: of
 * an owner, of a client, and through an auxiliary. */
static void one_narrow_member_makes_averages_narrow(void **unused) {
  (void)unused;
  static const unsigned sets[] = {0, 1, 2, 8, 5, 15};
  for (size_t c = 0; c < sizeof sets / sizeof *sets; c++)
    for (uint64_t seed = 1; seed <= 8; seed++) {
      scene s;
      hv_payload *kept[SCENE_MEMBERS_MAX] = {NULL};
      scene_setup how = keepers(5, seed);
      how.codec = seed & 4 ? HV_CODEC_NONE : HV_CODEC_LINEAR8;
      how.narrow = HV_CODEC_LINEAR4;
      how.sends_narrow = sets[c];
      how.in_place = seed & 1;
      how.client = seed & 2 ? 3 : 0;
      how.auxiliary = 4;
      how.away = seed == 5 ? 2 : 0;
      scene_open(&s, &how);
      scene_begin_all(&s);
      scene_run(&s, 30);
      scene_bring(&s);
      scene_all_have_the_same(&s, 15);
      assert_int_equal(take_kept(&s, 15, kept), 4);
      for (size_t k = 0; k < kept[0]->n_parts; k++)
        assert_int_equal(codec_of(&kept[0]->parts[k]), sets[c] ? how.narrow : how.codec);
      for (size_t i = 0; i < 4; i++) {
        is_the_average(&s, kept[0], i, &how);
        assert_int_equal(hv_allreduce_narrow(s.members[i].allreduce), sets[c] != 0);
        assert_int_equal(hv_allreduce_counted(s.members[0].allreduce, i), s.n_values);
      }
      drop_kept(kept);
      scene_close(&s);
    }
}

/* A chunk under another codec of the same size is none of the two, and so is an average. */
static void third_codec_is_refused(void **unused) {
  (void)unused;
  for (size_t client = 0; client <= 3; client += 3) { /* it owns a span, or none */
    scene s;
    scene_setup how = keepers(4, 11 + client);
    how.codec = HV_CODEC_FLOAT16;
    how.narrow = HV_CODEC_LINEAR8;
    how.sends_narrow = client != 0;
    how.client = client;
    scene_open(&s, &how);
    scene_member *liar = &s.members[3];
    hv_run_part part = {liar->in, HV_DTYPE_FLOAT32, s.n_values, HV_CODEC_BFLOAT16, NULL, 0, 0, HV_CODEC_LINEAR8};
    hv_run_part out = part;
    out.data = liar->out;
    hv_run_fini(&liar->in_run), hv_run_fini(&liar->out_run);
    assert_int_equal(hv_run_init(&liar->in_run, &s.mem, &part, 1, how.chunk_values, NULL), HV_OK);
    assert_int_equal(hv_run_init(&liar->out_run, &s.mem, &out, 1, how.chunk_values, NULL), HV_OK);
    scene_begin_all(&s);
    scene_run(&s, 60);
    scene_all_have_the_same(&s, 7);
    for (size_t i = 0; i < 3; i++)
      assert_int_equal(hv_allreduce_counted(s.members[i].allreduce, 3), 0);
    scene_close(&s);
  }
}

/* As among clients: it owns all spans. */
static void auxiliary_that_averages_all_keeps_all(void **unused) {
  (void)unused;
  scene s;
  hv_payload *kept[SCENE_MEMBERS_MAX] = {NULL};
  scene_setup how = keepers(3, 11);
  how.codec = HV_CODEC_UNIFORM8;
  how.auxiliary = 2;
  scene_open(&s, &how);
  uint32_t chunks = s.members[0].in_run.n_chunks;
  s.plan[0].count = s.plan[1].count = 0;
  s.plan[2].first = 0, s.plan[2].count = chunks;
  s.plan[0].client = s.plan[1].client = 1;
  s.members[0].round.leader = s.members[1].round.leader = s.members[2].round.leader = 2;
  scene_begin_all(&s);
  scene_run(&s, 30);
  scene_all_have_the_same(&s, 7);
  assert_int_equal(take_kept(&s, 7, kept), 3);
  is_the_average(&s, kept[2], 0, &how);
  drop_kept(kept);
  scene_close(&s);
}

static void auxiliary_with_a_part_of_the_spans_keeps_nothing(void **unused) {
  (void)unused;
  scene s;
  hv_payload *kept[SCENE_MEMBERS_MAX] = {NULL};
  scene_setup how = keepers(4, 12);
  how.auxiliary = 2;
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, 30);
  assert_int_equal(take_kept(&s, 15, kept), 3);
  assert_null(kept[2]);
  drop_kept(kept);
  scene_close(&s);
}

/* Averages that went to some members before their owner died are forwarded to the others as values, not as the owner encoded them.
 */
static void after_a_loss_members_keep_the_same_or_nothing(void **unused) {
  (void)unused;
  size_t all = 0, some = 0;
  for (uint64_t seed = 100; seed < 160; seed++) {
    scene s;
    hv_payload *kept[SCENE_MEMBERS_MAX] = {NULL};
    scene_setup how = keepers(5, seed);
    how.codec = codecs[seed % 3 * 2].codec;
    how.auxiliary = seed % 4 == 3 ? 3 : 0;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.002 * (double)(seed - 99));
    hv_sim_kill(s.sim, 1 + seed % 2);
    scene_run(&s, 60);
    unsigned left = 31u & ~(1u << (1 + seed % 2));
    scene_all_have_the_same(&s, left);
    size_t n = take_kept(&s, left, kept);
    all += n == 4;
    some += n > 0 && n < 4;
    for (size_t i = 0; i < 5; i++)
      if (kept[i] && s.members[i].out)
        is_the_average(&s, kept[i], i, &how);
    drop_kept(kept);
    scene_close(&s);
  }
  assert_in_range(all, 5, 60);
  assert_in_range(some, 3, 60);
}

static void round_that_fails_keeps_nothing(void **unused) {
  (void)unused;
  for (uint64_t seed = 200; seed < 210; seed++) {
    scene s;
    scene_setup how = keepers(3, seed);
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.05);
    for (size_t i = 0; i < 3; i++)
      if (i != seed % 3)
        hv_sim_kill(s.sim, i);
    scene_run(&s, 60);
    assert_int_not_equal(s.members[seed % 3].status, HV_OK);
    scene_close(&s); /* nothing is left in memory */
  }
}

/* An allocation of one member fails, which may be that of a copy. All memory is given back. */
static void members_without_memory_keep_the_same_or_nothing(void **unused) {
  (void)unused;
  size_t without = 0, some = 0;
  for (uint64_t n = 0; n < 60; n++) {
    scene s;
    hv_payload *kept[SCENE_MEMBERS_MAX] = {NULL};
    scene_setup how = keepers(3, 400 + n);
    scene_open(&s, &how);
    scene_begin_all(&s);
    hv_mem_fail_in(hv_node_env(hv_sim_core(s.sim, 1))->mem, (long)(3 * n));
    scene_run(&s, 60);
    scene_all_have_the_same(&s, 5);
    some += take_kept(&s, 7, kept) > 0;
    without += s.members[1].status == HV_OK && !kept[1];
    drop_kept(kept);
    scene_close(&s);
  }
  assert_in_range(without, 1, 60);
  assert_in_range(some, 30, 60);
}

static void member_that_does_not_ask_keeps_nothing(void **unused) {
  (void)unused;
  scene s;
  hv_payload *kept[SCENE_MEMBERS_MAX] = {NULL};
  scene_setup how = keepers(2, 300);
  scene_open(&s, &how);
  s.members[1].round.keep = 0;
  scene_begin_all(&s);
  scene_run(&s, 30);
  scene_all_have_the_same(&s, 3);
  assert_int_equal(take_kept(&s, 3, kept), 1);
  assert_null(kept[1]);
  drop_kept(kept);
  scene_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(members_keep_the_same_bytes),
      cmocka_unit_test(one_narrow_member_makes_averages_narrow),
      cmocka_unit_test(third_codec_is_refused),
      cmocka_unit_test(auxiliary_that_averages_all_keeps_all),
      cmocka_unit_test(auxiliary_with_a_part_of_the_spans_keeps_nothing),
      cmocka_unit_test(after_a_loss_members_keep_the_same_or_nothing),
      cmocka_unit_test(round_that_fails_keeps_nothing),
      cmocka_unit_test(members_without_memory_keep_the_same_or_nothing),
      cmocka_unit_test(member_that_does_not_ask_keeps_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
