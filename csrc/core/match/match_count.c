#include "core/match/match_inner.h"
#include "core/util/sort.h"

#include <string.h>

static uint64_t count_now(const hv_match *match) {
  return match->env->now_us(match->env);
}

static int count_sooner(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

match_joiner *match_joiner_of(const match_gathering *g, const hv_peer_id *id) {
  match_joiner *j = g->joiners;
  while (j && !hv_peer_equal(&j->id, id))
    j = j->next;
  return j;
}

static int is_present(const match_gathering *g, const hv_peer_id *id) {
  const match_joiner *j = match_joiner_of(g, id);
  return j && j->present;
}

/* 1: this node itself seeks or may yet seek this epoch. */
static int may_come(const match_gathering *g) {
  const hv_match *match = g->match;
  uint64_t at = match->roster.place;
  if (g->place && match->return_place)
    return g->place == match->return_place && count_now(match) - g->since_us < HV_ROSTER_COMES_MS * 1000ull;
  if (!g->place || !at)
    return 1;
  return at <= g->place &&
         (!hv_roster_is_behind(at, match_is_stuck(match), g->place) || hv_roster_catches_up(&match->roster, match->behind_us));
}

uint64_t match_next_given_up(const match_gathering *g, uint64_t after_us) {
  const hv_match *match = g->match;
  uint64_t next = hv_roster_next_given_up(&match->roster, g->place, after_us), own = g->since_us + HV_ROSTER_COMES_MS * 1000ull;
  return match->return_place && match->return_place == g->place && own > after_us && own < next ? own : next;
}

size_t match_known(const match_gathering *g) {
  hv_match *match = g->match;
  size_t n = g->n_present + (may_come(g) && !is_present(g, &match->roster.config.me));
  for (size_t i = 0; i < match->roster.n; i++)
    n += !is_present(g, &match->roster.entries[i].id) && hv_roster_may_come(&match->roster, &match->roster.entries[i], g->place);
  return n > g->begun ? n - g->begun : 0;
}

/* A count of the peers that have this epoch's group behind them, and of those that may still want one. */
typedef struct census {
  size_t others, passed, waits;
  size_t living;      /* of passed */
  size_t may, owners; /* peers that may come; those of them that can be dialled */
  size_t gone;        /* known peers that have ended or left */
  uint64_t at;        /* place of the furthest; 0: none is further */
} census;

static census count_where(const match_gathering *g) {
  const hv_match *match = g->match;
  const hv_roster *roster = &match->roster;
  int here = match_joiner_of(g, &roster->config.me) != NULL, comes = may_come(g);
  int passed = !here && (roster->place > g->place || (!g->begun && match_has_begun(match, match_epoch_of(g))));
  census c = {.others = (size_t)!comes,
              .passed = (size_t)passed,
              .living = (size_t)passed,
              .may = g->n_joiners + (comes && !here),
              .owners = (size_t)comes};
  c.waits = g->n_joiners + (comes && !here && !passed);
  c.at = roster->place > g->place ? roster->place : 0;
  for (const match_joiner *j = g->joiners; j; j = j->next)
    c.owners += j->addrs_size > 0;
  for (size_t i = 0; i < roster->n; i++) {
    const hv_roster_entry *entry = &roster->entries[i];
    if (match_joiner_of(g, &entry->id))
      continue;
    passed = hv_roster_has_passed(roster, entry, g->place);
    c.passed += (size_t)passed;
    c.gone += (size_t)hv_roster_is_gone(roster, entry);
    if (!hv_roster_counts(roster, entry))
      continue;
    comes = hv_roster_may_come(roster, entry, g->place);
    c.others++;
    c.living += (size_t)passed;
    c.waits += comes && !passed;
    c.may += (size_t)comes;
    c.owners += comes && entry->addrs_size;
    if (entry->place > g->place && entry->place > c.at && !entry->unsure)
      c.at = entry->place;
  }
  return c;
}

/* True if more than a third have it behind them (as core/progress/tally counts epochs), and one of them lives, so its state can be
 * had: a second group would be a second swarm. Peers that died since count too, because their step is made. False if the swarm is
 * divided into several groups anyway, and in a second attempt. */
static int has_passed(const match_gathering *g, const census *c, size_t wanted) {
  size_t all = c->passed + c->waits > wanted ? c->passed + c->waits : wanted;
  return c->living && all <= match_target(g->match) && c->passed > all / 3 && !memchr(g->epoch, '/', g->epoch_size);
}

/* How many there are, as those say who are here and may know of more than this node does: the lower median, so that nobody alone
 * keeps the others waiting for what is over, not even one other. */
static size_t said_to_be(const match_gathering *g) {
  uint64_t said[MATCH_JOINERS_MAX];
  size_t n = 0;
  for (const match_joiner *j = g->joiners; j && n < MATCH_JOINERS_MAX; j = j->next)
    said[n++] = j->expected;
  hv_sort(said, n, sizeof *said, count_sooner);
  return n ? (size_t)said[(n - 1) / 2] : 0;
}

/* Of those who are not known at all nothing is certain: more may be expected than are known. */
int match_is_hopeless(const match_gathering *g, uint64_t *at) {
  const hv_match *match = g->match;
  *at = 0;
  int young = !match->settled && count_now(match) < match->opened_us + MATCH_GREET_MS * 1000ull;
  if (!g->place || g->begun || young)
    return 0;
  census c = count_where(g);
  size_t wanted = said_to_be(g);
  int passed = has_passed(g, &c, wanted);
  *at = passed && !c.at ? g->place + 1 : c.at;
  size_t known = c.others + c.gone;
  return passed || (known && (c.may < match_least(match) || !c.owners) && wanted <= known + g->n_joiners);
}

uint64_t match_settled_us(const hv_match *match) {
  return match->settled ? 0 : match->opened_us + MATCH_SETTLE_MS * 1000ull;
}

size_t match_knows_of(const hv_match *match, uint64_t at, const hv_peer_id *host) {
  size_t n = 1;
  if (count_now(match) < match_settled_us(match))
    return 0;
  for (size_t i = 0; i < match->roster.n; i++)
    n += !hv_peer_equal(&match->roster.entries[i].id, host) && hv_roster_may_come(&match->roster, &match->roster.entries[i], at);
  return n;
}

/* How many may come. A node that has only just begun takes the word of the members who have not: the most that any of them knows.
 */
static size_t all_there_are(const match_gathering *g) {
  size_t known = match_known(g), most = 0;
  if (count_now(g->match) >= match_settled_us(g->match))
    return known;
  for (const match_joiner *j = g->joiners; j; j = j->next)
    if (j->present && j->known > most)
      most = j->known;
  if (most == 0)
    return UINT32_MAX;
  most += (size_t)may_come(g);
  most = most > g->begun ? most - g->begun : 0;
  return known > most ? known : most;
}

/* The median of what they said, so that nobody alone can hold the others up, or hurry them. */
size_t match_expected(const match_gathering *g) {
  uint64_t said[MATCH_JOINERS_MAX], all = 0;
  size_t n = 0, least = match_least(g->match);
  for (const match_joiner *j = g->joiners; j && n < MATCH_JOINERS_MAX; j = j->next) {
    if (!j->present)
      continue;
    if (j->expected == 0 && all == 0)
      all = all_there_are(g);
    said[n++] = j->expected == 0 ? all : j->expected > g->begun ? j->expected - g->begun : 0;
  }
  hv_sort(said, n, sizeof *said, count_sooner);
  size_t median = n ? (size_t)said[n / 2] : 0;
  return median > least ? median : least;
}

uint64_t match_next_end(const match_gathering *g, uint64_t after_us) {
  uint64_t next = UINT64_MAX;
  for (const match_joiner *j = g->joiners; j; j = j->next)
    if (j->present && j->deadline_us > after_us && j->deadline_us < next)
      next = j->deadline_us;
  return next;
}

/* Its time is over: is that a reason for the others, too? It is if it had at least a quarter of the time that they have, and most
 * of those who may come are there; or if the others (the median of them, that no other one alone can hold it up) have waited for
 * half of their time since both were there. So no single member hurries a group. */
static int is_reason(const match_gathering *g, const match_joiner *over, uint64_t now) {
  uint64_t halves[MATCH_JOINERS_MAX], left[MATCH_JOINERS_MAX];
  size_t n = 0;
  if (!over->stream) /* this node itself */
    return 1;
  for (const match_joiner *j = g->joiners; j && n < MATCH_JOINERS_MAX; j = j->next) {
    uint64_t both_us = j->since_us > over->since_us ? j->since_us : over->since_us;
    if (j == over || !j->present)
      continue;
    left[n] = j->deadline_us > both_us ? j->deadline_us - both_us : 0;
    halves[n] = both_us + left[n] / 2;
    n++;
  }
  hv_sort(halves, n, sizeof *halves, count_sooner);
  hv_sort(left, n, sizeof *left, count_sooner);
  if (n == 0 || halves[(n - 1) / 2] <= now)
    return 1;
  return 2 * g->n_present > match_known(g) && over->deadline_us - over->since_us >= left[(n - 1) / 2] / 4;
}

/* A helper's time is none: it waits in one search after another, and may be there long before those whom it helps. */
int match_is_late(const match_gathering *g) {
  uint64_t now = count_now(g->match);
  for (const match_joiner *j = g->joiners; j; j = j->next)
    if (j->present && !j->auxiliary && j->deadline_us <= now && is_reason(g, j, now))
      return 1;
  return 0;
}
