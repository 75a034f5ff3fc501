/* A state's manifest and announcement, as strangers send them. A text that reads must write again to the same bytes, and be within
 * all limits. */
#include "core/state/ballot.h"
#include "core/state/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

static void manifest(hv_span bytes) {
  hv_mem mem;
  hv_manifest m;
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_status status = hv_manifest_read(&mem, bytes, &m);
  must(mem.peak <= 4 * bytes.size + 4096);
  if (status == HV_OK) {
    hv_buf again;
    uint64_t end = 0;
    for (size_t i = 0; i < m.n_chunks; i++) {
      must(m.chunks[i].place >= end && m.chunks[i].size && m.chunks[i].part < m.n_parts);
      end = m.chunks[i].place + m.chunks[i].size;
      must(end <= m.image && m.chunks[i].travel && m.chunks[i].travel <= 4u << 20);
    }
    hv_buf_init(&again, &mem, HV_MANIFEST_BYTES_MAX);
    must(hv_manifest_write(&m, &again) == HV_OK && hv_span_equal(bytes, hv_span_of(again.data, again.size)));
    hv_buf_fini(&again);
    hv_manifest_fini(&m);
  }
  must(mem.blocks == 0);
}

static void announcement(hv_span bytes) {
  hv_ballot ballot;
  uint8_t again[HV_BALLOT_BYTES_MAX];
  if (hv_ballot_read(bytes, &ballot) == HV_OK)
    must(hv_span_equal(bytes, hv_span_of(again, hv_ballot_write(&ballot, again))));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *copy = malloc(size + !size); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  if (size)
    memcpy(copy, data, size);
  manifest(hv_span_of(copy, size));
  announcement(hv_span_of(copy, size));
  free(copy);
  return 0;
}
