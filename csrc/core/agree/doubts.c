#include "core/agree/doubts.h"

hv_status hv_doubts_init(hv_doubts *d, hv_mem *mem, size_t n, size_t me) {
  *d = (hv_doubts){.n = n, .me = me, .voices = hv_mem_array(mem, n, sizeof *d->voices)};
  return d->voices ? HV_OK : HV_NOMEM;
}

void hv_doubts_fini(hv_doubts *d) {
  hv_mem_free(d->voices);
  d->voices = NULL;
}

void hv_doubts_trouble(hv_doubts *d, size_t who, uint32_t view, const hv_members *named) {
  hv_voice *v = &d->voices[who];
  hv_members_join(&v->named, named);
  if (v->trouble_in > view)
    return; /* the same trouble, and somebody more */
  v->trouble_in = view + 1;
  if (++v->troubles > 2 * d->n)
    hv_members_put(&d->barred, who);
}

void hv_doubts_unseen(hv_doubts *d, size_t who, const hv_members *named) {
  hv_members_join(&d->voices[who].named, named);
  hv_members_join(&d->voices[who].unseen, named);
}

void hv_doubts_false(hv_doubts *d, size_t who, const hv_members *liars) {
  hv_members_join(&d->voices[who].liars, liars);
  hv_members_drop(&d->voices[who].liars, who);
}

/* This one had to break off itself, because of somebody other than that one: it says so. */
static int had_trouble_with_others(const hv_doubts *d, size_t i, size_t than) {
  hv_members others = d->voices[i].named;
  hv_members_drop(&others, than);
  return hv_members_count(&others) > 0;
}

/* How many say in a second view that they cannot reach this one, though both are here; the others are noted. */
static size_t not_reached_by(hv_doubts *d, size_t i, const hv_members *here, hv_voice **last) {
  size_t n = 0;
  for (size_t j = 0; j < d->n; j++) {
    hv_voice *v = &d->voices[j];
    if (!hv_members_has(here, j) || !hv_members_has(&v->unseen, i) || had_trouble_with_others(d, i, j))
      continue;
    v->mistaken_now = 1;
    if (hv_members_has(&v->before, i))
      *last = v, n++;
    hv_members_put(&v->before, i);
  }
  return n;
}

static size_t charged_by(hv_doubts *d, size_t i, const hv_members *here, hv_voice **last) {
  size_t n = 0;
  for (size_t j = 0; j < d->n; j++)
    if (hv_members_has(here, j) && hv_members_has(&d->voices[j].liars, i))
      *last = &d->voices[j], n++;
  return n;
}

static void bar(hv_doubts *d, const hv_voice *voice) {
  hv_members_put(&d->barred, (size_t)(voice - d->voices));
}

/* Whom this one charged, in any view, and nobody else who is not out. */
static hv_members charged_alone(const hv_doubts *d, const hv_voice *voice) {
  hv_members them = voice->charged;
  for (size_t j = 0; j < d->n; j++)
    if (voice != &d->voices[j] && !hv_members_has(&d->barred, j))
      hv_members_take_out(&them, &d->voices[j].charged);
  return them;
}

/* It alone charges so many that it is itself the one to doubt; the coordinator, who has seen what it charges, only when nobody else
 * is left. */
static int charges_too_many(const hv_doubts *d, const hv_members *here, const hv_voice *voice) {
  hv_members others = *here, alleged = charged_alone(d, voice);
  hv_members_take_out(&others, &alleged);
  hv_members_drop(&others, d->me);
  return hv_members_count(&alleged) > (d->n + 3) / 4 && (voice != &d->voices[d->me] || !hv_members_count(&others));
}

/* One alone would have the coordinator go, whose own eyes say otherwise, and alone charges more than a quarter of those who are
 * still here: of so few, so many are hardly liars. */
static int would_lead_astray(const hv_doubts *d, const hv_members *here, const hv_voice *voice, size_t i) {
  hv_members alleged = charged_alone(d, voice), left = *here;
  hv_members_take_out(&left, &d->barred);
  hv_members_keep(&alleged, &left);
  return i == d->me && hv_members_has(&d->no_owner, i) && hv_members_count(&alleged) > (hv_members_count(&left) + 3) / 4;
}

static void weigh_charges(hv_doubts *d, const hv_members *here, size_t i) {
  hv_voice *alone = NULL;
  size_t n = charged_by(d, i, here, &alone);
  if (n == 0)
    return;
  if (n == 1 && (charges_too_many(d, here, alone) || would_lead_astray(d, here, alone, i)))
    bar(d, alone);
  else
    hv_members_put(hv_members_has(&d->no_owner, i) ? &d->barred : &d->no_owner, i);
}

/* How many of those who are here ever said so. */
static size_t ever_missed_by(const hv_doubts *d, size_t i, const hv_members *here) {
  size_t n = 0;
  for (size_t j = 0; j < d->n; j++)
    n += hv_members_has(here, j) && hv_members_has(&d->voices[j].before, i);
  return n;
}

/* Said in two views it is a fact, and one of both must do with less: whom several cannot reach; else it may be either. Who owns
 * nothing is missed only for what it alone holds: that goes over somebody else then, unless more than a quarter have missed it. */
static void weigh_unseen(hv_doubts *d, const hv_members *here, size_t i) {
  hv_voice *alone = NULL;
  size_t n = not_reached_by(d, i, here, &alone);
  if (n == 0)
    return;
  if (hv_members_has(&d->no_owner, i) && ever_missed_by(d, i, here) > (d->n + 3) / 4)
    hv_members_put(&d->barred, i);
  else if (hv_members_has(&d->no_owner, i))
    hv_members_put(&d->no_owner, (size_t)(alone - d->voices));
  else if (n == 1 && alone->alone++)
    bar(d, alone);
  else
    hv_members_put(&d->no_owner, i);
}

static int is_charged(const hv_doubts *d, size_t who) {
  for (size_t j = 0; j < d->n; j++)
    if (hv_members_has(&d->voices[j].liars, who))
      return 1;
  return 0;
}

int hv_doubts_believes(const hv_doubts *d, size_t who) {
  return d->voices[who].mistaken < 2 && !hv_members_has(&d->no_owner, who) && !is_charged(d, who);
}

hv_members hv_doubts_missed(const hv_doubts *d) {
  hv_members missed = d->voices[d->me].unseen;
  for (size_t j = 0; j < d->n; j++)
    if (hv_doubts_believes(d, j))
      hv_members_join(&missed, &d->voices[j].unseen);
  return missed;
}

/* Whom somebody did not reach because it had broken off itself: with whom it had trouble is what it could not reach. It may say so
 * only when the others have said already that it is gone. */
static void hear_why(hv_doubts *d, const hv_members *here) {
  hv_members broke_off = {{0}};
  for (size_t i = 0; i < d->n; i++)
    for (size_t j = 0; j < d->n; j++)
      if (hv_members_has(here, i) && hv_members_has(here, j) && hv_members_has(&d->voices[j].unseen, i) &&
          had_trouble_with_others(d, i, j))
        hv_members_put(&broke_off, i);
  for (size_t i = 0; i < d->n; i++)
    if (hv_members_has(&broke_off, i))
      hv_members_join(&d->voices[i].unseen, &d->voices[i].named);
}

/* All of this view's charges count before the first of them costs anybody anything. */
static void hear_charges(hv_doubts *d, const hv_members *here) {
  for (size_t i = 0; i < d->n; i++)
    if (hv_members_has(here, i)) {
      hv_members_keep(&d->voices[i].liars, here);
      hv_members_join(&d->voices[i].charged, &d->voices[i].liars);
    }
}

void hv_doubts_weigh(hv_doubts *d, const hv_members *here) {
  hear_why(d, here);
  hear_charges(d, here);
  for (size_t i = 0; i < d->n; i++)
    if (hv_members_has(here, i)) {
      weigh_charges(d, here, i);
      weigh_unseen(d, here, i);
    }
  for (size_t i = 0; i < d->n; i++)
    if (hv_members_has(here, i)) {
      d->voices[i].mistaken += d->voices[i].mistaken_now;
      d->voices[i].mistaken_now = 0;
      d->voices[i].unseen = d->voices[i].named = d->voices[i].liars = (hv_members){{0}};
    }
}
