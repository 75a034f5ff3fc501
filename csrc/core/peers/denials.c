#include "core/peers/denials.h"

#include "core/versions.h"

#include <string.h>

enum { SERIAL = 8, ENTRY = 32, SIGNATURE = 64, TIMEOUT_MS = 5000 };

/* ---- a list ---- */

hv_status hv_denials_check(hv_span list) {
  size_t entries = list.size < SERIAL + SIGNATURE ? 1 : list.size - SERIAL - SIGNATURE;
  if (entries % ENTRY || entries / ENTRY > HV_DENIALS_MAX || !hv_denials_serial(list))
    return HV_MALFORMED;
  for (size_t i = 1; i < entries / ENTRY; i++)
    if (memcmp(list.data + SERIAL + (i - 1) * ENTRY, list.data + SERIAL + i * ENTRY, ENTRY) >= 0)
      return HV_MALFORMED;
  return HV_OK;
}

uint64_t hv_denials_serial(hv_span list) {
  return list.size < SERIAL ? 0 : hv_le_get(list.data, SERIAL);
}

size_t hv_denials_count(hv_span list) {
  return list.size < SERIAL + SIGNATURE ? 0 : (list.size - SERIAL - SIGNATURE) / ENTRY;
}

hv_span hv_denials_signed(hv_span list) {
  return hv_span_of(list.data, list.size - SIGNATURE);
}

const uint8_t *hv_denials_signature(hv_span list) {
  return list.data + list.size - SIGNATURE;
}

/* ---- spreading ---- */

static hv_span mine(const hv_denials *denials) {
  const hv_admission *admission = denials->env->admission;
  return admission ? admission->denials : hv_span_of(NULL, 0);
}

void hv_denials_init(hv_denials *denials, hv_env *env, hv_peers *peers) {
  *denials = (hv_denials){.env = env, .peers = peers};
}

void hv_denials_stop(hv_denials *denials) {
  denials->stopping = 1;
}

static void answered(hv_call *call, const hv_event *event) {
  hv_denials_call *c = call->owner;
  hv_denials *denials = c->denials;
  c->under_way = 0;
  if (event->status != HV_OK || event->msg->kind != HV_MSG_DENIALS || denials->stopping)
    return;
  hv_span theirs = event->msg->u.denials.list;
  if (theirs.size)
    hv_denials_take(denials, theirs);
  else if (hv_denials_serial(mine(denials)) == denials->told_serial)
    denials->told++;
}

/* Sends this node's list to a peer, which answers with its own if that is newer. */
static void send_to(hv_denials *denials, const hv_peer_id *peer) {
  uint64_t features;
  hv_denials_call *c = denials->calls;
  while (c < denials->calls + HV_DENIALS_CALLS && c->under_way)
    c++;
  if (denials->stopping || c == denials->calls + HV_DENIALS_CALLS || !hv_peers_version_of(denials->peers, peer, &features) ||
      !(features & HV_FEATURE_DENIALS))
    return;
  *c = (hv_denials_call){.denials = denials, .call = {.done = answered, .owner = c, .timeout_ms = TIMEOUT_MS}};
  hv_msg msg = {.kind = HV_MSG_DENIALS, .u.denials = {mine(denials)}};
  if (hv_peers_target(denials->peers, peer, &c->call.to) == HV_OK)
    c->under_way = denials->env->call(denials->env, &c->call, &msg) == HV_OK;
}

void hv_denials_hello(hv_denials *denials, const hv_peer_id *peer, uint64_t serial) {
  if (denials->env->admission && serial != hv_denials_serial(mine(denials)))
    send_to(denials, peer);
}

/* To some live peers, from a random one on. Peers that the list denies are asked too, which finds out that they are gone. */
static void pass_on(hv_denials *denials) {
  const hv_peers *peers = denials->peers;
  uint32_t from;
  denials->env->random(denials->env, &from, sizeof from);
  for (size_t i = 0; i < peers->n_entries; i++) {
    const hv_peers_entry *entry = peers->entries[(from + i) % peers->n_entries];
    hv_peer_id id = entry->card.id;
    if (entry->state != HV_PEERS_ALIVE)
      continue;
    hv_peers_doubt(denials->peers, &id);
    send_to(denials, &id);
  }
}

hv_status hv_denials_take(hv_denials *denials, hv_span list) {
  hv_env *env = denials->env;
  if (!env->admission || !env->deny)
    return HV_STATE;
  if (hv_denials_check(list) != HV_OK)
    return HV_MALFORMED;
  if (hv_denials_serial(list) <= hv_denials_serial(mine(denials)))
    return HV_EXISTS;
  if (!env->verify(env, &env->admission->swarm, HV_DENIALS_DOMAIN, hv_denials_signed(list), hv_denials_signature(list)))
    return HV_CORRUPT;
  hv_status status = env->deny(env, list);
  if (status != HV_OK)
    return status;
  denials->told = 0;
  denials->told_serial = hv_denials_serial(list);
  hv_env_log(env, HV_LOG_WARN, "peers", "denials_changed", "the swarm's list of denials is number %llu now, with %zu entries",
             (unsigned long long)denials->told_serial, hv_denials_count(list));
  pass_on(denials);
  return HV_OK;
}

void hv_denials_asked(hv_denials *denials, const hv_event *event) {
  hv_span theirs = event->msg->u.denials.list;
  if (!denials->env->admission) {
    hv_env_refuse(denials->env, event->request, HV_UNSUPPORTED, "this swarm is open, and has no denials");
    return;
  }
  if (theirs.size && !denials->stopping)
    hv_denials_take(denials, theirs);
  hv_msg answer = {.kind = HV_MSG_DENIALS};
  if (hv_denials_serial(mine(denials)) > hv_denials_serial(theirs))
    answer.u.denials.list = mine(denials);
  denials->env->reply(denials->env, event->request, &answer);
}
