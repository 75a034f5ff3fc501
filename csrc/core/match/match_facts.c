#include "core/match/match_inner.h"

#include <string.h>

enum { BEGUN_MS = 60000 };

/* ---- what has begun ---- */

int match_has_begun(const hv_match *match, hv_span epoch) {
  uint64_t now = match->env->now_us(match->env);
  for (size_t i = 0; epoch.size && i < MATCH_BEGUN_MAX; i++)
    if (match->begun[i].at_us && now - match->begun[i].at_us < BEGUN_MS * 1000ull &&
        hv_span_equal(hv_span_of(match->begun[i].epoch, match->begun[i].size), epoch))
      return 1;
  return 0;
}

int match_had_group(const hv_match *match) {
  int had = 0;
  for (size_t i = 0; i < MATCH_BEGUN_MAX && match->roster.place && !had; i++) {
    hv_span epoch = hv_span_of(match->begun[i].epoch, match->begun[i].size);
    had = match_place_of(epoch) == match->roster.place && match_has_begun(match, epoch);
  }
  return had;
}

void match_note_begun(hv_match *match, hv_span epoch) {
  if (epoch.size == 0 || match_has_begun(match, epoch))
    return;
  size_t at = match->n_begun++ % MATCH_BEGUN_MAX;
  memcpy(match->begun[at].epoch, epoch.data, epoch.size);
  match->begun[at].size = epoch.size;
  match->begun[at].at_us = match->env->now_us(match->env) | 1; /* 0: none */
}

void hv_match_forget_begun(hv_match *match, hv_span epoch) {
  for (size_t i = 0; i < MATCH_BEGUN_MAX; i++)
    if (hv_span_equal(hv_span_of(match->begun[i].epoch, match->begun[i].size), epoch))
      match->begun[i].at_us = 0;
  hv_roster_forget_had(&match->roster, match_place_of(epoch)); /* its members were taken for such that had it */
}

/* ---- this node's place and limits ---- */

uint64_t match_place_of(hv_span epoch) {
  uint64_t n = 0;
  size_t i = 0;
  for (; i < epoch.size && epoch.data[i] >= '0' && epoch.data[i] <= '9' && n < UINT64_MAX / 20; i++)
    n = 10 * n + (uint64_t)(epoch.data[i] - '0');
  return i && (i == epoch.size || epoch.data[i] == '/') ? n + 1 : 0;
}

int match_is_stuck(const hv_match *match) {
  return match->seek.request || (match->stuck_us && match->env->now_us(match->env) - match->stuck_us < MATCH_STUCK_MS * 1000ull);
}

size_t match_target(const hv_match *match) {
  return match->config.target_group_size ? match->config.target_group_size : HV_ROUND_MEMBERS_MAX;
}

size_t match_least(const hv_match *match) {
  return match->config.min_group_size ? match->config.min_group_size : 2;
}

int match_is_of_epoch(const hv_match *match, size_t contribute) {
  return contribute > 1 || match_least(match) == 1;
}

int match_note_members(hv_match *match, hv_span epoch, const hv_match_member *members, size_t n) {
  size_t contribute = 0;
  for (size_t i = 0; i < n; i++)
    contribute += !members[i].auxiliary;
  int is_of_epoch = match_is_of_epoch(match, contribute);
  for (size_t i = 0; i < n; i++) {
    hv_roster_heard(&match->roster, &members[i].id, members[i].addrs);
    hv_roster_schema(&match->roster, &members[i].id, &match->config.schema);
    if (is_of_epoch)
      hv_roster_had(&match->roster, &members[i].id, match_place_of(epoch));
  }
  return is_of_epoch;
}

hv_group_facts match_facts(const hv_match *match, hv_span epoch) {
  return (hv_group_facts){.key = match_key(match),
                          .epoch = epoch,
                          .schema = match->config.schema,
                          .n_chunks = match->config.n_chunks,
                          .me = match->roster.config.me,
                          .client = match->seek.client,
                          .auxiliary = match->config.auxiliary,
                          .gather = match->seek.request ? match->seek.request->gather : hv_span_of(NULL, 0),
                          .roster = &match->roster};
}

hv_span hv_match_bits(const hv_match *match) {
  return match->config.bits;
}

void hv_match_set_bandwidth(hv_match *match, uint64_t bandwidth) {
  match->config.bandwidth = bandwidth;
}

size_t hv_match_others(const hv_match *match) {
  size_t n = 0;
  for (size_t i = 0; i < match->roster.n; i++)
    n += (size_t)hv_roster_counts(&match->roster, &match->roster.entries[i]);
  return n;
}

size_t hv_match_strangers(const hv_match *match) {
  uint64_t now = match->env->now_us(match->env);
  size_t n = 0;
  for (size_t i = 0; i < match->roster.n; i++)
    n += match->roster.entries[i].stranger && match->roster.entries[i].expires_us > now;
  return n;
}

const char *hv_match_difference(const hv_match *match) {
  return match->difference;
}
