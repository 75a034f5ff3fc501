#include "lib/pretender.h"

#include "lib/pretender_anchor.h"
#include "lib/pretender_log.h"
#include "lib/pretender_upset.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { OF_SUMS = sizeof(float) * PRETENDER_VALUES };

/* The bulk of all peers: its averages are 0, too. */
static float bulk_averages[PRETENDER_BULK_MAX];
static const uint8_t *bulk_state(void) {
  static uint8_t bytes[(size_t)PRETENDER_BULK_MAX * PRETENDER_BULK_BYTES];
  return bytes;
}

static uint64_t bulk_in_state(const pretender *p) {
  return p->program.is_light ? 0 : p->program.bulk;
}

static uint64_t image_of(const pretender *p) {
  return OF_SUMS + bulk_in_state(p) * PRETENDER_BULK_BYTES;
}

static size_t parts_of(const pretender *p, hv_manifest_part *out) {
  for (size_t i = 0; i < PRETENDER_PARTS; i++)
    out[i] = (hv_manifest_part){.codec = HV_CODEC_NONE, .dtype = HV_DTYPE_FLOAT32};
  return bulk_in_state(p) ? 2 : 1;
}

static size_t spans_of(const pretender *p, const void *values, const void *bulk, hv_span *out) {
  out[0] = hv_span_of(values, OF_SUMS);
  out[1] = hv_span_of(bulk, (size_t)(image_of(p) - OF_SUMS));
  return bulk_in_state(p) ? 2 : 1;
}

void pretender_fails(pretender *p, const char *format, ...) {
  va_list args;
  if (p->failure[0])
    return;
  va_start(args, format);
  vsnprintf(p->failure, sizeof p->failure, format, args);
  va_end(args);
}

static uint64_t below(pretender *p, uint64_t n) {
  return n ? check_random(&p->rng) % n : 0;
}

static uint64_t now_of(const pretender *p) {
  return p->env->now_us(p->env);
}

static float value_of(uint64_t a, uint64_t b, uint64_t c) {
  check_rng rng = {(a * 1000003 + b) * 1000003 + c};
  return (float)(int)(check_random(&rng) % 255) / 128 - 1;
}

const hv_epoch *pretender_look(const pretender *p) {
  return p->driver ? hv_epoch_driver_look(p->driver) : NULL;
}

int pretender_rests(const pretender *p) {
  const hv_epoch *e = pretender_look(p);
  return e && e->state == HV_EPOCH_GATHERING && e->late == HV_EPOCH_LATE_IDLE && !p->n_works[HV_EPOCH_NOW] &&
         !p->n_works[HV_EPOCH_LATE] && !e->end.acting[HV_EPOCH_NOW];
}

const float *pretender_replica(const pretender *p) {
  return p->program.options.outer ? p->main : p->model;
}

double pretender_steps(const pretender *p) {
  return (double)(p->trainers ? p->kept_steps : pretender_replica(p)[PRETENDER_STEPS]);
}

/* ---- the machine's questions ---- */

/* Nobody takes the plan for being alone while it counts another trainer, or is to wait: by the reading of the event under way. */
static void checks_plan(pretender *p) {
  const hv_epoch *e = pretender_look(p);
  size_t counted = hv_epoch_driver_figures(p->driver)->n_peers;
  int averages = !hv_epoch_traits_of(&p->program.options).sums || hv_epoch_plan_has(&e->end.plan, HV_EPOCH_AVERAGE_GRADIENTS);
  p->ending = (pretender_ending){.epochs = e->end.epoch + 1, .counted = counted, .mark = e->lineage->mark};
  if (counted > 1 && (e->end.alone || !averages))
    pretender_fails(p, "n%zu ends epoch %llu alone, and counts %zu trainers", p->index, (unsigned long long)e->end.epoch, counted);
  if (e->end.alone && p->program.company != HV_EPOCH_ALONE_TRAINS && !p->program.begins_run)
    pretender_fails(p, "n%zu ends epoch %llu alone, and is to wait", p->index, (unsigned long long)e->end.epoch);
}

static void act(void *arg, const hv_epoch_order *order) {
  pretender *p = arg;
  if (order->action == HV_EPOCH_PREPARE)
    checks_plan(p);
  if (order->action == HV_EPOCH_REPEAT && p->entry)
    hv_payload_release(p->entry);
  if (order->action == HV_EPOCH_REPEAT && (p->entry = hv_epoch_driver_entry(p->driver, order)) != NULL)
    hv_payload_keep(p->entry);
  if (p->n_works[order->lane] == PRETENDER_QUEUE) {
    pretender_fails(p, "n%zu has too many actions to do at once", p->index);
    return;
  }
  pretender_work *work = &p->works[order->lane][p->n_works[order->lane]++];
  *work = (pretender_work){.order = *order, .due_us = now_of(p) + below(p, p->program.hands_us)};
  work->due_us += order->action == HV_EPOCH_SNAPSHOT ? p->program.copy_us : 0;
}

static void tell(void *arg, hv_epoch_notice notice) {
  pretender *p = arg;
  p->tells[notice]++;
  p->told_us = now_of(p);
  if (notice == HV_EPOCH_SAYS_OWN_STEP)
    p->own_step = pretender_look(p)->end.epoch + 1;
  if (notice == HV_EPOCH_SAYS_OWN_STEP && p->program.options.outer && hv_epoch_driver_figures(p->driver)->n_peers > 1)
    pretender_fails(p, "n%zu steps by itself in epoch %llu, and others train", p->index,
                    (unsigned long long)pretender_look(p)->end.epoch);
  hv_sim_say(p->sim, "n%zu tells %s in epoch %llu", p->index, hv_epoch_notice_name(notice),
             (unsigned long long)(p->driver ? pretender_look(p)->told : 0));
}

static hv_state_offer state_of(void *owner, uint64_t epoch, hv_payload *bytes, const hv_manifest_part *part,
                               const uint8_t mark[HV_MARK_SIZE], void (*done)(hv_state_offer *, hv_status, const char *)) {
  hv_state_offer offer = {.done = done,
                          .owner = owner,
                          .prefix = hv_span_of("run", 3),
                          .epoch = epoch,
                          .bytes = bytes,
                          .parts = part,
                          .metadata = hv_span_of(mark, HV_MARK_SIZE)};
  memcpy(offer.lineage, mark, HV_BALLOT_LINEAGE);
  return offer;
}

/* Of a state's bytes; never 0. */
static uint64_t hash_of(const void *state) {
  const uint8_t *bytes = state;
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < OF_SUMS; i++)
    hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash | 1;
}

int pretender_lied_of(const pretender *p, uint64_t hash) {
  for (size_t i = 0; i < PRETENDER_LIES; i++)
    if (p->lied_of[i] == hash)
      return hash != 0;
  return 0;
}

typedef struct copied {
  hv_payload payload; /* first */
  hv_span spans[PRETENDER_PARTS];
  float values[PRETENDER_VALUES];
} copied;

static void frees_copy(hv_payload *payload) {
  hv_mem_free(payload);
}

/* The state that it offers. */
static hv_payload *copy_of_state(pretender *p) {
  copied *c = hv_mem_array(p->env->mem, 1, sizeof *c);
  if (!c)
    return NULL;
  memcpy(c->values, p->snapshot, sizeof c->values);
  if (p->program.lies & (PRETENDER_LIES_AHEAD | PRETENDER_LIES_BYTES)) {
    c->values[below(p, PRETENDER_STEPS)] += 1;
    p->lied_of[p->n_lied_of++ % PRETENDER_LIES] = hash_of(c->values);
  }
  hv_payload_init(&c->payload, c->spans, spans_of(p, c->values, bulk_state(), c->spans), frees_copy, NULL);
  return &c->payload;
}

/* The latest snapshot in a free slot, whose bytes are to be released once it is under way. NULL: there is none. */
static pretender_shared *shares(pretender *p, pretender_shared *slots, uint64_t epoch, const hv_mark *mark,
                                void (*done)(hv_state_offer *, hv_status, const char *)) {
  pretender_shared *s = NULL;
  for (size_t i = 0; i < PRETENDER_OFFERS; i++)
    if (!slots[i].is_under_way)
      s = &slots[i];
  hv_payload *bytes = s ? copy_of_state(p) : NULL;
  if (!bytes)
    return NULL;
  *s = (pretender_shared){.of = p, .epoch = epoch};
  parts_of(p, s->parts);
  epoch += p->program.lies & PRETENDER_LIES_AHEAD ? p->program.ahead : 0;
  if (pretender_look(p)->lineage->is_kept) /* else the state has no mark, and is known by its bytes */
    memcpy(s->metadata, mark->bytes, HV_MARK_SIZE);
  s->give.state = state_of(s, epoch, bytes, s->parts, s->metadata, done);
  return s;
}

static void was_offered(hv_state_offer *offer, hv_status status, const char *text) {
  pretender_shared *s = offer->owner;
  (void)text;
  s->is_under_way = 0;
  if (status != HV_CANCELLED && s->of->driver)
    hv_epoch_driver_offered(s->of->driver, s->epoch, status == HV_OK);
}

static int offer(void *arg, uint64_t epoch, const hv_mark *mark) {
  pretender *p = arg;
  pretender_shared *s = shares(p, p->offers, epoch, mark, was_offered);
  if (!s)
    return 0;
  hv_payload *bytes = s->give.state.bytes;
  p->offered = *mark;
  s->is_under_way = hv_state_offer_start(hv_node_state(p->node), &s->give.state, NULL) == HV_OK;
  hv_payload_release(bytes);
  return s->is_under_way;
}

static void was_given(hv_state_offer *offer, hv_status status, const char *text) {
  pretender_shared *s = offer->owner;
  (void)status, (void)text;
  s->is_under_way = 0;
}

static void give(void *arg, uint64_t epoch, const hv_mark *mark, const hv_peer_id *hubs, size_t n, const uint8_t *ticket) {
  pretender *p = arg;
  pretender_shared *s = shares(p, p->gifts, epoch, mark, was_given);
  if (!s)
    return;
  hv_payload *bytes = s->give.state.bytes;
  s->give.hubs = hubs;
  s->give.n_hubs = n;
  if (ticket)
    memcpy(s->give.ticket, ticket, HV_GIFT_TICKET);
  s->is_under_way = hv_givers_give(hv_node_givers(p->node), &s->give, NULL) == HV_OK;
  hv_payload_release(bytes);
}

/* ---- a hub ---- */

static void let_go(hv_payload *payload) {
  pretender_held *h = (pretender_held *)payload;
  h->of->n_held--;
  hv_mem_free(h->image);
  hv_mem_free(h);
}

static void hub_offered(hv_state_offer *offer, hv_status status, const char *text) {
  (void)offer, (void)status, (void)text;
}

static uint8_t *hub_room(hv_state_load *load, const hv_manifest *manifest) {
  pretender *p = load->owner;
  if (p->arriving)
    let_go(&p->arriving->payload);
  p->arriving = NULL;
  if (!manifest || manifest->image != image_of(p))
    return NULL;
  pretender_held *h = hv_mem_array(p->env->mem, 1, sizeof *h);
  uint8_t *image = hv_mem_aligned(p->env->mem, (size_t)manifest->image + 1);
  if (!h || !image) {
    hv_mem_free(h);
    hv_mem_free(image);
    return NULL;
  }
  *h = (pretender_held){.of = p, .image = image};
  p->n_held++;
  p->arriving = h;
  return image;
}

static void hub_takes(pretender *p);

/* The trainers as its own tracker counts them; states here have no setup. */
static hv_keep_trainers counted(const pretender *p) {
  const hv_progress_figures *f = hv_epoch_driver_figures(p->driver);
  return (hv_keep_trainers){.any = hv_keep_are_counted(1, f->n_peers), .epoch = f->epoch};
}

static void hub_keeps(pretender *p, pretender_held *h, const hv_keep_state *state, const uint8_t *mark) {
  hv_keep_hold(&p->keep, state);
  memcpy(&p->kept_steps, h->image + sizeof(float) * PRETENDER_STEPS, sizeof p->kept_steps);
  parts_of(p, h->parts);
  memcpy(h->metadata, mark, HV_MARK_SIZE);
  memcpy(p->offered.bytes, mark, HV_MARK_SIZE);
  h->offer = state_of(h, state->epoch, &h->payload, h->parts, h->metadata, hub_offered);
  h->offer.priority = HV_KEEP_PRIORITY;
  memcpy(h->offer.lineage, p->take.lineage, HV_BALLOT_LINEAGE);
  hv_sim_say(p->sim, "n%zu keeps the state of epoch %llu", p->index, (unsigned long long)state->epoch);
  hv_state_offer_start(hv_node_state(p->node), &h->offer, NULL);
}

/* A state has come: the hub keeps it, or lets it go. */
static void hub_judges(pretender *p, pretender_held *h, const hv_manifest *manifest) {
  hv_keep_state state = {.epoch = manifest->epoch};
  hv_keep_trainers now = counted(p);
  hv_keep_fault fault;
  hv_keep_verdict verdict = hv_keep_judge(&p->keep, &state, &now, &fault);
  hv_payload_init(&h->payload, h->spans, spans_of(p, h->image, h->image + OF_SUMS, h->spans), let_go, NULL);
  if (verdict == HV_KEEP_VERDICT_KEEP || verdict == HV_KEEP_VERDICT_REPLACE)
    hub_keeps(p, h, &state, manifest->metadata.data);
  else
    hv_sim_say(p->sim, "n%zu keeps no state of epoch %llu: %s %s; it counts epoch %llu", p->index, (unsigned long long)state.epoch,
               hv_keep_verdict_name(verdict), hv_keep_fault_name(fault), (unsigned long long)now.epoch);
  if (verdict == HV_KEEP_VERDICT_REFUSE)
    hv_takers_refuse(hv_node_takers(p->node), hv_span_of("run", 3));
  hv_payload_release(&h->payload);
}

static void hub_has_taken(hv_state_load *load, hv_status status, const char *text) {
  pretender *p = load->owner;
  pretender_held *h = p->arriving;
  (void)text;
  p->take.load.owner = NULL;
  if (status == HV_OK && h && load->manifest->metadata.size == HV_MARK_SIZE) {
    p->arriving = NULL;
    hub_judges(p, h, load->manifest);
  }
  if (status == HV_OK)
    hub_takes(p);
}

static void hub_takes(pretender *p) {
  p->take = (hv_gift_take){
      .load = {.done = hub_has_taken, .room = hub_room, .owner = p, .prefix = hv_span_of("run", 3), .size_max = 2 * image_of(p)}};
  if (hv_takers_take(hv_node_takers(p->node), &p->take, NULL) != HV_OK)
    p->take.load.owner = NULL;
}

/* Each second, as the program does. */
static void hub_follows(pretender *p) {
  hv_gift_trainer trainers[HV_EPOCH_MEMBERS];
  uint64_t now = now_of(p);
  if (!p->take.load.owner)
    hub_takes(p);
  if (p->followed_us && now < p->followed_us + 1000000)
    return;
  p->followed_us = now;
  hv_keep_trainers counts = counted(p);
  hv_gift_figures figures = {.trainers = trainers,
                             .least = hv_keep_least(&p->keep, &counts),
                             .has_room = hv_keep_has_room(p->n_held - (p->arriving != NULL)),
                             .n_trainers = p->trainers(p->trainers_arg, trainers, HV_EPOCH_MEMBERS)};
  hv_takers_follow(hv_node_takers(p->node), hv_span_of("run", 3), &figures, p->keep.every, 2 * image_of(p), NULL);
}

static uint8_t *room(void *arg, const hv_manifest *manifest) {
  pretender *p = arg;
  hv_mem_free(p->image);
  return p->image = hv_mem_aligned(p->env->mem, (size_t)manifest->image + 1);
}

static int mark(void *arg, const hv_manifest *manifest, hv_mark *out) {
  pretender *p = arg;
  if (manifest->metadata.size != HV_MARK_SIZE || manifest->image != image_of(p) || !p->image)
    return 0;
  memcpy(out->bytes, manifest->metadata.data, HV_MARK_SIZE);
  return 1;
}

static int were_alike(void *arg, const hv_mark *mine) {
  pretender *p = arg;
  float digits[HV_MARK_DIGITS];
  hv_mark_digits(mine, digits);
  for (size_t i = 0; i < HV_MARK_DIGITS; i++)
    if (rintf(p->state[PRETENDER_VALUES + i]) != digits[i])
      return 0;
  return 1;
}

static void met(void *arg, const hv_epoch_met *round) {
  pretender *p = arg;
  if (round->status != HV_OK)
    hv_sim_say(p->sim, "n%zu: round %d of epoch %llu: %s", p->index, (int)round->which, (unsigned long long)round->number,
               round->text);
  if (round->which == HV_EPOCH_GRADIENTS && p->program.options.outer)
    pretender_anchor_met(p, round);
  if (round->which == HV_EPOCH_GRADIENTS && round->status == HV_OK && p->ending.epochs == round->number + 1)
    p->ending.averaged = round->trainers;
  p->met += round->which == HV_EPOCH_GRADIENTS && round->status == HV_OK && round->trainers > 1;
}

/* ---- the hands ---- */

static void writes_gradients(pretender *p) {
  for (size_t v = 0; v < PRETENDER_VALUES; v++)
    p->gradients[v] = p->summed ? p->sums[v] / (float)p->summed : 0;
  memset(p->sums, 0, sizeof p->sums);
  p->summed = 0;
}

/* Values of a usual size in place of these. */
void pretender_makes_up(pretender *p, float *values, size_t n) {
  for (size_t v = 0; v < n; v++)
    values[v] = (float)(2 * check_uniform(&p->rng) - 1);
}

static void steps(float *values, const float *gradients) {
  for (size_t v = 0; v < PRETENDER_STEPS; v++)
    values[v] -= 0.125f * gradients[v];
  values[PRETENDER_STEPS]++;
}

static void takes_state(pretender *p) {
  memcpy(p->state, p->program.options.offload ? p->main : p->model, OF_SUMS);
  hv_mark_digits(&pretender_look(p)->lineage->mark, p->state + PRETENDER_VALUES);
  if (p->program.lies & PRETENDER_LIES_STATE)
    pretender_makes_up(p, p->state, PRETENDER_STEPS);
}

static void applies(pretender *p, int averaged) {
  float *main = p->program.options.offload ? p->main : p->model;
  if (averaged)
    memcpy(main, p->state, OF_SUMS);
  memcpy(p->model, main, OF_SUMS);
}

/* The averages of an entry, in place of its own gradients. */
static int repeats(pretender *p) {
  hv_error err = {0};
  hv_payload *entry = p->entry;
  p->entry = NULL;
  if (!entry)
    return 0;
  hv_status status = hv_average_repeat(p->averages[HV_EPOCH_GRADIENTS], entry->parts, entry->n_parts, &err);
  hv_payload_release(entry);
  p->repeated += status == HV_OK;
  if (status != HV_OK)
    hv_sim_say(p->sim, "n%zu repeats no entry: %s", p->index, err.text);
  return status == HV_OK;
}

static int does(pretender *p, const hv_epoch_order *order) {
  int ok;
  if (p->program.options.outer && pretender_anchor_does(p, order, &ok))
    return ok;
  switch (order->action) {
  case HV_EPOCH_LOCAL_STEP:
  case HV_EPOCH_STEP:
    steps(p->program.options.offload ? p->main : p->model, order->action == HV_EPOCH_LOCAL_STEP ? p->batch : p->gradients);
    if (order->action == HV_EPOCH_LOCAL_STEP)
      applies(p, 0);
    return 1;
  case HV_EPOCH_SCHEDULE:
    p->schedule += order->samples;
    return 1;
  case HV_EPOCH_APPLY:
    applies(p, order->samples != 0);
    return 1;
  case HV_EPOCH_PREPARE:
    if (p->summed != pretender_look(p)->end.samples && !p->program.options.use_local_updates) /* else it may sum on */
      pretender_fails(p, "n%zu has summed %llu samples, and the machine says %llu", p->index, (unsigned long long)p->summed,
                      (unsigned long long)pretender_look(p)->end.samples);
    if (p->program.options.use_local_updates) { /* each batch was a step */
      memset(p->sums, 0, sizeof p->sums);
      p->summed = 0;
      return 1;
    }
    writes_gradients(p);
    if (p->program.lies & PRETENDER_LIES_GRADIENTS)
      pretender_makes_up(p, p->gradients, PRETENDER_STEPS);
    return check_uniform(&p->rng) < p->program.fails ? -1 : 1;
  case HV_EPOCH_TAKE:
    takes_state(p);
    return 1;
  case HV_EPOCH_SNAPSHOT:
    memcpy(p->snapshot, p->model, OF_SUMS);
    return 1;
  case HV_EPOCH_ADOPT:
    p->adopted++;
    p->taken[0] = hash_of(p->image);
    p->taken[1] = pretender_look(p)->own.loading.epoch;
    if (p->program.options.outer)
      pretender_anchor_adopts(p, p->image);
    else {
      memcpy(p->model, p->image, OF_SUMS);
      memcpy(p->main, p->image, OF_SUMS);
    }
    p->schedule = order->samples;
    return 1;
  case HV_EPOCH_MEET:
    return 1;
  case HV_EPOCH_RETURN:
    for (size_t v = 0; v < PRETENDER_VALUES; v++)
      p->sums[v] = p->gradients[v] * (float)order->samples;
    p->summed = order->samples;
    return 1;
  case HV_EPOCH_REPEAT:
    return repeats(p);
  case HV_EPOCH_DROP:
    memset(p->sums, 0, sizeof p->sums);
    p->summed = 0;
    return 1;
  default:
    pretender_fails(p, "n%zu is to do action %u, which no hand can do", p->index, order->action);
    return 1;
  }
}

/* A step without the swarm's average moves the mark, its samples are kept, and the peer tells it unless it is alone. */
static void checks_own_step(pretender *p, const hv_mark *mark, uint64_t kept, uint64_t samples) {
  const hv_epoch *e = pretender_look(p);
  unsigned long long epoch = e->end.epoch;
  if (!e->end.stepped || e->end.averaged)
    return;
  p->stepped_alone += e->end.nobody || e->end.alone;
  if (e->lineage->is_kept && hv_mark_equal(&e->lineage->mark, mark))
    pretender_fails(p, "n%zu has stepped by itself in epoch %llu under the old mark", p->index, epoch);
  if (e->ledger->kept != kept + samples)
    pretender_fails(p, "n%zu has stepped by itself in epoch %llu with %llu samples, and keeps %llu more", p->index, epoch,
                    (unsigned long long)samples, (unsigned long long)(e->ledger->kept - kept));
  if (!e->end.alone && p->own_step != e->end.epoch + 1)
    pretender_fails(p, "n%zu has stepped by itself in epoch %llu, and did not tell", p->index, epoch);
}

static void answers(pretender *p, const hv_epoch_order *order, int ok) {
  hv_mark mark = pretender_look(p)->lineage->mark;
  uint64_t kept = pretender_look(p)->ledger->kept;
  int is_void = pretender_look(p)->late == HV_EPOCH_LATE_VOID; /* its samples are lost, and a state takes its place */
  if (order->action == HV_EPOCH_STEP && !is_void && pretender_look(p)->end.averaged)
    pretender_log_adds(p, &mark);
  hv_epoch_driver_done(p->driver, order->number, ok,
                       p->program.hands_us / 2 + (order->action == HV_EPOCH_SNAPSHOT ? p->program.copy_us : 0));
  if (order->action == HV_EPOCH_STEP && !is_void)
    checks_own_step(p, &mark, kept, order->samples);
}

static void hands(pretender *p, hv_epoch_lane lane) {
  while (p->n_works[lane] && p->works[lane][0].due_us <= now_of(p)) {
    pretender_work work = p->works[lane][0];
    memmove(p->works[lane], p->works[lane] + 1, --p->n_works[lane] * sizeof work);
    if (!pretender_breaks(p, &work.order))
      answers(p, &work.order, does(p, &work.order));
  }
}

static void adds_batch(pretender *p) {
  uint64_t n = p->program.batch_samples;
  if (pretender_look(p)->state != HV_EPOCH_RESTING || p->program.options.outer) {
    for (size_t v = 0; v < PRETENDER_VALUES; v++) {
      p->batch[v] = value_of(p->index, p->batches, v);
      p->sums[v] += (float)n * value_of(p->index, p->batches, v);
    }
    p->summed += n;
  }
  p->batches++;
  p->produced += n;
}

/* 1: by the latest reading, its epoch does not end with this batch. */
static int goes_on_training(const pretender *p) {
  const hv_progress_figures *f = hv_epoch_driver_figures(p->driver);
  int is_sure = !f->ready && f->standing != HV_PROGRESS_BEHIND;
  return p->program.posts && !p->program.options.use_local_updates && pretender_look(p)->state == HV_EPOCH_GATHERING &&
         hv_epoch_driver_is_free(p->driver) && is_sure;
}

/* 1: it goes on before it knows what its machine decides. */
static int gives_batch(pretender *p) {
  int goes_on = goes_on_training(p);
  p->is_computing = 0;
  if (pretender_batch_is_upset(p))
    return goes_on;
  adds_batch(p);
  hv_epoch_driver_batch(p->driver, p->program.batch_samples, p->program.batch_us);
  p->posted += goes_on && !hv_epoch_driver_is_free(p->driver);
  return goes_on;
}

static void begins_batch(pretender *p) {
  p->is_computing = 1;
  uint64_t rest_us = p->batches % PRETENDER_VALIDATES == PRETENDER_VALIDATES - 1 ? p->program.validates_us : 0;
  p->batch_due_us = now_of(p) + rest_us + p->program.batch_us + below(p, p->program.batch_us / 8 + 1);
}

static void trains(pretender *p) {
  int is_free = hv_epoch_driver_is_free(p->driver);
  if (p->is_computing ? now_of(p) >= p->batch_due_us : p->finds && is_free) {
    if (gives_batch(p))
      begins_batch(p);
  } else if (!p->is_computing && is_free && hv_epoch_waits_for_thread(pretender_look(p)))
    hv_epoch_driver_pause(p->driver);
  else if (!p->is_computing && is_free && !pretender_is_upset(p))
    begins_batch(p);
}

/* ---- its life ---- */

/* A machine that reads what is recorded decides alike: nothing that the machine reads is missing. */
static int replays(void *arg, hv_span text) {
  pretender *p = arg;
  hv_error err = {0};
  if (hv_replay_feed(p->replay, text, &err) != HV_OK)
    pretender_fails(p, "n%zu: %s", p->index, err.text);
  else if (hv_replay_look(p->replay)->differing)
    pretender_fails(p, "n%zu decides otherwise than its replay: %s", p->index, hv_replay_look(p->replay)->first);
  return !p->failure[0];
}

/* Of the state: with the numbers of its mark. */
static hv_status opens_averager(pretender *p, hv_epoch_which which, const char *name, float *values) {
  const pretender_program *g = &p->program;
  int64_t shape = PRETENDER_VALUES, of_mark = HV_MARK_DIGITS, of_bulk = (int64_t)g->bulk;
  hv_average_tensor tensors[3] = {{{values, HV_DTYPE_FLOAT32, PRETENDER_VALUES, HV_CODEC_NONE, NULL, 0, 0, 0}, &shape, 1}};
  size_t n = 1, is_state = which == HV_EPOCH_REPLICA_STATE;
  if (is_state)
    tensors[n++] = (hv_average_tensor){
        {values + PRETENDER_VALUES, HV_DTYPE_FLOAT32, HV_MARK_DIGITS, HV_CODEC_NONE, NULL, 0, 0, 0}, &of_mark, 1};
  if (g->bulk)
    tensors[n++] = (hv_average_tensor){{bulk_averages, HV_DTYPE_FLOAT32, g->bulk, g->codec, NULL, 0, 0, 0}, &of_bulk, 1};
  hv_average_config config = {.prefix = hv_span_of(name, strlen(name)),
                              /* so that each member has some to reduce, as of a model */
                              .chunk_values = g->chunk_values ? g->chunk_values : 4,
                              .tensors = tensors,
                              .n_tensors = n,
                              .compared = is_state,
                              .alpha = 1,
                              .stall_ms = 10000,
                              .apart = 1,
                              .auxiliary = p->program.options.auxiliary};
  return hv_average_new(hv_node_averages(p->node), &config, &p->averages[which], NULL);
}

/* The bytes of its model; an average without a codec, which is a little more. */
static uint64_t log_of_model(const pretender *p) {
  const hv_average *gradients = p->averages[HV_EPOCH_GRADIENTS];
  uint64_t bytes = sizeof(float) * (PRETENDER_VALUES + (uint64_t)p->program.bulk);
  uint64_t one = gradients ? hv_average_kept_size(gradients) : 0;
  bytes = bytes > one ? bytes : one;
  return bytes > PRETENDER_LOG_LEAST ? bytes : PRETENDER_LOG_LEAST;
}

static void opens(pretender *p) {
  const pretender_program *g = &p->program;
  hv_error err = {0};
  hv_status status =
      !hv_epoch_traits_of(&g->options).sums ? HV_OK : opens_averager(p, HV_EPOCH_GRADIENTS, "run_grads", p->gradients);
  if (status == HV_OK)
    status = opens_averager(p, HV_EPOCH_REPLICA_STATE, "run_state", p->state);
  hv_epoch_node node = {p->env, hv_node_progress(p->node), hv_node_state(p->node), hv_node_givers(p->node),
                        p->trainers ? hv_node_takers(p->node) : NULL};
  hv_epoch_driver_config config = {.epoch = {.options = g->options,
                                             .target = g->terms.target,
                                             .matchmaking_us = g->matchmaking_us,
                                             .averaging_us = g->averaging_us,
                                             .company = g->company,
                                             .alone_us = 5000000,
                                             .begins_run = g->begins_run,
                                             .reachable = !g->client,
                                             .state_bytes = g->no_log ? 0 : image_of(p) + PRETENDER_LOG_LEAST,
                                             .differs = g->differs,
                                             .me = p->id},
                                   .run_id = hv_span_of("run", 3),
                                   .state_key = hv_span_of("run", 3),
                                   .terms = g->terms,
                                   .client_mode = g->client,
                                   .load_ms = g->load_ms,
                                   .log_memory = g->no_log || pretender_log_is_false(p) ? 0
                                                 : g->log_memory                        ? g->log_memory
                                                                                        : log_of_model(p),
                                   .averages = {p->averages[0], p->averages[1]},
                                   .hands = {act, tell, offer, give, room, mark, were_alike, met, NULL, p}};
  for (int i = 0; i < HV_MARK_SIZE; i++)
    config.mark.bytes[i] = (uint8_t)(g->model >> (i % 8));
  if (p->trainers)
    config.hands = (hv_epoch_hands){0}; /* as a hub's */
  pretender_log_opens(p);
  p->trace = (hv_trace){.write = replays, .arg = p, .left = UINT64_MAX};
  p->replay = hv_replay_new(p->env->mem, p->env);
  if (p->replay)
    config.trace = &p->trace;
  if (status == HV_OK)
    status = hv_epoch_driver_new(&node, &config, &p->driver, &err);
  if (status != HV_OK)
    pretender_fails(p, "n%zu could not open: %s", p->index, err.text);
}

void pretender_turn(pretender *p) {
  if (!p->node || p->failure[0])
    return;
  if (!p->driver && p->n_initial && !hv_peers_alive(hv_node_peers(p->node)))
    return; /* as a program that waits for its DHT */
  if (!p->driver && !p->is_leaving)
    opens(p);
  if (!p->driver)
    return;
  if (p->trainers) {
    if (!p->is_leaving)
      hub_follows(p);
    return;
  }
  if (!p->is_computing || p->is_leaving) /* lane NOW is its training thread's */
    hands(p, HV_EPOCH_NOW);
  hands(p, HV_EPOCH_LATE);
  if (!p->is_leaving)
    trains(p);
}

void pretender_leave(pretender *p) {
  p->is_leaving = 1;
  if (p->driver)
    hv_epoch_driver_leave(p->driver);
}

static void steps_node(void *self, const hv_event *event) {
  hv_node_step(((pretender *)self)->node, event);
}

/* A process of its own: it knows nothing of an earlier one. */
static void begins(pretender *p) {
  *p = (pretender){.program = p->program,
                   .index = p->index,
                   .sim = p->sim,
                   .rng = p->rng,
                   .id = p->id,
                   .initial = {p->initial[0]},
                   .n_initial = p->n_initial,
                   .trainers = p->trainers,
                   .trainers_arg = p->trainers_arg,
                   .lives = p->lives + 1,
                   .gave_before = p->gave.epochs ? p->gave.epochs : p->gave_before,
                   .came_us = hv_sim_now(p->sim)};
  hv_keep_init(&p->keep, 1);
  for (size_t v = 0; v < PRETENDER_VALUES; v++)
    p->model[v] = p->main[v] = v == PRETENDER_STEPS ? 0 : value_of(p->program.model, 77, v);
}

static hv_status make(hv_env *env, void *arg, hv_core *out) {
  pretender *p = arg;
  begins(p);
  hv_node_config config = {.me = p->id,
                           .initial = p->initial,
                           .n_initial = p->n_initial,
                           .client_mode = p->program.client,
                           .hello_every_ms = 2000,
                           .state.chunk_bytes = p->program.chunk_bytes};
  *out = (hv_core){p, steps_node};
  p->env = env;
  if (p->program.seated)
    p->program.seated(p->program.seated_arg, env);
  return hv_node_new(env, &config, &p->node);
}

static void lets_go(void *self) {
  pretender *p = self;
  hv_epoch_driver *driver = p->driver;
  p->driver = NULL;
  hv_node_free(p->node);
  hv_epoch_driver_free(driver);
  hv_step_log_free(p->false_log);
  p->false_log = NULL;
  hv_replay_free(p->replay);
  p->replay = NULL;
  if (p->arriving)
    let_go(&p->arriving->payload);
  p->arriving = NULL;
  hv_mem_free(p->image);
  p->image = NULL;
  if (p->entry)
    hv_payload_release(p->entry);
  p->entry = NULL;
  p->node = NULL;
}

void pretender_init(pretender *p, hv_sim *sim, size_t index, const pretender_program *program, uint64_t seed) {
  *p = (pretender){.program = *program, .index = index, .sim = sim, .rng = {seed}, .id = hv_sim_target(sim, index).id};
}

hv_sim_node_config pretender_seat(pretender *p) {
  return (hv_sim_node_config){.make = make,
                              .free = lets_go,
                              .arg = p,
                              .client_mode = p->program.client,
                              .up_rate = p->program.up_rate,
                              .down_rate = p->program.down_rate};
}
