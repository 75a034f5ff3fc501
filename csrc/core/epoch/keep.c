#include "core/epoch/keep.h"

const char *hv_keep_step_name(hv_keep_step step) {
  static const char *const names[] = {
#define HV_KEEP_STEP_NAME(name, text) #name,
      HV_KEEP_STEP_MAP(HV_KEEP_STEP_NAME)
#undef HV_KEEP_STEP_NAME
  };
  return (unsigned)step < HV_KEEP_STEPS ? names[step] : "?";
}

const char *hv_keep_verdict_name(hv_keep_verdict verdict) {
  static const char *const names[] = {
#define HV_KEEP_VERDICT_NAME(name, text) #name,
      HV_KEEP_VERDICT_MAP(HV_KEEP_VERDICT_NAME)
#undef HV_KEEP_VERDICT_NAME
  };
  return (unsigned)verdict < HV_KEEP_VERDICTS ? names[verdict] : "?";
}

const char *hv_keep_fault_name(hv_keep_fault fault) {
  static const char *const names[] = {
#define HV_KEEP_FAULT_NAME(name, text) #name,
      HV_KEEP_FAULT_MAP(HV_KEEP_FAULT_NAME)
#undef HV_KEEP_FAULT_NAME
  };
  return (unsigned)fault < HV_KEEP_FAULTS ? names[fault] : "?";
}

static uint64_t sum(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The newest epoch within reach (rule 6). */
static uint64_t newest(const hv_keep_trainers *now) {
  return now->any ? sum(now->epoch, HV_KEEP_AHEAD) : HV_GIFT_EPOCH_MAX;
}

/* The fault of a state by rule 6. */
static hv_keep_fault fault_of(const hv_keep_state *state, const hv_keep_trainers *now) {
  if (state->epoch > newest(now))
    return now->any ? HV_KEEP_FAULT_AHEAD : HV_KEEP_FAULT_UNREACHED;
  if (now->any && now->setup.size && !hv_span_equal(state->setup, now->setup))
    return HV_KEEP_FAULT_SETUP;
  return HV_KEEP_FAULT_NONE;
}

/* The epoch of the next state after the one held (rule 1). */
static uint64_t next(const hv_keep *k) {
  return sum(k->held.epoch, k->every);
}

void hv_keep_init(hv_keep *k, uint64_t every) {
  *k = (hv_keep){.every = every, .pause_us = HV_KEEP_FIRST_US};
}

void hv_keep_hold(hv_keep *k, const hv_keep_state *state) {
  k->holds = 1;
  k->held = *state;
}

int hv_keep_are_counted(int fetched, size_t n_peers) {
  return fetched && n_peers;
}

uint64_t hv_keep_least(const hv_keep *k, const hv_keep_trainers *now) {
  if (!k->holds)
    return 0;
  return fault_of(&k->held, now) ? 1 : next(k); /* rule 8: from the trainers' first state of epoch 1 on */
}

int hv_keep_has_room(size_t in_use) {
  return in_use < HV_KEEP_STATES;
}

/* Nobody else makes a newer state than the trainers. While nobody is counted a held one stays, and the first one may be left from
 * trainers that have gone (rule 6). */
static int may_be_there(const hv_keep *k, const hv_keep_trainers *now) {
  return now->any ? newest(now) >= k->least : !k->holds;
}

hv_keep_step hv_keep_look(hv_keep *k, const hv_keep_trainers *now, size_t in_use) {
  k->least = hv_keep_least(k, now);
  k->most = newest(now);
  /* trainers that are counted there are what a joiner knows of an epoch: a smaller majority is enough (rule 7) */
  k->known = now->any && now->epoch >= k->least ? k->least : 0;
  return hv_keep_has_room(in_use) && may_be_there(k, now) ? HV_KEEP_STEP_LOOK : HV_KEEP_STEP_REST;
}

hv_keep_step hv_keep_found(hv_keep *k, uint64_t epoch) {
  if (epoch > k->most && k->known) { /* beyond the trainers' epoch the usual majority decides (rule 7) */
    k->known = 0;
    return HV_KEEP_STEP_LOOK;
  }
  return epoch >= k->least && epoch <= k->most ? HV_KEEP_STEP_LOAD : HV_KEEP_STEP_REST;
}

void hv_keep_looked(hv_keep *k, int has_come, uint64_t took_us) {
  if (has_come) /* a state that takes long to download is not downloaded all of the time (rule 5) */
    k->pause_us = took_us > HV_KEEP_FIRST_US ? took_us : HV_KEEP_FIRST_US;
  else /* rule 1 */
    k->pause_us = k->pause_us >= HV_KEEP_MOST_US * 2 / 3 ? HV_KEEP_MOST_US : k->pause_us * 3 / 2;
}

hv_keep_verdict hv_keep_judge(const hv_keep *k, const hv_keep_state *state, const hv_keep_trainers *now, hv_keep_fault *fault) {
  *fault = fault_of(state, now);
  if (*fault) /* rule 6 */
    return HV_KEEP_VERDICT_REFUSE;
  if (state->epoch < hv_keep_least(k, now))
    return HV_KEEP_VERDICT_OLD;
  if (!k->holds || state->epoch >= next(k))
    return HV_KEEP_VERDICT_KEEP;
  *fault = fault_of(&k->held, now); /* rule 8 */
  return HV_KEEP_VERDICT_REPLACE;
}
