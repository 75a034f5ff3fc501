/* The hive: identity, loop and node put together for a program (contract in hivemind_c.h).
 *
 * Every request becomes an op: made on the program's thread, started and ended on the hive thread, where it stands in the
 * hive's list meanwhile; its future outlives it.
 */
#include "core/peers/standing.h"
#include "net/clock.h"
#include "net/hive/addresses.h"
#include "net/hive/closed.h"
#include "net/hive/hive_inner.h"
#include "net/hive/opening.h"
#include "net/identity.h"
#include "net/transport/door.h"
#include "net/transport/grpc.h"
#include "net/transport/loop.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef hv_hive_op op;

/* The threads that are in a `done` of the program's just now; counted, for gRPC may hold a payload longer than there is a hive. */
typedef struct inside {
  struct inside *next;
  pthread_t thread;
} inside;

typedef struct insides {
  pthread_mutex_t lock;
  atomic_uint refs;
  inside *first;
} insides;

struct hv_hive {
  insides *insides;
  hv_mem *mem;
  hv_log *log;
  hv_identity *identity;
  hv_closed closed;
  hv_loop *loop;
  hv_node *node;
  hv_addr announce[HV_CARD_ADDRS_MAX];
  size_t n_announce;
  hv_opening opening;
  pthread_mutex_t addrs_lock; /* of the two below */
  hv_addr addrs[HV_CARD_ADDRS_MAX];
  size_t n_addrs;
  hv_error foreign; /* the initial peers that cannot be dialled */
  pid_t pid;
  pthread_mutex_t stopping;
  int stopped;
  op *ops;            /* the hive thread's; whoever stopped it, afterwards */
  hv_command recheck; /* runs the checks in a step of its own */
  int recheck_posted;
};

hv_status hv_hive_usable(const hv_hive *hive) {
  return hive->pid == getpid() ? HV_OK : HV_FORKED;
}

/* ---- ops ---- */

void hv_hive_free_op(op *o) {
  if (o->link) {
    *o->link = o->next;
    if (o->next)
      o->next->link = o->link;
  }
  hv_payload_release(o->payload);
  hv_mem_free(o->bytes);
  hv_mem_free(o->block);
  hv_mem_free(o);
}

void hv_hive_fail_op_by(op *o, hv_status status, hv_cause cause, const char *text) {
  hv_future_fail(o->future, status, cause, text);
  hv_hive_free_op(o);
}

void hv_hive_fail_op(op *o, hv_status status, const char *text) {
  hv_hive_fail_op_by(o, status, HV_CAUSE_OTHER, text);
}

static void run_op(hv_command *command, void *core) {
  op *o = (op *)command;
  if (!core) {
    hv_hive_fail_op(o, HV_CLOSED, "the node was shut down");
    return;
  }
  hv_hive *hive = o->hive;
  o->next = hive->ops;
  o->link = &hive->ops;
  if (o->next)
    o->next->link = &o->next;
  hive->ops = o;
  o->start(o, core);
}

static void run_cancel(hv_command *command, void *core) {
  hv_future_cancel_request *request = (hv_future_cancel_request *)command;
  hv_hive *hive = request->maker;
  op *o = core ? hive->ops : NULL;
  while (o && o->future != request->future)
    o = o->next;
  if (o && o->cancel)
    o->cancel(o, core);
  else if (o)
    hv_hive_fail_op(o, HV_CANCELLED, "cancelled");
  hv_future_release(request->future);
}

static void cancel_wanted(hv_future_cancel_request *request) {
  hv_hive *hive = request->maker;
  request->command.run = run_cancel;
  if (hv_hive_usable(hive) != HV_OK || hv_loop_post(hive->loop, &request->command) != HV_OK)
    hv_future_release(request->future); /* it is being ended anyway */
}

op *hv_hive_new_op(hv_hive *hive, void (*start)(op *, hv_node *)) {
  op *o = hv_mem_zalloc(hive->mem, sizeof *o);
  if (!o)
    return NULL;
  o->command.run = run_op;
  o->hive = hive;
  o->start = start;
  return o;
}

hv_status hv_hive_submit(op *o, hv_future **out) {
  hv_hive *hive = o->hive;
  o->future = hv_future_new(hive->mem, cancel_wanted, hive);
  if (!o->future) {
    hv_hive_free_op(o);
    return HV_NOMEM;
  }
  *out = o->future;
  hv_status status = hv_loop_post(hive->loop, &o->command);
  if (status != HV_OK) {
    hv_future_release(o->future);
    hv_future_release(o->future);
    hv_hive_free_op(o);
    *out = NULL;
  }
  return status;
}

hv_status hv_hive_post(hv_hive *hive, hv_command *command) {
  return hv_loop_post(hive->loop, command);
}

/* ---- what changes in the node is told to those who wait, in a step of its own ---- */

static void run_recheck(hv_command *command, void *core) {
  hv_hive *hive = HV_HOLDER(hv_hive, recheck, command);
  hive->recheck_posted = 0;
  for (op *o = core ? hive->ops : NULL, *next; o; o = next) {
    next = o->next;
    if (o->check)
      o->check(o, core);
  }
}

static void node_changed(void *arg) {
  hv_hive *hive = arg;
  if (hive->node)
    hv_closed_keep(&hive->closed, hive->mem, hive->node);
  if (hive->recheck_posted)
    return;
  hive->recheck.run = run_recheck;
  hive->recheck_posted = hv_loop_post(hive->loop, &hive->recheck) == HV_OK;
}

/* Copies the node's addresses for the program's threads. */
static void announces(void *arg, const hv_addr *addrs, size_t n_addrs, const hv_addr *seen) {
  hv_hive *hive = arg;
  hv_opening_see(&hive->opening, seen);
  pthread_mutex_lock(&hive->addrs_lock);
  hive->n_addrs = n_addrs < HV_CARD_ADDRS_MAX ? n_addrs : HV_CARD_ADDRS_MAX;
  memcpy(hive->addrs, addrs, hive->n_addrs * sizeof *addrs);
  pthread_mutex_unlock(&hive->addrs_lock);
}

static void moved(void *arg) {
  hv_opening_again(&((hv_hive *)arg)->opening);
}

/* ---- peers ---- */

static void start_peers(op *o, hv_node *node) {
  const hv_peers *peers = hv_node_peers(node);
  uint64_t now = hv_node_env(node)->now_us(hv_node_env(node));
  hv_hive_peer_info *infos = hv_mem_array(o->hive->mem, peers->n_entries, sizeof *infos);
  if (!infos) {
    hv_hive_fail_op(o, HV_NOMEM, "cannot list the peers: no memory; raise the memory limit");
    return;
  }
  size_t n = 0;
  for (size_t i = 0; i < peers->n_entries; i++) {
    const hv_peers_entry *one = peers->entries[i];
    if (one->state != HV_PEERS_ALIVE)
      continue;
    hv_peer_id id = one->card.id;
    hv_target target = {.addr = {.kind = HV_ADDR_NONE}};
    hv_peers_target(peers, &id, &target);
    infos[n++] = (hv_hive_peer_info){id,          target.addr,        one->card.client_mode,
                                     one->rtt_us, now - one->seen_us, hv_peers_version_of(peers, &id, NULL),
                                     one->member};
  }
  hv_future_finish_taken(o->future, infos, n * sizeof *infos, NULL);
  hv_hive_free_op(o);
}

hv_status hv_hive_peers(hv_hive *hive, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  op *o = hv_hive_new_op(hive, start_peers);
  return o ? hv_hive_submit(o, out) : HV_NOMEM;
}

/* The cause that all initial peers share; HV_CAUSE_OTHER: they fail for several. */
static hv_cause common_cause(const hv_peers *peers) {
  hv_cause cause = peers->n_starts ? peers->starts[0].cause : HV_CAUSE_OTHER;
  for (size_t i = 1; i < peers->n_starts; i++)
    if (peers->starts[i].cause != cause)
      return HV_CAUSE_OTHER;
  return cause;
}

static void tell_that_none_answers(op *o, const hv_peers *peers) {
  hv_error error;
  char where[HV_ADDR_TEXT_MAX];
  const char *foreign = o->hive->foreign.text;
  hv_cause cause = common_cause(peers);
  if (peers->n_starts == 1 && !foreign[0]) {
    hv_fail_by(&error, HV_UNREACHABLE, cause, "no initial peer answers: %s", peers->starts[0].text);
    hv_hive_fail_op_by(o, error.status, error.cause, error.text);
    return;
  }
  hv_fail_by(&error, HV_UNREACHABLE, cause, "no initial peer answers; check that they run and that their ports are open:");
  for (size_t i = 0; i < peers->n_starts; i++) {
    size_t used = strlen(error.text);
    snprintf(error.text + used, sizeof error.text - used, "%s %s (%s)", i ? "," : "",
             hv_addr_print_short(&peers->starts[i].target.addr, where), peers->starts[i].text);
  }
  size_t used = strlen(error.text), room = sizeof error.text - used;
  if (foreign[0] && snprintf(error.text + used, room, ",%s", foreign) >= (int)room)
    hv_log_write(o->hive->log, hv_clock_us(), HV_LOG_WARN, "hive", "addresses_cut",
                 "the error does not hold all addresses; these are skipped as well:%s", foreign);
  hv_hive_fail_op_by(o, error.status, error.cause, error.text);
}

static void check_wait_peers(op *o, hv_node *node) {
  const hv_peers *peers = hv_node_peers(node);
  const char *why;
  hv_cause refused = hv_standing_refused(peers, &why);
  if (hv_peers_alive(peers) >= o->count) {
    hv_future_finish(o->future, hv_span_of(NULL, 0), NULL);
    hv_hive_free_op(o);
  } else if (refused) {
    hv_error error;
    hv_fail_by(&error, HV_NOT_ADMITTED, refused, "cannot join the swarm: %s", why);
    hv_hive_fail_op_by(o, error.status, error.cause, error.text);
  } else if (hv_peers_alive(peers) == 0 && hv_standing_none_answers(peers))
    tell_that_none_answers(o, peers);
}

hv_status hv_hive_wait_peers(hv_hive *hive, size_t at_least, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  op *o = hv_hive_new_op(hive, check_wait_peers);
  if (!o)
    return HV_NOMEM;
  o->check = check_wait_peers;
  o->count = at_least;
  return hv_hive_submit(o, out);
}

/* ---- echo ---- */

static void echo_over(hv_node_echo *echo, hv_status status, hv_span bytes, const char *text) {
  op *o = echo->owner;
  if (status == HV_OK) {
    hv_future_finish(o->future, bytes, &echo->to);
    hv_hive_free_op(o);
  } else
    hv_hive_fail_op_by(o, status, echo->cause, text);
}

static void cancel_echo(op *o, hv_node *node) {
  hv_node_echo_cancel(node, &o->u.echo);
}

/* The sentence for a peer that cannot be asked at all. */
static void fail_to_reach(op *o, hv_status status, const hv_peer_id *peer) {
  char who[HV_PEER_TEXT_MAX];
  hv_error error;
  hv_peer_print(peer, who);
  if (status == HV_NOT_FOUND)
    hv_fail_by(&error, status, HV_CAUSE_UNKNOWN_PEER, "cannot reach peer %s: this node has not met it; call wait_for_peers first",
               who);
  else if (status == HV_UNREACHABLE)
    hv_fail_by(&error, status, HV_CAUSE_CLIENT_MODE,
               "cannot reach peer %s: it is in client mode, so nothing can dial it; let that peer start the transfer", who);
  else
    hv_fail(&error, status, "cannot reach peer %s: %s", who, hv_status_text(status));
  hv_hive_fail_op_by(o, status, error.cause, error.text);
}

static void start_echo(op *o, hv_node *node) {
  hv_node_echo *echo = &o->u.echo;
  echo->done = echo_over;
  echo->owner = o;
  o->cancel = cancel_echo;
  hv_status status = hv_node_echo_start(node, echo);
  if (status != HV_OK)
    fail_to_reach(o, status, &echo->to);
}

hv_status hv_hive_echo(hv_hive *hive, const hv_peer_id *to, hv_span bytes, uint32_t timeout_ms, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  if (bytes.size > HV_MSG_BLOB_MAX)
    return HV_TOO_LARGE;
  op *o = hv_hive_new_op(hive, start_echo);
  if (!o)
    return HV_NOMEM;
  o->bytes = hv_mem_alloc(hive->mem, bytes.size);
  if (!o->bytes) {
    hv_hive_free_op(o);
    return HV_NOMEM;
  }
  if (bytes.size)
    memcpy(o->bytes, bytes.data, bytes.size);
  o->u.echo.to = *to;
  o->u.echo.bytes = hv_span_of(o->bytes, bytes.size);
  o->u.echo.timeout_ms = timeout_ms ? timeout_ms : 1;
  return hv_hive_submit(o, out);
}

/* ---- parcels ---- */

static void send_over(hv_parcel_send *send, hv_status status, const char *text) {
  op *o = send->owner;
  if (status == HV_OK) {
    hv_future_finish(o->future, hv_span_of(NULL, 0), NULL);
    hv_hive_free_op(o);
  } else
    hv_hive_fail_op_by(o, status, send->cause, text);
}

static void cancel_send(op *o, hv_node *node) {
  (void)node;
  hv_parcel_send_cancel(&o->u.send);
}

static void start_send(op *o, hv_node *node) {
  hv_parcel_send *send = &o->u.send;
  send->done = send_over;
  send->owner = o;
  send->payload = o->payload;
  o->cancel = cancel_send;
  hv_status status = hv_node_send_start(node, send, &o->peer);
  if (status != HV_OK)
    fail_to_reach(o, status, &o->peer);
}

static void release_insides(insides *all) {
  if (!all || atomic_fetch_sub(&all->refs, 1) != 1)
    return;
  pthread_mutex_destroy(&all->lock);
  hv_mem_free(all);
}

static int is_inside(insides *all) {
  pthread_mutex_lock(&all->lock);
  inside *one = all->first;
  while (one && !pthread_equal(one->thread, pthread_self()))
    one = one->next;
  pthread_mutex_unlock(&all->lock);
  return one != NULL;
}

typedef struct lent { /* the program's done, called only if the send was accepted */
  void (*done)(void *arg);
  void *arg;
  insides *insides;
} lent;

static void call_done(const lent *l) {
  insides *all = l->insides;
  inside me = {.thread = pthread_self()}, **at;
  pthread_mutex_lock(&all->lock);
  me.next = all->first;
  all->first = &me;
  pthread_mutex_unlock(&all->lock);
  l->done(l->arg);
  pthread_mutex_lock(&all->lock);
  for (at = &all->first; *at != &me;)
    at = &(*at)->next;
  *at = me.next;
  pthread_mutex_unlock(&all->lock);
}

static void lent_done(void *arg) {
  lent *l = arg;
  if (l->done)
    call_done(l);
  release_insides(l->insides);
  hv_mem_free(l);
}

hv_status hv_hive_send(hv_hive *hive, const hv_peer_id *to, hv_span bytes, void (*done)(void *arg), void *arg, uint32_t timeout_ms,
                       hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  op *o = hv_hive_new_op(hive, start_send);
  lent *l = hv_mem_zalloc(hive->mem, sizeof *l);
  if (l) {
    l->insides = hive->insides;
    atomic_fetch_add(&l->insides->refs, 1);
  }
  if (o && l)
    o->payload = hv_payload_borrow(hive->mem, bytes.data, bytes.size, lent_done, l);
  if (!o || !l || !o->payload) {
    if (l)
      release_insides(l->insides);
    hv_mem_free(l);
    hv_mem_free(o);
    return HV_NOMEM;
  }
  o->peer = *to;
  o->u.send.timeout_ms = timeout_ms ? timeout_ms : 1;
  hv_payload *payload = hv_payload_keep(o->payload);
  l->done = done;
  l->arg = arg;
  hv_status status = hv_hive_submit(o, out);
  if (status != HV_OK)
    l->done = NULL; /* not accepted: the program still has its bytes, and is not told */
  hv_payload_release(payload);
  return status;
}

static void check_receive(op *o, hv_node *node) {
  hv_parcel *parcel = hv_node_take_parcel(node);
  if (!parcel)
    return;
  if (!hv_future_offer(o->future, parcel->bytes, parcel->size, &parcel->from)) {
    hv_hive_fail_op(o, HV_CANCELLED, "cancelled");
    hv_node_return_parcel(node, parcel); /* for the next who waits */
    return;
  }
  hv_mem_free(parcel);
  hv_hive_free_op(o);
}

/* ---- a parcel goes back ---- */

typedef struct going_back {
  hv_command command;
  hv_parcel *parcel;
} going_back;

static void run_going_back(hv_command *command, void *core) {
  going_back *b = (going_back *)command;
  if (core)
    hv_node_return_parcel(core, b->parcel);
  else {
    hv_mem_free(b->parcel->bytes);
    hv_mem_free(b->parcel);
  }
  hv_mem_free(b);
}

hv_status hv_hive_unreceive(hv_hive *hive, hv_future *future) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  going_back *b = hv_mem_zalloc(hive->mem, sizeof *b);
  hv_parcel *parcel = hv_mem_zalloc(hive->mem, sizeof *parcel);
  hv_status status = b && parcel ? HV_OK : HV_NOMEM;
  if (status == HV_OK && !(parcel->bytes = hv_future_take(future, &parcel->size, &parcel->from)))
    status = HV_NOT_FOUND;
  if (status == HV_OK) {
    *b = (going_back){.command = {.run = run_going_back}, .parcel = parcel};
    status = hv_loop_post(hive->loop, &b->command);
  }
  if (status != HV_OK) {
    if (parcel)
      hv_mem_free(parcel->bytes);
    hv_mem_free(parcel);
    hv_mem_free(b);
  }
  return status;
}

hv_status hv_hive_receive(hv_hive *hive, hv_future **out) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED;
  op *o = hv_hive_new_op(hive, check_receive);
  if (!o)
    return HV_NOMEM;
  o->check = check_receive;
  return hv_hive_submit(o, out);
}

/* ---- life ---- */

static hv_status make_identity(hv_hive *hive, const hv_hive_config *config, hv_error *err) {
  uint8_t seed[32];
  hv_random(seed, sizeof seed);
  if (config->identity_path)
    return hv_identity_load(hive->mem, config->identity_path, seed, &hive->identity, err);
  hive->identity = hv_identity_from_seed(hive->mem, seed);
  return hive->identity
             ? HV_OK
             : hv_fail(err, HV_CRYPTO, "cannot create a key: libcrypto failed, or memory ran out; raise the memory limit");
}

static hv_dht_config dht_settings(const hv_hive_dht_config *config) {
  return (hv_dht_config){
      .bucket_size = config->bucket_size,
      .num_replicas = config->num_replicas,
      .parallel_rpc = config->parallel_rpc,
      .cache_nearest = config->cache_nearest,
      .cache_locally = config->cache_locally,
      .wait_timeout_ms = config->wait_timeout_ms,
      .refresh_ms = config->refresh_ms,
      .blacklist_ms = config->blacklist_ms,
      .backoff_rate = config->backoff_rate,
      .cache = {.records = config->cache_records},
  };
}

static hv_status make_node(hv_hive *hive, const hv_hive_config *config, const hv_addresses *initial, hv_error *err) {
  hv_node_config node = {
      .me = *hv_identity_peer(hive->identity),
      .client_mode = config->client_mode,
      .announce = hive->announce,
      .n_announce = hive->n_announce,
      .initial = initial->targets,
      .n_initial = initial->n,
      .dht = dht_settings(&config->dht),
      .parcels_strange_max = config->strange_parcels,
      .changed = node_changed,
      .announces = announces,
      .moved = moved,
      .arg = hive,
  };
  hv_status status = hv_node_new(hv_loop_env(hive->loop), &node, &hive->node);
  return status == HV_OK ? HV_OK : hv_fail(err, status, "cannot start a node: %s", hv_status_text(status));
}

/* On the hive thread: whatever still waits for something that will not come. */
static void ended(void *arg, const char *why) {
  hv_hive *hive = arg;
  if (hive->node)
    hv_averages_open_gates(hv_node_averages(hive->node));
  while (hive->ops)
    hv_hive_fail_op(hive->ops, HV_CLOSED, why);
}

/* A list that the program has kept: without it denied peers would be admitted. */
static hv_status take_denials(hv_hive *hive, hv_span list, hv_error *err) {
  hv_status status = hv_spread_take(hv_node_spread(hive->node), list);
  if (status != HV_OK)
    return hv_fail(err, status, "cannot start a node: its list of denials is none of this swarm (%s); give the list again",
                   hv_status_text(status));
  hv_closed_keep(&hive->closed, hive->mem, hive->node);
  return HV_OK;
}

static hv_status assemble(hv_hive *hive, const hv_hive_config *config, const hv_addresses *listen, const hv_addresses *initial,
                          hv_error *err) {
  hv_addr addrs[HV_CARD_ADDRS_MAX] = {{.kind = HV_ADDR_IP4}}; /* 0.0.0.0, a free port */
  size_t n_addrs = config->client_mode ? 0 : 1;
  if (listen->n > HV_CARD_ADDRS_MAX)
    return hv_fail(err, HV_TOO_LARGE, "cannot listen on %zu addresses: the limit is %d; give fewer", listen->n, HV_CARD_ADDRS_MAX);
  if (config->client_mode && listen->n)
    return hv_fail(err, HV_INVALID,
                   "cannot listen in client mode: such a peer only dials out; remove the addresses to listen on, or client mode");
  for (size_t i = 0; i < listen->n; i++)
    addrs[i] = listen->targets[i].addr, n_addrs = i + 1;

  hv_status status = hv_closed_read(&hive->closed, hive->mem, config, err);
  if (status == HV_OK)
    status = make_identity(hive, config, err);
  if (status != HV_OK)
    return status;
  if (n_addrs && !config->keep_file_limit)
    hv_door_raise_files();
  hv_loop_config loop = {
      .mem = hive->mem,
      .log = hive->log,
      .identity = hive->identity,
      .insecure = config->insecure,
      .credentials = hive->closed.credentials.signer ? &hive->closed.credentials : NULL,
      .listen = addrs,
      .n_listen = n_addrs,
      .pool_threads = config->pool_threads,
      .versions = config->versions,
      .ended = ended,
      .arg = hive,
  };
  status = hv_loop_new(&loop, &hive->loop, err);
  if (status == HV_OK) {
    size_t n;
    const hv_addr *first = hv_loop_addrs(hive->loop, &n);
    announces(hive, hive->n_announce ? hive->announce : first, hive->n_announce ? hive->n_announce : n, &(hv_addr){0});
    status = make_node(hive, config, initial, err);
  }
  if (status == HV_OK && config->denials.size)
    status = take_denials(hive, config->denials, err);
  if (status == HV_OK)
    status = hv_loop_run(hive->loop, &(hv_core){hive->node, hv_node_step}, err);
  return status;
}

/* A list of which nothing can ever be dialled is refused; else what was skipped is told if the others do not answer. */
static hv_status check_initial(hv_hive *hive, const hv_addresses *initial, hv_error *err) {
  hive->foreign = initial->foreign;
  if (initial->n || !initial->foreign.text[0])
    return HV_OK;
  return hv_fail_by(err, HV_UNSUPPORTED, HV_CAUSE_OTHER_TRANSPORT,
                    "no initial peer can be dialled: only TCP is supported; give an address with /tcp/ in it:%s",
                    initial->foreign.text);
}

static hv_status set_announce(hv_hive *hive, const hv_addresses *announce, hv_error *err) {
  if (announce->n > HV_CARD_ADDRS_MAX)
    return hv_fail(err, HV_TOO_LARGE, "cannot announce %zu addresses: the limit is %d; give fewer", announce->n, HV_CARD_ADDRS_MAX);
  for (size_t i = 0; i < announce->n; i++) {
    hive->announce[i] = announce->targets[i].addr;
    if (hv_addr_is_unspecified(&hive->announce[i]) || hive->announce[i].port == 0)
      return hv_fail(err, HV_INVALID,
                     "cannot announce an address with 0.0.0.0, :: or port 0: other peers cannot dial it; give the host and port "
                     "that they reach");
  }
  hive->n_announce = announce->n;
  return HV_OK;
}

static void tell_where(hv_hive *hive, int insecure) {
  char who[HV_PEER_TEXT_MAX], where[HV_ADDR_TEXT_MAX] = "no address: it only dials out";
  hv_addr first;
  size_t n = hv_hive_addrs(hive, &first, 1);
  if (n)
    hv_addr_print_short(&first, where);
  if (insecure)
    hv_log_write(hive->log, hv_clock_us(), HV_LOG_WARN, "hive", "insecure",
                 "this peer runs without TLS (insecure=True): any program can claim to be any peer, and read and change all that "
                 "is sent; use it on this machine only");
  hv_log_write(hive->log, hv_clock_us(), HV_LOG_INFO, "hive", "started", "peer %s listens at %s%s",
               hv_peer_print(hv_hive_peer(hive), who), where, n > 1 ? " and more" : "");
}

/* The loop has stopped (or never ran); its env stands until the node that may still clear a timer there is gone. */
static void free_hive(hv_hive *hive) {
  hv_node_free(hive->node);
  hv_loop_free(hive->loop);
  hv_identity_free(hive->identity);
  hv_closed_fini(&hive->closed);
  hv_log_free(hive->log);
  release_insides(hive->insides);
  pthread_mutex_destroy(&hive->stopping);
  pthread_mutex_destroy(&hive->addrs_lock);
  hv_opening_fini(&hive->opening);
  hv_mem *mem = hive->mem;
  hv_mem_free(hive);
  hv_mem_drop(mem);
}

hv_status hv_hive_start(const hv_hive_config *config, hv_hive **out, hv_error *err) {
  enum { LOG_RECORDS = 1024 };
  if (hv_grpc_orphaned(HV_GRPC_TASKS))
    return hv_fail(err, HV_FORKED,
                   "cannot start a node: this process was forked from one that had a node, and gRPC does not survive that; start "
                   "the node in a spawned process, or fork before the first node (without /proc, start one node in a process)");
  hv_mem *mem = hv_mem_new(NULL, config->memory_limit ? config->memory_limit : HV_MEM_UNLIMITED);
  hv_hive *hive = mem ? hv_mem_zalloc(mem, sizeof *hive) : NULL;
  if (!hive) {
    hv_mem_drop(mem);
    return hv_fail(err, HV_NOMEM, "cannot start a node: no memory; raise the memory limit");
  }
  hive->mem = mem;
  hive->pid = getpid();
  pthread_mutex_init(&hive->stopping, NULL);
  pthread_mutex_init(&hive->addrs_lock, NULL);
  hv_opening_init(&hive->opening);
  hv_closed_init(&hive->closed);
  hv_addresses listen = {0}, announce = {0}, initial = {0};
  hive->log = hv_log_new(mem, LOG_RECORDS, config->log_level);
  hive->insides = hv_mem_zalloc(mem, sizeof *hive->insides);
  if (hive->insides) {
    atomic_init(&hive->insides->refs, 1);
    pthread_mutex_init(&hive->insides->lock, NULL);
  }
  hv_status status =
      hive->log && hive->insides ? HV_OK : hv_fail(err, HV_NOMEM, "cannot start a node: no memory; raise the memory limit");
  if (status == HV_OK)
    status = hv_addresses_read(mem, hive->log, config->listen, config->n_listen, &listen, err);
  if (status == HV_OK)
    status = hv_addresses_read(mem, hive->log, config->announce, config->n_announce, &announce, err);
  if (status == HV_OK)
    status = hv_addresses_read(mem, hive->log, config->initial_peers, config->n_initial_peers, &initial, err);
  if (status == HV_OK)
    status = check_initial(hive, &initial, err);
  if (status == HV_OK)
    status = set_announce(hive, &announce, err);
  if (status == HV_OK)
    status = assemble(hive, config, &listen, &initial, err);
  hv_mem_free(listen.targets);
  hv_mem_free(announce.targets);
  hv_mem_free(initial.targets);
  if (status == HV_OK) {
    tell_where(hive, config->insecure);
    if (config->open_port && !hive->n_announce)
      hv_opening_start(&hive->opening, hive->mem, hive->log, hive->loop, hive->addrs, hive->n_addrs);
    *out = hive;
  } else
    free_hive(hive);
  return status;
}

hv_status hv_hive_stop(hv_hive *hive) {
  if (hv_hive_usable(hive) != HV_OK)
    return HV_FORKED; /* the threads are the parent's */
  if (hv_loop_inside(hive->loop) || is_inside(hive->insides))
    return HV_STATE; /* it would wait for itself */
  pthread_mutex_lock(&hive->stopping);
  if (!hive->stopped)
    hv_loop_stop(hive->loop), hv_opening_stop(&hive->opening); /* the hive thread has ended all ops */
  hive->stopped = 1;
  pthread_mutex_unlock(&hive->stopping);
  return HV_OK;
}

hv_status hv_hive_free(hv_hive *hive) {
  hv_status status = hive ? hv_hive_stop(hive) : HV_OK;
  if (hive && status == HV_OK)
    free_hive(hive);
  return status;
}

const hv_peer_id *hv_hive_peer(const hv_hive *hive) {
  return hv_identity_peer(hive->identity);
}

size_t hv_hive_addrs(hv_hive *hive, hv_addr *out, size_t max) {
  int is_mine = hv_hive_usable(hive) == HV_OK; /* in a forked child nobody holds the lock who could release it */
  if (is_mine)
    pthread_mutex_lock(&hive->addrs_lock);
  size_t n = hive->n_addrs;
  memcpy(out, hive->addrs, (n < max ? n : max) * sizeof *out);
  if (is_mine)
    pthread_mutex_unlock(&hive->addrs_lock);
  return n;
}

int hv_hive_port(hv_hive *hive, char out[HV_PORT_TEXT_MAX], hv_addr *seen) {
  out[0] = 0, *seen = (hv_addr){0};
  return hv_hive_usable(hive) == HV_OK && hv_opening_text(&hive->opening, out, seen);
}

hv_loop *hv_hive_loop(hv_hive *hive) {
  return hive->loop;
}

hv_closed *hv_hive_closed(hv_hive *hive) {
  return &hive->closed;
}

hv_log *hv_hive_log(hv_hive *hive) {
  return hive->log;
}

hv_mem *hv_hive_mem(hv_hive *hive) {
  return hive->mem;
}
