/* Any two lists of denials merge to their union in both orders, to nothing that neither has, and within the limit. The first byte
 * says where the second list begins. A signature is right if its first byte is even, so that lists of any bytes have right ones. */
#include "net/invitation.h"

#include <stdlib.h>
#include <string.h>

static void must(int right) {
  if (!right)
    abort();
}

static size_t n_asked;

static int is_even(void *arg, hv_span bytes, const uint8_t signature[64]) {
  (void)arg;
  must(bytes.size == HV_DENIAL_SIGNED);
  n_asked++;
  return signature[0] % 2 == 0;
}

/* The list of the entries that are right, as a peer keeps it. Returns its size. */
static size_t believed(hv_span list, uint8_t *out, hv_status *status) {
  size_t size, added;
  n_asked = 0;
  *status = hv_denials_merge(hv_span_of(NULL, 0), list, 0, is_even, NULL, out, &size, &added);
  must(*status == HV_OK || *status == HV_CORRUPT);
  must(size == added * HV_DENIAL_BYTES && size <= list.size && n_asked <= added + 1); /* the first bad one ends it */
  must((*status == HV_OK) == (size == list.size));
  return size;
}

static void merge(hv_span one, hv_span other, uint8_t *out, size_t *size) {
  size_t added;
  must(hv_denials_merge(one, other, 0, is_even, NULL, out, size, &added) == HV_OK);
  hv_span both = hv_span_of(out, *size);
  must(hv_denials_check(both) == HV_OK && hv_denials_cover(both, one) && hv_denials_cover(both, other));
  must(*size <= one.size + other.size && *size >= one.size);
  must((*size == one.size) >= (added == 0) && (hv_denials_mark(both) == hv_denials_mark(one)) >= (added == 0));
}

static void read_old(hv_span bytes) {
  hv_mem mem;
  hv_span list;
  hv_error err = {0};
  hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
  hv_identity *key = hv_identity_from_seed(&mem, (const uint8_t[32]){1});
  if (hv_denials_upgrade(&mem, key, bytes, &list, &err) == HV_OK) {
    must(hv_denials_check(list) == HV_OK || list.size);
    hv_mem_free((void *)list.data);
  } else
    must(err.text[0]);
  hv_identity_free(key);
  must(atomic_load(&mem.blocks) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static uint8_t kept[2][HV_DENIALS_BYTES_MAX], both[2][HV_DENIALS_BYTES_MAX];
  size_t sizes[2], merged[2];
  hv_span parts[2];
  hv_denial denial;
  uint8_t again[HV_DENIAL_SIGNED];
  read_old(hv_span_of(data, size));
  size_t first = size ? (size_t)data[0] * HV_DENIAL_BYTES : 0;
  if (size < 1 + first || size > HV_DENIALS_BYTES_MAX)
    return 0;
  parts[0] = hv_span_of(data + 1, first);
  parts[1] = hv_span_of(data + 1 + first, size - 1 - first);
  for (int i = 0; i < 2; i++) {
    hv_status status = hv_denials_check(parts[i]);
    must(status == HV_OK || status == HV_MALFORMED);
    if (status != HV_OK)
      return 0;
    for (size_t k = 0; k < hv_denials_count(parts[i]); k++) {
      hv_denials_at(parts[i], k, &denial);
      hv_denials_print(&denial, again);
      must(memcmp(again, parts[i].data + k * HV_DENIAL_BYTES, HV_DENIAL_SIGNED) == 0);
      must(denial.taken_back || hv_denials_has(parts[i], denial.subject));
    }
    sizes[i] = believed(parts[i], kept[i], &status);
    parts[i] = hv_span_of(kept[i], sizes[i]);
  }
  for (int i = 0; i < 2; i++)
    merge(parts[i], parts[!i], both[i], &merged[i]);
  must(hv_denials_mark(hv_span_of(both[0], merged[0])) == hv_denials_mark(hv_span_of(both[1], merged[1])) ||
       merged[0] == merged[1]);
  return 0;
}
