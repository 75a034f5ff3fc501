/* The facts of rounds (contract in facts.h). */
#include "core/epoch/facts.h"
#include "core/epoch/word.h"

#define BY_ITSELF (HV_RANK_MADE | HV_RANK_BY_ITSELF)

/* A hub is no company, as what it gives back is the trainer's own; unless its log is what the round is for, by the word of a
 * trainer whose replica is no newcomer's. A search that was given up ends as one to which nobody came. */
static hv_epoch_outcome outcome_of(const hv_epoch_round *round, const hv_epoch_facts *f, size_t n_by_themselves) {
  int with_hub = n_by_themselves == 1 && !round->counts_others && f->n_members > f->n_trainers && f->stamp;
  if (round->status == HV_OK && f->n_trainers < 2 && !with_hub)
    return HV_EPOCH_NOBODY;
  if (round->status == HV_OK)
    return f->stamp ? HV_EPOCH_CONFIRMED : HV_EPOCH_PARTED;
  if (round->status == HV_EXISTS)
    return HV_EPOCH_LEFT_OUT;
  int is_over = round->status == HV_TIMEOUT || (round->status == HV_CANCELLED && round->is_given_up);
  return is_over && !round->has_group ? HV_EPOCH_NOBODY : HV_EPOCH_FAILED;
}

/* It gives no values and no word (rule 21 of docs/design/log.md), so nothing of it is lost. */
static int listens(const hv_epoch_round *round, const hv_average_member *m) {
  hv_word word;
  return round->which == HV_EPOCH_GRADIENTS && round->n_parts == 1 && m->share <= 0 && !hv_word_read(m->gather, &word);
}

static void counts_shares(const hv_epoch_round *round, const hv_average_outcome *part, hv_epoch_facts *f) {
  for (size_t i = 0; i < part->n_members; i++) {
    const hv_average_member *m = &part->members[i];
    if (m->auxiliary)
      continue;
    f->n_lost += m->share < 1 && !listens(round, m);
    f->is_whole &= m->share <= 0 || m->share >= 1;
    if (m->me && m->share < f->share)
      f->share = m->share;
  }
}

hv_epoch_facts hv_epoch_facts_of(const hv_epoch_round *round, hv_lineage_member *members) {
  hv_epoch_facts f = {.is_whole = 1, .share = 1};
  size_t n_by_themselves = 0;
  const hv_average_outcome *group = round->n_parts ? &round->parts[0] : NULL;
  for (; group && f.n_members < group->n_members && f.n_members < HV_EPOCH_MEMBERS; f.n_members++) {
    const hv_average_member *m = &group->members[f.n_members];
    hv_lineage_member *to = &members[f.n_members];
    *to = (hv_lineage_member){.peer = m->id, .is_client = m->client, .is_auxiliary = m->auxiliary};
    to->has_word = (uint8_t)hv_word_read(m->gather, &to->word);
    f.n_trainers += !m->auxiliary;
    n_by_themselves += !m->auxiliary && to->has_word && to->word.rank >= 0 && (to->word.rank & BY_ITSELF) == BY_ITSELF;
  }
  for (size_t i = 0; i < round->n_parts; i++) {
    counts_shares(round, &round->parts[i], &f);
    f.stamp = i && !f.stamp ? 0 : round->parts[i].stamp ? round->parts[0].stamp : 0;
  }
  if (round->status != HV_OK || !round->has_replica)
    f.n_lost = 0;
  f.outcome = outcome_of(round, &f, n_by_themselves);
  return f;
}

hv_epoch_event hv_epoch_round_event(const hv_epoch_round *round, const hv_epoch_facts *f, const hv_lineage_member *members) {
  int is_alone = round->status == HV_OK && !f->stamp; /* its averages are its own values */
  return (hv_epoch_event){.kind = HV_EPOCH_ROUND,
                          .which = round->which,
                          .outcome = f->outcome,
                          .stamp = f->stamp,
                          .share = f->share,
                          .members = members,
                          .n_members = f->n_members,
                          .n_lost = f->n_lost,
                          .ran_out = round->status == HV_TIMEOUT && round->has_group,
                          .ok = is_alone                 ? 1
                                : round->status == HV_OK ? f->is_whole && round->alike
                                                         : round->alike};
}

hv_epoch_gift hv_epoch_gift_of(hv_env *env, uint64_t epoch, const hv_lineage_member *members, size_t n) {
  hv_epoch_gift gift = {.n = 0};
  for (size_t i = 0; i < n && gift.n < HV_GIFT_HUBS; i++)
    if (members[i].is_auxiliary && !members[i].is_client)
      gift.hubs[gift.n++] = members[i].peer;
  hv_lineage_ticket(env, epoch, members, n, gift.ticket);
  return gift;
}
