#include "core/peers/peers.h"

#include "core/peers/moves.h"
#include "core/peers/pauses.h"
#include "core/peers/spoken.h"

#include <string.h>

enum {
  GOSSIP_CARDS = 8,   /* in one answer */
  DOUBTS = 2,         /* silences before a peer is lost, */
  MORE_DOUBTS = 6,    /* and if it answered somebody else of this node during the last one */
  ADDRS_TO_TRY = 3,   /* of one that has many */
  LOST_TRIES = 12,    /* before a lost one is only asked when nobody else is left */
  CLIENT_SILENCE = 3, /* hellos a client may miss */
  SPARED = 3,         /* hellos in a row for which the other's own stand */
  DOUBT_US = 1000000, /* a sign of life this recent leaves no doubt */
};

/* ---- states ---- */

static const uint8_t may_become[HV_PEERS_STATES][HV_PEERS_STATES] = {
    [HV_PEERS_UNVERIFIED] = {[HV_PEERS_ALIVE] = 1, [HV_PEERS_LOST] = 1},
    [HV_PEERS_ALIVE] = {[HV_PEERS_ALIVE] = 1, [HV_PEERS_DOUBTED] = 1, [HV_PEERS_LOST] = 1},
    [HV_PEERS_DOUBTED] = {[HV_PEERS_ALIVE] = 1, [HV_PEERS_DOUBTED] = 1, [HV_PEERS_LOST] = 1},
    [HV_PEERS_LOST] = {[HV_PEERS_ALIVE] = 1, [HV_PEERS_LOST] = 1},
};

const char *hv_peers_state_name(hv_peers_state state) {
  static const char *const names[HV_PEERS_STATES] = {"heard", "alive", "doubted", "lost"};
  return (unsigned)state < HV_PEERS_STATES ? names[state] : "?";
}

static void announce_change(hv_peers *peers) {
  if (peers->config.changed)
    peers->config.changed(peers->config.arg);
}

/* Moves an entry, says so, and returns whether the move is on the table. No reason for a loss: it said goodbye. */
static int peers_move(hv_peers_entry *entry, hv_peers_state next, const char *why) {
  hv_peers *peers = entry->peers;
  hv_peers_state before = entry->state;
  if (!may_become[before][next])
    return 0;
  entry->state = next;
  if (next == HV_PEERS_LOST)
    entry->lost_us = peers->env->now_us(peers->env);
  else
    entry->gone = entry->left = 0;
  if (before == next)
    return 1;
  peers->n_alive += next == HV_PEERS_ALIVE;
  peers->n_alive -= before == HV_PEERS_ALIVE;
  char who[HV_PEER_SHORT_MAX];
  hv_peer_short(&entry->card.id, who);
  if (next == HV_PEERS_ALIVE && before != HV_PEERS_DOUBTED)
    hv_env_log(peers->env, HV_LOG_INFO, "peers", "peer_found", "met peer %s", who);
  if (next == HV_PEERS_DOUBTED)
    hv_env_log(peers->env, HV_LOG_DEBUG, "peers", "peer_doubted", "peer %s may be gone: %s", who, why);
  if (next == HV_PEERS_LOST && before != HV_PEERS_UNVERIFIED && why)
    hv_env_log(peers->env, HV_LOG_WARN, "peers", "peer_lost", "lost peer %s: %s", who, why);
  if (next == HV_PEERS_LOST && peers->config.lost)
    peers->config.lost(peers->config.arg, &entry->card.id);
  if (next == HV_PEERS_LOST && !why)
    hv_env_log(peers->env, HV_LOG_INFO, "peers", "peer_left", "peer %s left", who);
  announce_change(peers);
  return 1;
}

/* ---- the table ---- */

static uint64_t tag_of(const hv_peer_id *id) {
  uint64_t tag;
  memcpy(&tag, id->key, sizeof tag);
  return tag;
}

static size_t peers_find(const hv_peers *peers, const hv_peer_id *id) {
  uint64_t tag = tag_of(id);
  size_t i = 0;
  while (i < peers->n_entries && (peers->tags[i] != tag || !hv_peer_equal(&peers->entries[i]->card.id, id)))
    i++;
  return i;
}

const hv_peers_entry *hv_peers_find(const hv_peers *peers, const hv_peer_id *id) {
  size_t i = peers_find(peers, id);
  return i < peers->n_entries ? peers->entries[i] : NULL;
}

int hv_peers_has_left(const hv_peers *peers, const hv_peer_id *id) {
  const hv_peers_entry *entry = hv_peers_find(peers, id);
  return entry && entry->gone && entry->left;
}

int hv_peers_ended_since(const hv_peers *peers, const hv_peer_id *id, uint64_t signed_us) {
  const hv_peers_entry *entry = hv_peers_find(peers, id);
  return entry && entry->gone && signed_us <= entry->ended_us + HV_PEERS_RECORD_MARGIN_US;
}

int hv_peers_is_initial(const hv_peers *peers, const hv_peer_id *id) {
  for (size_t i = 0; i < peers->n_starts; i++)
    if (hv_peer_equal(&peers->starts[i].answered, id) || hv_peer_equal(&peers->starts[i].target.id, id))
      return 1;
  return 0;
}

static void copy_card(hv_card *to, const hv_card *from) { /* without the room for addresses that it has not */
  memcpy(to, from, offsetof(hv_card, addrs) + from->n_addrs * sizeof from->addrs[0]);
}

static void evict(hv_peers *peers, size_t i) {
  peers->n_alive -= peers->entries[i]->state == HV_PEERS_ALIVE;
  hv_mem_free(peers->entries[i]);
  peers->entries[i] = peers->entries[--peers->n_entries];
  peers->tags[i] = peers->tags[peers->n_entries];
}

/* Strangers are those who came by themselves, and whom such ones told of. */
static size_t strangers_of(const hv_peers *peers, uint64_t network) {
  size_t n = 0;
  for (size_t i = 0; i < peers->n_entries; i++)
    n += peers->entries[i]->stranger && peers->entries[i]->network == network;
  return n;
}

/* The youngest stranger of the public network that has most of them, if that is more than `share`. None: n_entries. */
static size_t one_too_many(const hv_peers *peers, size_t share) {
  size_t found = peers->n_entries, most = share;
  for (size_t i = 0; i < peers->n_entries; i++) {
    const hv_peers_entry *entry = peers->entries[i];
    if (!entry->stranger || !entry->network || entry->asking)
      continue;
    size_t n = strangers_of(peers, entry->network);
    if (n > most || (n == most && found < peers->n_entries && entry->since_us > peers->entries[found]->since_us)) {
      most = n;
      found = i;
    }
  }
  return found;
}

/* Makes room for a newcomer of the given state: the lost go first, hearsay goes for the living, and of strangers one of a network
 * that sent more than others did. */
static int peers_make_room(hv_peers *peers, hv_peers_state state, int stranger, uint64_t network) {
  if (peers->n_entries < peers->config.room)
    return 1;
  size_t worst = peers->n_entries, strangers = 0;
  for (size_t i = 0; i < peers->n_entries; i++) {
    const hv_peers_entry *entry = peers->entries[i];
    strangers += entry->stranger;
    if (entry->asking)
      continue;
    if (entry->state == HV_PEERS_LOST ||
        (entry->state == HV_PEERS_UNVERIFIED && state == HV_PEERS_ALIVE && worst == peers->n_entries))
      worst = i;
  }
  if (worst == peers->n_entries && stranger)
    worst = one_too_many(peers, strangers_of(peers, network) + 1);
  else if (worst == peers->n_entries && strangers > peers->config.room / 2)
    worst = one_too_many(peers, 0);
  if (worst == peers->n_entries)
    return 0;
  evict(peers, worst);
  return 1;
}

static void peers_sooner(hv_peers *peers, uint64_t at_us);

static hv_peers_entry *peers_add(hv_peers *peers, const hv_card *card, hv_peers_state state, int stranger, uint64_t network) {
  if (!hv_peer_is_known(&card->id) || hv_peer_equal(&card->id, &peers->config.me.id) ||
      !peers_make_room(peers, state, stranger, network))
    return NULL;
  hv_peers_entry *entry = hv_mem_zalloc(peers->env->mem, sizeof *entry);
  if (!entry)
    return NULL; /* it will be heard of again */
  copy_card(&entry->card, card);
  entry->state = HV_PEERS_UNVERIFIED;
  entry->peers = peers;
  entry->stranger = stranger;
  entry->network = network;
  entry->since_us = peers->env->now_us(peers->env);
  entry->ask_us = card->client_mode || card->n_addrs == 0 ? UINT64_MAX : entry->since_us;
  peers->tags[peers->n_entries] = tag_of(&card->id);
  peers->entries[peers->n_entries++] = entry;
  peers_sooner(peers, entry->ask_us);
  return entry;
}

/* ---- when to ask whom ---- */

/* Its hello says that it lives as well as its answer to ours would: of two that know each other well one asks. Now and then the
 * other one asks, too: whether it can still be dialled nobody else tells. */
static void spare(hv_peers_entry *entry, uint64_t now_us) {
  int settled = hv_pauses_hello_ms(entry) == entry->peers->config.hello_every_ms;
  if (entry->state != HV_PEERS_ALIVE || entry->asking || !settled || entry->spared == SPARED)
    return;
  entry->spared++;
  entry->ask_us = now_us + hv_pauses_spread(entry->peers, entry->peers->config.hello_every_ms * UINT64_C(1000));
}

static void fill_hello(hv_peers *peers, hv_msg *msg, hv_card *cards, size_t n_cards) {
  static const char agent[] = "hivemind_c";
  msg->kind = HV_MSG_HELLO; /* each field by itself: most of a card is room for addresses that it has not */
  copy_card(&msg->u.hello.me, &peers->config.me);
  msg->u.hello.you.kind = HV_ADDR_NONE;
  msg->u.hello.agent = hv_span_of(agent, sizeof agent - 1);
  msg->u.hello.life = peers->life;
  msg->u.hello.age_ms = (peers->env->now_us(peers->env) - peers->since_us) / 1000;
  msg->u.hello.denials = hv_admission_mark(peers->env->admission);
  msg->u.hello.cards = cards;
  msg->u.hello.n_cards = n_cards;
}

static void start_over_if_alone(hv_peers *peers);
static void hello_done(hv_call *call, const hv_event *event);
static void start_done(hv_call *call, const hv_event *event);

static int peers_ask(hv_peers *peers, hv_call *call, const hv_target *to, void (*done)(hv_call *, const hv_event *), void *owner) {
  hv_msg hello;
  fill_hello(peers, &hello, NULL, 0);
  *call = (hv_call){.done = done, .owner = owner, .to = *to, .timeout_ms = peers->config.hello_timeout_ms};
  if (peers->env->call(peers->env, call, &hello) != HV_OK)
    return 0;
  peers->pending++;
  return 1;
}

static void ask_entry(hv_peers_entry *entry, uint64_t now_us) {
  hv_target to = {entry->card.id, entry->card.addrs[entry->addr % entry->card.n_addrs]};
  entry->asked_us = now_us;
  entry->asking = peers_ask(entry->peers, &entry->call, &to, hello_done, entry);
  entry->ask_us = entry->asking ? UINT64_MAX : now_us + hv_pauses_after_failures(entry->peers, 1);
}

/* The one timer: it may be set for too early, never for too late. */
static void set_timer(hv_peers *peers, uint64_t at_us) {
  uint64_t now = peers->env->now_us(peers->env);
  peers->armed_us = at_us;
  if (at_us == UINT64_MAX)
    peers->env->timer_clear(peers->env, &peers->timer);
  else
    peers->env->timer_set(peers->env, &peers->timer, at_us > now ? at_us - now : 0);
}

/* Something is due at that time. */
static void peers_sooner(hv_peers *peers, uint64_t at_us) {
  if (!peers->leaving && at_us < peers->armed_us)
    set_timer(peers, at_us);
}

/* Sets the timer for whatever is due next. */
static void peers_arm(hv_peers *peers) {
  if (peers->leaving)
    return;
  uint64_t next = UINT64_MAX;
  for (size_t i = 0; i < peers->n_entries; i++)
    if (!peers->entries[i]->asking && peers->entries[i]->ask_us < next)
      next = peers->entries[i]->ask_us;
  for (size_t i = 0; i < peers->n_starts; i++)
    if (!peers->starts[i].asking && peers->starts[i].ask_us < next)
      next = peers->starts[i].ask_us;
  set_timer(peers, next);
}

/* A client cannot be asked: its next moment is when its silence has lasted too long. */
static void check_client(hv_peers_entry *entry, uint64_t now_us) {
  uint64_t silence = (uint64_t)CLIENT_SILENCE * entry->peers->config.hello_every_ms * 1000;
  if (now_us - entry->seen_us < silence) {
    entry->ask_us = entry->seen_us + silence;
    return;
  }
  entry->ask_us = UINT64_MAX;
  peers_move(entry, HV_PEERS_LOST, "it said no hello for a while");
  start_over_if_alone(entry->peers);
}

static void peers_tick(hv_timer *timer, const hv_event *event) {
  hv_peers *peers = timer->owner;
  for (size_t i = 0; i < peers->n_entries; i++) {
    hv_peers_entry *entry = peers->entries[i];
    if (entry->asking || entry->ask_us > event->now_us)
      continue;
    if (entry->card.client_mode)
      check_client(entry, event->now_us);
    else
      ask_entry(entry, event->now_us);
  }
  for (size_t i = 0; i < peers->n_starts; i++) {
    hv_peers_start *start = &peers->starts[i];
    if (start->asking || start->ask_us > event->now_us)
      continue;
    start->asked_us = event->now_us;
    start->asking = peers_ask(peers, &start->call, &start->target, start_done, start);
    start->ask_us = start->asking ? UINT64_MAX : event->now_us + hv_pauses_after_failures(peers, 1);
  }
  peers_arm(peers);
}

/* Nobody left: everyone who was ever given or known is worth a try. */
static void start_over_if_alone(hv_peers *peers) {
  if (peers->leaving || hv_peers_alive(peers) > 0)
    return;
  uint64_t now = peers->env->now_us(peers->env);
  for (size_t i = 0; i < peers->n_starts; i++)
    if (!peers->starts[i].asking && peers->starts[i].ask_us == UINT64_MAX)
      peers->starts[i].ask_us = now + hv_pauses_after_failures(peers, peers->starts[i].tries);
  for (size_t i = 0; i < peers->n_entries; i++) {
    hv_peers_entry *entry = peers->entries[i];
    if (!entry->asking && entry->ask_us == UINT64_MAX && entry->card.n_addrs && !entry->card.client_mode)
      entry->ask_us = now + hv_pauses_after_failures(peers, entry->failures);
  }
  peers_arm(peers);
}

/* ---- answers ---- */

/* A peer that a stranger names is a stranger. Unverified peers of one public network fill at most a quarter of the table. */
static void learn_cards(hv_peers *peers, const hv_msg_hello *hello, int stranger, hv_contact_source source) {
  for (size_t i = 0; i < hello->n_cards; i++) {
    hv_card kept = hello->cards[i], *card = &kept;
    hv_contact_keep_card(card, source);
    if (card->client_mode || card->n_addrs == 0 || peers_find(peers, &card->id) < peers->n_entries)
      continue; /* a peer that cannot be asked would stay forever; no honest peer names one */
    uint64_t network = hv_contact_network(&card->addrs[0]);
    size_t near = 0;
    for (size_t k = 0; network && k < peers->n_entries; k++)
      near += peers->entries[k]->network == network;
    if (near < peers->config.room / 4 || !network)
      peers_add(peers, card, HV_PEERS_UNVERIFIED, stranger, network);
  }
}

static void saw(hv_peers_entry *entry, hv_contact_source source) {
  entry->source = hv_contact_source_join(entry->source, source);
  entry->peers->seen = hv_contact_source_join(entry->peers->seen, source);
}

/* It came from there. Behind one outer address are machines of one private network. */
static hv_contact_source source_from(const hv_peers *peers, hv_addr from) {
  hv_contact_source source = hv_contact_source_at(&from);
  from.port = peers->outer.port;
  source.is_private |= from.kind != HV_ADDR_NONE && hv_addr_equal(&from, &peers->outer);
  return source;
}

static void finish_leaving(hv_peers *peers) {
  if (!peers->leaving || peers->pending)
    return;
  if (peers->config.left)
    peers->config.left(peers->config.arg);
  else
    peers->env->stopped(peers->env);
}

static void lives(hv_peers_entry *entry, uint64_t now_us) {
  entry->seen_us = now_us;
  entry->failures = 0;
  entry->refused = 0;
  entry->peers->not_admitted.cause = HV_CAUSE_OTHER;
  peers_move(entry, HV_PEERS_ALIVE, "");
}

static void heard_from(hv_peers_entry *entry, uint64_t now_us, const hv_card *card) {
  if (card->n_addrs != entry->card.n_addrs)
    entry->addr = 0;
  copy_card(&entry->card, card);
  lives(entry, now_us);
}

/* For whoever wants to know: its addresses, the one that worked first. */
static void tell_answered(const hv_peers *peers, const hv_card *card, unsigned worked, uint64_t rtt_us) {
  hv_addr addrs[HV_CARD_ADDRS_MAX];
  if (!peers->config.answered || card->client_mode || card->n_addrs == 0)
    return;
  for (unsigned i = 0; i < card->n_addrs; i++)
    addrs[i] = card->addrs[(worked + i) % card->n_addrs];
  peers->config.answered(peers->config.arg, &card->id, addrs, card->n_addrs, rtt_us);
}

/* It has ended: everything that it left in other rooms is void. */
static void tell_gone(hv_peers *peers, hv_peers_entry *entry, const hv_peer_id *id) {
  if (entry) {
    entry->gone = 1;
    entry->ended_us = peers->env->now_us(peers->env);
  }
  if (peers->config.gone)
    peers->config.gone(peers->config.arg, id);
}

/* Another life than before: the one before has ended, even if no connection was refused in between. News heard since this one
 * began is its own. 0: the word comes from a life that has said goodbye. */
static int learn_life(hv_peers_entry *entry, const hv_msg_hello *hello) {
  hv_peers *peers = entry->peers;
  uint64_t now = peers->env->now_us(peers->env), age_us = hello->age_ms < now / 1000 ? hello->age_ms * 1000 : now;
  int is_new = entry->life && hello->life && entry->life != hello->life;
  if (entry->gone && entry->left && hello->life && !is_new)
    return 0;
  if (is_new || entry->gone)
    entry->again_us = now - age_us;
  if (is_new && !entry->gone) {
    entry->ended_us = entry->again_us;
    if (peers->config.reborn)
      peers->config.reborn(peers->config.arg, &entry->card.id, entry->again_us);
  }
  entry->life = hello->life ? hello->life : entry->life;
  entry->gone = entry->left = 0;
  return 1;
}

/* An initial peer says at which address it sees this node. Two of them may see two, and one alone is asked: the last that a user's
 * address led to, for as long as it lives. The port is another one for each connection. */
static void learn_outer(hv_peers *peers, const hv_peer_id *by, const hv_addr *you) {
  hv_addr before = peers->outer;
  peers->outer = *you;
  peers->outer_by = *by;
  before.port = you->port;
  if (!hv_addr_equal(&before, you))
    announce_change(peers);
}

static int tells_outer(const hv_peers *peers, const hv_peer_id *id) {
  const hv_peers_entry *teller = hv_peers_find(peers, &peers->outer_by);
  int may = hv_peer_equal(&peers->outer_by, id) || !teller || teller->state != HV_PEERS_ALIVE;
  return may && hv_peers_is_initial(peers, id);
}

static void peers_answered(hv_peers_entry *entry, const hv_event *event) {
  hv_peers *peers = entry->peers;
  hv_card card = event->msg->u.hello.me;
  entry->member = hv_peers_member(event);
  if (!learn_life(entry, &event->msg->u.hello))
    return;
  saw(entry, hv_contact_source_at(&entry->call.to.addr));
  hv_contact_keep_card(&card, entry->source);
  if (tells_outer(peers, &event->peer) && event->msg->u.hello.you.kind != HV_ADDR_NONE)
    learn_outer(peers, &event->peer, &event->msg->u.hello.you);
  if (card.n_addrs)
    heard_from(entry, event->now_us, &card);
  else /* a peer that does not know its own address keeps the one that reached it */
    lives(entry, event->now_us);
  entry->rtt_us = event->now_us - entry->asked_us;
  entry->spared = 0;
  entry->ask_us = event->now_us + hv_pauses_after_answer(entry);
  peers_sooner(peers, entry->ask_us);
  tell_answered(peers, &entry->card, entry->addr, entry->rtt_us);
  learn_cards(peers, &event->msg->u.hello, entry->stranger, entry->source);
}

static unsigned addrs_to_try(const hv_peers_entry *entry) {
  return entry->card.n_addrs < ADDRS_TO_TRY ? entry->card.n_addrs : ADDRS_TO_TRY;
}

/* How many failures in a row mean that it is gone: each address once, and a silence (which may be a lost packet) not only once. */
static unsigned patience(const hv_peers_entry *entry, hv_status status) {
  if (status == HV_TIMEOUT && entry->call_answered_us > entry->asked_us)
    return MORE_DOUBTS;
  int sure = status == HV_REFUSED || status == HV_DENIED || status == HV_VERSION || status == HV_NOT_ADMITTED;
  return sure || addrs_to_try(entry) >= DOUBTS ? addrs_to_try(entry) : DOUBTS;
}

/* The kernel of its machine, or whoever has its address now, says that this peer is not there. */
static int denies_it(hv_status status) {
  return status == HV_REFUSED || status == HV_DENIED;
}

static void did_not_answer(hv_peers_entry *entry, const hv_event *event) {
  hv_peers *peers = entry->peers;
  entry->failures++;
  hv_admission_note(&peers->not_admitted, event);
  entry->refused = denies_it(event->status) ? entry->refused + 1 : 0;
  entry->addr++;
  if (entry->failures < patience(entry, event->status)) {
    entry->ask_us = event->now_us;
    peers_sooner(peers, entry->ask_us);
    if (entry->state == HV_PEERS_ALIVE)
      peers_move(entry, HV_PEERS_DOUBTED, event->text);
    return;
  }
  entry->answers = 0; /* a peer that returns counts as new; one that was only doubted does not */
  int known = entry->state != HV_PEERS_UNVERIFIED && entry->failures < LOST_TRIES;
  entry->ask_us = known ? hv_pauses_again_at(peers, &entry->card.id, event->now_us, entry->failures) : UINT64_MAX;
  peers_sooner(peers, entry->ask_us);
  peers_move(entry, HV_PEERS_LOST, event->text);
  if (event->status == HV_TIMEOUT)
    entry->lost_us = entry->asked_us; /* what has been heard of it since speaks against it */
  if (entry->refused >= addrs_to_try(entry) && !entry->gone)
    tell_gone(peers, entry, &entry->card.id);
  start_over_if_alone(peers);
}

/* A hello that this node itself cancelled, because a network changed or the peer moved, says nothing about the peer. */
static void ask_at_once(hv_peers *peers, uint64_t *ask_us, uint64_t now_us) {
  *ask_us = now_us;
  peers_sooner(peers, now_us);
}

static void hello_done(hv_call *call, const hv_event *event) {
  hv_peers_entry *entry = call->owner;
  hv_peers *peers = entry->peers;
  peers->pending--;
  entry->asking = 0;
  if (peers->leaving)
    finish_leaving(peers);
  else if (event->status == HV_CANCELLED)
    ask_at_once(peers, &entry->ask_us, event->now_us);
  else if (event->status == HV_OK && event->msg->kind == HV_MSG_HELLO && hv_peer_equal(&event->msg->u.hello.me.id, &event->peer))
    peers_answered(entry, event);
  else
    did_not_answer(entry, event);
}

static void start_failed(hv_peers_start *start, const hv_event *event, hv_status status, hv_cause cause, const char *text) {
  hv_peers *peers = start->peers;
  int news = start->status != status;
  hv_admission_note(&peers->not_admitted, event);
  start->status = status;
  start->cause = cause ? cause : hv_cause_of(status);
  start->tries++;
  strncpy(start->text, text, sizeof start->text - 1);
  start->ask_us = hv_pauses_again_at(peers, &start->target.id, event->now_us, start->tries);
  if (news) {
    char where[HV_ADDR_TEXT_MAX];
    hv_env_log(peers->env, HV_LOG_WARN, "peers", "initial_peer_failed", "initial peer %s does not answer, will retry: %s",
               hv_addr_print_short(&start->target.addr, where), text);
    announce_change(peers);
  }
}

static void start_answered(hv_peers_start *start, const hv_event *event) {
  hv_peers *peers = start->peers;
  char where[HV_ADDR_TEXT_MAX], who[HV_PEER_TEXT_MAX];
  if (hv_peer_equal(&event->peer, &peers->config.me.id)) { /* a list that everybody shares names oneself too */
    start->target.id = event->peer;
    start->status = HV_OK;
    start->ask_us = UINT64_MAX;
    announce_change(peers);
    return;
  }
  if (!hv_peer_is_known(&start->target.id))
    hv_env_log(peers->env, HV_LOG_INFO, "peers", "identity_learned", "the peer at %s is %s",
               hv_addr_print_short(&start->target.addr, where), hv_peer_print(&event->peer, who));
  start->answered = event->peer;
  start->status = HV_OK;
  start->tries = 0;
  start->ask_us = UINT64_MAX;
  hv_card card = event->msg->u.hello.me;
  learn_outer(peers, &event->peer, &event->msg->u.hello.you);
  hv_contact_source source = hv_contact_source_initial(&start->target.addr, &peers->outer);
  hv_contact_keep_card(&card, source);
  if (card.n_addrs == 0 && !card.client_mode) {
    card.n_addrs = 1;
    card.addrs[0] = start->target.addr;
  }
  unsigned worked = 0;
  for (unsigned a = 0; a < card.n_addrs; a++)
    if (hv_addr_equal(&card.addrs[a], &start->target.addr))
      worked = a;
  tell_answered(peers, &card, worked, event->now_us - start->asked_us);
  size_t i = peers_find(peers, &card.id);
  uint64_t network = hv_contact_network(&start->target.addr);
  hv_peers_entry *entry = i < peers->n_entries ? peers->entries[i] : peers_add(peers, &card, HV_PEERS_ALIVE, 0, network);
  if (!entry)
    return;
  entry->stranger = 0;
  entry->addr = worked;
  saw(entry, source);
  entry->member = hv_peers_member(event);
  if (!learn_life(entry, &event->msg->u.hello))
    return;
  heard_from(entry, event->now_us, &card);
  entry->rtt_us = event->now_us - start->asked_us;
  if (!entry->asking)
    entry->ask_us = card.client_mode ? UINT64_MAX : event->now_us + hv_pauses_after_answer(entry);
  learn_cards(peers, &event->msg->u.hello, 0, source);
  announce_change(peers);
}

static void start_done(hv_call *call, const hv_event *event) {
  hv_peers_start *start = call->owner;
  hv_peers *peers = start->peers;
  peers->pending--;
  start->asking = 0;
  if (peers->leaving) {
    finish_leaving(peers);
    return;
  }
  if (event->status == HV_CANCELLED)
    ask_at_once(peers, &start->ask_us, event->now_us);
  else if (event->status != HV_OK)
    start_failed(start, event, event->status, event->cause, event->text);
  else if (event->msg->kind != HV_MSG_HELLO || !hv_peer_equal(&event->msg->u.hello.me.id, &event->peer))
    start_failed(start, event, HV_MALFORMED, HV_CAUSE_NOT_A_PEER, "another program answers there, not a peer: correct the address");
  else
    start_answered(start, event);
  peers_arm(peers);
}

/* ---- what others ask ---- */

static size_t pick_cards(hv_peers *peers, const hv_peer_id *asker, hv_card out[GOSSIP_CARDS]) {
  uint32_t r;
  peers->env->random(peers->env, &r, sizeof r);
  size_t n = 0;
  for (size_t i = 0; i < peers->n_entries && n < GOSSIP_CARDS; i++) {
    const hv_peers_entry *entry = peers->entries[(i + r) % peers->n_entries];
    if (entry->state == HV_PEERS_ALIVE && entry->card.n_addrs && !entry->card.client_mode && !hv_peer_equal(&entry->card.id, asker))
      copy_card(&out[n++], &entry->card);
  }
  return n;
}

void hv_peers_hello(hv_peers *peers, const hv_event *event) {
  const hv_msg_hello *hello = &event->msg->u.hello;
  hv_peer_id asker = event->request->peer;
  uint64_t network = hv_contact_network(&event->request->from); /* the request ends with its answer */
  hv_contact_source source = source_from(peers, event->request->from);
  hv_membership member = hv_peers_member(event); /* it ends with the answer, too */
  hv_card cards[GOSSIP_CARDS];
  hv_msg answer;
  fill_hello(peers, &answer, cards, pick_cards(peers, &asker, cards));
  answer.u.hello.you = event->request->from;
  peers->env->reply(peers->env, event->request, &answer);
  if (peers->leaving || !hv_peer_equal(&hello->me.id, &asker))
    return;

  size_t i = peers_find(peers, &asker);
  hv_card me = hello->me;
  hv_contact_keep_card(&me, i < peers->n_entries ? hv_contact_source_join(source, peers->entries[i]->source) : source);
  hv_peers_entry *entry = i < peers->n_entries ? peers->entries[i] : peers_add(peers, &me, HV_PEERS_ALIVE, 1, network);
  if (!entry)
    return;
  saw(entry, source);
  entry->member = member;
  if (!learn_life(entry, hello))
    return;
  if (me.client_mode || me.n_addrs == 0) {
    heard_from(entry, event->now_us, &me);
    entry->card.client_mode = 1;
    entry->ask_us = event->now_us + (uint64_t)CLIENT_SILENCE * peers->config.hello_every_ms * 1000;
  } else if (entry->state == HV_PEERS_UNVERIFIED || entry->state == HV_PEERS_LOST || !hv_moves_same(&entry->card, &me)) {
    hv_moves_take(entry, &me); /* it lives; whether it can be dialled is seen by asking back */
    if (!entry->asking)
      entry->ask_us = event->now_us;
  } else {
    entry->seen_us = event->now_us;
    spare(entry, event->now_us);
  }
  peers_sooner(peers, entry->ask_us);
}

void hv_peers_ended(hv_peers *peers, const hv_peer_id *id, const char *why) {
  size_t i = peers_find(peers, id);
  hv_peers_entry *entry = i < peers->n_entries ? peers->entries[i] : NULL;
  if (entry && entry->left && why)
    return; /* it has said so itself */
  if (entry) {
    peers_move(entry, HV_PEERS_LOST, why);
    entry->ask_us = UINT64_MAX;
    entry->left = !why;
  }
  tell_gone(peers, entry, id);
  start_over_if_alone(peers);
  peers_arm(peers);
}

void hv_peers_left(hv_peers *peers, const hv_event *event) {
  hv_msg answer = {.kind = HV_MSG_LEAVE};
  hv_peer_id asker = event->request->peer;
  peers->env->reply(peers->env, event->request, &answer);
  if (!peers->leaving)
    hv_peers_ended(peers, &asker, NULL);
}

void hv_peers_doubt(hv_peers *peers, const hv_peer_id *id) {
  size_t i = peers_find(peers, id);
  hv_peers_entry *entry = i < peers->n_entries ? peers->entries[i] : NULL;
  uint64_t now = peers->env->now_us(peers->env);
  if (!entry || entry->state != HV_PEERS_ALIVE || entry->asking || entry->card.client_mode || now < entry->seen_us + DOUBT_US)
    return;
  entry->ask_us = now;
  peers_sooner(peers, entry->ask_us);
}

void hv_peers_down(hv_peers *peers, const hv_event *event) {
  size_t i = peers_find(peers, &event->peer);
  hv_peers_entry *entry = i < peers->n_entries ? peers->entries[i] : NULL;
  if (!entry || peers->leaving || entry->state != HV_PEERS_ALIVE)
    return;
  if (entry->card.client_mode) {
    peers_move(entry, HV_PEERS_LOST, event->text);
    start_over_if_alone(peers);
    peers_arm(peers);
    return;
  }
  peers_move(entry, HV_PEERS_DOUBTED, event->text);
  if (!entry->asking)
    entry->ask_us = event->now_us;
  peers_arm(peers);
}

void hv_peers_called(hv_peers *peers, const hv_event *event) {
  size_t i = event->status == HV_OK ? peers_find(peers, &event->peer) : peers->n_entries;
  if (i < peers->n_entries)
    peers->entries[i]->call_answered_us = event->now_us;
}

/* ---- life ---- */

void hv_peers_start_asking(hv_peers *peers, const hv_event *event) {
  if (peers->config.me.n_addrs == 0)
    hv_moves_set_addrs(peers, event->addrs, event->n_addrs);
  peers_arm(peers);
}

static void farewell_done(hv_call *call, const hv_event *event) {
  hv_peers *peers = call->owner;
  (void)event; /* a peer that missed it notices the silence */
  peers->pending--;
  finish_leaving(peers);
}

void hv_peers_leave(hv_peers *peers) {
  enum { FAREWELL_MS = 400 };
  if (peers->leaving)
    return;
  peers->leaving = 1;
  peers->env->timer_clear(peers->env, &peers->timer);
  for (size_t i = 0; i < peers->n_entries; i++) {
    hv_peers_entry *entry = peers->entries[i];
    if (entry->asking)
      peers->env->call_cancel(peers->env, &entry->call);
    if (entry->state != HV_PEERS_ALIVE || entry->card.n_addrs == 0)
      continue;
    hv_msg leave = {.kind = HV_MSG_LEAVE};
    entry->farewell = (hv_call){.done = farewell_done, .owner = peers, .timeout_ms = FAREWELL_MS};
    entry->farewell.to = (hv_target){entry->card.id, entry->card.addrs[entry->addr % entry->card.n_addrs]};
    if (peers->env->call(peers->env, &entry->farewell, &leave) == HV_OK)
      peers->pending++;
  }
  for (size_t i = 0; i < peers->n_starts; i++)
    if (peers->starts[i].asking)
      peers->env->call_cancel(peers->env, &peers->starts[i].call);
  finish_leaving(peers);
}

hv_status hv_peers_init(hv_peers *peers, hv_env *env, const hv_peers_config *config) {
  *peers = (hv_peers){.env = env, .config = *config, .n_starts = config->n_initial};
  if (!peers->config.hello_every_ms)
    peers->config.hello_every_ms = 10000;
  if (!peers->config.hello_timeout_ms)
    peers->config.hello_timeout_ms = 3000;
  if (!peers->config.room)
    peers->config.room = 32;
  peers->config.initial = NULL; /* was borrowed */
  env->random(env, &peers->life, sizeof peers->life);
  peers->since_us = env->now_us(env);
  peers->timer = (hv_timer){.fire = peers_tick, .owner = peers};
  peers->armed_us = UINT64_MAX;
  peers->entries = hv_mem_array(env->mem, peers->config.room, sizeof *peers->entries);
  peers->tags = hv_mem_array(env->mem, peers->config.room, sizeof *peers->tags);
  peers->starts = hv_mem_array(env->mem, config->n_initial, sizeof *peers->starts);
  if (!peers->entries || !peers->tags || !peers->starts) {
    hv_mem_free(peers->entries);
    hv_mem_free(peers->tags);
    hv_mem_free(peers->starts);
    return HV_NOMEM;
  }
  for (size_t i = 0; i < config->n_initial; i++) {
    peers->starts[i] = (hv_peers_start){.target = config->initial[i], .status = HV_BUSY, .peers = peers};
    peers->seen = hv_contact_source_join(peers->seen, hv_contact_source_at(&config->initial[i].addr));
  }
  return HV_OK;
}

void hv_peers_fini(hv_peers *peers) {
  for (size_t i = 0; i < peers->n_entries; i++)
    hv_mem_free(peers->entries[i]);
  hv_mem_free(peers->entries);
  hv_mem_free(peers->tags);
  hv_mem_free(peers->starts);
}

hv_status hv_peers_target(const hv_peers *peers, const hv_peer_id *id, hv_target *out) {
  const hv_peers_entry *entry = hv_peers_find(peers, id);
  if (!entry)
    return HV_NOT_FOUND;
  if (entry->card.client_mode || entry->card.n_addrs == 0)
    return HV_UNREACHABLE;
  *out = (hv_target){entry->card.id, entry->card.addrs[entry->addr % entry->card.n_addrs]};
  return HV_OK;
}

uint32_t hv_peers_version_of(const hv_peers *peers, const hv_peer_id *id, uint64_t *features) {
  hv_versions mine = hv_spoken_mine(peers->env), theirs = hv_spoken_of(peers->env, id);
  if (features)
    *features = mine.features & theirs.features;
  return hv_versions_common(&mine, &theirs);
}
