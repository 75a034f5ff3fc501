/* The hive's states: what the program offers to joiners, gets as one, gives to a hub, and takes as a hub (contract in
 * hivemind_c.h). */
#include "net/hive/hive_inner.h"

#include <string.h>

/* Parts that the program lent; given back when the last holder has let go of them, on any thread. */
typedef struct lent_parts {
  hv_payload payload;
  void (*done)(void *arg);
  void *arg;
  hv_span spans[];
} lent_parts;

static void give_back(hv_payload *payload) {
  lent_parts *lent = (lent_parts *)payload;
  if (lent->done)
    lent->done(lent->arg);
  hv_mem_free(lent);
}

static hv_payload *borrow_parts(hv_mem *mem, const hv_hive_state_part *parts, size_t n) {
  lent_parts *lent = hv_mem_zalloc(mem, sizeof *lent + n * sizeof *lent->spans);
  if (!lent)
    return NULL;
  for (size_t i = 0; i < n; i++)
    lent->spans[i] = parts[i].bytes;
  hv_payload_init(&lent->payload, lent->spans, n, give_back, NULL);
  return &lent->payload;
}

/* An op with a copy of its own of the prefix, which then stands for it. NULL: no memory. */
static hv_hive_op *new_prefix_op(hv_hive *hive, void (*start)(hv_hive_op *, hv_node *), hv_span *prefix) {
  hv_hive_op *o = hv_hive_new_op(hive, start);
  if (!o)
    return NULL;
  o->bytes = hv_mem_alloc(hv_hive_mem(hive), prefix->size);
  if (!o->bytes) {
    hv_hive_free_op(o);
    return NULL;
  }
  if (prefix->size)
    memcpy(o->bytes, prefix->data, prefix->size);
  prefix->data = o->bytes;
  return o;
}

/* ---- offer ---- */

static void offer_over(hv_state_offer *offer, hv_status status, const char *text) {
  hv_hive_op *o = offer->owner;
  if (status == HV_OK) {
    hv_future_finish(o->future, hv_span_of(&offer->digest, sizeof offer->digest), NULL);
    hv_hive_free_op(o);
  } else
    hv_hive_fail_op(o, status, text);
}

static void not_cancelled(hv_hive_op *o, hv_node *node) {
  (void)o, (void)node; /* it is done soon; who does not want it any more withdraws it */
}

static void start_offer(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  hv_state_offer *offer = &o->u.state_offer;
  offer->done = offer_over;
  offer->owner = o;
  o->cancel = not_cancelled;
  hv_status status = hv_state_offer_start(hv_node_state(node), offer, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

/* Copies the parts' kinds, the prefix and the metadata behind each other into o->bytes. 0: no memory. */
static int copy_offer(hv_hive_op *o, const hv_hive_snapshot *given, hv_state_offer *offer) {
  size_t kinds = given->n_parts * sizeof *offer->parts;
  o->bytes = hv_mem_zalloc(hv_hive_mem(o->hive), kinds + given->prefix.size + given->metadata.size + 1);
  if (!o->bytes)
    return 0;
  hv_manifest_part *parts = (hv_manifest_part *)o->bytes;
  uint8_t *prefix = o->bytes + kinds, *metadata = prefix + given->prefix.size;
  for (size_t i = 0; i < given->n_parts; i++)
    parts[i] = (hv_manifest_part){.codec = given->parts[i].codec, .dtype = given->parts[i].dtype, .own = given->parts[i].own};
  if (given->prefix.size)
    memcpy(prefix, given->prefix.data, given->prefix.size);
  if (given->metadata.size)
    memcpy(metadata, given->metadata.data, given->metadata.size);
  *offer = (hv_state_offer){.prefix = hv_span_of(prefix, given->prefix.size),
                            .epoch = given->epoch,
                            .state_hash = given->state_hash,
                            .parts = parts,
                            .metadata = hv_span_of(metadata, given->metadata.size),
                            .priority = given->priority,
                            .declare_ms = given->declare_ms};
  memcpy(offer->lineage, given->lineage, sizeof offer->lineage);
  return 1;
}

/* Takes the program's parts and submits an operation on them; `offer` is its own. */
static hv_status submit_parts(hv_hive_op *o, const hv_hive_snapshot *given, hv_state_offer *offer, void (*done)(void *arg),
                              void *arg, hv_future **out) {
  o->payload = borrow_parts(hv_hive_mem(o->hive), given->parts, given->n_parts);
  if (!o->payload || !copy_offer(o, given, offer)) {
    hv_hive_free_op(o);
    return HV_NOMEM;
  }
  lent_parts *lent = (lent_parts *)hv_payload_keep(o->payload);
  lent->done = done;
  lent->arg = arg;
  offer->bytes = o->payload;
  hv_status status = hv_hive_submit(o, out);
  if (status != HV_OK)
    lent->done = NULL; /* not accepted: the program still has its bytes, and is not told */
  hv_payload_release(&lent->payload);
  return status;
}

static hv_status check_snapshot(hv_hive *hive, const hv_hive_snapshot *given) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  return given->n_parts > HV_MANIFEST_PARTS_MAX || given->metadata.size > HV_MANIFEST_METADATA_MAX ||
                 given->prefix.size > HV_STATE_PREFIX_MAX
             ? HV_TOO_LARGE
             : HV_OK;
}

hv_status hv_hive_state_offer(hv_hive *hive, const hv_hive_snapshot *given, void (*done)(void *arg), void *arg, hv_future **out) {
  hv_status status = check_snapshot(hive, given);
  hv_hive_op *o = status == HV_OK ? hv_hive_new_op(hive, start_offer) : NULL;
  if (status != HV_OK)
    return status;
  return o ? submit_parts(o, given, &o->u.state_offer, done, arg, out) : HV_NOMEM;
}

/* ---- what stands already ---- */

static void over_at_once(hv_hive_op *o, hv_status status) {
  if (status == HV_OK) {
    hv_future_finish(o->future, hv_span_of(NULL, 0), NULL);
    hv_hive_free_op(o);
  } else
    hv_hive_fail_op(o, status,
                    status == HV_NOT_FOUND ? "cannot change the offer: no state is offered under this prefix; offer one first"
                                           : hv_status_text(status));
}

static void start_withdraw(hv_hive_op *o, hv_node *node) {
  over_at_once(o, hv_state_withdraw(hv_node_state(node), o->u.state_change.prefix, o->u.state_change.at_once));
}

static void start_priority(hv_hive_op *o, hv_node *node) {
  over_at_once(o, hv_state_set_priority(hv_node_state(node), o->u.state_change.prefix, o->u.state_change.priority));
}

static hv_status change(hv_hive *hive, hv_span prefix, void (*start)(hv_hive_op *, hv_node *), int at_once, float priority,
                        hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_prefix_op(hive, start, &prefix);
  if (!o)
    return HV_NOMEM;
  o->u.state_change.prefix = prefix;
  o->u.state_change.at_once = at_once;
  o->u.state_change.priority = priority;
  return hv_hive_submit(o, out);
}

hv_status hv_hive_state_withdraw(hv_hive *hive, hv_span prefix, int at_once, hv_future **out) {
  return change(hive, prefix, start_withdraw, at_once, 0, out);
}

hv_status hv_hive_state_set_priority(hv_hive *hive, hv_span prefix, float priority, hv_future **out) {
  return change(hive, prefix, start_priority, 0, priority, out);
}

/* ---- load ---- */

static size_t aligned(size_t size) {
  return (size + HV_MANIFEST_ALIGN - 1) / HV_MANIFEST_ALIGN * HV_MANIFEST_ALIGN;
}

/* One block for the program: an hv_hive_state, its parts, the metadata, and then the image. */
static uint8_t *make_room(hv_state_load *load, const hv_manifest *m) {
  hv_hive_op *o = load->owner;
  if (!m) { /* a gift that broke off */
    hv_mem_free(o->block);
    o->block = NULL;
    return NULL;
  }
  size_t head = aligned(sizeof(hv_hive_state) + m->n_parts * sizeof(hv_hive_state_part) + m->metadata.size);
  hv_mem_free(o->block);
  o->block = hv_mem_aligned(hv_hive_mem(o->hive), head + (size_t)m->image + 1);
  o->count = head;
  return o->block ? (uint8_t *)o->block + head : NULL;
}

static void fill_head(hv_hive_op *o, const hv_state_load *load) {
  const hv_manifest *m = load->manifest;
  hv_hive_state *state = o->block;
  hv_hive_state_part *parts = (hv_hive_state_part *)(state + 1);
  uint8_t *metadata = (uint8_t *)(parts + m->n_parts), *image = (uint8_t *)o->block + o->count;
  if (m->metadata.size)
    memcpy(metadata, m->metadata.data, m->metadata.size);
  for (size_t i = 0; i < m->n_parts; i++)
    parts[i] = (hv_hive_state_part){.bytes = hv_span_of(image + m->parts[i].place, (size_t)m->parts[i].size),
                                    .codec = m->parts[i].codec,
                                    .dtype = m->parts[i].dtype,
                                    .own = m->parts[i].own};
  *state = (hv_hive_state){.epoch = m->epoch,
                           .state_hash = m->state_hash,
                           .digest = load->digest,
                           .metadata = hv_span_of(metadata, m->metadata.size),
                           .parts = parts,
                           .n_parts = m->n_parts};
}

static void load_over(hv_state_load *load, hv_status status, const char *text) {
  hv_hive_op *o = load->owner;
  if (status != HV_OK) {
    hv_hive_fail_op(o, status, text);
    return;
  }
  fill_head(o, load);
  hv_future_finish_taken(o->future, o->block, sizeof(hv_hive_state), &load->donor);
  o->block = NULL;
  hv_hive_free_op(o);
}

static void look_over(hv_state_load *load, hv_status status, const char *text) {
  hv_hive_op *o = load->owner;
  uint8_t epoch[8];
  if (status != HV_OK) {
    hv_hive_fail_op(o, status, text);
    return;
  }
  hv_le_put(epoch, load->epoch, sizeof epoch);
  hv_future_finish(o->future, hv_span_of(epoch, sizeof epoch), NULL);
  hv_hive_free_op(o);
}

static void cancel_load(hv_hive_op *o, hv_node *node) {
  hv_state_load_cancel(hv_node_state(node), &o->u.state_load);
}

static void start_load(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  o->u.state_load.done = o->u.state_load.only_look ? look_over : load_over;
  o->u.state_load.room = make_room;
  o->u.state_load.owner = o;
  o->cancel = cancel_load;
  hv_status status = hv_state_load_start(hv_node_state(node), &o->u.state_load, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

static hv_status begin_load(hv_hive *hive, hv_state_load load, hv_span refused, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  if (refused.size % sizeof *load.refused || refused.size > sizeof load.refused)
    return HV_INVALID;
  load.n_refused = refused.size / sizeof *load.refused;
  if (refused.size)
    memcpy(load.refused, refused.data, refused.size);
  hv_hive_op *o = new_prefix_op(hive, start_load, &load.prefix);
  if (!o)
    return HV_NOMEM;
  o->u.state_load = load;
  return hv_hive_submit(o, out);
}

hv_status hv_hive_state_load(hv_hive *hive, hv_span prefix, uint32_t timeout_ms, uint64_t size_max, uint64_t epoch_least,
                             hv_span refused, hv_future **out) {
  hv_state_load load = {.prefix = prefix, .timeout_ms = timeout_ms, .size_max = size_max, .epoch_least = epoch_least};
  return begin_load(hive, load, refused, out);
}

hv_status hv_hive_state_look(hv_hive *hive, hv_span prefix, uint32_t timeout_ms, uint64_t epoch_least, hv_span refused,
                             hv_future **out) {
  hv_state_load look = {.prefix = prefix, .timeout_ms = timeout_ms, .epoch_least = epoch_least, .only_look = 1};
  return begin_load(hive, look, refused, out);
}

static void start_loading(hv_hive_op *o, hv_node *node) {
  hv_state_loading seen;
  uint8_t bytes[32];
  if (hv_state_load_look(hv_node_state(node), o->u.state_change.prefix, &seen) != HV_OK) {
    hv_hive_fail_op(o, HV_NOT_FOUND, "no state of this prefix is being loaded");
    return;
  }
  const uint64_t numbers[] = {seen.epoch, seen.came, seen.size, seen.donors};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    hv_le_put(bytes + 8 * i, numbers[i], 8);
  hv_future_finish(o->future, hv_span_of(bytes, sizeof bytes), NULL);
  hv_hive_free_op(o);
}

hv_status hv_hive_state_loading(hv_hive *hive, hv_span prefix, hv_future **out) {
  return change(hive, prefix, start_loading, 0, 0, out);
}

/* ---- on demand ---- */

static void finish_with_number(hv_hive_op *o, hv_status status, uint64_t number, const char *text) {
  uint8_t bytes[8];
  if (status != HV_OK) {
    hv_hive_fail_op(o, status, text);
    return;
  }
  hv_le_put(bytes, number, sizeof bytes);
  hv_future_finish(o->future, hv_span_of(bytes, sizeof bytes), NULL);
  hv_hive_free_op(o);
}

static void wait_over(hv_state_wait *wait, hv_status status, const char *text) {
  finish_with_number(wait->owner, status, wait->number, text);
}

static void cancel_wait(hv_hive_op *o, hv_node *node) {
  hv_state_wait_end(hv_node_state(node), o->u.state_wait.prefix);
}

static void start_wait(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  o->u.state_wait.done = wait_over;
  o->u.state_wait.owner = o;
  o->cancel = cancel_wait;
  hv_status status = hv_state_wait_start(hv_node_state(node), &o->u.state_wait, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

static void want_over(hv_state_want *want, hv_status status, const char *text) {
  finish_with_number(want->owner, status, want->number, text);
}

static void cancel_want(hv_hive_op *o, hv_node *node) {
  hv_state_want_cancel(hv_node_state(node), &o->u.state_want);
}

static void start_want(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  o->u.state_want.done = want_over;
  o->u.state_want.owner = o;
  o->cancel = cancel_want;
  hv_status status = hv_state_want_start(hv_node_state(node), &o->u.state_want, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

hv_status hv_hive_state_await(hv_hive *hive, hv_span prefix, uint64_t clock_ms, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_prefix_op(hive, start_wait, &prefix);
  if (!o)
    return HV_NOMEM;
  o->u.state_wait = (hv_state_wait){.prefix = prefix, .clock_ms = clock_ms};
  return hv_hive_submit(o, out);
}

hv_status hv_hive_state_want(hv_hive *hive, hv_span prefix, uint64_t number, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_prefix_op(hive, start_want, &prefix);
  if (!o)
    return HV_NOMEM;
  o->u.state_want = (hv_state_want){.prefix = prefix, .number = number};
  return hv_hive_submit(o, out);
}

/* ---- gifts ---- */

static void gift_wait_over(hv_gift_wait *wait, hv_status status, const char *text) {
  finish_with_number(wait->owner, status, wait->least, text);
}

static void cancel_gift_wait(hv_hive_op *o, hv_node *node) {
  hv_givers_wait_end(hv_node_givers(node), o->u.gift_wait.prefix);
}

static void start_gift_wait(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  o->u.gift_wait.done = gift_wait_over;
  o->u.gift_wait.owner = o;
  o->cancel = cancel_gift_wait;
  hv_status status = hv_givers_wait(hv_node_givers(node), &o->u.gift_wait, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

hv_status hv_hive_gift_wait(hv_hive *hive, hv_span prefix, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_prefix_op(hive, start_gift_wait, &prefix);
  if (!o)
    return HV_NOMEM;
  o->u.gift_wait = (hv_gift_wait){.prefix = prefix};
  return hv_hive_submit(o, out);
}

static void gift_over(hv_state_offer *offer, hv_status status, const char *text) {
  hv_hive_op *o = offer->owner;
  if (status == HV_OK) {
    hv_future_finish(o->future, hv_span_of(NULL, 0), NULL);
    hv_hive_free_op(o);
  } else
    hv_hive_fail_op(o, status, text);
}

static void start_gift(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  o->u.gift_give.state.done = gift_over;
  o->u.gift_give.state.owner = o;
  o->cancel = not_cancelled;
  hv_status status = hv_givers_give(hv_node_givers(node), &o->u.gift_give, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

hv_status hv_hive_gift_give(hv_hive *hive, const hv_hive_snapshot *given, const hv_peer_id *hubs, size_t n_hubs,
                            const uint8_t *ticket, void (*done)(void *arg), void *arg, hv_future **out) {
  hv_status status = check_snapshot(hive, given);
  if (status != HV_OK || n_hubs > HV_GIFT_HUBS)
    return status != HV_OK ? status : HV_INVALID;
  hv_hive_op *o = hv_hive_new_op(hive, start_gift);
  if (!o)
    return HV_NOMEM;
  o->block = n_hubs ? hv_mem_array(hv_hive_mem(hive), n_hubs, sizeof *hubs) : NULL;
  if (n_hubs && !o->block) {
    hv_hive_free_op(o);
    return HV_NOMEM;
  }
  o->u.gift_give = (hv_gift_give){.hubs = o->block, .n_hubs = n_hubs};
  if (n_hubs) {
    memcpy(o->block, hubs, n_hubs * sizeof *hubs);
    memcpy(o->u.gift_give.ticket, ticket, HV_GIFT_TICKET);
  }
  return submit_parts(o, given, &o->u.gift_give.state, done, arg, out);
}

static void cancel_take(hv_hive_op *o, hv_node *node) {
  hv_takers_cancel(hv_node_takers(node), &o->u.gift_take);
}

static void start_take(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  o->u.gift_take.load.done = load_over;
  o->u.gift_take.load.room = make_room;
  o->u.gift_take.load.owner = o;
  o->cancel = cancel_take;
  hv_status status = hv_takers_take(hv_node_takers(node), &o->u.gift_take, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
}

hv_status hv_hive_gift_take(hv_hive *hive, hv_span prefix, uint64_t size_max, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_prefix_op(hive, start_take, &prefix);
  if (!o)
    return HV_NOMEM;
  o->u.gift_take = (hv_gift_take){.load = {.prefix = prefix, .size_max = size_max}};
  return hv_hive_submit(o, out);
}

static void start_follow(hv_hive_op *o, hv_node *node) {
  hv_error why = {0};
  hv_status status = hv_takers_follow(hv_node_takers(node), o->u.gift_follow.prefix, &o->u.gift_follow.figures,
                                      o->u.gift_follow.every, o->u.gift_follow.size_max, &why);
  if (status != HV_OK)
    hv_hive_fail_op(o, status, why.text);
  else
    over_at_once(o, HV_OK);
}

hv_status hv_hive_gift_follow(hv_hive *hive, hv_span prefix, const hv_hive_trainer *trainers, size_t n_trainers, uint64_t least,
                              uint64_t every, uint64_t size_max, int has_room, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  hv_hive_op *o = new_prefix_op(hive, start_follow, &prefix);
  if (!o)
    return HV_NOMEM;
  hv_gift_trainer *copies = hv_mem_array(hv_hive_mem(hive), n_trainers + 1, sizeof *copies);
  o->block = copies;
  if (!copies) {
    hv_hive_free_op(o);
    return HV_NOMEM;
  }
  for (size_t i = 0; i < n_trainers; i++)
    copies[i] = (hv_gift_trainer){trainers[i].id, trainers[i].is_client, trainers[i].epoch};
  o->u.gift_follow.prefix = prefix;
  o->u.gift_follow.figures = (hv_gift_figures){.trainers = copies, .n_trainers = n_trainers, .least = least, .has_room = has_room};
  o->u.gift_follow.every = every;
  o->u.gift_follow.size_max = size_max;
  return hv_hive_submit(o, out);
}

static void start_refuse(hv_hive_op *o, hv_node *node) {
  hv_takers_refuse(hv_node_takers(node), o->u.state_change.prefix);
  over_at_once(o, HV_OK);
}

hv_status hv_hive_gift_refuse(hv_hive *hive, hv_span prefix, hv_future **out) {
  return change(hive, prefix, start_refuse, 0, 0, out);
}
