#include "core/state/demand.h"

#include "core/peers/contact.h"

#include <string.h>

enum {
  VERSION = 1,
  AGAIN_MS = 3000,
  PAUSE_MAX_US = 10000000,    /* between two sharings */
  SHARING_MAX_US = 600000000, /* a program that does not wait again within this time gives no more states */
};

/* One prefix. */
struct hv_demand {
  hv_demand *next;
  hv_demands *all;
  hv_state_wait *wait; /* NULL: the program makes an offer */
  uint64_t clock_ms, clock_us;
  uint64_t given;             /* the newest number that the program got; 0: none */
  uint64_t wanted;            /* the number that it gets next; 0: none */
  uint64_t wanted_us;         /* when the rate of its askers allows that */
  uint64_t given_us, free_us; /* when it got `given`; when its pause ends */
  hv_timer give, declare;
  hv_dht_op op;
  hv_dht_item item;
  int storing, ending;                /* ending: the declaration is being withdrawn */
  uint8_t value[HV_DEMAND_VALUE_MAX]; /* as it was declared last; the DHT reads it until that has ended */
  size_t prefix_size;
  uint8_t key[HV_DEMAND_KEY_MAX];
};

size_t hv_demand_key(hv_span prefix, uint8_t out[HV_DEMAND_KEY_MAX]) {
  if (prefix.size)
    memcpy(out, prefix.data, prefix.size);
  memcpy(out + prefix.size, HV_DEMAND_SUFFIX, sizeof HV_DEMAND_SUFFIX - 1);
  return prefix.size + sizeof HV_DEMAND_SUFFIX - 1;
}

hv_status hv_demand_read(hv_span bytes, hv_span *addrs) {
  if (bytes.size && bytes.data[0] != VERSION)
    return HV_VERSION;
  if (bytes.size < 2 || bytes.size > HV_DEMAND_VALUE_MAX)
    return HV_MALFORMED;
  *addrs = hv_span_of(bytes.data + 1, bytes.size - 1);
  return HV_OK;
}

static uint64_t demand_now(const hv_demand *d) {
  return d->all->env->now_us(d->all->env);
}

static hv_demand *demand_find(const hv_demands *all, hv_span prefix) {
  hv_demand *d = all->first;
  while (d && !(d->prefix_size == prefix.size && memcmp(d->key, prefix.data, prefix.size) == 0))
    d = d->next;
  return d;
}

static void demand_free(hv_demand *d) {
  hv_demand **at = &d->all->first;
  while (*at != d)
    at = &(*at)->next;
  *at = d->next;
  d->all->n--;
  d->all->env->timer_clear(d->all->env, &d->give);
  d->all->env->timer_clear(d->all->env, &d->declare);
  hv_mem_free(d);
}

static void finish(hv_demand *d, hv_status status, const char *text) {
  hv_state_wait *wait = d->wait;
  if (!wait)
    return;
  d->wait = NULL;
  wait->done(wait, status, text);
}

/* ---- the declaration ---- */

static void declared(hv_dht_op *op, hv_status status, const char *text) {
  hv_demand *d = op->owner;
  hv_env *env = d->all->env;
  d->storing = 0;
  if (d->all->stopping)
    return;
  if (status != HV_OK)
    hv_env_log(env, HV_LOG_DEBUG, "state", "donor_not_declared", "could not declare that a state is given, will retry: %s", text);
  uint32_t ms = status != HV_OK && d->all->declare_ms > AGAIN_MS ? AGAIN_MS : d->all->declare_ms;
  int is_outdated =
      d->ending || !hv_span_equal(d->item.value, hv_span_of(d->all->value, d->all->value_size)); /* withdrawn, or it has moved */
  env->timer_set(env, &d->declare, is_outdated ? 0 : ms * UINT64_C(1000));
}

static void store_declaration(hv_demand *d) {
  hv_demands *all = d->all;
  memcpy(d->value, all->value, all->value_size);
  d->item = (hv_dht_item){.subkey = hv_span_of(all->subkey, all->subkey_size),
                          .value = hv_span_of(d->value, d->ending ? 0 : all->value_size),
                          .has_subkey = 1,
                          .ttl_ms = (uint64_t)all->declare_ms * 5 / 2};
  d->op = (hv_dht_op){.done = declared,
                      .owner = d,
                      .key = hv_span_of(d->key, d->prefix_size + sizeof HV_DEMAND_SUFFIX - 1),
                      .items = &d->item,
                      .n_items = 1};
  d->storing = 1;
  hv_status status = hv_dht_store(all->dht, &d->op, NULL);
  if (status != HV_OK)
    declared(&d->op, status, hv_status_text(status));
}

/* The declaration is withdrawn with one more store, and then the entry goes. */
static void demand_end(hv_demand *d, hv_status status, const char *text) {
  d->ending = 1;
  finish(d, status, text);
  if (d->ending && !d->storing)
    d->all->env->timer_set(d->all->env, &d->declare, 0);
}

static void declare(hv_timer *timer, const hv_event *event) {
  hv_demand *d = timer->owner;
  (void)event;
  if (d->ending && d->item.value.size == 0) { /* never declared, or withdrawn */
    demand_free(d);
    return;
  }
  if (!d->ending && !d->wait && demand_now(d) - d->given_us > SHARING_MAX_US)
    d->ending = 1;
  store_declaration(d);
}

/* ---- numbers ---- */

static void arm(hv_demand *d) {
  uint64_t now = demand_now(d), at = d->free_us > d->wanted_us ? d->free_us : d->wanted_us;
  if (d->wanted && d->wait)
    d->all->env->timer_set(d->all->env, &d->give, at > now ? at - now : 0);
}

static void give(hv_timer *timer, const hv_event *event) {
  hv_demand *d = timer->owner;
  if (!d->wait || !d->wanted)
    return;
  d->given = d->wait->number = d->wanted;
  d->given_us = event->now_us;
  d->wanted = 0;
  finish(d, HV_OK, "");
}

/* The place of a network; a new one takes that of the network that was quiet longest. */
static size_t network_at(hv_demands *all, uint64_t network) {
  size_t at = 0;
  for (size_t i = 0; i < HV_DEMAND_NETWORKS; i++) {
    if (all->networks[i].free_us && all->networks[i].network == network)
      return i;
    if (all->networks[i].free_us < all->networks[at].free_us)
      at = i;
  }
  all->networks[at].network = network;
  all->networks[at].free_us = 0;
  return at;
}

/* The program gets this number as soon as the rate of the asker's network allows one more, or that of an earlier asker. */
static void want(hv_demand *d, uint64_t number, uint64_t network) {
  hv_demands *all = d->all;
  uint64_t now = demand_now(d), burst_us = HV_DEMAND_BURST * HV_DEMAND_PERIOD_US;
  size_t at = network_at(all, network);
  uint64_t free_us = all->networks[at].free_us > now ? all->networks[at].free_us : now;
  uint64_t may_us = free_us - now > burst_us ? free_us - burst_us : now;
  if (!d->wanted || may_us < d->wanted_us) {
    all->networks[at].free_us = free_us + HV_DEMAND_PERIOD_US;
    d->wanted_us = may_us;
  }
  d->wanted = number;
  arm(d);
}

static void answer(hv_demands *all, const hv_event *event, uint64_t number) {
  hv_msg msg = {.kind = HV_MSG_STATE_WANTED, .u.state_wanted = {.number = number}};
  all->env->reply(all->env, event->request, &msg);
}

/* True if a state that is offered under this number, or a later one that is not made yet, is promised. */
static int is_promised(const hv_demand *d, uint64_t number) {
  return number && (number == d->given || number <= d->wanted);
}

static int counts(const hv_demand *d, uint64_t number, uint64_t clock) {
  return number > d->given && (number <= clock + HV_DEMAND_AHEAD_MS || number == d->given + 1);
}

void hv_demands_asked(hv_demands *all, const hv_event *event) {
  uint64_t number = event->msg->u.state_wanted.number;
  hv_demand *d = demand_find(all, event->msg->u.state_wanted.prefix);
  if (!d || d->ending || all->stopping) {
    hv_env_refuse(all->env, event->request, HV_NOT_FOUND, "this peer gives no state of that prefix on demand");
    return;
  }
  uint64_t clock = d->clock_ms + (event->now_us - d->clock_us) / 1000;
  if (is_promised(d, number))
    answer(all, event, number);
  else if (!counts(d, number, clock))
    answer(all, event, clock > d->given ? clock : d->given + 1);
  else {
    uint64_t network = hv_contact_network(&event->request->from);
    answer(all, event, number);
    want(d, number, network);
  }
}

/* ---- the program's side ---- */

hv_status hv_demands_wait(hv_demands *all, hv_state_wait *wait, hv_error *err) {
  hv_demand *d = demand_find(all, wait->prefix);
  if (all->stopping)
    return hv_fail(err, HV_CLOSED, "the node has ended");
  if (wait->prefix.size == 0 || wait->prefix.size > HV_STATE_PREFIX_MAX)
    return hv_fail(err, wait->prefix.size ? HV_TOO_LARGE : HV_INVALID, "a prefix must have 1 to %d bytes, not %zu",
                   HV_STATE_PREFIX_MAX, wait->prefix.size);
  if (d && d->wait)
    return hv_fail(err, HV_EXISTS, "another part of this program gives states of this prefix on demand: use another prefix");
  if (!d && all->n >= HV_DEMANDS_MAX)
    return hv_fail(err, HV_TOO_LARGE, "this node already gives states of %d prefixes on demand: end one", HV_DEMANDS_MAX);
  int is_new = !d;
  if (is_new && !(d = hv_mem_zalloc(all->env->mem, sizeof *d)))
    return hv_fail(err, HV_NOMEM, "cannot give states on demand: no memory; raise the memory limit");
  if (is_new) {
    *d = (hv_demand){.next = all->first, .all = all, .prefix_size = wait->prefix.size};
    hv_demand_key(wait->prefix, d->key);
    all->first = d;
    all->n++;
  }
  uint64_t now = demand_now(d), took = is_new || !d->given_us ? 0 : now - d->given_us;
  d->give = is_new ? (hv_timer){.fire = give, .owner = d} : d->give;
  d->declare = is_new ? (hv_timer){.fire = declare, .owner = d} : d->declare;
  d->wait = wait;
  d->clock_ms = wait->clock_ms;
  d->clock_us = now;
  d->free_us = now + (took < PAUSE_MAX_US ? took : PAUSE_MAX_US);
  if ((is_new || d->ending) && all->started && !d->storing)
    all->env->timer_set(all->env, &d->declare, 0);
  d->ending = 0;
  arm(d);
  return HV_OK;
}

void hv_demands_end(hv_demands *all, hv_span prefix) {
  hv_demand *d = demand_find(all, prefix);
  if (d && !d->ending)
    demand_end(d, HV_CANCELLED, "states of this prefix are no longer given on demand");
}

/* ---- life ---- */

void hv_demands_init(hv_demands *all, hv_env *env, hv_dht *dht, const hv_state_config *config) {
  *all = (hv_demands){.env = env, .dht = dht, .declare_ms = config->declare_ms};
  all->subkey_size = hv_ballot_subkey(&config->me, all->subkey);
}

void hv_demands_start(hv_demands *all, hv_span addrs) {
  if (addrs.size == 0 || all->stopping) /* nobody can ask this node */
    return;
  all->value[0] = VERSION;
  memcpy(all->value + 1, addrs.data, addrs.size);
  all->value_size = 1 + addrs.size;
  all->started = 1;
  for (hv_demand *d = all->first; d; d = d->next)
    if (!d->storing)
      all->env->timer_set(all->env, &d->declare, 0);
}

void hv_demands_stop(hv_demands *all) {
  all->stopping = 1;
  for (hv_demand *d = all->first; d; d = d->next) {
    all->env->timer_clear(all->env, &d->give);
    all->env->timer_clear(all->env, &d->declare);
    finish(d, HV_CANCELLED, "the node was shut down");
  }
}

void hv_demands_fini(hv_demands *all) {
  all->stopping = 1;
  while (all->first) {
    hv_demand *d = all->first;
    finish(d, HV_CLOSED, "the node has ended");
    if (d->storing)
      hv_dht_cancel(all->dht, &d->op);
    demand_free(d);
  }
}
