#include "core/peers/denials.h"

#include <string.h>

enum { SUBJECT = 32, NAME = 40, KIND = 40, FREE = 41, END = 48, STATE = 16 };
enum { DENIED = 1, TAKEN_BACK = 2 };

static const uint8_t *entry_of(hv_span list, size_t index) {
  return list.data + index * HV_DENIAL_BYTES;
}

static int end_is_right(const uint8_t *entry) {
  uint64_t end = hv_le_get(entry + END, 8);
  return end <= INT64_MAX;
}

static int is_entry(const uint8_t *entry) {
  static const uint8_t zeros[END - FREE];
  return (entry[KIND] == DENIED || entry[KIND] == TAKEN_BACK) && memcmp(entry + FREE, zeros, sizeof zeros) == 0 &&
         end_is_right(entry);
}

hv_status hv_denials_check(hv_span list) {
  if (list.size % HV_DENIAL_BYTES || list.size > HV_DENIALS_BYTES_MAX)
    return HV_MALFORMED;
  for (size_t i = 0; i < hv_denials_count(list); i++)
    if (!is_entry(entry_of(list, i)) || (i && memcmp(entry_of(list, i - 1), entry_of(list, i), NAME) >= 0))
      return HV_MALFORMED;
  return HV_OK;
}

size_t hv_denials_count(hv_span list) {
  return list.size / HV_DENIAL_BYTES;
}

void hv_denials_at(hv_span list, size_t index, hv_denial *out) {
  const uint8_t *entry = entry_of(list, index);
  memcpy(out->subject, entry, SUBJECT);
  out->number = hv_le_get(entry + SUBJECT, 8);
  out->taken_back = entry[KIND] == TAKEN_BACK;
  out->end_s = (int64_t)hv_le_get(entry + END, 8);
}

void hv_denials_print(const hv_denial *entry, uint8_t out[HV_DENIAL_SIGNED]) {
  memset(out, 0, HV_DENIAL_SIGNED);
  memcpy(out, entry->subject, SUBJECT);
  hv_le_put(out + SUBJECT, entry->number, 8);
  out[KIND] = entry->taken_back ? TAKEN_BACK : DENIED;
  hv_le_put(out + END, (uint64_t)entry->end_s, 8);
}

int hv_denials_has(hv_span list, const uint8_t subject[32]) {
  size_t n = hv_denials_count(list), low = 0, high = n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (memcmp(entry_of(list, middle), subject, SUBJECT) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < n && memcmp(entry_of(list, low), subject, SUBJECT) == 0; low++)
    if (entry_of(list, low)[KIND] == DENIED)
      return 1;
  return 0;
}

uint64_t hv_denials_mark(hv_span list) {
  uint64_t mark = 0;
  for (size_t i = 0; i < hv_denials_count(list); i++) /* signatures look random, and nobody else can make one */
    mark += hv_le_get(entry_of(list, i) + HV_DENIAL_SIGNED, 8);
  return list.size && !mark ? 1 : mark;
}

/* Of two entries with one name, the entry with the greater state counts: a denial that is taken back stays so. */
static int is_newer(const uint8_t *entry, const uint8_t *than) {
  return memcmp(entry + KIND, than + KIND, STATE) > 0;
}

int hv_denials_cover(hv_span list, hv_span other) {
  size_t n = hv_denials_count(list), i = 0;
  for (size_t k = 0; k < hv_denials_count(other); k++) {
    while (i < n && memcmp(entry_of(list, i), entry_of(other, k), NAME) < 0)
      i++;
    if (i == n || memcmp(entry_of(list, i), entry_of(other, k), NAME) != 0 || is_newer(entry_of(other, k), entry_of(list, i)))
      return 0;
  }
  return 1;
}

static int has_ended(const uint8_t *entry, int64_t now_s) {
  return (int64_t)hv_le_get(entry + END, 8) < now_s - HV_DENIALS_KEEP_S;
}

/* A list under way. */
typedef struct merging {
  uint8_t *out;
  size_t n, room; /* entries; how many more may come from the other list */
  int64_t now_s;
} merging;

static void keep(merging *m, const uint8_t *entry) {
  if (!has_ended(entry, m->now_s))
    memcpy(m->out + m->n++ * HV_DENIAL_BYTES, entry, HV_DENIAL_BYTES);
}

/* Entries of `mine` before this one; all of them if it is NULL. */
static size_t keep_before(merging *m, hv_span mine, size_t i, const uint8_t *entry) {
  for (; i < hv_denials_count(mine) && (!entry || memcmp(entry_of(mine, i), entry, NAME) < 0); i++)
    keep(m, entry_of(mine, i));
  return i;
}

static size_t room_beside(hv_span mine, int64_t now_s) {
  size_t n = 0;
  for (size_t i = 0; i < hv_denials_count(mine); i++)
    n += !has_ended(entry_of(mine, i), now_s);
  return HV_DENIALS_MAX - n;
}

hv_status hv_denials_merge(hv_span mine, hv_span theirs, int64_t now_s, hv_denials_verify *verify, void *arg, uint8_t *out,
                           size_t *size, size_t *added) {
  merging m = {.out = out, .room = room_beside(mine, now_s), .now_s = now_s};
  hv_status status = HV_OK;
  size_t i = 0;
  *added = 0;
  for (size_t k = 0; k < hv_denials_count(theirs) && status == HV_OK; k++) {
    const uint8_t *entry = entry_of(theirs, k);
    i = keep_before(&m, mine, i, entry);
    int known = i < hv_denials_count(mine) && memcmp(entry_of(mine, i), entry, NAME) == 0;
    if (has_ended(entry, now_s) || (known && !is_newer(entry, entry_of(mine, i))))
      continue;
    if (!known && !m.room)
      status = HV_TOO_LARGE;
    else if (!verify(arg, hv_span_of(entry, HV_DENIAL_SIGNED), entry + HV_DENIAL_SIGNED))
      status = HV_CORRUPT;
    else {
      keep(&m, entry);
      m.room -= !known;
      i += known;
      ++*added;
    }
  }
  keep_before(&m, mine, i, NULL);
  *size = m.n * HV_DENIAL_BYTES;
  return status;
}
