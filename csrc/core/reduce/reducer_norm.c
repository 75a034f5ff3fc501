/* The largest norm that a reducer takes, by the norms that contributors state (contract in reducer_inner.h). */
#include "core/reduce/reducer_inner.h"
#include "core/round/norm.h"

void reducer_set_norm_most(hv_reducer *r) {
  const hv_round *round = r->round;
  float norms[HV_ROUND_MEMBERS_MAX];
  size_t n = 0, contributors = 0;
  for (size_t i = 0; i < round->n_members; i++) {
    const contributor *g = &r->contributors[i];
    int mine = i == round->me;
    contributors += !round->members[i].auxiliary;
    if (!round->members[i].auxiliary && (mine ? round->weight : g->weight) > 0 && !g->refused)
      norms[n++] = mine ? round->norm : g->norm;
  }
  r->norm_most = contributors < HV_NORM_MEMBERS ? 0 : hv_norm_most(round->norm_ratio, norms, n);
}
