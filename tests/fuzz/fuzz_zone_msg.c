/* Sums of zones as strangers send them: what is read is within its limits, and reads the same when it is packed again. */
#include "core/progress/zone_msg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int held) {
  if (!held)
    abort();
}

static void check_sum(const hv_sum *sum) {
  uint64_t owners = 0;
  must(sum->n_parts <= HV_PARTS_MAX && sum->owners <= HV_SUM_OWNERS_MAX && sum->contributors <= HV_SUM_OWNERS_MAX);
  must(sum->clients <= sum->contributors && sum->owners <= sum->contributors);
  for (size_t i = 0; i < sum->n_parts; i++) {
    const hv_part *p = &sum->parts[i];
    owners += p->owners;
    must(p->epoch <= HV_REPORT_EPOCH_MAX && p->samples <= HV_REPORT_SAMPLES_MAX && p->before <= HV_REPORT_SAMPLES_MAX);
    must(p->speed_milli <= HV_REPORT_SAMPLES_MAX);
  }
  must(owners <= sum->owners);
}

static int same(const hv_sum *a, const hv_sum *b) {
  int is = a->n_parts == b->n_parts && a->owners == b->owners && a->contributors == b->contributors && a->clients == b->clients;
  for (size_t i = 0; is && i < a->n_parts; i++)
    is = a->parts[i].epoch == b->parts[i].epoch && a->parts[i].owners == b->parts[i].owners;
  return is;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hv_zone_msg words, back;
  uint8_t again[HV_ZONE_MSG_BYTES_MAX];
  uint8_t *copy = malloc(size ? size : 1); /* its end is the end of a block: a step beyond is seen */
  must(copy != NULL);
  if (size)
    memcpy(copy, data, size);
  if (hv_zone_msg_unpack(hv_span_of(copy, size), &words) == HV_OK) {
    must(words.n <= HV_ZONE_SUMS_MAX);
    for (size_t i = 0; i < words.n; i++)
      check_sum(&words.sums[i].sum);
    must(hv_zone_msg_unpack(hv_span_of(again, hv_zone_msg_pack(&words, again)), &back) == HV_OK);
    must(back.n <= words.n && back.in_one == words.in_one && back.epoch == words.epoch);
    for (size_t i = 0; i < back.n; i++)
      must(back.sums[i].level == words.sums[i].level && same(&back.sums[i].sum, &words.sums[i].sum));
  }
  free(copy);
  return 0;
}
