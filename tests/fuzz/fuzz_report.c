/* Reports of progress as strangers send them: what is read is within its limits, and is packed to the same bytes again. */
#include "core/progress/report.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hv_report report;
  uint8_t again[HV_REPORT_BYTES];
  uint8_t *copy = malloc(size ? size : 1); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  if (size)
    memcpy(copy, data, size);
  if (hv_report_unpack(hv_span_of(copy, size), &report) == HV_OK) {
    must(report.epoch <= HV_REPORT_EPOCH_MAX && report.samples <= HV_REPORT_SAMPLES_MAX && report.before <= HV_REPORT_SAMPLES_MAX);
    must(report.gone ? report.samples == 0 && report.comes <= HV_REPORT_SAMPLES_MAX : report.comes == 0);
    must(report.speed >= 0 && report.speed <= HV_REPORT_SPEED_MAX);
    hv_report_pack(&report, again);
    must(size == sizeof again && memcmp(again, copy, size) == 0);
  }
  free(copy);
  return 0;
}
