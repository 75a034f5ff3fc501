/* A reducer's memory, made whole and given back, and its results (contract in reducer.h). */
#include "core/reduce/reducer_inner.h"

static int is_expected(const hv_round *round, const hv_view *view, size_t member) {
  return member != round->me && !round->members[member].auxiliary && hv_members_has(&view->members, member);
}

hv_status hv_reducer_new(hv_env *env, const hv_round *round, const hv_view *view, hv_hold *hold, hv_kept *kept, hv_pace *pace,
                         void (*changed)(void *arg), void *arg, hv_reducer **out) {
  hv_reducer *r = hv_mem_zalloc(env->mem, sizeof *r);
  if (!r)
    return HV_NOMEM;
  *r = (hv_reducer){.env = env,
                    .round = round,
                    .view = view,
                    .hold = hold,
                    .kept = kept,
                    .pace = pace,
                    .changed = changed,
                    .arg = arg,
                    .first = view->first[round->me],
                    .count = view->count[round->me],
                    .lost = HV_ROUND_MEMBERS_MAX};
  r->stall = (hv_timer){.fire = reducer_look_for_stalls, .owner = r};
  r->contributors = hv_mem_array(env->mem, round->n_members, sizeof *r->contributors);
  int whole = r->contributors != NULL;
  size_t most = hv_run_chunk_most(round->in);
  for (size_t i = 0; i < WINDOW; i++) {
    r->slots[i].reducer = r;
    list_init(&r->slots[i].waiting);
    if (i < r->count)
      whole = (r->slots[i].sum.here = hv_mem_aligned(env->mem, most * sizeof(float))) && whole;
  }
  for (size_t i = 0; r->contributors && i < round->n_members; i++) {
    r->contributors[i] =
        (contributor){.reducer = r, .member = i, .state = is_expected(round, view, i) ? CONTRIBUTOR_EXPECTED : CONTRIBUTOR_GONE};
    list_init(&r->contributors[i].held);
  }
  if (!whole) {
    hv_reducer_free(r);
    return HV_NOMEM;
  }
  *out = r;
  return HV_OK;
}

void hv_reducer_free(hv_reducer *r) {
  if (!r)
    return;
  r->env->timer_clear(r->env, &r->stall);
  for (size_t i = 0; r->contributors && i < r->round->n_members; i++) {
    list_drop(&r->contributors[i].held);
    hv_mem_free(r->contributors[i].lacks);
  }
  for (size_t i = 0; i < WINDOW; i++) {
    slot *s = &r->slots[i];
    list_drop(&s->waiting);
    drop_contribution(s->current);
    hv_payload_release(s->average);
    hv_mem_free(s->codes);
    hv_mem_free(s->sum.kept);
    hv_mem_free(s->sum.here); /* a device's was ended by whoever is done; in a world that is dead it is not touched */
  }
  hv_mem_free(r->contributors);
  hv_mem_free(r);
}

hv_status hv_reducer_status(const hv_reducer *r) {
  return r->status;
}

size_t hv_reducer_lost(const hv_reducer *r) {
  return r->lost;
}

int hv_reducer_lied(const hv_reducer *r) {
  return r->lied;
}

int hv_reducer_narrow(const hv_reducer *r) {
  return r->narrow;
}
