#include "core/versions.h"

#include <stdio.h>

hv_versions hv_versions_own(void) {
  return (hv_versions){HV_PROTOCOL_LOWEST, HV_PROTOCOL_HIGHEST, HV_PROTOCOL_FEATURES};
}

hv_versions hv_versions_plain(uint32_t version) {
  return (hv_versions){version, version, 0};
}

int hv_versions_valid(const hv_versions *versions) {
  return versions->lowest >= 1 && versions->lowest <= versions->highest && versions->highest <= HV_VERSIONS_MAX;
}

int hv_versions_equal(const hv_versions *a, const hv_versions *b) {
  return a->lowest == b->lowest && a->highest == b->highest && a->features == b->features;
}

int hv_versions_has(const hv_versions *versions, uint32_t version) {
  return versions->lowest <= version && version <= versions->highest;
}

uint32_t hv_versions_common(const hv_versions *a, const hv_versions *b) {
  uint32_t lowest = a->lowest > b->lowest ? a->lowest : b->lowest, highest = a->highest < b->highest ? a->highest : b->highest;
  return lowest <= highest ? highest : 0;
}

static size_t count(const hv_versions *peers, size_t n, uint32_t version) {
  size_t speak = 0;
  for (size_t i = 0; i < n; i++)
    speak += (size_t)hv_versions_has(&peers[i], version);
  return speak;
}

/* Ranges overlap most at the highest version of one of them. */
uint32_t hv_versions_of_most(const hv_versions *peers, size_t n, size_t *speak) {
  uint32_t best = 0;
  size_t most = 0;
  for (size_t i = 0; i < n && most < n; i++) {
    if (peers[i].highest == best || (i && peers[i].highest == peers[i - 1].highest))
      continue;
    size_t now = count(peers, n, peers[i].highest);
    if (now > most || (now == most && peers[i].highest > best)) {
      most = now;
      best = peers[i].highest;
    }
  }
  if (speak)
    *speak = most;
  return best;
}

enum { RANGE_TEXT = 36 };

/* "version 1", or "versions 1 to 2". */
static const char *print_range(const hv_versions *versions, char text[RANGE_TEXT]) {
  if (versions->lowest == versions->highest)
    snprintf(text, RANGE_TEXT, "version %u", versions->lowest);
  else
    snprintf(text, RANGE_TEXT, "versions %u to %u", versions->lowest, versions->highest);
  return text;
}

void hv_versions_explain(const char *peer, const hv_versions *theirs, const hv_versions *mine, char text[HV_VERSIONS_TEXT_MAX]) {
  char a[RANGE_TEXT], b[RANGE_TEXT];
  snprintf(text, HV_VERSIONS_TEXT_MAX, "%.100s speaks %s of the protocol, this peer %s: upgrade hivemind_c %s", peer,
           print_range(theirs, a), print_range(mine, b), theirs->lowest > mine->highest ? "here" : "there");
}

void hv_versions_refuse(const hv_versions *mine, const hv_versions *caller, char text[HV_VERSIONS_TEXT_MAX]) {
  char a[RANGE_TEXT], b[RANGE_TEXT];
  snprintf(text, HV_VERSIONS_TEXT_MAX, "the called peer speaks %s of the protocol, the caller %s: upgrade hivemind_c at the %s",
           print_range(mine, a), print_range(caller, b), mine->lowest > caller->highest ? "caller" : "called peer");
}
