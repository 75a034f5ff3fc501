#include "core/state/want.h"

#include "core/peers/contact.h"
#include "core/peers/spoken.h"
#include "core/state/demand.h"

#include <string.h>

enum { LOOK_MS = 15000, ANSWER_MS = 2000, TURNS = 3 };

/* A peer that is declared as a donor. */
typedef struct want_donor {
  hv_wanting *wanting;
  hv_peer_id id;
  hv_call call;
  hv_addr addrs[HV_WANTING_ADDRS];
  size_t n_addrs, at; /* at: the address in use */
  int was_greeted;    /* an Echo has shown what it speaks */
  int answered;       /* in this turn */
  uint64_t number;    /* its answer */
} want_donor;

struct hv_wanting {
  hv_env *env;
  hv_peer_id me;
  hv_dht *dht;
  hv_state_want *want; /* NULL after its done */
  void (*over)(void *arg, hv_wanting *self);
  void *arg;
  hv_dht_op op;
  hv_timer end;
  want_donor *donors;
  size_t n_donors, n_calls;
  unsigned turn;
  uint64_t number;
  size_t key_size;
  uint8_t key[HV_DEMAND_KEY_MAX];
};

/* ---- the end ---- */

static void want_finish(hv_wanting *w, hv_status status, const char *text) {
  hv_state_want *want = w->want;
  if (want) {
    w->want = NULL;
    want->wanting = NULL;
    want->number = w->number;
    want->done(want, status, text);
  }
  if (w->n_calls == 0 && !w->op.work)
    w->env->timer_set(w->env, &w->end, 0);
}

static void want_over(hv_timer *timer, const hv_event *event) {
  hv_wanting *w = timer->owner;
  (void)event;
  w->over(w->arg, w);
}

/* ---- asking ---- */

static void want_answered(hv_call *call, const hv_event *event);

/* Asks at the address in use: an Echo if it is not known whether the donor understands the request. 0: there is no such address. */
static int want_ask(want_donor *d) {
  hv_wanting *w = d->wanting;
  hv_msg wanted = {.kind = HV_MSG_STATE_WANTED,
                   .u.state_wanted = {hv_span_of(w->key, w->key_size - (sizeof HV_DEMAND_SUFFIX - 1)), w->number}},
         echo = {.kind = HV_MSG_ECHO};
  int knows = (hv_spoken_of(w->env, &d->id).features & HV_FEATURE_STATE_WANTED) != 0;
  if (!knows && d->was_greeted) /* an older build */
    return 0;
  for (; d->at < d->n_addrs; d->at++) {
    d->call = (hv_call){.done = want_answered, .owner = d, .to = {d->id, d->addrs[d->at]}, .timeout_ms = ANSWER_MS};
    if (w->env->call(w->env, &d->call, knows ? &wanted : &echo) == HV_OK) {
      w->n_calls++;
      return 1;
    }
  }
  return 0;
}

static void want_ask_all(hv_wanting *w);

/* The number that most donors would take: a donor takes the one that it named, and those that are little above. */
static uint64_t best_number(const hv_wanting *w) {
  uint64_t best = w->number;
  size_t most = 0;
  for (const want_donor *d = w->donors; d < w->donors + w->n_donors; d++) {
    size_t n = 0;
    for (const want_donor *other = w->donors; other < w->donors + w->n_donors; other++)
      n += other->answered && other->number <= d->number && d->number - other->number <= HV_DEMAND_AHEAD_MS;
    if (d->answered && (n > most || (n == most && d->number > best))) {
      most = n;
      best = d->number;
    }
  }
  return best;
}

static void want_count(hv_wanting *w) {
  size_t answered = 0, agree = 0;
  for (size_t i = 0; i < w->n_donors; i++) {
    answered += w->donors[i].answered;
    agree += w->donors[i].answered && w->donors[i].number == w->number;
  }
  if (w->want)
    w->want->n_donors = agree;
  if (answered && agree * 2 <= answered && w->turn < TURNS) {
    w->number = best_number(w);
    want_ask_all(w);
  } else if (agree)
    want_finish(w, HV_OK, "");
  else if (answered)
    want_finish(w, HV_STATE, "the peers that give a state on demand do not agree on its number: try again later");
  else
    want_finish(w, HV_UNREACHABLE, "none of the peers that give a state on demand could be asked: try again later");
}

static void want_settle(hv_wanting *w) {
  if (w->n_calls)
    return;
  if (w->want)
    want_count(w);
  else
    want_finish(w, HV_OK, "");
}

static void want_answered(hv_call *call, const hv_event *event) {
  want_donor *d = call->owner;
  hv_wanting *w = d->wanting;
  int again = 0;
  w->n_calls--;
  if (w->want && event->status == HV_OK && event->msg->kind == HV_MSG_STATE_WANTED) {
    d->answered = 1;
    d->number = event->msg->u.state_wanted.number;
  } else if (w->want && event->status == HV_OK && event->msg->kind == HV_MSG_ECHO && !d->was_greeted) {
    d->was_greeted = 1;
    again = 1;
  } else if (event->status != HV_OK && event->status != HV_TIMEOUT && event->status != HV_NOT_FOUND) {
    d->at++; /* nothing answers there */
    again = 1;
  }
  if (w->want && again)
    want_ask(d);
  want_settle(w);
}

static void want_ask_all(hv_wanting *w) {
  w->turn++;
  for (size_t i = 0; i < w->n_donors; i++) {
    want_donor *d = &w->donors[i];
    int is_asked = w->turn == 1 || d->answered;
    d->answered = 0;
    if (is_asked)
      want_ask(d);
  }
  want_settle(w);
}

/* ---- searching ---- */

/* True if the record is a declaration of its own signer, which is another peer; then *addrs is where to ask it. */
static int want_read(const hv_wanting *w, const hv_record *record, hv_span *addrs) {
  char subkey[HV_BALLOT_SUBKEY_MAX];
  size_t size = hv_ballot_subkey(&record->signer, subkey);
  return record->has_subkey && hv_peer_is_known(&record->signer) && !hv_peer_equal(&record->signer, &w->me) &&
         hv_span_equal(record->subkey, hv_span_of(subkey, size)) && hv_demand_read(record->value, addrs) == HV_OK;
}

/* The donors among the records: of too many, some by lot. HV_NOMEM. */
static hv_status want_take(hv_wanting *w, const hv_record *records, size_t n) {
  uint32_t from = 0;
  hv_span packed;
  w->env->random(w->env, &from, sizeof from);
  w->donors = hv_mem_array(w->env->mem, n < HV_WANTING_ASKED_MAX ? n : HV_WANTING_ASKED_MAX, sizeof *w->donors);
  if (!w->donors)
    return HV_NOMEM;
  for (size_t k = 0; k < n && w->n_donors < HV_WANTING_ASKED_MAX; k++) {
    const hv_record *record = &records[(from + k) % n];
    if (!want_read(w, record, &packed))
      continue;
    want_donor *d = &w->donors[w->n_donors++];
    *d = (want_donor){.wanting = w, .id = record->signer};
    d->n_addrs = hv_contact_unpack(packed, d->addrs, HV_WANTING_ADDRS);
  }
  return HV_OK;
}

static void want_looked(hv_dht_op *op, hv_status status, const char *text) {
  hv_wanting *w = op->owner;
  if (!w->want) {
    want_finish(w, HV_OK, "");
    return;
  }
  if (status != HV_OK && status != HV_NOT_FOUND) {
    want_finish(w, status, text);
    return;
  }
  if (want_take(w, op->records, status == HV_OK ? op->n_records : 0) != HV_OK)
    want_finish(w, HV_NOMEM, "cannot ask for a state: no memory; raise the memory limit");
  else if (w->n_donors == 0)
    want_finish(w, HV_NOT_FOUND, "no peer gives a state on demand under this prefix");
  else
    want_ask_all(w);
}

/* ---- life ---- */

hv_status hv_wanting_new(hv_env *env, const hv_peer_id *me, hv_dht *dht, hv_state_want *want,
                         void (*over)(void *arg, hv_wanting *self), void *arg, hv_wanting **out, hv_error *err) {
  hv_wanting *w = hv_mem_zalloc(env->mem, sizeof *w);
  if (!w)
    return hv_fail(err, HV_NOMEM, "cannot ask for a state: no memory; raise the memory limit");
  *w = (hv_wanting){.env = env, .me = *me, .dht = dht, .want = want, .over = over, .arg = arg, .number = want->number};
  w->end = (hv_timer){.fire = want_over, .owner = w};
  w->key_size = hv_demand_key(want->prefix, w->key);
  w->op = (hv_dht_op){.done = want_looked, .owner = w, .key = hv_span_of(w->key, w->key_size), .timeout_ms = LOOK_MS, .latest = 1};
  hv_status status = hv_dht_get(dht, &w->op, err);
  if (status != HV_OK) {
    hv_mem_free(w);
    return status;
  }
  want->wanting = w;
  want->n_donors = 0;
  *out = w;
  return HV_OK;
}

void hv_wanting_cancel(hv_wanting *w) {
  if (!w->want)
    return;
  for (size_t i = 0; i < w->n_donors && w->n_calls; i++)
    if (w->donors[i].call.done)
      w->env->call_cancel(w->env, &w->donors[i].call);
  hv_state_want *want = w->want;
  w->want = NULL;
  want->wanting = NULL;
  want->done(want, HV_CANCELLED, "the search for donors was cancelled");
  if (w->op.work)
    hv_dht_cancel(w->dht, &w->op);
  else if (w->n_calls == 0)
    want_finish(w, HV_OK, "");
}

void hv_wanting_free(hv_wanting *w) {
  hv_state_want *want = w->want;
  w->want = NULL;
  w->env->timer_clear(w->env, &w->end);
  if (w->op.work)
    hv_dht_cancel(w->dht, &w->op);
  w->env->timer_clear(w->env, &w->end);
  if (want) {
    want->wanting = NULL;
    want->done(want, HV_CLOSED, "the node has ended");
  }
  hv_mem_free(w->donors);
  hv_mem_free(w);
}
