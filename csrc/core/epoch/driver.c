/* The machine on a node (contract in driver.h). */
#include "core/epoch/driver.h"
#include "core/epoch/facts.h"
#include "core/epoch/keep.h"
#include "core/epoch/word.h"

#include <stdio.h>
#include <string.h>

_Static_assert(HV_EPOCH_STAMPS == HV_STEP_LOG_STAMPS && HV_EPOCH_ENTRIES == HV_STEP_LOG_ENTRIES, "as the log has them");
_Static_assert(HV_MARK_SIZE == HV_BALLOT_LINEAGE, "a mark is a lineage");

enum {
  TEXT_MAX = 24,
  LOOK_US = 50000 /* without hands: between two looks at the run */
};

typedef struct round_of {
  hv_average *average;
  hv_average_step step;
  int is_under_way, is_void; /* is_void: its end tells nothing */
  int is_given_up;
  int listens;
  uint64_t begun_us; /* its trigger */
  uint8_t word[HV_WORD_MAX];
  char epoch[TEXT_MAX];
  uint64_t number;
} round_of;

struct hv_epoch_driver {
  hv_epoch machine;
  hv_lineage lineage;
  hv_epoch_ledger ledger;
  hv_epoch_driver_config config;
  hv_state *state;
  hv_givers *givers;
  hv_takers *takers;
  hv_env *env;
  hv_progress *progress;
  hv_timer timer;
  round_of rounds[HV_EPOCH_ROUNDS];
  hv_state_load load;
  hv_gift_wait asking;
  int waits_for_hub;
  uint64_t look_us;
  hv_epoch_gift gift; /* to the hubs of the latest group of gradients that expects one */
  size_t n_members;   /* of the latest group of gradients */
  uint64_t met_epoch;
  hv_progress_figures figures; /* of the event under way */
  int is_loading, only_look, is_busy, is_leaving, is_told_over;
  hv_step_log *log; /* NULL: it keeps and repeats nothing */
  int log_stops;
  hv_payload *own; /* what the log will have of a step of its own, which the hands make now; NULL: it is none */
  hv_step_log_facts own_facts;
  uint64_t own_number; /* of that action */
  uint64_t comes;      /* 1 + the epoch of the state whose bytes begin to come; 0: the machine knows */
  uint64_t wanted;     /* the epoch whose entry the machine waits for */
  int wants;
  hv_lineage_member members[HV_EPOCH_MEMBERS];
};

static void drives(hv_epoch_driver *d, hv_epoch_event *event);

static uint64_t now_of(const hv_epoch_driver *d) {
  return d->env->now_us(d->env);
}

/* ---- progress ---- */

static void own(void *arg, hv_progress_own *out) {
  hv_epoch_driver *d = arg;
  hv_epoch_report(&d->machine, 0, out);
}

static void time_passes(hv_epoch_driver *d) {
  hv_epoch_event event = {.kind = HV_EPOCH_TIME};
  if (d->comes) {
    event = (hv_epoch_event){.kind = HV_EPOCH_LOADS, .epoch = d->comes - 1};
    d->comes = 0;
  } else if (!d->config.hands.act && hv_epoch_is_free(&d->machine) && now_of(d) >= d->look_us) {
    event.kind = HV_EPOCH_BATCH;
    d->look_us = now_of(d) + LOOK_US; /* also where each look ends at once */
  }
  drives(d, &event);
}

static void counted(void *arg, const hv_progress_view *view) {
  (void)view;
  hv_epoch_driver *d = arg;
  if (d->progress && !d->is_busy) /* else the event under way has its own reading */
    d->env->timer_set(d->env, &d->timer, 0);
}

static void fires(hv_timer *timer, const hv_event *event) {
  (void)event;
  time_passes(timer->owner);
}

static void progress_ended(void *arg) {
  hv_epoch_driver *d = arg;
  d->env->timer_clear(d->env, &d->timer);
  d->progress = NULL;
}

/* ---- rounds ---- */

/* All choose the same giver, whose state comes under a ticket that all know (lineage, rule 13). */
static void hub_hears(hv_epoch_driver *d, const hv_epoch_met *round) {
  hv_peer_id right[HV_EPOCH_MEMBERS];
  uint8_t ticket[HV_GIFT_TICKET];
  size_t n_right = 0;
  hv_lineage_view view = hv_lineage_view_of(round->members, round->n_members);
  for (size_t i = 0; i < round->n_members; i++)
    if (hv_lineage_is_right(&view, &round->members[i]))
      right[n_right++] = round->members[i].peer;
  hv_lineage_ticket(d->env, round->number, round->members, round->n_members, ticket);
  hv_takers_met(d->takers, d->config.state_key, round->number, right, n_right, view.giver ? &view.giver->peer : NULL, ticket, NULL);
}

static void has_met(hv_epoch_driver *d, const hv_epoch_met *round) {
  if (round->status == HV_OK && round->which == HV_EPOCH_GRADIENTS && d->takers)
    hub_hears(d, round);
  if (d->config.hands.met)
    d->config.hands.met(d->config.hands.arg, round);
}

/* The hands may free the driver later on. */
static void looks_whether_over(hv_epoch_driver *d) {
  if (d->is_busy || d->is_told_over || !hv_epoch_driver_is_over(d))
    return;
  d->is_told_over = 1;
  if (d->config.hands.over)
    d->config.hands.over(d->config.hands.arg);
}

/* ---- the log ---- */

/* Rule 6 of docs/design/log.md. A peer with another replica than the swarm's keeps none. */
static void keeps(hv_epoch_driver *d, uint64_t epoch, const hv_epoch_facts *facts, hv_payload *chunks) {
  hv_lineage_view view = hv_lineage_view_of(d->members, facts->n_members);
  int is_mine = !d->machine.traits.has_replica || hv_mark_equal(&d->machine.lineage->mark, &view.swarms);
  if (!d->log || !d->config.log_memory)
    return;
  hv_step_log_facts entry = {.epoch = epoch, .stamps = {facts->stamp}, .n_stamps = 1};
  memcpy(entry.before, view.swarms.bytes, HV_BALLOT_LINEAGE);
  /* one that has no place is missing there, as it would be later */
  hv_step_log_add(d->log, &entry, facts->stamp && view.any && is_mine ? chunks : NULL);
}

/* Rule 1 of docs/design/lone-peers.md. */
static void begins_own(hv_epoch_driver *d, const hv_epoch_order *order) {
  hv_average *gradients = d->rounds[HV_EPOCH_GRADIENTS].average;
  d->own_number = order->number;
  d->own_facts = (hv_step_log_facts){.epoch = d->machine.end.epoch, .n_stamps = 1};
  memcpy(d->own_facts.before, d->machine.lineage->mark.bytes, HV_BALLOT_LINEAGE);
  if (!d->log || !d->config.log_memory || hv_average_keep(gradients, &d->own, &d->own_facts.stamps[0], NULL) != HV_OK)
    d->own = NULL;
}

static void has_made_own(hv_epoch_driver *d, hv_epoch_event *event) {
  if (!d->own || d->own_number != event->number)
    return;
  if (event->ok > 0) {
    event->step.stamps = d->own_facts.stamps;
    event->step.n_stamps = 1;
    if (d->log)
      hv_step_log_add(d->log, &d->own_facts, d->own);
  }
  hv_payload_release(d->own);
  d->own = NULL;
}

static void tells_entry(hv_epoch_driver *d) {
  hv_step_log_facts facts;
  hv_payload *chunks;
  if (!d->log || !d->wants)
    return;
  hv_step_log_standing standing = hv_step_log_look(d->log, d->wanted, &facts, &chunks);
  hv_epoch_event event = {.kind = HV_EPOCH_ENTRY, .epoch = d->wanted, .ok = standing == HV_STEP_LOG_THERE};
  if (standing != HV_STEP_LOG_THERE && standing != HV_STEP_LOG_LOST)
    return;
  if (event.ok) {
    event.has_mark = 1;
    memcpy(event.mark.bytes, facts.before, sizeof event.mark.bytes);
    event.step.stamps = facts.stamps;
    event.step.n_stamps = facts.n_stamps;
  }
  drives(d, &event);
}

static void log_changed(void *arg) {
  tells_entry(arg);
}

static void wants(hv_epoch_driver *d, const hv_epoch_order *order) {
  if (!d->log)
    return;
  d->wanted = order->epoch;
  d->wants = order->number > order->epoch;
  hv_step_log_want(d->log, order->epoch, order->number, order->number - (uint64_t)order->ask, order->samples);
  tells_entry(d);
}

hv_payload *hv_epoch_driver_entry(hv_epoch_driver *d, const hv_epoch_order *order) {
  hv_payload *chunks = NULL;
  int is_there = d->log && hv_step_log_look(d->log, order->epoch, NULL, &chunks) == HV_STEP_LOG_THERE;
  return is_there ? chunks : NULL;
}

static void log_is_over(void *arg) {
  hv_epoch_driver *d = arg;
  hv_step_log_free(d->log);
  d->log = NULL;
  looks_whether_over(d);
}

static void log_stops(hv_epoch_driver *d) {
  if (!d->log || d->log_stops)
    return;
  d->log_stops = 1;
  hv_step_log_stop(d->log, log_is_over, d);
}

/* 0: nothing is averaged that others could step with. */
static int has_log(const hv_epoch_driver *d) {
  hv_epoch_traits traits = hv_epoch_traits_of(&d->config.epoch.options);
  int is_used = d->config.log_memory || d->config.epoch.state_bytes;
  return is_used && d->config.averages[HV_EPOCH_GRADIENTS] && traits.sums && !d->config.epoch.differs;
}

static hv_status opens_log(hv_epoch_driver *d, hv_error *err) {
  if (!has_log(d))
    return HV_OK;
  d->config.epoch.entry_bytes = d->config.epoch.state_bytes ? hv_average_kept_size(d->config.averages[HV_EPOCH_GRADIENTS]) : 0;
  return hv_step_log_new(d->env, d->state, &(hv_step_log_config){d->config.state_key, d->config.log_memory, log_changed, d},
                         &d->log, err);
}

/* It has the average of this epoch, for the replica of the others. */
static void has_listened(hv_epoch_driver *d, uint64_t epoch, const hv_epoch_facts *facts, hv_payload *chunks) {
  hv_lineage_view view = hv_lineage_view_of(d->members, facts->n_members);
  hv_step_log_facts entry = {.epoch = epoch, .stamps = {facts->stamp}, .n_stamps = 1};
  memcpy(entry.before, view.swarms.bytes, HV_BALLOT_LINEAGE);
  if (d->log && facts->outcome == HV_EPOCH_CONFIRMED && view.any && chunks)
    hv_step_log_hear(d->log, &entry, chunks);
}

static void round_over(hv_average_step *step, hv_status status, const char *text, const hv_average_outcome *outcome) {
  hv_epoch_driver *d = step->owner;
  hv_epoch_which which = step == &d->rounds[HV_EPOCH_GRADIENTS].step ? HV_EPOCH_GRADIENTS : HV_EPOCH_REPLICA_STATE;
  round_of *r = &d->rounds[which];
  hv_epoch_round round = {.which = which,
                          .status = status,
                          .parts = outcome,
                          .n_parts = 1,
                          .has_group = outcome->n_members > 0,
                          .is_given_up = r->is_given_up,
                          .has_replica = d->machine.traits.has_replica,
                          .counts_others = !d->machine.traits.has_replica && !d->machine.end.with_hub,
                          .alike = 1}; /* after a failure: of copies, which only an average replaces */
  if (which == HV_EPOCH_REPLICA_STATE && status == HV_OK && d->config.hands.act)
    round.alike = !outcome->changed && d->config.hands.were_alike(d->config.hands.arg, &d->machine.lineage->mark);
  hv_epoch_facts facts = hv_epoch_facts_of(&round, d->members);
  hv_epoch_event event = hv_epoch_round_event(&round, &facts, d->members);
  event.took_us = now_of(d) - r->begun_us;
  int is_void = r->is_void;
  r->is_under_way = r->is_void = 0;
  if (r->listens) {
    has_listened(d, r->number, &facts, outcome->kept);
    if (is_void)
      looks_whether_over(d);
    else
      drives(d, &event);
    return;
  }
  if (which == HV_EPOCH_GRADIENTS && facts.outcome == HV_EPOCH_CONFIRMED)
    keeps(d, r->number, &facts, outcome->kept);
  if (which == HV_EPOCH_REPLICA_STATE && status == HV_OK && !event.ok && d->log)
    hv_step_log_end(d->log); /* the state has changed by another average than that of gradients */
  if (which == HV_EPOCH_GRADIENTS) {
    d->n_members = facts.n_members;
    d->met_epoch = r->number;
  }
  if (which == HV_EPOCH_GRADIENTS && status == HV_OK && hv_average_awaits(r->average, r->number + 1))
    drives(d, &(hv_epoch_event){.kind = HV_EPOCH_WANTED, .epoch = r->number + 1});
  has_met(d, &(hv_epoch_met){which, r->number, status, text, d->members, facts.n_members, facts.n_trainers, outcome->missed,
                             outcome->n_missed});
  if (is_void)
    looks_whether_over(d);
  else
    drives(d, &event);
}

/* An averager does one step at a time: one that was cancelled may still end. A peer that cannot seek meets nobody. */
static void seeks(hv_epoch_driver *d, const hv_epoch_order *order) {
  round_of *r = &d->rounds[order->which];
  hv_epoch_event event = {.kind = HV_EPOCH_ROUND, .which = order->which, .outcome = HV_EPOCH_NOBODY, .ok = 1};
  if (r->average && !r->is_under_way) {
    r->number = order->epoch;
    int n = snprintf(r->epoch, sizeof r->epoch, "%llu", (unsigned long long)order->epoch);
    hv_word word = hv_lineage_word(d->machine.lineage);
    r->listens = order->ask;
    r->step = (hv_average_step){.done = round_over,
                                .owner = d,
                                .epoch = hv_span_of(r->epoch, (size_t)n),
                                .weight = d->machine.traits.has_replica && !order->ask,
                                .gather = !order->ask && hv_epoch_has_word(&d->machine, order->which)
                                              ? hv_span_of(r->word, hv_word_write(&word, r->word))
                                              : HV_WORD_NONE,
                                .wait_ms = (uint32_t)(order->wait_us / 1000),
                                .timeout_ms = (uint32_t)(order->timeout_us / 1000),
                                .require_trigger = !order->ask,
                                .listens = order->ask,
                                .keep = order->ask || (d->log && d->config.log_memory && order->which == HV_EPOCH_GRADIENTS),
                                .repeats = d->machine.traits.carries};
    r->is_under_way = hv_average_start(r->average, &r->step, NULL) == HV_OK;
    r->is_void = r->is_given_up = 0;
    if (r->is_under_way)
      return;
  }
  drives(d, &event);
}

static void triggers(hv_epoch_driver *d, const hv_epoch_order *order) {
  round_of *r = &d->rounds[order->which];
  if (!r->is_under_way)
    return;
  if (d->machine.traits.has_replica && order->which == HV_EPOCH_GRADIENTS)
    hv_average_set_weight(r->average, &r->step, (float)order->samples);
  if (order->ask)
    hv_average_send_narrow(r->average, &r->step);
  r->begun_us = now_of(d);
  hv_average_trigger(r->average, &r->step);
}

static void cancels(hv_epoch_driver *d, hv_epoch_which which) {
  round_of *r = &d->rounds[which];
  if (!r->is_under_way)
    return;
  r->is_void = !hv_epoch_awaits_round(&d->machine, which);
  hv_average_cancel(r->average, &r->step);
}

static void gives_up(hv_epoch_driver *d, hv_epoch_which which) {
  round_of *r = &d->rounds[which];
  if (!r->is_under_way)
    return;
  r->is_given_up = 1; /* the step may end within this call */
  hv_average_give_up(r->average, &r->step);
}

/* ---- states ---- */

static uint8_t *room(hv_state_load *load, const hv_manifest *manifest) {
  hv_epoch_driver *d = load->owner;
  d->comes = 1 + manifest->epoch; /* the machine hears it after this call of the load's */
  if (d->progress)
    d->env->timer_set(d->env, &d->timer, 0);
  return d->config.hands.room(d->config.hands.arg, manifest);
}

static void load_over(hv_state_load *load, hv_status status, const char *text) {
  hv_epoch_driver *d = load->owner;
  hv_epoch_event event = {.kind = d->only_look ? HV_EPOCH_LOOKED : HV_EPOCH_LOADED, .epoch = load->epoch, .ok = status == HV_OK};
  (void)text;
  d->is_loading = 0;
  d->comes = 0;
  if (event.ok && !d->only_look)
    event.ok = event.has_mark = d->config.hands.mark(d->config.hands.arg, load->manifest, &event.mark);
  drives(d, &event);
}

static void loads(hv_epoch_driver *d, const hv_epoch_order *order, int only_look) {
  hv_epoch_event event = {.kind = only_look ? HV_EPOCH_LOOKED : HV_EPOCH_LOADED};
  if (!d->is_loading) {
    d->only_look = only_look;
    d->load = (hv_state_load){.done = load_over,
                              .room = room,
                              .owner = d,
                              .prefix = d->config.state_key,
                              .timeout_ms = only_look ? (uint32_t)(order->wait_us / 1000) : d->config.load_ms,
                              .epoch_least = order->epoch,
                              .only_look = only_look};
    d->is_loading = hv_state_load_start(d->state, &d->load, NULL) == HV_OK;
    if (d->is_loading)
      return;
  }
  drives(d, &event);
}

static void waits_for_hub(hv_epoch_driver *d);

static void gives(hv_epoch_driver *d, const hv_epoch_order *order) {
  const hv_epoch_hands *hands = &d->config.hands;
  const hv_mark *mark = &d->machine.lineage->mark;
  if (order->ask)
    hands->give(hands->arg, order->epoch, mark, NULL, 0, NULL);
  else
    hands->give(hands->arg, order->epoch, mark, d->gift.hubs, d->gift.n, d->gift.ticket);
  waits_for_hub(d); /* the next request counts once this gift is over, or if it was not begun */
}

static void offers(hv_epoch_driver *d, const hv_epoch_order *order) {
  hv_epoch_event event = {.kind = HV_EPOCH_OFFERED, .epoch = order->epoch};
  int begun = !d->config.epoch.reachable; /* a state that nobody can download has no vote; it goes to hubs */
  if (d->config.epoch.reachable)
    begun = d->config.hands.offer(d->config.hands.arg, order->epoch, &d->machine.lineage->mark);
  if (!begun)
    drives(d, &event);
}

static void hub_asks(hv_gift_wait *wait, hv_status status, const char *text) {
  hv_epoch_driver *d = wait->owner;
  hv_epoch_event event = {.kind = HV_EPOCH_WANTED, .epoch = wait->least, .ok = 1};
  (void)text;
  d->waits_for_hub = 0;
  if (status == HV_OK)
    drives(d, &event);
}

/* A peer that nobody can dial gives its state to hubs that ask. */
static void waits_for_hub(hv_epoch_driver *d) {
  if (d->waits_for_hub || d->is_leaving || !d->config.client_mode || !d->machine.traits.has_replica)
    return;
  d->asking = (hv_gift_wait){.done = hub_asks, .owner = d, .prefix = d->config.state_key, .is_urgent = d->asking.is_urgent};
  d->waits_for_hub = hv_givers_wait(d->givers, &d->asking, NULL) == HV_OK;
}

/* ---- orders ---- */

static void goes_aside(hv_epoch_driver *d) {
  for (hv_epoch_which which = 0; which < HV_EPOCH_ROUNDS; which++)
    if (d->rounds[which].average)
      hv_average_step_aside(d->rounds[which].average);
}

static void says_goodbye(hv_epoch_driver *d) {
  goes_aside(d);
  if (d->is_loading)
    hv_state_load_cancel(d->state, &d->load);
  log_stops(d);
  if (d->waits_for_hub)
    hv_givers_wait_end(d->givers, d->config.state_key);
  if (d->progress) {
    d->env->timer_clear(d->env, &d->timer);
    hv_progress_close(d->progress);
  }
  d->progress = NULL;
}

static void answers(hv_epoch_driver *d, uint64_t number) {
  hv_epoch_event event = {.kind = HV_EPOCH_DONE, .number = number, .ok = 1};
  drives(d, &event);
}

static void carries_out(hv_epoch_driver *d, const hv_epoch_order *order) {
  const hv_epoch_hands *hands = &d->config.hands;
  hv_average *average = d->rounds[order->which].average, *gradients = d->rounds[HV_EPOCH_GRADIENTS].average;
  switch (order->kind) {
  case HV_EPOCH_WAKE:
    if (d->progress)
      hv_progress_wake(d->progress, order->ask);
    break;
  case HV_EPOCH_REACHED:
    if (average)
      hv_average_reached(average, order->epoch);
    break;
  case HV_EPOCH_SEEK:
    seeks(d, order);
    break;
  case HV_EPOCH_TRIGGER:
    triggers(d, order);
    break;
  case HV_EPOCH_CANCEL:
    cancels(d, order->which);
    break;
  case HV_EPOCH_GIVE_UP:
    gives_up(d, order->which);
    break;
  case HV_EPOCH_ASIDE:
    goes_aside(d);
    break;
  case HV_EPOCH_COMES:
    if (gradients)
      hv_average_comes(gradients, order->epoch);
    break;
  case HV_EPOCH_OFFER:
    offers(d, order);
    break;
  case HV_EPOCH_EXPECT:
    d->gift = hv_epoch_gift_of(d->env, d->met_epoch, d->members, d->n_members);
    break;
  case HV_EPOCH_GIVE:
    gives(d, order);
    break;
  case HV_EPOCH_WITHDRAW:
    hv_state_withdraw(d->state, d->config.state_key, 0);
    break;
  case HV_EPOCH_LOOK:
  case HV_EPOCH_LOAD:
    loads(d, order, order->kind == HV_EPOCH_LOOK);
    break;
  case HV_EPOCH_WANT:
    wants(d, order);
    break;
  case HV_EPOCH_REFUSE:
    if (d->log)
      hv_step_log_refuse(d->log, order->epoch);
    break;
  case HV_EPOCH_DISBELIEVE:
    if (d->progress)
      hv_progress_disbelieve(d->progress, order->epoch, (uint32_t)(order->wait_us / 1000));
    break;
  case HV_EPOCH_ACT:
    if (order->action == HV_EPOCH_STEP && order->ask)
      begins_own(d, order);
    if (hands->act)
      hands->act(hands->arg, order);
    else
      answers(d, order->number);
    break;
  case HV_EPOCH_TELL:
    if (hands->tell)
      hands->tell(hands->arg, (hv_epoch_notice)order->action);
    break;
  case HV_EPOCH_GOODBYE:
    says_goodbye(d);
    break;
  case HV_EPOCH_ORDER_KINDS:
    break;
  }
}

/* The figures of this moment, with so many more samples of its own. The node is there. */
static const hv_progress_view *reads(hv_epoch_driver *d, uint64_t samples, uint64_t now_us, hv_progress_figures *out) {
  const hv_progress_view *view = hv_progress_look(d->progress);
  hv_progress_own mine;
  hv_epoch_report(&d->machine, samples, &mine);
  hv_progress_now(view, &mine, &d->config.terms, now_us, out);
  return view;
}

/* The figures are read once for each event (rule 1). An order may end at once, which is another event. */
static void drives(hv_epoch_driver *d, hv_epoch_event *event) {
  hv_progress_figures *figures = &d->figures;
  hv_epoch_order order;
  event->now_us = now_of(d);
  event->figures = figures;
  *figures = (hv_progress_figures){.eta_us = HV_PROGRESS_NEVER, .epoch = d->machine.told};
  if (d->progress)
    event->fetched = reads(d, event->kind == HV_EPOCH_BATCH ? event->samples : 0, event->now_us, figures)->fetched;
  else if (!d->is_leaving && event->kind != HV_EPOCH_DONE && event->kind != HV_EPOCH_ROUND)
    return; /* the node ends */
  d->asking.is_urgent = figures->n_coming > 0;
  int was_busy = d->is_busy;
  d->is_busy = 1;
  hv_trace_on(d->config.trace, &d->machine, event);
  while (hv_epoch_next(&d->machine, &order))
    carries_out(d, &order);
  d->is_busy = was_busy;
  uint64_t due_us = hv_epoch_due_us(&d->machine);
  if (!d->config.hands.act) {
    uint64_t look_us = hv_epoch_is_free(&d->machine) ? d->look_us : now_of(d) + LOOK_US;
    due_us = due_us < look_us ? due_us : look_us;
  }
  if (due_us != HV_EPOCH_NONE && d->progress)
    d->env->timer_set(d->env, &d->timer, due_us > now_of(d) ? due_us - now_of(d) : 0);
  looks_whether_over(d);
}

/* ---- the program's side ---- */

void hv_epoch_driver_batch(hv_epoch_driver *d, uint64_t samples, uint64_t took_us) {
  hv_epoch_event event = {.kind = HV_EPOCH_BATCH, .samples = samples, .took_us = took_us};
  drives(d, &event);
}

void hv_epoch_driver_done(hv_epoch_driver *d, uint64_t number, int ok, uint64_t took_us) {
  hv_epoch_event event = {.kind = HV_EPOCH_DONE, .number = number, .ok = ok, .took_us = took_us};
  has_made_own(d, &event);
  drives(d, &event);
}

void hv_epoch_driver_offered(hv_epoch_driver *d, uint64_t epoch, int ok) {
  hv_epoch_event event = {.kind = HV_EPOCH_OFFERED, .epoch = epoch, .ok = ok};
  drives(d, &event);
}

void hv_epoch_driver_broke(hv_epoch_driver *d, uint64_t number) {
  hv_epoch_event event = {.kind = HV_EPOCH_BROKE, .number = number};
  has_made_own(d, &event);
  drives(d, &event);
}

void hv_epoch_driver_behind(hv_epoch_driver *d, uint64_t samples) {
  hv_epoch_event event = {.kind = HV_EPOCH_BEHIND, .samples = samples};
  drives(d, &event);
}

void hv_epoch_driver_summed(hv_epoch_driver *d, uint64_t samples, uint64_t behind) {
  hv_epoch_event event = {.kind = HV_EPOCH_SUMMED, .samples = samples, .number = behind};
  drives(d, &event);
}

void hv_epoch_driver_overflow(hv_epoch_driver *d, uint64_t samples, uint64_t summed) {
  hv_epoch_event event = {.kind = HV_EPOCH_OVERFLOW, .samples = samples, .number = summed};
  drives(d, &event);
}

void hv_epoch_driver_pause(hv_epoch_driver *d) {
  hv_epoch_event event = {.kind = HV_EPOCH_PAUSE};
  drives(d, &event);
}

void hv_epoch_driver_restored(hv_epoch_driver *d, uint64_t epoch, const hv_mark *mark) {
  hv_epoch_event event = {.kind = HV_EPOCH_RESTORED, .epoch = epoch};
  hv_lineage_restart(&d->lineage, mark);
  drives(d, &event);
}

void hv_epoch_driver_asked(hv_epoch_driver *d, uint64_t least) {
  hv_epoch_event event = {.kind = HV_EPOCH_ASKED, .epoch = least};
  drives(d, &event);
}

void hv_epoch_driver_leave(hv_epoch_driver *d) {
  hv_epoch_event event = {.kind = HV_EPOCH_LEAVE};
  d->is_leaving = 1;
  drives(d, &event);
}

int hv_epoch_driver_is_over(const hv_epoch_driver *d) {
  int rounds = d->rounds[HV_EPOCH_GRADIENTS].is_under_way || d->rounds[HV_EPOCH_REPLICA_STATE].is_under_way;
  return d->machine.state == HV_EPOCH_OVER && !rounds && !d->is_loading && !d->waits_for_hub && !d->log;
}

const hv_epoch *hv_epoch_driver_look(const hv_epoch_driver *d) {
  return &d->machine;
}

const hv_progress_figures *hv_epoch_driver_figures(const hv_epoch_driver *d) {
  return &d->figures;
}

int hv_epoch_driver_counts(hv_epoch_driver *d, uint64_t *epoch) {
  hv_progress_figures figures;
  if (!d->progress)
    return 0;
  int fetched = reads(d, 0, now_of(d), &figures)->fetched != 0;
  *epoch = figures.epoch;
  hv_progress_wake(d->progress, 1);
  return hv_keep_are_counted(fetched, figures.n_peers);
}

int hv_epoch_driver_is_free(const hv_epoch_driver *d) {
  return hv_epoch_is_free(&d->machine);
}

hv_status hv_epoch_driver_new(const hv_epoch_node *node, const hv_epoch_driver_config *config, hv_epoch_driver **out,
                              hv_error *err) {
  hv_env *env = node->env;
  hv_epoch_driver *d = hv_mem_array(env->mem, 1, sizeof *d);
  if (!d)
    return hv_fail(err, HV_NOMEM, "no memory for the epochs of a run");
  *d = (hv_epoch_driver){.config = *config, .state = node->state, .givers = node->givers, .takers = node->takers, .env = env};
  d->timer = (hv_timer){.fire = fires, .owner = d};
  d->config.epoch.env = env;
  d->config.epoch.options.auxiliary |= !config->hands.act;
  d->config.epoch.lineage = &d->lineage;
  d->config.epoch.ledger = &d->ledger;
  hv_lineage_init(&d->lineage);
  for (hv_epoch_which which = 0; which < HV_EPOCH_ROUNDS; which++)
    d->rounds[which].average = config->averages[which];
  hv_status status = hv_progress_check(&d->config.terms, err);
  if (status == HV_OK)
    status = opens_log(d, err);
  if (status == HV_OK)
    status = hv_epoch_init(&d->machine, &d->config.epoch, env->now_us(env), err);
  hv_lineage_begin(&d->lineage, &config->mark);
  if (status == HV_OK && config->trace)
    hv_trace_begin(config->trace, &d->machine, env->now_us(env));
  hv_progress_config progress = {.prefix = config->run_id,
                                 .terms = d->config.terms,
                                 .client_mode = config->client_mode,
                                 .own = own,
                                 .counted = counted,
                                 .ended = progress_ended,
                                 .arg = d};
  if (status == HV_OK)
    status = hv_progress_open(node->progress, &progress, &d->progress, err);
  if (status != HV_OK) {
    hv_step_log_free(d->log);
    hv_mem_free(d);
    return status;
  }
  *out = d;
  waits_for_hub(d);
  if (!d->config.hands.act)
    time_passes(d);
  return HV_OK;
}

void hv_epoch_driver_free(hv_epoch_driver *d) {
  if (!d)
    return;
  if (d->progress) {
    d->env->timer_clear(d->env, &d->timer);
    hv_progress_close(d->progress);
  }
  hv_step_log_free(d->log);
  hv_payload_release(d->own);
  hv_mem_free(d);
}
