#include "core/node.h"

#include "core/peers/moves.h"
#include "core/peers/presence.h"
#include "core/peers/reach.h"
#include "core/peers/standing.h"

#include <string.h>

struct hv_node {
  hv_env *env;
  hv_node_config config;
  hv_peers peers;
  hv_reach reach;
  hv_presence presence;
  hv_spread spread; /* of the list of denials */
  hv_parcels parcels;
  hv_dht *dht;
  hv_state *state;
  hv_givers givers;
  hv_takers takers;
  hv_allreduce_registry registry;
  hv_progress_registry progress;
  hv_match_registry matches;
  hv_averages averages;
  hv_notices notices;
  int started, stopping, left; /* left: the farewells are over */
  hv_addr seen;                /* the last host in the log */
};

/* Tells the program this node's addresses, and where initial peers see it. */
static void announces(hv_node *node) {
  const hv_card *me = &node->peers.config.me;
  if (node->config.announces)
    node->config.announces(node->config.arg, me->addrs, me->n_addrs, &node->peers.outer);
}

/* Initial peers may see this machine at another host than before. */
static void look_seen(hv_node *node) {
  hv_addr seen = node->peers.outer;
  char where[HV_ADDR_TEXT_MAX];
  seen.port = 0;
  if (hv_addr_equal(&seen, &node->seen) || seen.kind == HV_ADDR_NONE)
    return;
  node->seen = seen;
  announces(node);
  hv_addr_print_short(&node->peers.outer, where);
  if (hv_reach_is_own_host(&node->reach, &seen))
    hv_env_log(node->env, HV_LOG_INFO, "peers", "seen", "peers see this machine at %s, which is its own address", where);
  else if (node->reach.n_own)
    hv_env_log(node->env, HV_LOG_INFO, "peers", "seen",
               "peers see this machine at %s, which is not its own address: it is behind a NAT", where);
  else
    hv_env_log(node->env, HV_LOG_INFO, "peers", "seen", "peers see this machine at %s", where);
}

static void something_changed(void *arg) {
  hv_node *node = arg;
  look_seen(node);
  hv_reach_look(&node->reach);
  hv_presence_look(&node->presence);
  if (node->config.changed)
    node->config.changed(node->config.arg);
}

/* All goodbyes are said, and no step is under way: the program's tensors are its own again. */
static void may_have_stopped(hv_node *node) {
  if (node->left && !hv_averages_busy(&node->averages))
    node->env->stopped(node->env);
}

static void peers_left(void *arg) {
  hv_node *node = arg;
  node->left = 1;
  may_have_stopped(node);
}

static void steps_ended(void *arg) {
  may_have_stopped(arg);
}

static void peer_answered(void *arg, const hv_peer_id *id, const hv_addr *addrs, size_t n_addrs, uint64_t rtt_us) {
  hv_node *node = arg;
  hv_dht_met(node->dht, id, addrs, n_addrs, rtt_us);
}

static void peer_lost(void *arg, const hv_peer_id *id) {
  hv_node *node = arg;
  hv_dht_lost(node->dht, id);
}

/* It has ended: no room waits for it, counts it, or takes its word from before. */
static void peer_gone(void *arg, const hv_peer_id *id) {
  hv_node *node = arg;
  hv_dht_owner_ended(node->dht, id);
  hv_state_gone(node->state, id);
  hv_givers_gone(&node->givers, id);
  hv_takers_gone(&node->takers, id);
  hv_match_gone(&node->matches, id);
  hv_progress_gone(&node->progress, id);
  hv_allreduce_gone(&node->registry, id, UINT64_MAX);
}

/* The other rooms hear anew all that they know of it. */
static void peer_reborn(void *arg, const hv_peer_id *id, uint64_t since_us) {
  hv_node *node = arg;
  hv_allreduce_gone(&node->registry, id, since_us);
}

/* News of a member's end may come before its host's word that the group has begun. One that has ended and is there
 * again is not in what it was in before. */
static int has_ended(void *arg, const hv_peer_id *id, uint64_t since_us) {
  enum { BEGIN_TRAVELS_US = 500000 };
  const hv_peers_entry *entry = hv_peers_find(&((hv_node *)arg)->peers, id);
  if (!entry || !entry->ended_us)
    return 0;
  return entry->gone ? entry->ended_us + BEGIN_TRAVELS_US > since_us : entry->again_us > since_us;
}

/* It is asked at once, so that its silence towards a round and towards this node's hellos take one time. */
static int is_lost(void *arg, const hv_peer_id *id, uint64_t since_us) {
  hv_node *node = arg;
  const hv_peers_entry *entry = hv_peers_find(&node->peers, id);
  hv_peers_doubt(&node->peers, id);
  return entry && entry->state == HV_PEERS_LOST && entry->lost_us >= since_us;
}

/* A stream for a round in which this node is not, and will not be: it is another life of the member that they mean. */
static void turned_away(void *arg, const hv_peer_id *peer, const uint8_t round[HV_ROUND_ID_SIZE]) {
  hv_node *node = arg;
  hv_target to;
  hv_msg msg = {.kind = HV_MSG_DEPART};
  memcpy(msg.u.depart.round, round, HV_ROUND_ID_SIZE);
  if (hv_peers_target(&node->peers, peer, &to) == HV_OK)
    hv_notice_send(&node->notices, &to, &msg);
}

static hv_tier tier(void *arg, const hv_peer_id *peer) {
  return hv_standing_tier(&((hv_node *)arg)->peers, peer);
}

static hv_standing standing(void *arg, const hv_peer_id *id) {
  return hv_standing_of(&((hv_node *)arg)->peers, id);
}

static hv_contact_source source(void *arg, const hv_peer_id *id) {
  return hv_standing_source(&((hv_node *)arg)->peers, id);
}

/* It is in the routing table, so it answered at an address. */
static int is_dialled(void *arg, const hv_peer_id *id) {
  return hv_route_find(hv_dht_route(((hv_node *)arg)->dht), id) != NULL;
}

static void reach_changed(void *arg);

static void init_parcels(hv_node *node) {
  const hv_node_config *config = &node->config;
  size_t held_max = config->parcels_held_max ? config->parcels_held_max : (size_t)2 << 30;
  size_t strange_max = config->parcels_strange_max              ? config->parcels_strange_max
                       : held_max / 2 < HV_NODE_STRANGE_PARCELS ? held_max / 2
                                                                : HV_NODE_STRANGE_PARCELS;
  hv_parcels_init(&node->parcels, node->env, config->parcel_max ? config->parcel_max : (size_t)1 << 30, held_max, strange_max,
                  something_changed, node);
  node->parcels.tier = tier;
}

hv_status hv_node_new(hv_env *env, const hv_node_config *config, hv_node **out) {
  hv_node *node = hv_mem_zalloc(env->mem, sizeof *node);
  if (!node)
    return HV_NOMEM;
  node->env = env;
  node->config = *config;
  hv_peers_config peers = {
      .me = {.id = config->me, .client_mode = config->client_mode != 0},
      .initial = config->initial,
      .n_initial = config->n_initial,
      .hello_every_ms = config->hello_every_ms,
      .hello_timeout_ms = config->hello_timeout_ms,
      .room = config->peers_room,
      .left = peers_left,
      .changed = something_changed,
      .answered = peer_answered,
      .lost = peer_lost,
      .gone = peer_gone,
      .reborn = peer_reborn,
      .arg = node,
  };
  for (size_t i = 0; i < config->n_announce && i < HV_CARD_ADDRS_MAX; i++)
    peers.me.addrs[peers.me.n_addrs++] = config->announce[i];
  hv_status status = hv_peers_init(&node->peers, env, &peers);
  if (status != HV_OK) {
    hv_mem_free(node);
    return status;
  }
  hv_spread_init(&node->spread, env, &node->peers);
  hv_reach_init(&node->reach, env, &node->peers, reach_changed, node);
  hv_dht_config dht = config->dht;
  dht.me = config->me;
  dht.client_mode = config->client_mode;
  status = hv_dht_new(env, &dht, &node->dht);
  if (status != HV_OK) {
    hv_peers_fini(&node->peers);
    hv_mem_free(node);
    return status;
  }
  hv_state_config state = config->state;
  state.me = config->me;
  state.client_mode = config->client_mode;
  state.standing = standing;
  state.source = source;
  state.arg = node;
  status = hv_state_new(env, &state, node->dht, &node->state);
  if (status != HV_OK) {
    hv_dht_free(node->dht);
    hv_peers_fini(&node->peers);
    hv_mem_free(node);
    return status;
  }
  hv_givers_init(&node->givers, env, node->dht, &node->peers);
  node->givers.chunk_bytes = config->state.chunk_bytes;
  hv_takers_init(&node->takers, env, node->dht, &node->config.me);
  hv_allreduce_registry_init(&node->registry, env);
  node->registry.tier = tier;
  node->registry.has_ended = has_ended;
  node->registry.is_lost = is_lost;
  node->registry.turned_away = turned_away;
  node->registry.arg = node;
  hv_progress_registry_init(&node->progress, env, node->dht, &node->config.me);
  hv_notices_init(&node->notices, env);
  hv_presence_init(&node->presence, env, &node->peers, &node->notices);
  node->presence.is_dialled = is_dialled;
  node->presence.arg = node;
  node->registry.notices = node->progress.notices = &node->notices;
  node->progress.peers = &node->peers;
  hv_match_registry_init(&node->matches, env, node->dht, &node->peers);
  node->matches.notices = &node->notices;
  hv_averages_init(&node->averages, env, &node->matches, &node->registry);
  node->averages.stopped = steps_ended;
  node->averages.arg = node;
  init_parcels(node);
  env->tier = tier;
  env->tier_arg = node;
  *out = node;
  return HV_OK;
}

void hv_node_free(hv_node *node) {
  if (!node)
    return;
  node->env->tier = NULL;
  hv_progress_registry_fini(&node->progress);
  hv_givers_fini(&node->givers);
  hv_takers_fini(&node->takers);
  hv_state_free(node->state);
  hv_allreduce_registry_fini(&node->registry); /* lingering rounds read the averagers' runs */
  hv_averages_fini(&node->averages);
  hv_match_registry_fini(&node->matches);
  hv_dht_free(node->dht);
  hv_parcels_fini(&node->parcels);
  hv_presence_fini(&node->presence);
  hv_notices_fini(&node->notices);
  hv_peers_fini(&node->peers);
  hv_mem_free(node);
}

hv_env *hv_node_env(hv_node *node) {
  return node->env;
}

hv_spread *hv_node_spread(hv_node *node) {
  return &node->spread;
}

hv_peers *hv_node_peers(hv_node *node) {
  return &node->peers;
}

hv_dht *hv_node_dht(hv_node *node) {
  return node->dht;
}

hv_state *hv_node_state(hv_node *node) {
  return node->state;
}

hv_allreduce_registry *hv_node_registry(hv_node *node) {
  return &node->registry;
}

hv_progress_registry *hv_node_progress(hv_node *node) {
  return &node->progress;
}

hv_givers *hv_node_givers(hv_node *node) {
  return &node->givers;
}

hv_takers *hv_node_takers(hv_node *node) {
  return &node->takers;
}

hv_averages *hv_node_averages(hv_node *node) {
  return &node->averages;
}

void hv_node_opened(hv_node *node, const hv_addr *addr) {
  if (node->config.n_announce == 0 && !node->config.client_mode)
    hv_reach_offer(&node->reach, addr);
}

hv_match_registry *hv_node_match_registry(hv_node *node) {
  return &node->matches;
}

const hv_peer_id *hv_node_id(const hv_node *node) {
  return &node->config.me;
}

/* ---- what peers ask ---- */

/* A peer that stays takes no part in something any more. */
static void departed(hv_node *node, const hv_event *event) {
  const hv_msg_depart *depart = &event->msg->u.depart;
  hv_peer_id peer = event->request->peer;
  hv_match_departed(&node->matches, &peer, depart->key);
  if (depart->run)
    hv_progress_departed(&node->progress, &peer, depart->run);
  hv_allreduce_departed(&node->registry, &peer, depart->round);
  node->env->reply(node->env, event->request, &(hv_msg){.kind = HV_MSG_DEPART});
}

/* The caller is of a release that does not take part in the denials of this closed swarm. */
static void refuse_older(hv_node *node, hv_request *request) {
  hv_env_refuse(node->env, request, HV_NOT_ADMITTED,
                "this closed swarm needs a newer release of hivemind_c, in which denials hold from all holders of the key: upgrade "
                "hivemind_c");
}

static void asked(hv_node *node, const hv_event *event) {
  if (!hv_spread_speaks(node->env, &event->request->peer)) {
    refuse_older(node, event->request);
    return;
  }
  switch (event->msg->kind) {
  case HV_MSG_HELLO: {
    hv_peer_id peer = event->request->peer; /* the request ends with its answer */
    uint64_t mark = event->msg->u.hello.denials;
    hv_peers_hello(&node->peers, event);
    hv_spread_hello(&node->spread, &peer, mark);
    return;
  }
  case HV_MSG_DENIALS:
    hv_spread_asked(&node->spread, event);
    something_changed(node);
    return;
  case HV_MSG_LEAVE:
    hv_presence_left(&node->presence, &event->request->peer);
    hv_peers_left(&node->peers, event);
    return;
  case HV_MSG_DEPART:
    departed(node, event);
    return;
  case HV_MSG_FIND:
  case HV_MSG_FINDS:
  case HV_MSG_STORE:
    hv_dht_asked(node->dht, event);
    return;
  case HV_MSG_SUMMON:
    hv_match_asked(&node->matches, event);
    return;
  case HV_MSG_PROGRESS:
    hv_progress_asked(&node->progress, event);
    return;
  case HV_MSG_DIAL:
    hv_reach_asked(&node->reach, event);
    return;
  case HV_MSG_ENDED:
    hv_presence_told(&node->presence, event);
    return;
  case HV_MSG_STATE_WANTED:
    hv_state_asked(node->state, event);
    return;
  case HV_MSG_ECHO:
    node->env->reply(node->env, event->request, event->msg);
    return;
  default:
    hv_env_refuse(node->env, event->request, HV_UNSUPPORTED, "this peer does not answer such a message");
  }
}

static void stream_opened(hv_node *node, const hv_event *event) {
  if (node->stopping || !hv_spread_speaks(node->env, &event->stream->peer))
    return;
  if (event->msg->kind == HV_MSG_PARCEL)
    hv_parcels_opened(&node->parcels, event);
  if (event->msg->kind == HV_MSG_SHARE || event->msg->kind == HV_MSG_ATTEND)
    hv_allreduce_opened(&node->registry, event);
  if (event->msg->kind == HV_MSG_STATE)
    hv_state_opened(node->state, event);
  if (event->msg->kind == HV_MSG_GIFT)
    hv_takers_opened(&node->takers, event);
  if (event->msg->kind == HV_MSG_PRESENT)
    hv_presence_opened(&node->presence, event);
  if (event->msg->kind == HV_MSG_JOIN)
    hv_match_opened(&node->matches, event);
}

/* Puts this node's addresses into its card: those that the program announces, else those at which it can be dialled. */
static void set_card(hv_node *node) {
  hv_addr addrs[HV_CARD_ADDRS_MAX];
  if (node->config.n_announce == 0)
    hv_moves_set_addrs(&node->peers, addrs, hv_reach_addrs(&node->reach, addrs));
  announces(node);
}

/* Every part learns them. */
static void announce(hv_node *node) {
  if (node->stopping || !node->started)
    return;
  set_card(node);
  const hv_card *me = &node->peers.config.me;
  hv_dht_set_addrs(node->dht, me->addrs, me->n_addrs);
  hv_state_start(node->state, me->addrs, me->n_addrs);
}

static void reach_changed(void *arg) {
  announce(arg);
}

/* Where this node listens, for all that others can dial. */
static void learn_own(hv_node *node, const hv_event *event) {
  if (node->config.n_announce == 0 && !node->config.client_mode)
    hv_reach_set_own(&node->reach, event->addrs, event->n_addrs);
}

static void start(hv_node *node, const hv_event *event) {
  learn_own(node, event);
  set_card(node);
  const hv_card *me = &node->peers.config.me;
  hv_dht_start(node->dht, me->addrs, me->n_addrs);
  hv_state_start(node->state, me->addrs, me->n_addrs);
  hv_peers_start_asking(&node->peers, event);
  node->started = 1;
}

/* This machine has other addresses, or slept: all peers hear from it now. */
static void moved(hv_node *node, const hv_event *event) {
  learn_own(node, event);
  announce(node);
  hv_moves_network(&node->peers);
  hv_presence_moved(&node->presence);
  if (node->config.moved)
    node->config.moved(node->config.arg);
}

/* True if a peer of an older release answered in a closed swarm: the call has failed, and *out says so. */
static int answers_as_older(const hv_node *node, const hv_event *event, hv_event *out) {
  if (event->kind != HV_EVENT_CALL_DONE || event->status != HV_OK || hv_spread_speaks(node->env, &event->peer))
    return 0;
  *out = *event;
  out->status = HV_VERSION;
  out->msg = NULL;
  out->text =
      "the peer runs an older release of hivemind_c, which does not take part in the denials of this closed swarm: upgrade it";
  return 1;
}

void hv_node_step(void *self, const hv_event *event) {
  hv_node *node = self;
  hv_event older;
  if (answers_as_older(node, event, &older))
    event = &older;
  if (event->kind == HV_EVENT_CALL_DONE)
    hv_peers_called(&node->peers, event);
  int answers = event->kind == HV_EVENT_CALL_DONE && event->status == HV_OK;
  int is_hello = answers && event->msg->kind == HV_MSG_HELLO, is_denials = answers && event->msg->kind == HV_MSG_DENIALS;
  if (hv_event_dispatch(event)) {
    if (is_hello)
      hv_spread_hello(&node->spread, &event->peer, event->msg->u.hello.denials);
    if (is_denials)
      something_changed(node);
    return;
  }
  switch (event->kind) {
  case HV_EVENT_START:
    start(node, event);
    return;
  case HV_EVENT_NETWORK:
    if (!node->stopping)
      moved(node, event);
    return;
  case HV_EVENT_REQUEST:
    asked(node, event);
    return;
  case HV_EVENT_STREAM_OPENED:
    stream_opened(node, event);
    return;
  case HV_EVENT_PEER_DOWN:
    hv_peers_down(&node->peers, event);
    hv_allreduce_cut(&node->registry, &event->peer);
    return;
  case HV_EVENT_COMMAND:
    event->command->run(event->command, node);
    return;
  case HV_EVENT_STOP:
    node->stopping = 1;
    hv_reach_stop(&node->reach);
    hv_presence_stop(&node->presence);
    hv_spread_stop(&node->spread);
    hv_progress_registry_fini(&node->progress);
    hv_givers_stop(&node->givers);
    hv_takers_stop(&node->takers);
    hv_state_stop(node->state);
    hv_averages_stop(&node->averages);
    hv_match_registry_stop(&node->matches);
    hv_dht_stop(node->dht);
    hv_peers_leave(&node->peers);
    return;
  default:
    return;
  }
}

/* ---- what the program asks ---- */

static void echo_done(hv_call *call, const hv_event *event) {
  hv_node_echo *echo = call->owner;
  echo->cause = event->cause;
  hv_status status = event->status == HV_CANCELLED && !echo->cancelled ? HV_CLOSED : event->status;
  if (status != HV_OK)
    echo->done(echo, status, hv_span_of(NULL, 0), event->text);
  else if (event->msg->kind != HV_MSG_ECHO || !hv_span_equal(event->msg->u.echo.bytes, echo->bytes))
    echo->done(echo, HV_CORRUPT, hv_span_of(NULL, 0), "the peer sent other bytes back");
  else
    echo->done(echo, HV_OK, event->msg->u.echo.bytes, "");
}

hv_status hv_node_echo_start(hv_node *node, hv_node_echo *echo) {
  echo->cancelled = 0;
  echo->call = (hv_call){.done = echo_done, .owner = echo, .timeout_ms = echo->timeout_ms};
  hv_status status = hv_peers_target(&node->peers, &echo->to, &echo->call.to);
  hv_msg msg = {.kind = HV_MSG_ECHO, .u.echo = {echo->bytes}};
  return status == HV_OK ? node->env->call(node->env, &echo->call, &msg) : status;
}

void hv_node_echo_cancel(hv_node *node, hv_node_echo *echo) {
  echo->cancelled = 1;
  node->env->call_cancel(node->env, &echo->call);
}

hv_status hv_node_send_start(hv_node *node, hv_parcel_send *send, const hv_peer_id *to) {
  hv_target target;
  hv_status status = hv_peers_target(&node->peers, to, &target);
  return status == HV_OK ? hv_parcel_send_start(send, node->env, &target) : status;
}

hv_parcel *hv_node_take_parcel(hv_node *node) {
  return hv_parcels_take(&node->parcels);
}

void hv_node_return_parcel(hv_node *node, hv_parcel *parcel) {
  hv_parcels_return(&node->parcels, parcel);
}
