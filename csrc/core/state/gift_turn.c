#include "core/state/gift_turn.h"

#include <string.h>

static uint64_t us(uint64_t ms) {
  return ms * 1000;
}

static int is_among(const hv_peer_id *ids, size_t n, const hv_peer_id *id) {
  for (size_t i = 0; i < n; i++)
    if (hv_peer_equal(&ids[i], id))
      return 1;
  return 0;
}

static size_t kept(size_t n) {
  return n < HV_GIFT_FAILED ? n : HV_GIFT_FAILED;
}

static int is_large(const hv_gift_turn *t, const hv_peer_id *id) {
  return is_among(t->large, kept(t->n_large), id);
}

static int has_failed(const hv_gift_turn *t, const hv_peer_id *id) {
  return is_among(t->failed, kept(t->n_failed), id) || is_large(t, id);
}

void hv_gift_turn_fail(hv_gift_turn *t) {
  if (t->is_asking && !has_failed(t, &t->giver))
    t->failed[t->n_failed++ % HV_GIFT_FAILED] = t->giver;
  t->is_asking = 0;
}

static void forget(hv_peer_id *ids, size_t n, const hv_peer_id *id) {
  for (size_t i = 0; i < n; i++)
    if (hv_peer_equal(&ids[i], id))
      ids[i] = (hv_peer_id){0};
}

void hv_gift_turn_gone(hv_gift_turn *t, const hv_peer_id *id) {
  if (t->is_asking && hv_peer_equal(&t->giver, id))
    t->is_asking = 0;
  forget(t->failed, kept(t->n_failed), id);
  forget(t->large, kept(t->n_large), id);
}

int hv_gift_turn_large(hv_gift_turn *t, uint64_t now_us) {
  int is_first = t->n_large == 0;
  if (t->is_asking && !is_large(t, &t->giver))
    t->large[t->n_large++ % HV_GIFT_FAILED] = t->giver;
  t->large_until_us = now_us + us(HV_GIFT_LARGE_MS);
  t->is_asking = 0;
  return is_first;
}

static void ask(hv_gift_turn *t, uint64_t now_us, const hv_peer_id *giver, uint64_t epoch) {
  t->is_asking = 1;
  t->giver = *giver;
  t->given = epoch;
  t->asked_us = t->since_us = t->level_us = now_us;
  t->seen = t->begun_us = t->rest_us = 0;
}

/* ---- the present giver ---- */

static void see_bytes(hv_gift_turn *t, uint64_t now_us, uint64_t arrived) {
  if (arrived == t->seen)
    return;
  t->seen = arrived;
  t->since_us = now_us;
  t->begun_us = t->begun_us ? t->begun_us : now_us;
}

/* It has begun epochs and not given their state, or does not keep up: another replica is the run's. Or it has none any more. */
static int does_not_give(hv_gift_turn *t, uint64_t now_us, const hv_gift_figures *f) {
  const hv_gift_trainer *own = NULL;
  uint64_t newest = 0, soon_us = us(HV_GIFT_SOON_MS) + t->rest_us;
  for (const hv_gift_trainer *one = f->trainers; one < f->trainers + f->n_trainers; one++) {
    own = hv_peer_equal(&one->id, &t->giver) ? one : own;
    newest = one->epoch > newest && !has_failed(t, &one->id) ? one->epoch : newest;
  }
  if (!own || own->epoch >= newest)
    t->level_us = now_us;
  int has_lost_it = own && own->epoch + 1 < t->given; /* it began anew */
  int has_passed = !own || has_lost_it || (own->epoch > t->given && own->epoch - t->given > 2 && now_us - t->since_us > soon_us);
  return has_passed || now_us - t->level_us > soon_us;
}

static void judge(hv_gift_turn *t, uint64_t now_us, const hv_gift_figures *f, int are_clients) {
  see_bytes(t, now_us, f->arrived);
  int gives_nothing = does_not_give(t, now_us, f);
  if (now_us - t->since_us > us(HV_GIFT_PATIENCE_MS) + t->rest_us || (!f->arrived && gives_nothing))
    hv_gift_turn_fail(t);
  else if (!f->arrived && (now_us - t->asked_us > us(HV_GIFT_TURN_MS) || !are_clients))
    t->is_asking = 0;
}

/* ---- the next one ---- */

/* How far a trainer comes in question: others may be about to load the state, or gave nothing. */
enum { NOT_ABLE, ABLE, IS_RIGHT };

static int ability(const hv_gift_turn *t, const hv_gift_trainer *one, uint64_t least) {
  if (is_large(t, &one->id) ||
      one->epoch < (least ? least : 1)) /* the state of an epoch is that of its beginning, so the first step comes before it */
    return NOT_ABLE;
  return is_among(t->right, t->n_right, &one->id) ? IS_RIGHT : ABLE;
}

/* One of those in the newest epoch, by lot: others may wait for the very state that the hub needs. NULL: none. */
static const hv_gift_trainer *choose(hv_gift_turn *t, const hv_gift_figures *f) {
  int best = NOT_ABLE;
  size_t n_untried = 0, n_newest = 0;
  uint64_t newest = 0;
  for (size_t i = 0; i < f->n_trainers; i++) {
    int able = ability(t, &f->trainers[i], f->least);
    best = able > best ? able : best;
  }
  if (best == NOT_ABLE)
    return NULL;
  for (size_t i = 0; i < f->n_trainers; i++)
    n_untried += ability(t, &f->trainers[i], f->least) == best && !has_failed(t, &f->trainers[i].id);
  if (!n_untried)
    t->n_failed = 0;
  for (int pick = 0; pick < 2; pick++) {
    size_t chosen = pick ? (size_t)(f->lot % n_newest) : 0, at = 0;
    for (size_t i = 0; i < f->n_trainers; i++) {
      const hv_gift_trainer *one = &f->trainers[i];
      if (ability(t, one, f->least) != best || has_failed(t, &one->id))
        continue;
      if (!pick && (one->epoch > newest || !n_newest)) {
        newest = one->epoch;
        n_newest = 0;
      }
      n_newest += !pick && one->epoch == newest;
      if (pick && one->epoch == newest && at++ == chosen)
        return one;
    }
  }
  return NULL;
}

/* Nobody who can be dialled has the newest state: one that is behind wants it itself. */
static int have_clients_alone_it(const hv_gift_figures *f) {
  uint64_t newest = 0;
  for (size_t i = 0; i < f->n_trainers; i++)
    newest = f->trainers[i].epoch > newest ? f->trainers[i].epoch : newest;
  for (size_t i = 0; i < f->n_trainers; i++)
    if (!f->trainers[i].is_client && f->trainers[i].epoch + 1 >= newest)
      return 0;
  return f->n_trainers > 0;
}

/* It has given a state, and rests for longer than it takes to ask another one. */
static int may_another_give(const hv_gift_turn *t, const hv_gift_figures *f) {
  if (t->rest_us <= us(HV_GIFT_ANSWER_MS) || f->arrived)
    return 0;
  for (size_t i = 0; i < f->n_trainers; i++)
    if (!hv_peer_equal(&f->trainers[i].id, &t->giver) && !has_failed(t, &f->trainers[i].id) &&
        ability(t, &f->trainers[i], f->least) != NOT_ABLE)
      return 1;
  return 0;
}

int hv_gift_turn_look(hv_gift_turn *t, uint64_t now_us, const hv_gift_figures *f) {
  int are_clients = have_clients_alone_it(f);
  if (now_us >= t->large_until_us)
    t->n_large = 0;
  if (t->is_asking)
    judge(t, now_us, f, are_clients);
  if (t->is_asking && may_another_give(t, f))
    hv_gift_turn_fail(t);
  const hv_gift_trainer *next = !t->is_asking && are_clients && f->has_room ? choose(t, f) : NULL;
  if (next)
    ask(t, now_us, &next->id, next->epoch);
  return next != NULL;
}

/* ---- what happens meanwhile ---- */

void hv_gift_turn_met(hv_gift_turn *t, uint64_t now_us, uint64_t epoch, const hv_peer_id *right, size_t n,
                      const hv_peer_id *giver) {
  t->n_right = n < HV_GIFT_RIGHT ? n : HV_GIFT_RIGHT;
  if (t->n_right)
    memcpy(t->right, right, t->n_right * sizeof *right);
  if (giver)
    ask(t, now_us, giver, epoch);
}

void hv_gift_turn_came(hv_gift_turn *t, uint64_t now_us, uint64_t epoch) {
  t->rest_us = (HV_GIFT_REST + 1) * (now_us - (t->begun_us ? t->begun_us : now_us));
  t->since_us = now_us;
  t->seen = t->begun_us = 0;
  t->given = epoch;
}
