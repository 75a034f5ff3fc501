/* One round of averaging, told against the virtual clock: what comes out, and what happens when members die. */
#include "lib/cuda_stand_in.h"
#include "lib/scene.h"

#include <math.h>
#include <string.h>

static double tolerance(hv_codec codec) {
  switch (codec) {
  case HV_CODEC_NONE:
    return 2e-6;
  case HV_CODEC_FLOAT16:
  case HV_CODEC_SCALED_FLOAT16:
  case HV_CODEC_SCALED_ROWS:
    return 0.01;
  case HV_CODEC_BFLOAT16:
    return 0.05;
  default:
    return 3; /* codecs of 8 and 4 bits: tests/unit hold their bounds; here the bits must agree */
  }
}

static void all_hold_the_mean(scene *s, hv_codec codec) {
  const float *first = s->members[0].out;
  for (size_t i = 0; i < s->n; i++) {
    assert_int_equal(s->members[i].done, 1);
    assert_int_equal(s->members[i].status, HV_OK);
    if (s->members[i].out && s->n_values)
      assert_memory_equal(s->members[i].out, first, s->n_values * sizeof(float));
  }
  for (uint64_t at = 0; at < s->n_values; at++)
    assert_true(fabs(first[at] - scene_mean(s, (1u << s->n) - 1, at)) <= tolerance(codec));
}

static void whole_round(scene_setup how) {
  scene s;
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, 60);
  scene_bring(&s);
  all_hold_the_mean(&s, how.codec);
  for (size_t i = 0; i < s.n; i++) /* every chunk has everybody in it */
    for (size_t j = 0; j < s.n; j++)
      if (!s.plan[j].auxiliary)
        assert_int_equal(hv_allreduce_counted(s.members[i].allreduce, j), s.plan[i].auxiliary ? 0 : s.n_values);
  scene_close(&s);
}

static void all_end_with_the_same_bits_under_every_codec(void **unused) {
  (void)unused;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    whole_round(
        (scene_setup){.n = 4, .n_values = 30011, .chunk_values = 1000, .codec = (hv_codec)codec, .seed = 1 + (uint64_t)codec});
}

static void groups_of_every_size_average(void **unused) {
  (void)unused;
  for (size_t n = 1; n <= SCENE_MEMBERS_MAX; n++)
    whole_round((scene_setup){.n = n, .n_values = 12345, .chunk_values = 256, .codec = HV_CODEC_FLOAT16, .seed = 20 + n});
}

static void runs_of_odd_sizes_are_averaged(void **unused) {
  (void)unused;
  static const uint64_t sizes[] = {0, 1, 2, 255, 256, 257, 5000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    whole_round((scene_setup){.n = 3, .n_values = sizes[i], .chunk_values = 256, .seed = 40 + i});
}

/* As large as a message carries, as they are. */
static void the_largest_chunks_travel(void **unused) {
  (void)unused;
  whole_round(
      (scene_setup){.n = 2, .n_values = 2 * HV_RUN_CHUNK_MAX + 1, .chunk_values = HV_RUN_CHUNK_MAX, .seed = 45, .quiet = 1});
}

static void clients_and_auxiliaries_take_part(void **unused) {
  (void)unused;
  whole_round((scene_setup){.n = 4, .n_values = 20000, .chunk_values = 500, .seed = 50, .client = 1, .auxiliary = 3});
  whole_round((scene_setup){.n = 3, .n_values = 20000, .chunk_values = 500, .seed = 51, .client = 2});
  whole_round((scene_setup){.n = 2, .n_values = 20000, .chunk_values = 500, .seed = 52, .auxiliary = 1});
}

/* Replicas that are alike stay so, to the bit, whoever owns the spans: a hub without values, and members that weigh nothing because
 * their replica is another one. Three times a value, divided by three, would round; -0 would lose its sign. */
static void mean_of_equal_values_is_those_to_the_bit(void **unused) {
  (void)unused;
  for (size_t hub = 0; hub <= 4; hub += 4)
    for (size_t wrong = 1; wrong <= 3; wrong += 2) {
      scene s;
      scene_setup how = {.n = 5, .n_values = 20000, .chunk_values = 500, .seed = 60 + hub + wrong, .auxiliary = hub};
      scene_open(&s, &how);
      s.members[0].in[7] = s.members[0].saved[7] = -0.0f;
      for (size_t i = 1; i < s.n; i++)
        if (i != hub && i != wrong)
          memcpy(s.members[i].in, s.members[0].in, s.n_values * sizeof(float));
      s.members[wrong].round.weight = 0;
      scene_begin_all(&s);
      scene_run(&s, 60);
      for (size_t i = 0; i < s.n; i++) {
        assert_int_equal(s.members[i].status, HV_OK);
        if (i != hub || hub == 0)
          assert_memory_equal(s.members[i].out, s.members[0].saved, s.n_values * sizeof(float));
      }
      scene_close(&s);
    }
}

static void a_rough_network_changes_nothing(void **unused) {
  (void)unused;
  for (uint64_t seed = 60; seed < 70; seed++)
    whole_round((scene_setup){.n = 5,
                              .n_values = 100000,
                              .chunk_values = 2048,
                              .codec = HV_CODEC_UNIFORM8,
                              .seed = seed,
                              .stall_ms = 30000,
                              .link = {.delay_us = 20000, .jitter_us = 30000, .loss = 0.05, .rate = 2 << 20}});
}

static void in_place_round_averages(void **unused) {
  (void)unused;
  whole_round(
      (scene_setup){.n = 4, .n_values = 50000, .chunk_values = 1000, .codec = HV_CODEC_BLOCKWISE8, .seed = 70, .in_place = 1});
}

/* One member's values in its memory and the other's on a device: the same bits under every codec, and of the device's nothing
 * passes but chunks. Where it has too few sums, the values of some of that member's own span do. */
static void a_device_and_a_host_end_with_the_same_bits(void **unused) {
  (void)unused;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++)
    for (int few = 0; few < 2; few++) {
      scene s;
      scene_setup how = {.n = 2,
                         .n_values = 30011,
                         .chunk_values = 1000,
                         .codec = (hv_codec)codec,
                         .seed = 71 + (uint64_t)codec,
                         .in_place = few,
                         .away = 2};
      scene_open(&s, &how);
      away_device *d = &s.members[1].device; /* its span has the last 15 chunks of 31, and eight are open at once */
      d->n_sums = few ? 3 : 8;
      scene_begin_all(&s);
      scene_run(&s, 60);
      scene_bring(&s);
      all_hold_the_mean(&s, how.codec);
      assert_in_range(d->averaged, few ? 3 : 15, few ? 14 : 15);
      assert_int_equal(d->added, 2 * d->averaged);
      assert_true(d->raw == 1000 * (15 - d->averaged) || d->raw == 14011 - 1000 * d->averaged);
      assert_int_equal(d->encoded, 16 + (codec == HV_CODEC_NONE ? 15 : 0)); /* a few of each of its own: are they what came? */
      assert_int_equal(d->decoded, 31);
      scene_close(&s);
    }
}

/* The same with the GPU's transfers over its stand-in, whose streams go on as chance wills. */
static void a_gpu_and_a_host_end_with_the_same_bits(void **unused) {
  (void)unused;
  for (int codec = 0; codec < HV_CODEC_COUNT; codec++) {
    stand_in gpu;
    hv_mem mem;
    hv_transfers *transfers;
    scene s;
    stand_in_init(&gpu, 2);
    gpu.restless = 1;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_transfers_shape shape = {1000, 2, 5, 1 << 20};
    assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, NULL), HV_OK);
    scene_setup how = {.n = 2,
                       .n_values = 12011,
                       .chunk_values = 1000,
                       .codec = (hv_codec)codec,
                       .seed = 171 + (uint64_t)codec,
                       .in_place = codec % 2,
                       .away = 1u << codec % 2,
                       .device = hv_transfers_device(transfers)};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 60);
    all_hold_the_mean(&s, how.codec);
    assert_true(gpu.launches > 12);
    scene_close(&s);
    hv_transfers_free(transfers);
    stand_in_fini(&gpu);
    assert_int_equal(atomic_load(&mem.blocks), 0);
  }
}

/* Rows that cross chunks: of a host, of a device, and of the GPU's stand-in. */
static void rows_end_with_the_same_bits_wherever_tensors_are(void **unused) {
  (void)unused;
  for (uint64_t row = 16; row <= 6000; row *= 5) {
    stand_in gpu;
    hv_mem mem;
    hv_transfers *transfers;
    scene s;
    stand_in_init(&gpu, 2);
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_transfers_shape shape = {1000, 2, 5, 1 << 20};
    assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, NULL), HV_OK);
    scene_setup how = {.n = 3,
                       .n_values = 3 * 10000,
                       .chunk_values = 1000,
                       .codec = HV_CODEC_SCALED_ROWS,
                       .row = row,
                       .seed = 190 + row,
                       .away = 2,
                       .device = row % 80 ? NULL : hv_transfers_device(transfers)};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 60);
    scene_bring(&s);
    all_hold_the_mean(&s, how.codec);
    scene_close(&s);
    hv_transfers_free(transfers);
    stand_in_fini(&gpu);
    assert_int_equal(atomic_load(&mem.blocks), 0);
  }
}

/* Wherever its device fails, this member is told so, and the others average without what it had not given. */
static void a_device_that_fails_ends_the_round_here_and_nowhere_else(void **unused) {
  (void)unused;
  for (long n = 0;; n += 3) {
    scene s;
    scene_setup how = {.n = 3, .n_values = 9000, .chunk_values = 500, .seed = 90 + (uint64_t)n, .away = 2};
    scene_open(&s, &how);
    s.members[1].device.fail_at = n;
    scene_begin_all(&s);
    scene_run(&s, 60);
    int whole = s.members[1].status == HV_OK;
    scene_bring(&s);
    assert_true(whole || s.members[1].status == HV_IO);
    scene_all_have_the_same(&s, 5);
    scene_each_chunk_is_right(&s, 0), scene_each_chunk_is_right(&s, 2);
    scene_close(&s);
    if (whole)
      return;
    assert_true(n < 200);
  }
}

/* The round ends at this member and nowhere else. The same with the transfers: whichever call of the runtime fails, for good or,
 * when memory is short, once. */
static void gpu_that_fails_at_any_call_ends_the_round_here_only(void **unused) {
  (void)unused;
  int whole = 0, ended = 0;
  for (long n = 0; whole < 2; n += 1 + n / 8) {
    stand_in gpu;
    hv_mem mem;
    hv_transfers *transfers;
    scene s;
    stand_in_init(&gpu, 2);
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_transfers_shape shape = {500, 2, 4, 1 << 20};
    assert_int_equal(hv_transfers_new(&gpu.cuda, &mem, &shape, &transfers, NULL), HV_OK);
    scene_setup how = {.n = 3,
                       .n_values = 6000,
                       .chunk_values = 500,
                       .seed = 90 + (uint64_t)n,
                       .away = 2,
                       .device = hv_transfers_device(transfers)};
    gpu.fail_at = gpu.calls + n;
    gpu.fail_with = n % 2 ? HV_NOMEM : HV_IO;
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 60);
    hv_status status = s.members[1].status;
    assert_true(status == HV_OK || status == HV_IO || (status == HV_NOMEM && n % 2));
    whole += status == HV_OK, ended += status != HV_OK;
    hv_error why = {0};
    assert_true(status == HV_OK || hv_transfers_why(transfers, &why) != HV_OK);
    scene_all_have_the_same(&s, status == HV_OK ? 7 : 5);
    scene_each_chunk_is_right(&s, 0), scene_each_chunk_is_right(&s, 2);
    scene_close(&s);
    hv_transfers_free(transfers);
    stand_in_fini(&gpu);
    assert_int_equal(atomic_load(&mem.blocks), 0);
    assert_true(n < 100000);
  }
  assert_true(ended > 10);
}

/* Values that cross over because the device adds up nothing need memory here: without it the round ends here, and nobody's values
 * are left out as if they were wrong. */
static void no_memory_for_crossing_values_ends_the_round_here_only(void **unused) {
  (void)unused;
  int ended = 0;
  for (long n = 0;; n++) {
    scene s;
    hv_mem mem;
    scene_setup how = {.n = 3, .n_values = 9000, .chunk_values = 500, .seed = 190 + (uint64_t)n, .away = 2};
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    scene_open(&s, &how);
    s.members[1].device.n_sums = 0;
    s.members[1].in_run.mem = s.members[1].out_run.mem = &mem;
    hv_mem_fail_in(&mem, n);
    scene_begin_all(&s);
    scene_run(&s, 60);
    int whole = mem.refused == 0;
    scene_bring(&s);
    assert_int_equal(s.members[1].status, whole ? HV_OK : HV_NOMEM);
    ended += !whole;
    scene_all_have_the_same(&s, whole ? 7 : 5);
    scene_each_chunk_is_right(&s, 0), scene_each_chunk_is_right(&s, 2);
    for (uint32_t c = 0; c < s.members[0].out_run.n_chunks && whole; c++)
      assert_int_equal(scene_set(&s, 0, c), 7);
    scene_close(&s);
    assert_int_equal(mem.blocks, 0);
    if (whole)
      break;
    assert_true(n < 200);
  }
  assert_true(ended > 5);
}

static void memory_does_not_grow_with_the_run(void **unused) {
  (void)unused;
  size_t peak[2];
  for (int i = 0; i < 2; i++) {
    scene s;
    scene_setup how = {.n = 3,
                       .n_values = 1000000u << (2 * i),
                       .chunk_values = 16384,
                       .seed = 80,
                       .window = 1 << 18,
                       .link = {.delay_us = 1000, .rate = 50 << 20}};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 60);
    assert_int_equal(s.members[0].status, HV_OK);
    peak[i] = hv_sim_mem(s.sim, 0)->peak;
    scene_close(&s);
  }
  assert_in_range(peak[1], 0, peak[0] * 5 / 4 + (1 << 20));
}

/* ---- members that die, stand still, or send nonsense ---- */

/* Every chunk of a survivor's span averages those that were in: with or without the lost one, nothing between. */
static void each_chunk_is_with_or_without(scene *s, size_t lost) {
  unsigned all = (1u << s->n) - 1, rest = all & ~(1u << lost);
  size_t survivor = lost == 0 ? 1 : 0;
  for (size_t owner = 0; owner < s->n; owner++)
    for (uint32_t c = s->plan[owner].first; c < s->plan[owner].first + s->plan[owner].count; c++) {
      if (!hv_allreduce_averaged(s->members[survivor].allreduce, c))
        continue;
      int with = 1, without = 1;
      uint64_t end = (c + 1) * (uint64_t)s->members[0].in_run.chunk_values;
      for (uint64_t at = c * (uint64_t)s->members[0].in_run.chunk_values; at < end && at < s->n_values; at++) {
        float value = s->members[survivor].out[at];
        with &= fabs(value - scene_mean(s, all, at)) < 1e-5;
        without &= fabs(value - scene_mean(s, rest, at)) < 1e-5;
      }
      assert_true(with || without);
    }
}

static void survivors_agree(scene *s, size_t lost) {
  size_t first = lost == 0 ? 1 : 0;
  for (uint32_t c = 0; c < s->members[first].in_run.n_chunks; c++)
    for (size_t i = 0; i < s->n; i++) {
      if (i == lost || !hv_allreduce_averaged(s->members[i].allreduce, c) || !hv_allreduce_averaged(s->members[first].allreduce, c))
        continue;
      hv_run_chunk chunk = hv_run_chunk_of(&s->members[i].in_run, c);
      assert_memory_equal(s->members[i].out + chunk.at, s->members[first].out + chunk.at, chunk.size * sizeof(float));
    }
}

static void client_that_dies_is_in_a_chunk_wholly_or_not_at_all(void **unused) {
  (void)unused;
  for (uint64_t seed = 100; seed < 130; seed++) {
    scene s;
    scene_setup how = {.n = 4,
                       .n_values = 200000,
                       .chunk_values = 2000,
                       .seed = seed,
                       .client = 2,
                       .link = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20}};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.01 * (double)(seed - 99));
    hv_sim_kill(s.sim, 2);
    scene_run(&s, 60);
    for (size_t i = 0; i < s.n; i++)
      if (i != 2) {
        assert_int_equal(s.members[i].done, 1);
        assert_int_equal(s.members[i].status, HV_OK); /* nothing was lost but its values */
      }
    each_chunk_is_with_or_without(&s, 2);
    survivors_agree(&s, 2);
    scene_close(&s);
  }
}

static void an_owner_that_dies_costs_nobody_anything(void **unused) {
  (void)unused;
  for (uint64_t seed = 200; seed < 230; seed++) {
    scene s;
    scene_setup how = {.n = 4,
                       .n_values = 200000,
                       .chunk_values = 2000,
                       .seed = seed,
                       .link = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20}};
    scene_open(&s, &how);
    scene_begin_all(&s);
    scene_run(&s, 0.01 * (double)(seed - 199));
    hv_sim_kill(s.sim, 1);
    scene_run(&s, 60);
    for (size_t i = 0; i < s.n; i++)
      if (i != 1) {
        assert_int_equal(s.members[i].done, 1);
        assert_int_equal(s.members[i].status, HV_OK);
        assert_memory_equal(s.members[i].out, s.members[0].out, s.n_values * sizeof(float));
      }
    each_chunk_is_with_or_without(&s, 1);
    survivors_agree(&s, 1);
    scene_close(&s);
  }
}

static void a_member_that_never_comes_is_left_out(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 3, .n_values = 9000, .chunk_values = 1000, .seed = 300, .client = 2, .stall_ms = 1000};
  scene_open(&s, &how);
  scene_begin(&s, 0), scene_begin(&s, 1);
  scene_run(&s, 3);
  assert_int_equal(s.members[0].status, HV_OK);
  assert_int_equal(s.members[1].status, HV_OK);
  for (uint64_t at = 0; at < s.n_values; at++)
    assert_true(fabs(s.members[0].out[at] - scene_mean(&s, 3, at)) < 1e-5);
  scene_close(&s);
}

static void stalled_member_is_excluded_in_time(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 3,
                     .n_values = 400000,
                     .chunk_values = 2000,
                     .seed = 310,
                     .client = 2,
                     .stall_ms = 1000,
                     .link = {.delay_us = 5000, .rate = 1 << 20}};
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, 0.2);
  hv_sim_pause(s.sim, 2);
  scene_run(&s, 10);
  assert_int_equal(s.members[0].status, HV_OK);
  assert_int_equal(s.members[1].status, HV_OK);
  assert_true(s.members[0].done && s.members[1].done);
  each_chunk_is_with_or_without(&s, 2);
  survivors_agree(&s, 2);
  hv_sim_continue(s.sim, 2); /* it finds that it was left out, and is given the averages */
  scene_run(&s, 10);
  assert_int_equal(s.members[2].done, 1);
  assert_int_equal(s.members[2].status, HV_OK);
  assert_memory_equal(s.members[2].out, s.members[0].out, s.n_values * sizeof(float));
  scene_close(&s);
}

static void non_finite_values_are_refused_and_the_average_is_right(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 4, .n_values = 8000, .chunk_values = 1000, .seed = 320, .client = 3};
  scene_open(&s, &how);
  for (uint64_t at = 0; at < s.n_values; at += 500)
    s.members[3].in[at] = NAN;
  scene_begin_all(&s);
  scene_run(&s, 20);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(s.members[i].status, HV_OK);
    assert_int_equal(hv_allreduce_counted(s.members[i].allreduce, 3), 0);
    for (uint64_t at = 0; at < s.n_values; at++)
      assert_true(fabs(s.members[i].out[at] - scene_mean(&s, 7, at)) < 1e-5);
  }
  assert_int_equal(s.members[3].status, HV_OK); /* it has the others' average, too */
  assert_memory_equal(s.members[3].out, s.members[0].out, s.n_values * sizeof(float));
  scene_close(&s);
}

/* The last member's contribution breaks a limit of the others: they average without it, and say so. */
static size_t overstatements;

static void overstated(void *arg, const hv_peer_id *member, float stated) {
  const scene *s = arg;
  assert_true(hv_peer_equal(member, &s->plan[3].at.id) && stated == 1e18f);
  overstatements++;
}

/* Each owner cuts a stranger's weight and its own alike, so the average is the same in all spans, and at all members. */
static void weight_above_the_limit_is_cut_and_named(void **unused) {
  (void)unused;
  for (size_t client = 0; client <= 3; client += 3) { /* the liar owns a span or none */
    scene s;
    scene_setup how = {.n = 4, .n_values = 8000, .chunk_values = 1000, .seed = 325, .client = client};
    scene_open(&s, &how);
    overstatements = 0;
    for (size_t i = 0; i < 4; i++) {
      s.members[i].round.weight_max = 100;
      s.members[i].round.overstated = overstated;
      s.members[i].round.arg = &s;
    }
    s.members[3].round.weight = 1e18f;
    s.members[3].weight = 100; /* as it counts */
    scene_begin_all(&s);
    scene_run(&s, 20);
    scene_all_have_the_same(&s, 15);
    for (size_t i = 0; i < 4; i++)
      assert_int_equal(hv_allreduce_counted(s.members[i].allreduce, 3), s.n_values);
    for (uint64_t at = 0; at < s.n_values; at++)
      assert_true(fabs(s.members[0].out[at] - scene_mean(&s, 15, at)) < 1e-5);
    assert_int_equal(overstatements, 3); /* once at each of the other owners */
    scene_close(&s);
  }
}

static void an_owners_own_values_are_held_to_the_same_rules(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 3, .n_values = 8000, .chunk_values = 1000, .seed = 327};
  scene_open(&s, &how);
  for (uint64_t at = 0; at < s.n_values; at += 100)
    s.members[1].in[at] = NAN;
  scene_begin_all(&s);
  scene_run(&s, 20);
  const float *out = s.members[1].out; /* its own span: the others' mean */
  uint64_t first = s.plan[1].first * 1000ull, end = first + s.plan[1].count * 1000ull;
  assert_int_equal(hv_allreduce_counted(s.members[1].allreduce, 1), 0);
  for (uint64_t at = first; at < end && at < s.n_values; at++)
    assert_true(fabs(out[at] - scene_mean(&s, 5, at)) < 1e-5);
  scene_close(&s);
}

/* ---- who comes late, or says what is not so ---- */

typedef struct stranger {
  hv_command command;
  scene *s;
  size_t to, as;
  hv_msg_kind kind;
  uint32_t view;
  int closed;
} stranger;

static void unheard(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
  fail_msg("a late stream was answered");
}

static void not_ready(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void refused(hv_stream *stream, const hv_event *event) {
  stranger *x = stream->owner;
  (void)event;
  x->closed = 1;
}

static void open_stream(hv_command *command, void *core) {
  static const hv_stream_events on = {unheard, not_ready, refused, .heavy = 0};
  stranger *x = (stranger *)command;
  hv_env *env = hv_node_env(core);
  hv_stream *stream;
  hv_msg msg = {.kind = x->kind};
  if (x->kind == HV_MSG_SHARE)
    msg.u.share = (hv_msg_share){.member = (uint32_t)x->as, .weight = 1, .view = x->view};
  else
    msg.u.attend = (hv_msg_attend){.member = (uint32_t)x->as};
  memcpy(x->kind == HV_MSG_SHARE ? msg.u.share.round : msg.u.attend.round, x->s->members[0].round.id, HV_ROUND_ID_SIZE);
  assert_int_equal(env->stream_open(env, &x->s->plan[x->to].at, &msg, &on, x, &stream), HV_OK);
}

/* All from member 3. */
static void open_streams(scene *s, stranger *x, size_t n) {
  for (size_t i = 0; i < n; i++) {
    x[i].command.run = open_stream;
    x[i].s = s;
    assert_int_equal(hv_sim_command(s->sim, 3, &x[i].command), HV_OK);
  }
}

static void streams_of_an_earlier_view_and_of_others_names_are_refused(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 4,
                     .n_values = 200000,
                     .chunk_values = 2000,
                     .seed = 1000,
                     .link = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20}};
  how.link.rate = 200000;
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, 0.3);
  hv_sim_kill(s.sim, 1);
  scene_run(&s, 0.3); /* a new view is there, and not over */
  assert_int_equal(s.members[0].done, 0);
  stranger x[] = {{.to = 0, .as = 3, .kind = HV_MSG_SHARE, .view = 0}, /* late */
                  {.to = 0, .as = 2, .kind = HV_MSG_SHARE, .view = 4}, /* from member 3, in the name of 2 */
                  {.to = 0, .as = 2, .kind = HV_MSG_ATTEND},           /* likewise */
                  {.to = 0, .as = 99, .kind = HV_MSG_SHARE, .view = 4}};
  open_streams(&s, x, sizeof x / sizeof *x);
  scene_run(&s, 60);
  for (size_t i = 0; i < sizeof x / sizeof *x; i++)
    assert_int_equal(x[i].closed, 1);
  scene_all_have_the_same(&s, 1 | 4 | 8);
  for (size_t i = 0; i < s.n; i++)
    if (i != 1)
      scene_each_chunk_is_right(&s, i);
  scene_close(&s);
}

/* A member that still lacks something may call for a later view, or attend: nobody is there any more, and it waits for no answer.
 */
static void streams_of_a_round_that_was_given_up_are_refused_at_once(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 4,
                     .n_values = 200000,
                     .chunk_values = 2000,
                     .seed = 1001,
                     .link = {.delay_us = 5000, .jitter_us = 5000, .rate = 1 << 20}};
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, 10);
  hv_allreduce_free(s.members[0].allreduce);
  s.members[0].allreduce = NULL;
  for (int over = 0; over < 2; over++) { /* its end is to come, or has come */
    stranger x[] = {{.to = 0, .as = 3, .kind = HV_MSG_SHARE, .view = 4}, {.to = 0, .as = 3, .kind = HV_MSG_ATTEND}};
    open_streams(&s, x, sizeof x / sizeof *x);
    scene_run(&s, 0.5);
    assert_true(x[0].closed && x[1].closed); /* else they wait in the registry for 15 s, as if it had not begun */
  }
  scene_close(&s);
}

static void cancel_ends_the_round(void **unused) {
  (void)unused;
  scene s;
  scene_setup how = {.n = 3, .n_values = 400000, .chunk_values = 2000, .seed = 330, .link = {.delay_us = 5000, .rate = 1 << 20}};
  scene_open(&s, &how);
  scene_begin_all(&s);
  scene_run(&s, 0.2);
  hv_allreduce_cancel(s.members[1].allreduce); /* between events: as good as a command */
  scene_run(&s, 0.5);
  assert_int_equal(s.members[1].done, 1);
  assert_int_equal(s.members[1].status, HV_CANCELLED);
  scene_run(&s, 30);
  for (size_t i = 0; i < 3; i++)
    assert_int_equal(s.members[i].done, 1); /* the others end too */
  scene_close(&s);
}

static void nobody_hangs_wherever_somebody_dies(void **unused) {
  (void)unused;
  for (uint64_t n = 1;; n++) {
    scene s;
    scene_setup how = {.n = 3, .n_values = 3000, .chunk_values = 500, .seed = 400, .stall_ms = 1000};
    scene_open(&s, &how);
    hv_sim_kill_at_event(s.sim, HV_SIM_ANY, n, 0);
    scene_begin_all(&s);
    scene_run(&s, 30);
    size_t dead = 0;
    for (size_t i = 0; i < s.n; i++) {
      dead += !hv_sim_alive(s.sim, i);
      if (hv_sim_alive(s.sim, i) && s.members[i].begun)
        assert_int_equal(s.members[i].done, 1);
    }
    int over = s.members[0].done && s.members[1].done && s.members[2].done && !dead;
    scene_close(&s);
    if (over || n > 3000) {
      assert_in_range(n, 30, 3000);
      return;
    }
  }
}

static void missing_memory_ends_the_round_without_a_crash(void **unused) {
  (void)unused;
  for (long n = 0;; n++) {
    scene s;
    scene_setup how = {.n = 2, .n_values = 3000, .chunk_values = 500, .seed = 500, .stall_ms = 500};
    scene_open(&s, &how);
    hv_mem *mem = hv_sim_mem(s.sim, 0);
    size_t refused = mem->refused;
    hv_mem_fail_in(mem, n);
    scene_begin_all(&s);
    scene_run(&s, 10);
    int untouched = mem->refused == refused;
    for (size_t i = 0; i < s.n; i++)
      if (hv_sim_alive(s.sim, i) && s.members[i].begun)
        assert_int_equal(s.members[i].done, 1);
    if (untouched)
      assert_int_equal(s.members[0].status, HV_OK);
    scene_close(&s);
    if (untouched)
      return;
    assert_true(n < 2000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_end_with_the_same_bits_under_every_codec),
      cmocka_unit_test(groups_of_every_size_average),
      cmocka_unit_test(runs_of_odd_sizes_are_averaged),
      cmocka_unit_test(the_largest_chunks_travel),
      cmocka_unit_test(clients_and_auxiliaries_take_part),
      cmocka_unit_test(mean_of_equal_values_is_those_to_the_bit),
      cmocka_unit_test(a_rough_network_changes_nothing),
      cmocka_unit_test(in_place_round_averages),
      cmocka_unit_test(a_device_and_a_host_end_with_the_same_bits),
      cmocka_unit_test(a_gpu_and_a_host_end_with_the_same_bits),
      cmocka_unit_test(rows_end_with_the_same_bits_wherever_tensors_are),
      cmocka_unit_test(a_device_that_fails_ends_the_round_here_and_nowhere_else),
      cmocka_unit_test(gpu_that_fails_at_any_call_ends_the_round_here_only),
      cmocka_unit_test(no_memory_for_crossing_values_ends_the_round_here_only),
      cmocka_unit_test(memory_does_not_grow_with_the_run),
      cmocka_unit_test(client_that_dies_is_in_a_chunk_wholly_or_not_at_all),
      cmocka_unit_test(an_owner_that_dies_costs_nobody_anything),
      cmocka_unit_test(a_member_that_never_comes_is_left_out),
      cmocka_unit_test(stalled_member_is_excluded_in_time),
      cmocka_unit_test(non_finite_values_are_refused_and_the_average_is_right),
      cmocka_unit_test(weight_above_the_limit_is_cut_and_named),
      cmocka_unit_test(an_owners_own_values_are_held_to_the_same_rules),
      cmocka_unit_test(streams_of_an_earlier_view_and_of_others_names_are_refused),
      cmocka_unit_test(streams_of_a_round_that_was_given_up_are_refused_at_once),
      cmocka_unit_test(cancel_ends_the_round),
      cmocka_unit_test(nobody_hangs_wherever_somebody_dies),
      cmocka_unit_test(missing_memory_ends_the_round_without_a_crash),
  };
  return cmocka_run_group_tests_name("allreduce in the sim", tests, NULL, NULL);
}
