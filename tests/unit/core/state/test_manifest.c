/* The parts of a state: chunks that follow from parts, bytes that read as they were written, and strangers' bytes. */
#include "lib/check.h"

#include "core/state/manifest.h"

#include <string.h>

enum { PARTS_MAX = 40 };

static hv_mem mem;

static int fresh(void **unused) {
  (void)unused;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  return 0;
}

static int nothing_left(void **unused) {
  (void)unused;
  assert_int_equal(mem.blocks, 0);
  return 0;
}

static size_t random_parts(check_rng *rng, hv_manifest_part *parts) {
  size_t n = check_random(rng) % PARTS_MAX;
  for (size_t i = 0; i < n; i++) {
    size_t size = check_random(rng) % 4 ? check_random(rng) % 300 : check_random(rng) % 20000;
    parts[i] = (hv_manifest_part){.size = size, .dtype = (uint8_t)(check_random(rng) % 5)};
    parts[i].own = check_random(rng) % 5 == 0;
    if (!parts[i].own && parts[i].dtype && check_random(rng) % 2) {
      parts[i].codec = (uint8_t)(check_random(rng) % HV_CODEC_COUNT);
      parts[i].size = size / 8 * 8;
    }
  }
  return n;
}

static void make(check_rng *rng, hv_manifest *out) {
  static uint8_t metadata[100];
  hv_manifest_part parts[PARTS_MAX];
  size_t n = random_parts(rng, parts);
  uint32_t chunk = HV_MANIFEST_CHUNK_LEAST << check_random(rng) % 4;
  assert_int_equal(hv_manifest_make(&mem, parts, n, chunk, hv_span_of(metadata, check_random(rng) % sizeof metadata), out, NULL),
                   HV_OK);
  out->epoch = check_random(rng);
  for (size_t i = 0; i < n; i++) {
    assert_int_equal(out->parts[i].size, parts[i].size);
    assert_int_equal(out->parts[i].place % HV_MANIFEST_ALIGN, 0);
  }
  for (size_t i = 0; i < out->n_chunks; i++)
    for (size_t b = 0; b < 32 && !out->chunks[i].own; b++)
      out->chunks[i].digest.bytes[b] = (uint8_t)check_random(rng);
}

/* Held against the header's words, part by part: every byte of every part is in exactly one chunk, encoded parts have chunks of
 * their own. */
static void each_byte_is_in_one_chunk(void **unused) {
  (void)unused;
  check_rng rng = {1};
  for (int round = 0; round < 2000; round++) {
    hv_manifest m;
    make(&rng, &m);
    uint64_t travel = 0;
    for (size_t i = 0; i < m.n_chunks; i++) {
      const hv_manifest_chunk *c = &m.chunks[i];
      assert_true(c->size > 0 && c->size <= m.chunk_bytes && c->place + c->size <= m.image);
      assert_true(i == 0 || c->place >= m.chunks[i - 1].place + m.chunks[i - 1].size);
      const hv_manifest_part *part = &m.parts[c->part];
      assert_true(part->place <= c->place && part->codec == c->codec && part->own == c->own);
      if (c->codec == HV_CODEC_NONE)
        assert_int_equal(c->travel, c->size);
      else {
        assert_true(c->place + c->size <= part->place + part->size);
        assert_int_equal(c->travel, hv_codec_bound(c->codec, c->dtype, c->size / hv_dtype_size(c->dtype)));
      }
      travel += c->travel;
    }
    assert_int_equal(travel, m.travel);
    for (size_t p = 0; p < m.n_parts; p++)
      for (uint64_t at = m.parts[p].place; at < m.parts[p].place + m.parts[p].size; at += 7) {
        size_t in = 0;
        for (size_t i = 0; i < m.n_chunks; i++)
          in += m.chunks[i].place <= at && at < m.chunks[i].place + m.chunks[i].size && m.chunks[i].codec == m.parts[p].codec &&
                m.chunks[i].own == m.parts[p].own;
        assert_int_equal(in, 1);
      }
    hv_manifest_fini(&m);
  }
}

static void same(const hv_manifest *a, const hv_manifest *b) {
  assert_int_equal(a->epoch, b->epoch);
  assert_memory_equal(&a->whole, &b->whole, 32);
  assert_memory_equal(&a->state_hash, &b->state_hash, 32);
  assert_int_equal(a->n_parts, b->n_parts);
  assert_int_equal(a->n_chunks, b->n_chunks);
  assert_int_equal(a->image, b->image);
  assert_true(hv_span_equal(a->metadata, b->metadata));
  for (size_t i = 0; i < a->n_parts; i++)
    assert_memory_equal(&a->parts[i].size, &b->parts[i].size, 11);
  for (size_t i = 0; i < a->n_chunks; i++) {
    assert_int_equal(a->chunks[i].place, b->chunks[i].place);
    assert_int_equal(a->chunks[i].travel, b->chunks[i].travel);
    assert_memory_equal(&a->chunks[i].digest, &b->chunks[i].digest, 32);
  }
}

static void manifest_is_read_back_and_refused_if_cut_or_longer(void **unused) {
  (void)unused;
  check_rng rng = {2};
  for (int round = 0; round < 300; round++) {
    hv_manifest m, again;
    hv_buf bytes;
    make(&rng, &m);
    hv_buf_init(&bytes, &mem, HV_MANIFEST_BYTES_MAX);
    assert_int_equal(hv_manifest_write(&m, &bytes), HV_OK);
    assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes.data, bytes.size), &again), HV_OK);
    same(&m, &again);
    hv_manifest_fini(&again);
    for (int cut = 0; cut < 20; cut++)
      assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes.data, check_random(&rng) % bytes.size), &again), HV_MALFORMED);
    assert_int_equal(hv_buf_append(&bytes, "x", 1), HV_OK);
    assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes.data, bytes.size), &again), HV_MALFORMED);
    hv_buf_fini(&bytes);
    hv_manifest_fini(&m);
  }
}

static void own_parts_have_chunks_of_their_own_and_no_digest(void **unused) {
  (void)unused;
  hv_manifest m, again;
  hv_manifest_part parts[] = {{.size = 100}, {.size = 8, .own = 1}, {.size = 9, .own = 1}, {.size = 3}};
  hv_buf bytes;
  hv_buf_init(&bytes, &mem, HV_MANIFEST_BYTES_MAX);
  assert_int_equal(hv_manifest_make(&mem, parts, 4, 1024, hv_span_of(NULL, 0), &m, NULL), HV_OK);
  assert_int_equal(m.n_chunks, 3);
  assert_true(!m.chunks[0].own && m.chunks[1].own && !m.chunks[2].own);
  assert_int_equal(hv_manifest_write(&m, &bytes), HV_OK);
  assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes.data, bytes.size), &again), HV_OK);
  same(&m, &again);
  hv_manifest_fini(&again);
  bytes.data[bytes.size - 2 * 32] = 1; /* the first byte of the second chunk's digest */
  assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes.data, bytes.size), &again), HV_MALFORMED);
  bytes.data[bytes.size - 2 * 32] = 0;
  bytes.data[bytes.size - 3 * 32 - 3 * 16 + 10] = 2;
  assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes.data, bytes.size), &again), HV_MALFORMED);
  hv_buf_fini(&bytes);
  hv_manifest_fini(&m);
  parts[1].codec = HV_CODEC_FLOAT16;
  parts[1].dtype = HV_DTYPE_FLOAT32;
  assert_int_equal(hv_manifest_make(&mem, parts, 4, 1024, hv_span_of(NULL, 0), &m, NULL), HV_INVALID);
}

static void chunks_grow_with_the_state_and_stay_few(void **unused) {
  (void)unused;
  hv_manifest m;
  hv_manifest_part part = {.size = 1};
  assert_int_equal(hv_manifest_make(&mem, &part, 1, 0, hv_span_of(NULL, 0), &m, NULL), HV_OK);
  assert_int_equal(m.chunk_bytes, 256 << 10);
  assert_int_equal(m.n_chunks, 1);
  hv_manifest_fini(&m);
  part.size = (uint64_t)40 << 30;
  assert_int_equal(hv_manifest_make(&mem, &part, 1, 0, hv_span_of(NULL, 0), &m, NULL), HV_OK);
  assert_int_equal(m.chunk_bytes, 2 << 20);
  assert_int_equal(m.n_chunks, 20480);
  hv_manifest_fini(&m);
}

static void limits_are_named(void **unused) {
  (void)unused;
  static hv_manifest_part parts[HV_MANIFEST_PARTS_MAX + 1];
  hv_manifest m;
  hv_error err;
  assert_int_equal(hv_manifest_make(&mem, parts, HV_MANIFEST_PARTS_MAX + 1, 0, hv_span_of(NULL, 0), &m, &err), HV_TOO_LARGE);
  assert_non_null(strstr(err.text, "16385 parts"));
  assert_int_equal(hv_manifest_make(&mem, parts, 0, 0, hv_span_of(parts, HV_MANIFEST_METADATA_MAX + 1), &m, &err), HV_TOO_LARGE);
  assert_int_equal(hv_manifest_make(&mem, parts, 0, 1000, hv_span_of(NULL, 0), &m, &err), HV_INVALID);
  parts[0].size = HV_MANIFEST_IMAGE_MAX + 1;
  assert_int_equal(hv_manifest_make(&mem, parts, 1, 0, hv_span_of(NULL, 0), &m, &err), HV_TOO_LARGE);
  parts[0].size = UINT64_MAX;
  assert_int_equal(hv_manifest_make(&mem, parts, 1, 0, hv_span_of(NULL, 0), &m, &err), HV_TOO_LARGE);
  parts[0].size = (uint64_t)HV_MANIFEST_CHUNKS_MAX * 1024 + 1;
  assert_int_equal(hv_manifest_make(&mem, parts, 1, 1024, hv_span_of(NULL, 0), &m, &err), HV_TOO_LARGE);
  assert_non_null(strstr(err.text, "65537 chunks"));
  parts[0] = (hv_manifest_part){.size = 6, .codec = HV_CODEC_FLOAT16, .dtype = HV_DTYPE_FLOAT32};
  assert_int_equal(hv_manifest_make(&mem, parts, 1, 0, hv_span_of(NULL, 0), &m, &err), HV_INVALID);
  parts[0] = (hv_manifest_part){.size = 8, .codec = HV_CODEC_FLOAT16};
  assert_int_equal(hv_manifest_make(&mem, parts, 1, 0, hv_span_of(NULL, 0), &m, &err), HV_INVALID);
  parts[0] = (hv_manifest_part){.size = 8, .codec = HV_CODEC_COUNT, .dtype = HV_DTYPE_FLOAT32};
  assert_int_equal(hv_manifest_make(&mem, parts, 1, 0, hv_span_of(NULL, 0), &m, &err), HV_UNSUPPORTED);
}

/* A head that promises much costs nothing: memory is taken only when the bytes for it are there. */
static void a_small_lie_takes_no_memory(void **unused) {
  (void)unused;
  hv_manifest m;
  uint8_t bytes[112] = "HVs1\1";
  bytes[81] = 8; /* chunks of 2,048 */
  bytes[84] = 1;
  bytes[90] = 1;     /* 65,536 of them */
  bytes[96 + 3] = 8; /* a part of 128 MiB */
  hv_mem_init(&mem, NULL, 4096);
  assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes, sizeof bytes), &m), HV_MALFORMED);
  assert_int_equal(mem.peak, 0);
  bytes[90] = 0;
  assert_int_equal(hv_manifest_read(&mem, hv_span_of(bytes, sizeof bytes), &m), HV_MALFORMED);
  assert_int_equal(mem.refused, 0);
}

static hv_status without_memory(hv_mem *account, void *arg) {
  hv_manifest m, again;
  hv_manifest_part parts[3] = {{.size = 5000}, {.size = 4000, .codec = HV_CODEC_UNIFORM8, .dtype = HV_DTYPE_FLOAT32}, {.size = 1}};
  hv_buf bytes;
  (void)arg;
  hv_buf_init(&bytes, account, HV_MANIFEST_BYTES_MAX);
  hv_status status = hv_manifest_make(account, parts, 3, 1024, hv_span_of("m", 1), &m, NULL);
  if (status != HV_OK)
    return status;
  status = hv_manifest_write(&m, &bytes);
  if (status == HV_OK)
    status = hv_manifest_digests(&m, &bytes);
  if (status == HV_OK)
    status = hv_manifest_read(account, hv_span_of(bytes.data, bytes.size - m.n_chunks * 32), &again);
  if (status == HV_OK)
    hv_manifest_fini(&again);
  hv_manifest_fini(&m);
  hv_buf_fini(&bytes);
  return status;
}

static void every_allocation_may_fail(void **unused) {
  (void)unused;
  assert_true(check_out_of_memory(without_memory, NULL) >= 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(each_byte_is_in_one_chunk, fresh, nothing_left),
      cmocka_unit_test_setup_teardown(manifest_is_read_back_and_refused_if_cut_or_longer, fresh, nothing_left),
      cmocka_unit_test_setup_teardown(own_parts_have_chunks_of_their_own_and_no_digest, fresh, nothing_left),
      cmocka_unit_test_setup_teardown(chunks_grow_with_the_state_and_stay_few, fresh, nothing_left),
      cmocka_unit_test_setup_teardown(limits_are_named, fresh, nothing_left),
      cmocka_unit_test_setup_teardown(a_small_lie_takes_no_memory, fresh, nothing_left),
      cmocka_unit_test_setup_teardown(every_allocation_may_fail, fresh, nothing_left),
  };
  return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
