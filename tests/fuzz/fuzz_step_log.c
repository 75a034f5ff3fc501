/* Metadata of a log's entries as strangers send it: what is read is within its limits, and is written to the same bytes again. */
#include "core/state/step_log.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hv_step_log_facts facts;
  uint8_t again[HV_STEP_LOG_FACTS_MAX];
  uint8_t *copy = malloc(size ? size : 1); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  if (size)
    memcpy(copy, data, size);
  if (hv_step_log_facts_read(hv_span_of(copy, size), &facts) == HV_OK) {
    must(facts.n_stamps >= 1 && facts.n_stamps <= HV_STEP_LOG_STAMPS);
    must(hv_step_log_facts_write(&facts, again) == size && memcmp(again, copy, size) == 0);
  }
  free(copy);
  return 0;
}
