/* Many tensors as one run: nothing is lost at any seam, and each part gets the bits that its dtype makes of the same float32. */
#include "lib/check.h"

#include "core/round/run.h"
#include "kern/reduce.h"
#include "lib/away.h"
#include "lib/values.h"

#include <math.h>
#include <string.h>

enum { PARTS = 12, VALUES = 4000 };

/* Parts over one stretch of memory, with what their values are in float32. */
typedef struct sample {
  hv_run_part parts[PARTS];
  size_t n;
  uint64_t n_values;
  _Alignas(64) uint8_t bytes[PARTS][VALUES * 8];
  float flat[PARTS * VALUES];
} sample;

static void make_sample(sample *s, check_rng *rng, int one_codec) {
  s->n = 1 + check_random(rng) % PARTS;
  s->n_values = 0;
  for (size_t i = 0; i < s->n; i++) {
    hv_run_part *p = &s->parts[i];
    hv_codec codec = one_codec >= 0 ? (hv_codec)one_codec : (hv_codec)(check_random(rng) % 3 * 2);
    *p = (hv_run_part){s->bytes[i], (hv_dtype)(1 + check_random(rng) % 4), check_random(rng) % VALUES, codec, NULL, 0, 0, 0};
    if (codec == HV_CODEC_SCALED_ROWS) {
      p->row = 16 + check_random(rng) % 100;
      p->n_values = p->row * (1 + check_random(rng) % (VALUES / 116));
    }
    if (check_random(rng) % 5 == 0)
      p->n_values = check_random(rng) % 2;
    float values[VALUES];
    values_fill(values, p->n_values, VALUES_NORMAL, check_random(rng));
    values_as(p->dtype, values, p->n_values, p->data, s->flat + s->n_values);
    s->n_values += p->n_values;
  }
}

static hv_run run_over(const sample *s, hv_mem *mem, uint32_t chunk_values) {
  hv_run run;
  assert_int_equal(hv_run_init(&run, mem, s->parts, s->n, chunk_values, NULL), HV_OK);
  return run;
}

static hv_codec codec_at(const sample *s, uint64_t at) {
  size_t i = 0;
  for (uint64_t end = s->parts[0].n_values; end <= at; end += s->parts[i].n_values)
    i++;
  return s->parts[i].codec;
}

static void chunks_cover_every_value_once_and_never_cross_a_section(void **state) {
  (void)state;
  static sample s;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  for (uint64_t seed = 1; seed <= 300; seed++) {
    check_rng rng = {seed};
    make_sample(&s, &rng, -1);
    uint32_t chunk_values = 1 + (uint32_t)(check_random(&rng) % 3000), most = 0;
    hv_run run = run_over(&s, &mem, chunk_values);
    uint64_t at = 0;
    assert_int_equal(run.n_values, s.n_values);
    for (uint32_t i = 0; i < run.n_chunks; i++) {
      hv_run_chunk chunk = hv_run_chunk_of(&run, i);
      assert_int_equal(chunk.at, at);
      assert_in_range(chunk.size, 1, chunk_values);
      assert_int_equal(chunk.bytes, hv_codec_bound((int)chunk.codec, HV_DTYPE_FLOAT32, chunk.size));
      for (uint64_t v = at; v < at + chunk.size; v++)
        assert_int_equal(codec_at(&s, v), chunk.codec);
      at += chunk.size;
      most = chunk.size > most ? chunk.size : most;
      if (chunk.size < chunk_values && at < s.n_values) /* short only where a section ends */
        assert_int_not_equal(codec_at(&s, at), chunk.codec);
    }
    assert_int_equal(at, s.n_values);
    assert_int_equal(hv_run_chunk_most(&run), most);
    hv_run_fini(&run);
  }
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

/* The fewest last dimensions with 16 values or more. */
static void row_of_a_shape_is_its_last_dimensions(void **state) {
  (void)state;
  static const struct {
    int64_t shape[4];
    size_t n_dims;
    uint64_t row;
  } shapes[] = {{{0}, 0, 1},         {{7}, 1, 7},
                {{16}, 1, 16},       {{1000000}, 1, 1000000},
                {{1000, 64}, 2, 64}, {{64, 64, 3, 3}, 4, 576},
                {{8, 5, 5}, 3, 25},  {{1000, 1}, 2, 1000},
                {{3, 2}, 2, 6},      {{4, 16}, 2, 16}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    assert_int_equal(hv_run_row(shapes[i].shape, shapes[i].n_dims), shapes[i].row);
}

/* Rows cross from part to part of one width, and from chunk to chunk; small parts travel as they are. */
static void rows_lie_in_chunks_where_tensors_have_them(void **state) {
  (void)state;
  static float values[1000];
  const hv_run_part parts[] = {{values, HV_DTYPE_FLOAT32, 64, HV_CODEC_SCALED_ROWS, NULL, 32, 0, 0},
                               {values, HV_DTYPE_FLOAT32, 96, HV_CODEC_SCALED_ROWS, NULL, 32, 0, 0},
                               {values, HV_DTYPE_FLOAT32, 15, HV_CODEC_SCALED_ROWS, NULL, 5, 0, 0},
                               {values, HV_DTYPE_FLOAT32, 40, HV_CODEC_SCALED_ROWS, NULL, 20, 0, 0},
                               {values, HV_DTYPE_FLOAT32, 50, HV_CODEC_SCALED_ROWS, NULL, 0, 0, 0}};
  const hv_run_chunk want[] = {
      {0, 50, HV_CODEC_SCALED_ROWS, {32, 32}, 0, 0, 0},   {50, 50, HV_CODEC_SCALED_ROWS, {32, 14}, 0, 0, 0},
      {100, 50, HV_CODEC_SCALED_ROWS, {32, 28}, 0, 0, 0}, {150, 10, HV_CODEC_SCALED_ROWS, {32, 10}, 0, 0, 0},
      {160, 15, HV_CODEC_NONE, {0, 0}, 0, 0, 0},          {175, 40, HV_CODEC_SCALED_ROWS, {20, 20}, 0, 0, 0},
      {215, 50, HV_CODEC_SCALED_ROWS, {50, 50}, 0, 0, 0}};
  hv_run_part odd = parts[0];
  hv_mem mem;
  hv_run run;
  hv_error err;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  assert_int_equal(hv_run_init(&run, &mem, parts, sizeof parts / sizeof *parts, 50, NULL), HV_OK);
  assert_int_equal(run.n_chunks, sizeof want / sizeof *want);
  for (uint32_t i = 0; i < run.n_chunks; i++) {
    hv_run_chunk chunk = hv_run_chunk_of(&run, i);
    assert_true(chunk.at == want[i].at && chunk.size == want[i].size && chunk.codec == want[i].codec);
    assert_true(chunk.rows.width == want[i].rows.width && chunk.rows.first == want[i].rows.first);
    assert_int_equal(chunk.bytes, hv_codec_bound_rows((int)chunk.codec, HV_DTYPE_FLOAT32, chunk.size, chunk.rows));
  }
  hv_run_fini(&run);
  for (uint64_t row = 1; row < 65; row++) {
    odd.row = row;
    int fits = row >= HV_RUN_ROW_LEAST && 64 % row == 0;
    assert_int_equal(hv_run_init(&run, &mem, &odd, 1, 50, &err), fits ? HV_OK : HV_INVALID);
    if (fits)
      hv_run_fini(&run);
    else
      assert_non_null(strstr(err.text, "rows of"));
  }
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void a_chunk_is_encoded_as_its_values_in_one_row_would_be(void **state) {
  (void)state;
  static sample s;
  static uint8_t ours[VALUES * PARTS * 8], theirs[VALUES * PARTS * 8];
  const hv_kern *kern = hv_cpu_best();
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  for (uint64_t seed = 1; seed <= 180; seed++) {
    check_rng rng = {seed};
    make_sample(&s, &rng, (int)(seed % HV_CODEC_COUNT));
    hv_run run = run_over(&s, &mem, 1 + (uint32_t)(check_random(&rng) % 5000));
    for (uint32_t i = 0; i < run.n_chunks; i++) {
      hv_run_chunk chunk = hv_run_chunk_of(&run, i);
      size_t size;
      uint64_t other;
      assert_int_equal(hv_run_encode(&run, kern, i, chunk.codec, ours, sizeof ours, &size), HV_OK);
      assert_int_equal(hv_codec_encode_rows(kern, chunk.codec, HV_DTYPE_FLOAT32, s.flat + chunk.at, chunk.size, chunk.rows, NULL,
                                            theirs, sizeof theirs, &other),
                       HV_OK);
      assert_int_equal(size, chunk.bytes);
      assert_memory_equal(ours, theirs, size);
    }
    hv_run_fini(&run);
  }
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

/* Into each part goes what its dtype makes of the decoded float32; and values sent as they are come back to the bit. */
static void a_decoded_chunk_is_in_its_places_and_nowhere_else(void **state) {
  (void)state;
  static sample s, other;
  static uint8_t codes[VALUES * PARTS * 8], whole[VALUES * PARTS * 8], want[VALUES * 8];
  static float decoded[VALUES * PARTS];
  const hv_kern *kern = hv_cpu_best();
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  for (uint64_t seed = 1; seed <= 180; seed++) {
    check_rng rng = {seed}, same = {seed};
    make_sample(&s, &rng, (int)(seed % HV_CODEC_COUNT));
    make_sample(&other, &same, (int)(seed % HV_CODEC_COUNT));
    for (size_t p = 0; p < other.n; p++)
      memset(other.bytes[p], 0xab, sizeof other.bytes[p]);
    uint32_t chunk_values = 1 + (uint32_t)(check_random(&rng) % 5000);
    hv_run from = run_over(&s, &mem, chunk_values), to = run_over(&other, &mem, chunk_values);
    assert_true(hv_run_alike(&from, &to));
    for (uint32_t i = from.n_chunks; i-- > 0;) { /* in any order */
      hv_run_chunk chunk = hv_run_chunk_of(&from, i);
      size_t size, cut = check_random(&rng) % 100;
      assert_int_equal(hv_run_encode(&from, kern, i, chunk.codec, codes, sizeof codes, &size), HV_OK);
      hv_span halves[] = {hv_span_of(codes, cut < size ? cut : size),
                          hv_span_of(codes + (cut < size ? cut : size), size - (cut < size ? cut : size))};
      assert_int_equal(hv_run_decode(&to, kern, i, halves, 2), HV_OK);
      assert_int_equal(hv_codec_decode(kern, halves, 2, HV_DTYPE_FLOAT32, decoded + chunk.at, chunk.size), HV_OK);
    }
    uint64_t at = 0;
    for (size_t p = 0; p < other.n; at += other.parts[p++].n_values) {
      hv_dtype dtype = other.parts[p].dtype;
      size_t size = other.parts[p].n_values * hv_dtype_size((int)dtype);
      hv_reduce_convert(kern, HV_DTYPE_FLOAT32, decoded + at, dtype, want, other.parts[p].n_values);
      assert_memory_equal(other.parts[p].data, want, size);
      for (size_t b = size; b < sizeof other.bytes[p]; b++)
        assert_int_equal(other.bytes[p][b], 0xab);
    }
    for (uint32_t i = 0; i < to.n_chunks; i++) { /* a forwarded chunk: as it is, and back */
      size_t size;
      memcpy(whole, other.bytes, sizeof other.bytes < sizeof whole ? sizeof other.bytes : sizeof whole);
      assert_int_equal(hv_run_encode(&to, kern, i, HV_CODEC_NONE, codes, sizeof codes, &size), HV_OK);
      hv_span span = hv_span_of(codes, size);
      assert_int_equal(hv_run_decode(&to, kern, i, &span, 1), HV_OK);
      assert_memory_equal(whole, other.bytes, sizeof other.bytes < sizeof whole ? sizeof other.bytes : sizeof whole);
    }
    hv_run_fini(&from), hv_run_fini(&to);
  }
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void own_values_count_as_if_they_had_travelled_as_they_are(void **state) {
  (void)state;
  static sample s;
  static float ours[VALUES * PARTS], theirs[VALUES * PARTS];
  static uint8_t codes[VALUES * PARTS * 8];
  const hv_kern *kern = hv_cpu_best();
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  for (uint64_t seed = 1; seed <= 100; seed++) {
    check_rng rng = {seed};
    make_sample(&s, &rng, HV_CODEC_NONE);
    hv_run run = run_over(&s, &mem, 1 + (uint32_t)(check_random(&rng) % 5000));
    for (uint32_t i = 0; i < run.n_chunks; i++) {
      hv_run_chunk chunk = hv_run_chunk_of(&run, i);
      float weight = (float)(check_random(&rng) % 100);
      size_t size;
      for (uint32_t v = 0; v < chunk.size; v++)
        ours[v] = theirs[v] = (float)v;
      assert_int_equal(hv_run_accumulate(&run, kern, i, weight, 0, ours), HV_OK);
      assert_int_equal(hv_run_encode(&run, kern, i, chunk.codec, codes, sizeof codes, &size), HV_OK);
      hv_span span = hv_span_of(codes, size);
      assert_int_equal(hv_codec_accumulate_within(kern, &span, 1, weight, 0, theirs, chunk.size), HV_OK);
      assert_memory_equal(ours, theirs, chunk.size * sizeof *ours);
    }
    hv_run_fini(&run);
  }
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

/* The same parts as `s`, some of them on a device; which, says chance. Returns how many. */
static size_t send_away(sample *away, const sample *s, away_device *device, check_rng *rng) {
  int all = (int)(check_random(rng) % 2);
  size_t n = 0;
  memcpy(away, s, sizeof *s);
  away_init(device);
  for (size_t i = 0; i < s->n; i++) {
    away->parts[i].data = away->bytes[i];
    if (!all && check_random(rng) % 2)
      continue;
    away->parts[i].device = &device->table;
    away_turn(away->bytes[i], sizeof away->bytes[i]);
    n++;
  }
  return n;
}

static void call_back(sample *away) {
  for (size_t i = 0; i < away->n; i++)
    if (away->parts[i].device)
      away_turn(away->bytes[i], sizeof away->bytes[i]);
}

static void values_on_a_device_give_the_same_bytes_and_get_the_same_bits(void **state) {
  (void)state;
  static sample here, there;
  static uint8_t ours[VALUES * PARTS * 8], theirs[VALUES * PARTS * 8];
  static float sum[VALUES * PARTS], sum_away[VALUES * PARTS];
  const hv_kern *kern = hv_cpu_best();
  away_device device;
  hv_mem mem;
  uint64_t passed_raw = 0, chunks = 0;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  for (uint64_t seed = 1; seed <= 200; seed++) {
    check_rng rng = {seed};
    make_sample(&here, &rng, (int)(seed % HV_CODEC_COUNT));
    size_t n = send_away(&there, &here, &device, &rng);
    device.plain = seed % 11 == 0;
    uint32_t chunk_values = 1 + (uint32_t)(check_random(&rng) % 5000);
    hv_run run = run_over(&here, &mem, chunk_values), away = run_over(&there, &mem, chunk_values);
    assert_true(hv_run_alike(&run, &away));
    for (uint32_t i = 0; i < run.n_chunks; i++) {
      hv_run_chunk chunk = hv_run_chunk_of(&run, i);
      size_t size, size_away;
      for (uint32_t v = 0; v < chunk.size; v++)
        sum[v] = sum_away[v] = (float)v;
      assert_int_equal(hv_run_encode(&run, kern, i, chunk.codec, ours, sizeof ours, &size), HV_OK);
      assert_int_equal(hv_run_encode(&away, kern, i, chunk.codec, theirs, sizeof theirs, &size_away), HV_OK);
      assert_int_equal(size, size_away);
      assert_memory_equal(ours, theirs, size);
      uint64_t before = device.raw;
      assert_int_equal(hv_run_accumulate(&run, kern, i, 3, 0, sum), HV_OK);
      assert_int_equal(hv_run_accumulate(&away, kern, i, 3, 0, sum_away), HV_OK);
      assert_memory_equal(sum, sum_away, chunk.size * sizeof *sum);
      device.raw = before; /* an owner's own values do cross */
      hv_span span = hv_span_of(ours, size);
      assert_int_equal(hv_run_decode(&run, kern, i, &span, 1), HV_OK);
      assert_int_equal(hv_run_decode(&away, kern, i, &span, 1), HV_OK);
    }
    if (n == there.n && !device.plain)
      passed_raw += device.raw, chunks += device.encoded;
    call_back(&there);
    for (size_t p = 0; p < here.n; p++)
      assert_memory_equal(here.bytes[p], there.bytes[p], sizeof here.bytes[p]);
    hv_run_fini(&run), hv_run_fini(&away);
  }
  assert_true(chunks > 100);
  assert_int_equal(passed_raw, 0); /* where all is on the device only chunks pass */
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void bad_values_on_a_device_give_the_same_errors(void **state) {
  (void)state;
  const hv_kern *kern = hv_cpu_best();
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  away_device device;
  float a[30] = {1}, b[20] = {0}, acc[50] = {0}, none[50] = {0};
  uint8_t codes[4096];
  size_t size;
  for (int both = 0; both < 2; both++) {
    away_init(&device);
    hv_run_part parts[] = {{a, HV_DTYPE_FLOAT32, 30, HV_CODEC_NONE, &device.table, 0, 0, 0},
                           {b, HV_DTYPE_FLOAT32, 20, HV_CODEC_NONE, both ? &device.table : NULL, 0, 0, 0}};
    hv_run run;
    assert_int_equal(hv_run_init(&run, &mem, parts, 2, 50, NULL), HV_OK);
    a[3] = NAN;
    away_turn(a, sizeof a);
    if (both)
      away_turn(b, sizeof b);
    assert_int_equal(hv_run_encode(&run, kern, 0, HV_CODEC_NONE, codes, sizeof codes, &size), HV_NOT_FINITE);
    assert_int_equal(hv_run_accumulate(&run, kern, 0, 1, 0, acc), HV_NOT_FINITE);
    away_turn(a, sizeof a);
    a[3] = 3e38f;
    away_turn(a, sizeof a);
    assert_int_equal(hv_run_accumulate(&run, kern, 0, 1, 0, acc), HV_TOO_LARGE);
    assert_int_equal(hv_run_encode(&run, kern, 0, HV_CODEC_NONE, codes, sizeof codes, &size), HV_OK);
    assert_int_equal(hv_run_encode(&run, kern, 0, HV_CODEC_NONE, codes, size - 1, &size), HV_TOO_LARGE);
    hv_span span = hv_span_of(codes, 232);
    codes[100] ^= 1;
    assert_int_equal(hv_run_decode(&run, kern, 0, &span, 1), HV_CORRUPT);
    codes[100] ^= 1;
    device.fail_at = 0;
    assert_int_equal(hv_run_accumulate(&run, kern, 0, 1, 0, acc), HV_IO);
    assert_int_equal(hv_run_encode(&run, kern, 0, HV_CODEC_NONE, codes, sizeof codes, &size), HV_IO);
    assert_int_equal(hv_run_decode(&run, kern, 0, &span, 1), HV_IO);
    assert_memory_equal(acc, none, sizeof acc);
    device.fail_at = -1;
    away_turn(a, sizeof a);
    if (both)
      away_turn(b, sizeof b);
    hv_run_fini(&run);
  }
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

/* Both ways in which values come to an owner, held to the same limits. */
static hv_status both_refuse(hv_run *run, const float *a, const float *b, float weight, float norm_max) {
  const hv_kern *kern = hv_cpu_best();
  uint8_t codes[4096];
  float acc[64], before[64];
  uint64_t size;
  for (int i = 0; i < 64; i++)
    acc[i] = before[i] = (float)i;
  float flat[50];
  memcpy(flat, a, 30 * sizeof *flat), memcpy(flat + 30, b, 20 * sizeof *flat);
  assert_int_equal(hv_codec_encode(kern, HV_CODEC_NONE, HV_DTYPE_FLOAT32, flat, 50, NULL, codes, sizeof codes, &size), HV_OK);
  hv_span span = hv_span_of(codes, size);
  hv_status own = hv_run_accumulate(run, kern, 0, weight, norm_max, acc);
  if (own != HV_OK)
    assert_memory_equal(acc, before, sizeof acc);
  memcpy(acc, before, sizeof acc);
  hv_status theirs = hv_codec_accumulate_within(kern, &span, 1, weight, norm_max, acc, hv_run_chunk_of(run, 0).size);
  if (theirs != HV_OK)
    assert_memory_equal(acc, before, sizeof acc);
  assert_int_equal(own, theirs);
  return own;
}

static void part_that_is_apart_begins_a_chunk(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  float a[30] = {0}, b[20] = {0}, c[7] = {0};
  hv_run_part parts[] = {{a, HV_DTYPE_FLOAT32, 30, HV_CODEC_NONE, NULL, 0, 0, 0},
                         {b, HV_DTYPE_FLOAT32, 20, HV_CODEC_NONE, NULL, 0, 1, 0},
                         {c, HV_DTYPE_FLOAT32, 7, HV_CODEC_NONE, NULL, 0, 0, 0}};
  hv_run run, joined;
  assert_int_equal(hv_run_init(&run, &mem, parts, 3, 100, NULL), HV_OK);
  assert_int_equal(run.n_chunks, 2);
  assert_int_equal(hv_run_chunk_of(&run, 0).size, 30);
  assert_int_equal(hv_run_chunk_of(&run, 1).at, 30);
  assert_int_equal(hv_run_chunk_of(&run, 1).size, 27);
  parts[1].apart = 0;
  assert_int_equal(hv_run_init(&joined, &mem, parts, 3, 100, NULL), HV_OK);
  assert_int_equal(joined.n_chunks, 1);
  assert_false(hv_run_alike(&run, &joined));
  hv_run_fini(&joined);
  hv_run_fini(&run);
  assert_int_equal(mem.blocks, 0);
}

static void values_that_would_spoil_an_average_are_refused_whole(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  float a[30] = {0}, b[20] = {0};
  hv_run_part parts[] = {{a, HV_DTYPE_FLOAT32, 30, HV_CODEC_NONE, NULL, 0, 0, 0},
                         {b, HV_DTYPE_FLOAT32, 20, HV_CODEC_NONE, NULL, 0, 0, 0}};
  hv_run run;
  assert_int_equal(hv_run_init(&run, &mem, parts, 2, 50, NULL), HV_OK);
  a[3] = 3, b[19] = -4;
  assert_int_equal(both_refuse(&run, a, b, 2, 0), HV_OK);
  assert_int_equal(both_refuse(&run, a, b, 2, 5.001f), HV_OK);
  assert_int_equal(both_refuse(&run, a, b, 2, 4.999f), HV_TOO_LARGE);
  b[19] = NAN;
  assert_int_equal(both_refuse(&run, a, b, 1, 0), HV_NOT_FINITE);
  uint8_t codes[4096];
  size_t written;
  assert_int_equal(hv_run_encode(&run, hv_cpu_best(), 0, HV_CODEC_UNIFORM8, codes, sizeof codes, &written), HV_NOT_FINITE);
  b[19] = -INFINITY;
  assert_int_equal(both_refuse(&run, a, b, 0, 0), HV_NOT_FINITE);
  b[19] = -3e38f; /* finite, but sums of it are not */
  assert_int_equal(both_refuse(&run, a, b, 1, 0), HV_TOO_LARGE);
  b[19] = 1e30f;
  assert_int_equal(both_refuse(&run, a, b, 1, 0), HV_OK);
  assert_int_equal(both_refuse(&run, a, b, 1e15f, 0), HV_TOO_LARGE);
  hv_run_fini(&run);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void an_average_that_is_not_finite_is_refused_and_nothing_is_torn(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  float a[4] = {1, 2, 3, 4}, bad[5] = {9, 9, 9, 9, NAN};
  double b[1] = {5};
  uint8_t codes[256];
  uint64_t size;
  hv_run_part parts[] = {{a, HV_DTYPE_FLOAT32, 4, HV_CODEC_NONE, NULL, 0, 0, 0},
                         {b, HV_DTYPE_FLOAT64, 1, HV_CODEC_NONE, NULL, 0, 0, 0}};
  hv_run run;
  assert_int_equal(hv_run_init(&run, &mem, parts, 2, 5, NULL), HV_OK);
  hv_codec_encode(hv_cpu_best(), HV_CODEC_NONE, HV_DTYPE_FLOAT32, bad, 5, NULL, codes, sizeof codes, &size);
  hv_span span = hv_span_of(codes, size);
  assert_int_equal(hv_run_decode(&run, hv_cpu_best(), 0, &span, 1), HV_NOT_FINITE);
  codes[size - 1] ^= 1;
  assert_int_equal(hv_run_decode(&run, hv_cpu_best(), 0, &span, 1), HV_CORRUPT);
  mem.limit = 1; /* no memory for what lies in two parts */
  assert_int_equal(hv_run_decode(&run, hv_cpu_best(), 0, &span, 1), HV_NOMEM);
  assert_true(a[0] == 1 && a[3] == 4 && b[0] == 5);
  hv_run_fini(&run);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void invalid_run_is_refused_with_a_reason(void **state) {
  (void)state;
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_run run;
  hv_error err = {0};
  float value = 0;
  hv_run_part good = {&value, HV_DTYPE_FLOAT32, 1, HV_CODEC_NONE, NULL, 0, 0, 0}, bad[] = {good, good, good, good};
  bad[0].dtype = (hv_dtype)9;
  bad[1].codec = (hv_codec)99;
  bad[2].n_values = HV_RUN_VALUES_MAX + 1;
  for (int i = 0; i < 3; i++) {
    err.text[0] = 0;
    assert_int_equal(hv_run_init(&run, &mem, &bad[i], 1, 10, &err), HV_INVALID);
    assert_true(strlen(err.text) > 10);
  }
  hv_run_part mixed[] = {good, good};
  mixed[1].data = NULL;
  assert_int_equal(hv_run_init(&run, &mem, mixed, 2, 10, &err), HV_INVALID);
  assert_int_equal(hv_run_init(&run, &mem, &good, 1, 0, &err), HV_INVALID);
  assert_int_equal(hv_run_init(&run, &mem, &good, 1, HV_RUN_CHUNK_MAX + 1, &err), HV_INVALID);
  mixed[0].data = NULL;
  mixed[0].n_values = (uint64_t)1 << 40;
  assert_int_equal(hv_run_init(&run, &mem, mixed, 1, 1, &err), HV_INVALID); /* too many chunks */
  assert_int_equal(hv_run_init(&run, &mem, mixed, 1, 1000, NULL), HV_OK);   /* a layout alone */
  size_t size;
  uint8_t codes[64];
  assert_int_equal(run.has_values, 0);
  assert_int_equal(hv_run_encode(&run, hv_cpu_best(), 0, HV_CODEC_NONE, codes, sizeof codes, &size), HV_STATE);
  assert_int_equal(hv_run_decode(&run, hv_cpu_best(), 0, NULL, 0), HV_STATE);
  assert_int_equal(hv_run_accumulate(&run, hv_cpu_best(), 0, 1, 0, &value), HV_STATE);
  hv_run_fini(&run);
  assert_int_equal(hv_run_init(&run, &mem, NULL, 0, 10, NULL), HV_OK);
  assert_int_equal(run.n_chunks, 0);
  hv_run_fini(&run);
  assert_int_equal(atomic_load(&mem.blocks), 0);
}

static void chunks_follow_the_size_of_the_run(void **state) {
  (void)state;
  assert_int_equal(hv_run_fit(0, 1 << 17), 1 << 15);
  assert_int_equal(hv_run_fit(250000, 1 << 17), 1 << 15);
  assert_int_equal(hv_run_fit(250000, 1000), 1000); /* never above what was said */
  assert_int_equal(hv_run_fit(16000000, 1 << 17), 65536);
  assert_int_equal(hv_run_fit(1000000000, 1 << 17), 1 << 17);
  assert_int_equal(hv_run_fit(UINT64_MAX, HV_RUN_CHUNK_MAX), HV_RUN_CHUNK_MAX);
  for (uint64_t n = (1u << 15) * 256; n < (1u << 17) * 256; n += 999999) {
    uint64_t chunks = n / hv_run_fit(n, 1 << 17);
    assert_in_range(chunks, 128, 256);
  }
}

/* A state that is averaged among replicas stays the same, so a member that missed the round holds the same. */
static void mean_of_equal_values_is_bit_equal(void **state) {
  (void)state;
  static sample s;
  static float acc[PARTS * VALUES];
  static uint8_t codes[PARTS * VALUES * 4 + 64], mean[sizeof codes];
  const hv_kern *kern = hv_cpu_best();
  hv_mem mem;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  for (uint64_t seed = 1; seed <= 60; seed++) {
    check_rng rng = {seed};
    make_sample(&s, &rng, HV_CODEC_NONE);
    hv_run run = run_over(&s, &mem, 1500);
    for (uint32_t i = 0; i < run.n_chunks; i++) {
      hv_run_sum sum = {.here = acc};
      float weight = 1 + (float)(seed % 3);
      unsigned n = 2 + (unsigned)(check_random(&rng) % 12);
      size_t size, written;
      assert_int_equal(hv_run_encode(&run, kern, i, HV_CODEC_NONE, codes, sizeof codes, &size), HV_OK);
      hv_span halves[2] = {hv_span_of(codes, 40), hv_span_of(codes + 40, size > 40 ? size - 40 : 0)};
      if (size <= 40)
        halves[0].size = size;
      assert_int_equal(hv_run_sum_begin(&run, i, &sum), HV_OK);
      for (unsigned k = 1; k < n; k++)
        assert_int_equal(hv_run_sum_add(kern, &sum, hv_run_chunk_of(&run, i).size, halves, 2, weight, 0), HV_OK);
      assert_int_equal(hv_run_sum_add_own(&run, kern, i, &sum, weight, 0), HV_OK);
      float factor = 1 / ((float)n * weight);
      assert_int_equal(hv_run_sum_encode(&run, kern, i, &sum, factor, mean, sizeof mean, &written), HV_OK);
      assert_int_equal(written, size);
      assert_memory_equal(mean, codes, size);
      hv_run_sum_end(&sum);
    }
    hv_run_fini(&run);
  }
  assert_int_equal(mem.blocks, 0);
}

enum { COMPARED = 300, BESIDE = 40 };

/* Two runs with the same values: three tensors, and one that is not compared, such as the numbers of a mark. */
typedef struct pair_of {
  float values[2][COMPARED];
  uint16_t halves[2][COMPARED];
  float beside[2][BESIDE];
  hv_run run[2];
  away_device device;
  hv_mem mem;
} pair_of;

static void make_pair(pair_of *p, uint32_t chunk_values, int away) {
  check_rng rng = {chunk_values};
  hv_mem_init(&p->mem, NULL, HV_MEM_UNLIMITED);
  away_init(&p->device);
  for (size_t i = 0; i < COMPARED; i++) {
    p->values[0][i] = p->values[1][i] = (float)check_uniform(&rng) - 0.5f;
    p->halves[0][i] = p->halves[1][i] = (uint16_t)(0x3f80 + check_random(&rng) % 128); /* bfloat16, 1 to 2 */
  }
  for (size_t i = 0; i < BESIDE; i++)
    p->beside[0][i] = p->beside[1][i] = 4000;
  for (int k = 0; k < 2; k++) {
    hv_run_part parts[] = {{p->values[k], HV_DTYPE_FLOAT32, COMPARED, HV_CODEC_NONE, NULL, 0, 0, 0},
                           {p->halves[k], HV_DTYPE_BFLOAT16, COMPARED, HV_CODEC_NONE, k && away ? &p->device.table : NULL, 0, 0, 0},
                           {p->beside[k], HV_DTYPE_FLOAT32, BESIDE, HV_CODEC_NONE, NULL, 0, 0, 0}};
    assert_int_equal(hv_run_init(&p->run[k], &p->mem, parts, 3, chunk_values, NULL), HV_OK);
  }
  if (away)
    away_turn(p->halves[1], sizeof p->halves[1]);
}

/* True if the averages of the first run change the values of the second one. */
static int changes(pair_of *p) {
  static uint8_t codes[(2 * COMPARED + BESIDE) * 4 + 64];
  int any = 0;
  for (uint32_t i = 0; i < p->run[0].n_chunks; i++) {
    size_t size;
    int one;
    assert_int_equal(hv_run_encode(&p->run[0], hv_cpu_best(), i, HV_CODEC_NONE, codes, sizeof codes, &size), HV_OK);
    hv_span halves[] = {hv_span_of(codes, size / 2), hv_span_of(codes + size / 2, size - size / 2)};
    assert_int_equal(hv_run_compare(&p->run[1], hv_cpu_best(), i, 2 * COMPARED, halves, 2, &one), HV_OK);
    any |= one;
  }
  return any;
}

static void free_pair(pair_of *p) {
  hv_run_fini(&p->run[0]), hv_run_fini(&p->run[1]);
  assert_int_equal(atomic_load(&p->mem.blocks), 0);
}

/* A small tensor counts by itself: beside larger values in its chunk its change would be lost. */
static void average_of_another_state_changes_values_and_roundings_do_not(void **state) {
  (void)state;
  static pair_of p;
  for (uint32_t chunk_values = 7; chunk_values < 1000; chunk_values += 31)
    for (int away = 0; away < 2; away++) {
      make_pair(&p, chunk_values, away);
      assert_false(changes(&p));
      for (size_t i = 0; i < COMPARED; i++)
        p.values[0][i] *= 1 + 0x1p-20f;
      for (size_t i = 0; i < COMPARED; i++)
        p.halves[0][i] ^= 1;
      p.beside[0][3] = 0;
      assert_false(changes(&p));
      p.halves[0][COMPARED - 1] = 0x4000;
      p.values[0][COMPARED - 1] += 0.5f;
      assert_true(changes(&p));
      free_pair(&p);
    }
}

static void broken_average_is_not_compared(void **state) {
  (void)state;
  static pair_of p;
  static uint8_t codes[COMPARED * 4 + 64];
  size_t size;
  int one = 1;
  make_pair(&p, COMPARED, 0);
  assert_int_equal(hv_run_encode(&p.run[0], hv_cpu_best(), 0, HV_CODEC_NONE, codes, sizeof codes, &size), HV_OK);
  hv_span span = hv_span_of(codes, size);
  codes[size - 1] ^= 1;
  assert_int_equal(hv_run_compare(&p.run[1], hv_cpu_best(), 0, 2 * COMPARED, &span, 1, &one), HV_CORRUPT);
  assert_false(one);
  codes[size - 1] ^= 1;
  hv_mem_fail_in(&p.mem, 0);
  assert_int_equal(hv_run_compare(&p.run[1], hv_cpu_best(), 0, 2 * COMPARED, &span, 1, &one), HV_NOMEM);
  free_pair(&p);
}

/* Each codec of a chunk has its own size. Bytes of another codec are none of its own, whatever their size is. */
static void width_of_a_chunk_is_that_of_its_codec(void **state) {
  (void)state;
  static float values[300];
  static uint8_t codes[2048];
  hv_mem mem;
  hv_run run;
  const hv_kern *kern = hv_cpu_best();
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  const hv_run_part parts[] = {{values, HV_DTYPE_FLOAT32, 200, HV_CODEC_FLOAT16, NULL, 0, 0, HV_CODEC_LINEAR4},
                               {values + 200, HV_DTYPE_FLOAT32, 100, HV_CODEC_FLOAT16, NULL, 0, 0, HV_CODEC_NONE}};
  assert_int_equal(hv_run_init(&run, &mem, parts, 2, 200, NULL), HV_OK);
  assert_int_equal(run.n_chunks, 2); /* other codecs begin another chunk */
  for (uint32_t i = 0; i < run.n_chunks; i++) {
    hv_run_chunk wide = hv_run_chunk_of(&run, i), narrow = hv_run_chunk_as(&run, i, 1);
    assert_int_equal(wide.codec, HV_CODEC_FLOAT16);
    assert_int_equal(narrow.codec, i ? HV_CODEC_FLOAT16 : HV_CODEC_LINEAR4);
    assert_int_equal(narrow.bytes, wide.narrow_bytes);
    assert_true(i ? narrow.bytes == wide.bytes : narrow.bytes < wide.bytes);
    for (int codec = 0; codec < HV_CODEC_SCALED_ROWS; codec++) {
      size_t size;
      int is_narrow = -1;
      assert_int_equal(hv_run_encode(&run, kern, i, (hv_codec)codec, codes, sizeof codes, &size), HV_OK);
      hv_span halves[2] = {hv_span_of(codes, 7), hv_span_of(codes + 7, size - 7)};
      int is_own = codec == HV_CODEC_FLOAT16 || codec == (int)narrow.codec;
      assert_int_equal(hv_run_width(&run, i, halves, 2, &is_narrow), is_own ? HV_OK : HV_MALFORMED);
      if (is_own)
        assert_int_equal(is_narrow, codec == HV_CODEC_LINEAR4);
      halves[1].size--;
      assert_int_equal(hv_run_width(&run, i, halves, 2, &is_narrow), HV_MALFORMED);
      assert_int_equal(hv_run_width(&run, !i, halves, 2, &is_narrow), HV_MALFORMED); /* of another number of values */
    }
  }
  hv_run_fini(&run);
  hv_run_part one = parts[0]; /* LINEAR4 has a scale, so this chunk would be larger */
  one.n_values = 1;
  assert_int_equal(hv_run_init(&run, &mem, &one, 1, 200, NULL), HV_OK);
  assert_int_equal(hv_run_chunk_as(&run, 0, 1).codec, HV_CODEC_FLOAT16);
  assert_int_equal(hv_run_chunk_of(&run, 0).narrow, HV_CODEC_NONE);
  hv_run_fini(&run);
  hv_error err = {0};
  hv_run_part wrong = parts[0];
  wrong.codec = HV_CODEC_LINEAR4, wrong.narrow = HV_CODEC_LINEAR8;
  assert_int_equal(hv_run_init(&run, &mem, &wrong, 1, 200, &err), HV_INVALID);
  assert_non_null(strstr(err.text, "fewer bits"));
  wrong.narrow = HV_CODEC_COUNT;
  assert_int_equal(hv_run_init(&run, &mem, &wrong, 1, 200, &err), HV_INVALID);
  assert_int_equal(mem.blocks, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_cover_every_value_once_and_never_cross_a_section),
      cmocka_unit_test(row_of_a_shape_is_its_last_dimensions),
      cmocka_unit_test(rows_lie_in_chunks_where_tensors_have_them),
      cmocka_unit_test(a_chunk_is_encoded_as_its_values_in_one_row_would_be),
      cmocka_unit_test(a_decoded_chunk_is_in_its_places_and_nowhere_else),
      cmocka_unit_test(own_values_count_as_if_they_had_travelled_as_they_are),
      cmocka_unit_test(values_on_a_device_give_the_same_bytes_and_get_the_same_bits),
      cmocka_unit_test(bad_values_on_a_device_give_the_same_errors),
      cmocka_unit_test(part_that_is_apart_begins_a_chunk),
      cmocka_unit_test(values_that_would_spoil_an_average_are_refused_whole),
      cmocka_unit_test(an_average_that_is_not_finite_is_refused_and_nothing_is_torn),
      cmocka_unit_test(invalid_run_is_refused_with_a_reason),
      cmocka_unit_test(chunks_follow_the_size_of_the_run),
      cmocka_unit_test(mean_of_equal_values_is_bit_equal),
      cmocka_unit_test(average_of_another_state_changes_values_and_roundings_do_not),
      cmocka_unit_test(broken_average_is_not_compared),
      cmocka_unit_test(width_of_a_chunk_is_that_of_its_codec),
  };
  return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
