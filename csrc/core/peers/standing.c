#include "core/peers/standing.h"

hv_standing hv_standing_of(const hv_peers *peers, const hv_peer_id *id) {
  const hv_peers_entry *entry = hv_peers_find(peers, id);
  if (hv_peers_is_initial(peers, id))
    return HV_STANDING_INITIAL;
  return entry && entry->averaged && entry->state != HV_PEERS_LOST ? HV_STANDING_PARTNER : HV_STANDING_STRANGER;
}

hv_tier hv_standing_tier(const hv_peers *peers, const hv_peer_id *id) {
  const hv_peers_entry *entry = hv_peers_find(peers, id);
  if (hv_standing_of(peers, id) != HV_STANDING_STRANGER)
    return HV_TIER_TRUSTED;
  if (!entry || entry->state != HV_PEERS_ALIVE)
    return HV_TIER_STRANGER;
  return entry->network ? HV_TIER_MET : HV_TIER_TRUSTED;
}

void hv_standing_averaged(hv_peers *peers, const hv_peer_id *id) {
  for (size_t i = 0; i < peers->n_entries; i++)
    if (hv_peer_equal(&peers->entries[i]->card.id, id))
      peers->entries[i]->averaged = 1;
}

hv_contact_source hv_standing_source(const hv_peers *peers, const hv_peer_id *id) {
  const hv_peers_entry *entry = hv_peers_find(peers, id);
  hv_contact_source source = entry && entry->state != HV_PEERS_UNVERIFIED ? entry->source : peers->seen;
  source.is_initial = hv_standing_of(peers, id) == HV_STANDING_INITIAL;
  return source;
}

int hv_standing_none_answers(const hv_peers *peers) {
  for (size_t i = 0; i < peers->n_starts; i++)
    if (peers->starts[i].status == HV_OK || peers->starts[i].status == HV_BUSY)
      return 0;
  return peers->n_starts > 0;
}

hv_cause hv_standing_refused(const hv_peers *peers, const char **text) {
  *text = peers->not_admitted.text;
  for (size_t i = 0; i < peers->n_entries; i++) /* a peer in client mode cannot be asked */
    if (peers->entries[i]->state == HV_PEERS_ALIVE && !peers->entries[i]->card.client_mode)
      return HV_CAUSE_OTHER;
  for (size_t i = 0; i < peers->n_starts; i++)
    if (peers->starts[i].status == HV_BUSY)
      return HV_CAUSE_OTHER;
  for (size_t i = 0; i < peers->n_starts && !peers->not_admitted.cause; i++)
    if (peers->starts[i].status == HV_DENIED && hv_admission_is_cause(peers->starts[i].cause)) {
      *text = peers->starts[i].text;
      return peers->starts[i].cause;
    }
  return peers->not_admitted.cause;
}

int hv_standing_hidden(const hv_peers *peers) {
  const hv_card *me = &peers->config.me;
  if (peers->outer.kind == HV_ADDR_NONE || hv_addr_is_private(&peers->outer) || peers->seen.is_private || peers->seen.is_loopback)
    return 0;
  for (size_t i = 0; i < me->n_addrs; i++)
    if (!hv_addr_is_private(&me->addrs[i]))
      return 0;
  return 1;
}
