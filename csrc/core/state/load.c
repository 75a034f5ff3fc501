#include "core/state/load_inner.h"

#include <stdio.h>
#include <string.h>

enum {
  LOOK_MS = 15000,
  PAUSE_MS = 100,      /* between two looks; */
  PAUSES_ALIKE = 4,    /* so many, then twice as long, */
  PAUSE_DOUBLINGS = 5, /* so often: only a load that no vote decides makes as many */
  SILENCE_MS = 15000,
  BUSY_DOUBLINGS = 5, /* of silence_ms, between looks past busy donors */
  ALL_VOTE = 2,       /* from this group of voters on, strangers have votes */
  HAS_SOME = 2,       /* so many more where a part has come */
  DONORS = 4,
  LOOKS = 12,
  TIMEOUT_MS = 600000
};

static void load_look(hv_loader *l);

static uint64_t load_now(const hv_loader *l) {
  return l->env->now_us(l->env);
}

/* ---- the end ---- */

static void load_end(hv_loader *l, hv_status status, const char *format, ...) {
  va_list args;
  if (l->phase == LOAD_ENDING)
    return;
  va_start(args, format);
  vsnprintf(l->text, sizeof l->text, format, args);
  va_end(args);
  hv_text_clean(l->text);
  l->phase = LOAD_ENDING;
  l->status = status;
  hv_dht_cancel(l->dht, &l->op);
  l->env->timer_clear(l->env, &l->deadline);
  donor_remember_silent(l);
  for (size_t i = 0; i < l->n_donors; i++)
    donor_cut(l->donors[i]);
  voters_cancel(l);
  l->env->timer_set(l->env, &l->tick, 0); /* to tell it in a step of its own */
}

static void load_report(hv_loader *l) {
  hv_state_load *load = l->load;
  const load_donor *most = NULL;
  if (l->reported || l->n_jobs)
    return;
  l->reported = 1;
  for (size_t i = 0; i < l->n_donors; i++) {
    const load_donor *d = l->donors[i];
    l->seen.donors += d->n_good > 0;
    if (d->n_good && (!most || d->n_good > most->n_good))
      most = d;
  }
  if (l->has_manifest && l->status == HV_OK)
    hv_env_log(l->env, HV_LOG_DEBUG, "state", "state_loaded", "the state of swarm epoch %llu came: %llu bytes from %u peers",
               (unsigned long long)l->epoch, (unsigned long long)l->manifest.image, l->seen.donors);
  load->manifest = l->has_manifest ? &l->manifest : NULL;
  load->epoch = l->epoch;
  load->digest = l->digest;
  load->donor = most ? most->id : (hv_peer_id){{0}};
  load->seen = l->seen;
  load->loader = NULL;
  l->load = NULL;
  load->done(load, l->status, l->text);
}

static void load_settle(hv_loader *l) {
  if (l->phase != LOAD_ENDING)
    return;
  load_report(l);
  if (l->reported && !l->n_jobs && !l->n_asked_voters && !donor_any_stream(l))
    l->over(l->arg, l);
}

/* ---- the beginning of a choice, and its end ---- */

static void forget_choice(hv_loader *l) {
  for (size_t i = 0; i < l->n_donors; i++)
    hv_mem_free(l->donors[i]);
  l->n_donors = 0;
  if (l->has_manifest)
    hv_manifest_fini(&l->manifest);
  hv_mem_free(l->states);
  hv_mem_free(l->found);
  l->states = NULL;
  l->found = NULL;
  l->has_manifest = l->chosen = 0;
  l->n_todo = l->n_done = 0;
  l->came = l->size = 0;
  l->n_busy_looks = 0;
  l->seen.asked = l->seen.arrived = 0;
}

static void load_mind(hv_loader *l);

static void fetch(hv_loader *l) {
  l->phase = LOAD_FETCHING;
  l->fetching_us = l->widened_us = l->moved_us = load_now(l);
  load_mind(l);
}

/* It did not work out with what was announced: announcements are looked at again, later, a few times. */
static void look_again(hv_loader *l, hv_status status, const char *text) {
  if (donor_any_hope(l)) { /* it only looked past donors that are busy, and nothing else is to be had: they are waited for */
    l->n_busy_looks = 0;
    fetch(l);
    return;
  }
  if (l->looks_left == 0) {
    load_end(l, status, "%s", text);
    return;
  }
  l->looks_left -= status != HV_STATE; /* votes change with every epoch: they are counted again for all the load's time */
  l->phase = LOAD_PAUSE;
  l->env->timer_set(l->env, &l->tick, (uint64_t)PAUSE_MS * 1000 << l->n_pauses / PAUSES_ALIKE);
  l->n_pauses += l->n_pauses < PAUSES_ALIKE * PAUSE_DOUBLINGS;
}

static const char no_majority[] =
    "cannot load the state: the peers that offer one do not agree, and no state has a majority; name peers that you trust as "
    "initial peers, or try again later";

/* No vote decides. */
static void look_until_decided(hv_loader *l) {
  if (!l->warned && l->looks_left)
    hv_env_log(l->env, HV_LOG_WARN, "state", "state_undecided",
               "the peers that offer a state do not agree, and no state has a majority: looking again for at most %u s",
               l->timeout_ms / 1000);
  l->warned = l->undecided = 1;
  look_again(l, HV_STATE, no_majority);
}

/* Once nothing of the refused state is under way. */
static void look_for_another(hv_loader *l) {
  if (donor_any_stream(l) || l->n_jobs) {
    l->env->timer_set(l->env, &l->tick, LOAD_TICK_US);
    return;
  }
  l->refusing = 0;
  forget_choice(l);
  load_look(l);
}

static void load_refuse(hv_loader *l, hv_status status, const char *format, ...) {
  hv_state_load *load = l->load;
  va_list args;
  va_start(args, format);
  l->refused.status = status;
  vsnprintf(l->refused.text, sizeof l->refused.text, format, args);
  va_end(args);
  if (load->n_refused == HV_STATE_REFUSED_MAX) {
    load_end(l, status, "%s", l->refused.text);
    return;
  }
  load->refused[load->n_refused++] = l->digest;
  hv_env_log(l->env, HV_LOG_WARN, "state", "state_refused", "%s; looking for another state", l->refused.text);
  l->refusing = 1;
  donor_rest(l);
}

static int is_refused(const hv_state_load *load, const hv_hash *digest) {
  for (size_t i = 0; i < load->n_refused; i++)
    if (memcmp(&load->refused[i], digest, sizeof *digest) == 0)
      return 1;
  return 0;
}

/* ---- looking ---- */

static load_donor *donor_known(const hv_loader *l, const hv_peer_id *id) {
  for (size_t i = 0; i < l->n_donors; i++)
    if (hv_peer_equal(&l->donors[i]->id, id))
      return l->donors[i];
  return NULL;
}

static int donor_comes_before(const load_donor *a, const load_donor *b) {
  if (a->was_silent != b->was_silent)
    return b->was_silent;
  return a->priority != b->priority ? a->priority > b->priority : a->rank > b->rank;
}

/* Which place is given up when all are taken: that of one who is not asked again; else, in the half of those with the least
 * priority, that of the least rank: so a half is drawn by lot, whatever priorities are said. n_donors: none. */
static size_t place_to_give(const hv_loader *l) {
  size_t least = l->n_donors;
  for (size_t i = 0; i < l->n_donors; i++)
    if (l->donors[i]->state == DONOR_OUT)
      return i;
  for (size_t i = l->n_donors / 2; i < l->n_donors; i++)
    if (!l->donors[i]->n_good && (least == l->n_donors || l->donors[i]->rank < l->donors[least]->rank))
      least = i;
  return least;
}

/* Puts a donor in its place; when all places are taken one goes. While nobody is asked: between two looks. 0: no memory. */
static int donor_enter(hv_loader *l, const hv_ballot *ballot) {
  load_donor *d, made = {.loader = l, .id = ballot->signer, .priority = ballot->priority};
  made.was_silent = donor_was_silent(l, &made.id);
  l->env->random(l->env, &made.rank, sizeof made.rank);
  if (l->n_donors == HV_LOADER_KNOWN_MAX) {
    size_t at = place_to_give(l);
    int is_front = donor_comes_before(&made, l->donors[l->n_donors / 2 - 1]);
    if (at == l->n_donors || (l->donors[at]->state != DONOR_OUT && !is_front && made.rank < l->donors[at]->rank))
      return 1;
    d = l->donors[at];
    memmove(&l->donors[at], &l->donors[at + 1], (--l->n_donors - at) * sizeof *l->donors);
  } else
    d = hv_mem_alloc(l->env->mem, sizeof *d);
  if (!d)
    return 0;
  *d = made;
  size_t at = l->n_donors++;
  for (; at > 0 && donor_comes_before(d, l->donors[at - 1]); at--)
    l->donors[at] = l->donors[at - 1];
  l->donors[at] = d;
  return 1;
}

static int is_donor(const hv_loader *l, const hv_ballot *b) {
  return b->epoch == l->epoch && memcmp(&b->digest, &l->digest, sizeof b->digest) == 0 && b->addrs.size > 0;
}

/* It begins anew, unless it lied. */
static void renew(load_donor *d, const hv_ballot *b) {
  if (d->liar)
    return;
  d->state = DONOR_FRESH;
  d->failures = d->addr = 0;
  d->addrs_size = (uint8_t)b->addrs.size;
  memcpy(d->addrs, b->addrs.data, b->addrs.size);
}

/* Everybody who announces what was chosen and can be dialled; those that are known keep their places. 0: no memory. */
static int gather_donors(hv_loader *l, const hv_ballot *ballots, size_t n) {
  load_donor *d;
  for (size_t i = 0; i < n; i++)
    if (is_donor(l, &ballots[i]) && (d = donor_known(l, &ballots[i].signer)))
      renew(d, &ballots[i]);
  for (size_t i = 0; i < n; i++) {
    if (!is_donor(l, &ballots[i]) || donor_known(l, &ballots[i].signer))
      continue;
    if (!donor_enter(l, &ballots[i]))
      return 0;
    if ((d = donor_known(l, &ballots[i].signer)))
      renew(d, &ballots[i]);
  }
  return 1;
}

static void choose(hv_loader *l, const hv_ballot *ballots, size_t n, const hv_ballot *b) {
  if (l->chosen && (l->epoch != b->epoch || memcmp(&l->digest, &b->digest, sizeof b->digest) != 0)) {
    l->seen.restarts++;
    forget_choice(l);
  }
  l->chosen = 1;
  l->epoch = b->epoch;
  l->digest = b->digest;
  l->claimed = b->size < HV_MANIFEST_IMAGE_MAX ? b->size : HV_MANIFEST_IMAGE_MAX;
  if (l->load->only_look) {
    load_end(l, HV_OK, "%s", "");
    return;
  }
  if (!gather_donors(l, ballots, n)) {
    load_end(l, HV_NOMEM, "cannot load the state: no memory; raise the memory limit");
    return;
  }
  if (!donor_any_hope(l)) {
    look_again(l, HV_UNREACHABLE,
               "cannot load the state: no peer that offers it can be asked; they cannot be dialled, or no longer have it");
    return;
  }
  fetch(l);
}

/* Reads one announcement for each signer, from its own record; returns their number. */
static size_t read_ballots(const hv_loader *l, const hv_record *records, size_t n, hv_ballot *out) {
  size_t n_out = 0;
  for (size_t i = 0; i < n; i++) {
    char subkey[HV_BALLOT_SUBKEY_MAX];
    size_t size = hv_ballot_subkey(&records[i].signer, subkey);
    if (!records[i].has_subkey || !hv_peer_is_known(&records[i].signer) || hv_peer_equal(&records[i].signer, &l->config.me) ||
        !hv_span_equal(records[i].subkey, hv_span_of(subkey, size)) || hv_ballot_read(records[i].value, &out[n_out]) != HV_OK ||
        is_refused(l->load, &out[n_out].digest))
      continue;
    out[n_out].signer = records[i].signer;
    out[n_out].standing = l->config.standing ? l->config.standing(l->config.arg, &records[i].signer) : HV_STANDING_STRANGER;
    out[n_out].seen = 0;
    out[n_out++].network = 0;
  }
  return n_out;
}

/* Those who said that they are there, and those whom nobody can ask. */
static int may_be_there(voter_state state) {
  return state == VOTER_THERE || state == VOTER_UNASKED;
}

static int is_there(voter_state state) {
  return state == VOTER_THERE;
}

/* A silent one may only be far away. */
static int is_not_gone(voter_state state) {
  return state != VOTER_GONE;
}

static int any_donor(const hv_ballot *ballots, size_t n, const hv_ballot *chosen) {
  for (size_t i = 0; i < n; i++)
    if (ballots[i].addrs.size && ballots[i].epoch == chosen->epoch &&
        memcmp(&ballots[i].digest, &chosen->digest, sizeof chosen->digest) == 0)
      return 1;
  return 0;
}

/* Known peers decide, if they agree on a state that can be had; else all do, as where all donors of the last choice failed. */
static void decide(hv_loader *l, hv_ballot *ballots) {
  static const struct {
    hv_standing least;
    int (*counts)(voter_state);
  } groups[] = {{HV_STANDING_PARTNER, may_be_there},
                {HV_STANDING_PARTNER, is_there},
                {HV_STANDING_STRANGER, may_be_there},
                {HV_STANDING_STRANGER, is_there},
                {HV_STANDING_STRANGER, is_not_gone}};
  hv_status status = HV_NOT_FOUND;
  hv_ballot chosen = {.epoch = 0};
  size_t n = 0, choice;
  for (size_t i = l->chosen ? ALL_VOTE : 0; i < sizeof groups / sizeof *groups && status != HV_OK; i++) {
    n = voters_in(l, groups[i].counts, groups[i].least, ballots);
    hv_status said = hv_ballot_count(ballots, n, l->load->epoch_least, &choice);
    status = said == HV_OK || status == HV_NOT_FOUND ? said : status;
    if (status != HV_OK)
      continue;
    chosen = ballots[choice];
    n = voters_in(l, groups[i].counts, HV_STANDING_STRANGER, ballots); /* strangers may send what others have chosen */
    if (groups[i].least != HV_STANDING_STRANGER && !any_donor(ballots, n, &chosen))
      status = HV_NOT_FOUND;
  }
  l->seen.voters = (uint32_t)n;
  l->undecided = 0;
  if (status == HV_OK)
    choose(l, ballots, n, &chosen);
  else if (status == HV_STATE)
    look_until_decided(l);
  else if (l->refused.status != HV_OK)
    load_end(l, l->refused.status, "%s", l->refused.text);
  else if (l->chosen)
    look_again(l, HV_UNREACHABLE, "cannot load the state: all peers that offered it have left; try again later");
  else if (l->load->epoch_least > 0) { /* a caller that wants an epoch knows a peer there, which may offer it soon */
    char text[100];
    snprintf(text, sizeof text, "no peer offers a state of swarm epoch %llu or later: try again later",
             (unsigned long long)l->load->epoch_least);
    look_again(l, HV_NOT_FOUND, text);
  } else
    load_end(l, HV_NOT_FOUND,
             "no peer offers a state: no other peer shares one under this prefix, or none has announced it yet; try again later");
}

static void load_count(hv_loader *l) {
  hv_ballot *ballots = hv_mem_array(l->env->mem, l->n_voters, sizeof *ballots);
  if (ballots)
    decide(l, ballots);
  else
    load_end(l, HV_NOMEM, "cannot load the state: no memory; raise the memory limit");
  hv_mem_free(ballots);
}

static void load_looked(hv_dht_op *op, hv_status status, const char *text) {
  hv_loader *l = op->owner;
  if (l->phase != LOAD_LOOKING)
    return;
  if (status != HV_OK && status != HV_NOT_FOUND) {
    look_again(l, status, text);
    return;
  }
  size_t n = status == HV_OK ? op->n_records : 0;
  hv_ballot *ballots = hv_mem_array(l->env->mem, n, sizeof *ballots);
  if (ballots && voters_take(l, ballots, read_ballots(l, op->records, n, ballots)) == HV_OK)
    voters_ask(l);
  else
    load_end(l, HV_NOMEM, "cannot load the state: no memory; raise the memory limit");
  hv_mem_free(ballots);
}

static void load_look(hv_loader *l) {
  l->phase = LOAD_LOOKING;
  l->seen.looks++;
  l->op = (hv_dht_op){.done = load_looked, .owner = l, .key = hv_span_of(l->key, l->key_size), .timeout_ms = LOOK_MS, .latest = 1};
  hv_error why = {0};
  hv_status status = hv_dht_get(l->dht, &l->op, &why);
  if (status != HV_OK)
    load_looked(&l->op, status, why.text);
}

/* ---- time ---- */

/* All who are left have been busy for long: as joiners that came first make them, or for ever, on purpose, while the others have
 * moved on to another state. So whoever waits for them looks now and then whether there is another one; they are not given up. A
 * loader that has a part of a state would lose it, and may only wait for its turn: it looks later. */
static int look_past_busy(hv_loader *l) {
  unsigned doublings = l->n_busy_looks + (l->n_done ? HAS_SOME : 0);
  if (!donor_all_busy(l, l->config.silence_ms * UINT64_C(1000) << doublings))
    return 0;
  donor_rest(l);
  if (donor_any_stream(l) || l->n_jobs) {
    l->env->timer_set(l->env, &l->tick, LOAD_TICK_US);
    return 1;
  }
  l->n_busy_looks += l->n_busy_looks < BUSY_DOUBLINGS;
  load_look(l);
  return 1;
}

static void load_mind(hv_loader *l) {
  if (l->refusing && l->phase == LOAD_FETCHING) {
    l->env->timer_set(l->env, &l->tick, 0); /* in a step of its own, because donors are freed */
    return;
  }
  if (l->phase != LOAD_FETCHING || look_past_busy(l))
    return;
  donor_mind(l);
  if (l->phase != LOAD_FETCHING)
    return;
  if (donor_any_hope(l) || donor_any_stream(l) || l->n_jobs)
    l->env->timer_set(l->env, &l->tick, LOAD_TICK_US);
  else
    look_again(l, HV_UNREACHABLE, "cannot load the state: no peer that offers it answers any more; try again later");
}

static void load_tick(hv_timer *timer, const hv_event *event) {
  hv_loader *l = timer->owner;
  (void)event;
  if (l->phase == LOAD_PAUSE)
    load_look(l);
  else if (l->refusing && l->phase == LOAD_FETCHING)
    look_for_another(l);
  else
    load_mind(l);
  load_settle(l);
}

/* The time is over in which nothing right arrived. */
static void load_timeout(hv_timer *timer, const hv_event *event) {
  hv_loader *l = timer->owner;
  uint64_t timeout_us = l->timeout_ms * UINT64_C(1000), since_us = event->now_us - l->came_us;
  if (since_us < timeout_us)
    l->env->timer_set(l->env, timer, timeout_us - since_us);
  else if (l->has_manifest)
    load_end(l, HV_TIMEOUT, "cannot load the state: nothing arrived for %.4g s after %u of %zu chunks; allow more time",
             (double)timeout_us * 1e-6, l->n_done, l->manifest.n_chunks);
  else if (l->undecided)
    load_end(l, HV_STATE, "%s", no_majority);
  else
    load_end(l, HV_TIMEOUT, "cannot load the state: %s; allow more time",
             l->chosen ? "no peer that offers it sent its manifest in time" : "no state was chosen in time");
}

/* ---- life ---- */

static uint32_t or_else(uint32_t given, uint32_t usual) {
  return given ? given : usual;
}

static const load_reports reports = {load_end, load_settle, load_count, load_mind, load_refuse, donor_liar};

hv_status hv_loader_new(hv_env *env, const hv_state_config *config, hv_dht *dht, hv_state_load *load, hv_loader_memory *memory,
                        void (*over)(void *arg, hv_loader *self), void *arg, hv_loader **out, hv_error *err) {
  static const char suffix[] = ".state";
  hv_loader *l = hv_mem_zalloc(env->mem, sizeof *l + load->prefix.size + sizeof suffix);
  if (!l)
    return hv_fail(err, HV_NOMEM, "cannot load the state: no memory; raise the memory limit");
  l->env = env;
  l->on = &reports;
  l->config = *config;
  l->config.silence_ms = or_else(config->silence_ms, SILENCE_MS);
  l->config.looks = or_else(config->looks, LOOKS);
  l->config.donors = or_else(config->donors, DONORS);
  if (l->config.donors > HV_LOADER_DONORS_MAX)
    l->config.donors = HV_LOADER_DONORS_MAX;
  l->dht = dht;
  l->load = load;
  l->memory = memory;
  l->over = over;
  l->arg = arg;
  l->looks_left = load->only_look ? 0 : l->config.looks;
  memcpy(l->key, load->prefix.data, load->prefix.size);
  memcpy(l->key + load->prefix.size, suffix, sizeof suffix - 1);
  l->key_size = load->prefix.size + sizeof suffix - 1;
  l->deadline = (hv_timer){.fire = load_timeout, .owner = l};
  l->tick = (hv_timer){.fire = load_tick, .owner = l};
  load->kern = load->kern ? load->kern : hv_cpu_best();
  load->size_max = load->size_max ? load->size_max : HV_MANIFEST_IMAGE_MAX;
  load->loader = l;
  l->timeout_ms = or_else(load->timeout_ms, TIMEOUT_MS);
  l->came_us = load_now(l);
  env->timer_set(env, &l->deadline, (uint64_t)l->timeout_ms * 1000);
  l->phase = LOAD_PAUSE;
  env->timer_set(env, &l->tick, 0);
  *out = l;
  return HV_OK;
}

int hv_loader_is_of(const hv_loader *l, hv_span prefix) {
  return l->load && !l->load->only_look && hv_span_equal(l->load->prefix, prefix);
}

void hv_loader_look(const hv_loader *l, hv_state_loading *out) {
  *out = (hv_state_loading){.epoch = l->epoch, .came = l->came, .size = l->size};
  for (size_t i = 0; i < l->n_donors; i++)
    out->donors += l->donors[i]->state == DONOR_OPEN;
}

void hv_loader_cancel(hv_loader *l) {
  load_end(l, HV_CANCELLED, "the download of the state was cancelled");
  load_report(l);
}

void hv_loader_progress(const hv_loader *l, uint64_t *come, uint64_t *all) {
  *come = *all = 0;
  if (!l->has_manifest || l->refusing)
    return;
  *all = l->manifest.image;
  *come = l->n_done == l->manifest.n_chunks ? *all : (uint64_t)l->n_done * l->manifest.chunk_bytes;
  *come = *come < *all ? *come : *all;
}

void hv_loader_free(hv_loader *l) {
  check_forget(l);
  if (!l->reported) {
    load_end(l, HV_CLOSED, "cannot load the state: the node ended first");
    l->n_jobs = 0;
    load_report(l);
  }
  l->env->timer_clear(l->env, &l->deadline);
  l->env->timer_clear(l->env, &l->tick);
  forget_choice(l);
  voters_forget(l);
  hv_mem_free(l);
}
