/* Any bytes at the front of a connection are a hello, no hello, or the beginning of one; never more than a hello may have is asked
 * for, and a whole one is decided. */
#include "net/transport/guests.h"

#include <stdlib.h>
#include <string.h>

static void must(int right) {
  if (!right)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (int insecure = 0; insecure < 2; insecure++) {
    size_t n = size < HV_GUEST_FIRST_MAX ? size : HV_GUEST_FIRST_MAX;
    uint8_t *first = malloc(n ? n : 1); /* of exactly this size, so that a byte beyond it is noticed */
    must(first != NULL);
    if (n)
      memcpy(first, data, n);
    long reads = hv_guest_reads(first, n, insecure);
    must(reads >= HV_GUEST_OLD_TLS && reads <= HV_GUEST_FIRST_MAX);
    must(reads <= 0 || (size_t)reads > n);
    free(first);
  }
  return 0;
}
