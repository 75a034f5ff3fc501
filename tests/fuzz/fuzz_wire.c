/* A message that decodes must encode, decode again, and then be the same bytes; and nothing is left behind. The first byte picks an
 * allocation that fails (255: none), the rest are the message. The versions that the sender claims are always a range around
 * that of the message, also if the message is of a version that is not read here. */
#include "lib/check.h"

#include "net/wire.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

static const hv_versions reads = {1, 3, 0};

/* Decodes bytes and appends them encoded anew, in the same version and with what their sender speaks. */
static hv_status again(hv_span bytes, hv_mem *mem, hv_buf *out) {
  hv_wire_msg got;
  hv_status status = hv_wire_read(bytes, &reads, mem, HV_WIRE_BUDGET, &got);
  must(status == HV_OK || status == HV_MALFORMED || status == HV_VERSION || status == HV_UNSUPPORTED || status == HV_NOMEM);
  if (status == HV_OK || status == HV_VERSION)
    must(hv_versions_valid(&got.speaks) && hv_versions_has(&got.speaks, got.version));
  must((status != HV_VERSION) || !hv_versions_has(&reads, got.version));
  if (status == HV_OK) {
    status = hv_wire_write(&got.msg, got.version, &got.speaks, out);
    must(status == HV_OK || status == HV_NOMEM);
    hv_wire_release(&got);
  }
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hv_mem mem, outside;
  hv_buf first, second;
  if (size == 0)
    return 0;
  hv_mem_init(&mem, NULL, HV_WIRE_BUDGET);
  hv_mem_init(&outside, NULL, HV_MEM_UNLIMITED);
  hv_buf_init(&first, &mem, SIZE_MAX);
  hv_buf_init(&second, &mem, SIZE_MAX);
  if (data[0] != 255)
    hv_mem_fail_in(&mem, data[0]);
  uint8_t *copy = hv_mem_alloc(&outside, size - 1); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  memcpy(copy, data + 1, size - 1);
  if (again(hv_span_of(copy, size - 1), &mem, &first) == HV_OK) {
    hv_mem_fail_in(&mem, -1);
    must(again(hv_span_of(first.data, first.size), &mem, &second) == HV_OK);
    must(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
  }
  hv_mem_free(copy);
  hv_buf_fini(&first);
  hv_buf_fini(&second);
  must(mem.blocks == 0 && mem.used == 0);
  return 0;
}
