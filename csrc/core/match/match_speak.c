#include "core/match/match_inner.h"
#include "core/peers/spoken.h"

static hv_versions spoken_by(const match_joiner *joiner) {
  const hv_match *match = joiner->gathering->match;
  int is_me = hv_peer_equal(&joiner->id, &match->roster.config.me);
  return is_me ? hv_spoken_mine(match->env) : hv_spoken_of(match->env, &joiner->id);
}

int match_speaks(const match_joiner *joiner, uint32_t version) {
  hv_versions versions = spoken_by(joiner);
  return hv_versions_has(&versions, version);
}

/* This node's own seek cannot be sent away, so that its range bounds the choice. */
uint32_t match_common_version(const match_gathering *g, int *all) {
  const match_joiner *me = match_joiner_of(g, &g->match->roster.config.me);
  hv_versions present[MATCH_JOINERS_MAX], mine = hv_spoken_mine(g->match->env);
  size_t n = 0, speak;
  for (const match_joiner *j = g->joiners; j; j = j->next) {
    hv_versions its = spoken_by(j);
    if (!j->present || (me && !hv_versions_common(&mine, &its)))
      continue;
    if (me && its.highest > mine.highest)
      its.highest = mine.highest;
    present[n++] = its;
  }
  uint32_t version = hv_versions_of_most(present, n, &speak);
  *all = speak == g->n_present;
  return version;
}
