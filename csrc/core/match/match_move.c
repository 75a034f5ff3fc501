#include "core/match/match_inner.h"

/* Ends being apart: other peers know of this one and may expect it. */
static void match_enter(hv_match *match) {
  if (!match->config.apart)
    return;
  match->config.apart = 0;
  match->opened_us = match->env->now_us(match->env);
  match->settled = 0;
  match->greetings = 1; /* this is the first */
  hv_roster_enter(&match->roster);
  match_ask_all(match);
  match->env->timer_set(match->env, &match->greet_timer, MATCH_GREET_MS * 1000ull);
}

void match_moves_to(hv_match *match, uint64_t at) {
  uint64_t before = match->roster.place;
  int had_group = match_had_group(match);
  int had_come = match->return_place != 0; /* the others know of it, and not yet that it is there */
  match->return_place = 0;
  if (at && (match->config.apart || had_come))
    hv_roster_moved(&match->roster, at, had_group); /* first, because the questions below report it */
  match_enter(match);
  if (had_come)
    match_ask_all(match);
  if (!at || at == before)
    return;
  hv_roster_moved(&match->roster, at, had_group);
  match->stuck_us = 0;
  if (hv_roster_furthest(&match->roster) <= at)
    match->behind_us = 0;
  match->env->timer_set(match->env, &match->news_timer, 0); /* peers that wait here for an earlier epoch must be told */
  if (at > before)
    match_ask_laggards(match);
}

static uint64_t place_of_epoch(uint64_t epoch) {
  return (epoch < UINT64_MAX / 2 ? epoch : UINT64_MAX / 2) + 1;
}

void hv_match_reached(hv_match *match, uint64_t epoch) {
  match_moves_to(match, place_of_epoch(epoch));
}

int hv_match_awaits(const hv_match *match, uint64_t epoch) {
  const hv_roster *roster = &match->roster;
  for (size_t i = 0; i < roster->n; i++)
    if (roster->entries[i].return_place == place_of_epoch(epoch) && hv_roster_counts(roster, &roster->entries[i]))
      return 1;
  return 0;
}

void hv_match_comes(hv_match *match, uint64_t epoch) {
  match->return_place = place_of_epoch(epoch);
  if (match->config.apart)
    match_enter(match);
  else
    match_ask_all(match);
}
