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

static size_t count(const match_gathering *g, uint32_t version) {
  size_t n = 0;
  for (const match_joiner *j = g->joiners; j; j = j->next)
    n += j->present && match_speaks(j, version);
  return n;
}

/* Ranges overlap most at the highest version of one of them. This node's own seek is not sent away, so that its range bounds the
 * choice. */
uint32_t match_common_version(const match_gathering *g, int *all) {
  const match_joiner *me = match_joiner_of(g, &g->match->roster.config.me);
  hv_versions mine = hv_spoken_mine(g->match->env);
  uint32_t best = mine.highest, before = 0;
  size_t most = count(g, best);
  for (const match_joiner *j = g->joiners; j && most < g->n_present; j = j->next) {
    uint32_t version = spoken_by(j).highest;
    if (!j->present || version == before || version == best || (me && !match_speaks(me, version)))
      continue;
    before = version;
    size_t n = count(g, version);
    if (n > most || (n == most && version > best)) {
      most = n;
      best = version;
    }
  }
  *all = most == g->n_present;
  return best;
}
