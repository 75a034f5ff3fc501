/* The bytes and the outcome of a round: which chunks are averaged, and whose values are in them. */
#include "core/average/average_inner.h"

/* Encoded bytes that this member sent and received in a round without losses: contributions to other spans, and its own span's
 * average to all; and as much the other way. */
static uint64_t bytes_moved(const hv_average_work *w) {
  const hv_average *a = w->average;
  const hv_match_group *group = w->group;
  const hv_round_member *me = &group->members[group->me];
  uint64_t own = 0, others = 0, contributors = 0;
  for (uint32_t i = 0; i < a->run.n_chunks; i++) {
    hv_run_chunk chunk = hv_run_chunk_as(&a->run, i, w->outcome.narrow);
    *(i >= me->first && i - me->first < me->count ? &own : &others) += chunk.bytes;
  }
  for (size_t i = 0; i < group->n_members; i++)
    contributors += i != group->me && !group->members[i].auxiliary;
  return 2 * ((me->auxiliary ? 0 : others) + own * contributors);
}

/* Chunks beside each other are one range. */
static void list_missed(hv_average_work *w, const hv_allreduce *round) {
  const hv_average *a = w->average;
  uint64_t end = 0;
  size_t n = 0;
  for (uint32_t i = 0; !a->config.auxiliary && i < a->run.n_chunks; i++) {
    hv_run_chunk chunk = hv_run_chunk_of(&a->run, i);
    if (hv_allreduce_counts(round, i, w->group->me))
      continue;
    if (n && chunk.at == end)
      w->missed[n - 1].size += chunk.size;
    else
      w->missed[n++] = (hv_average_range){chunk.at, chunk.size};
    end = chunk.at + chunk.size;
  }
  w->outcome.missed = w->missed;
  w->outcome.n_missed = n;
}

void average_count(hv_average_work *w, const hv_allreduce *round) {
  const hv_average *a = w->average;
  for (uint32_t i = 0; i < a->run.n_chunks; i++)
    w->outcome.averaged += hv_allreduce_averaged(round, i) != 0;
  w->outcome.changed = atomic_load(&w->average->changed);
  w->outcome.view = hv_allreduce_view(round);
  w->outcome.narrow = hv_allreduce_narrow(round);
  w->outcome.bytes = bytes_moved(w);
  w->outcome.part = a->run.n_chunks ? (double)w->group->members[w->group->me].count / (double)a->run.n_chunks : 0;
  list_missed(w, round);
  for (size_t i = 0; i < w->group->n_members; i++)
    w->shares[i] = a->run.n_values ? (double)hv_allreduce_counted(round, i) / (double)a->run.n_values : 1;
}

void hv_average_send_narrow(hv_average *self, hv_average_step *step) {
  if (self->work && self->work->step == step && self->work->stage < HV_AVERAGE_REDUCING)
    step->narrow = 1;
}
