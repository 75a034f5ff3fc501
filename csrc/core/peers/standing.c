#include "core/peers/standing.h"

hv_standing hv_standing_of(const hv_peers *peers, const hv_peer_id *id) {
  const hv_peers_entry *entry = hv_peers_find(peers, id);
  for (size_t i = 0; i < peers->n_starts; i++)
    if (hv_peer_equal(&peers->starts[i].answered, id) || hv_peer_equal(&peers->starts[i].target.id, id))
      return HV_STANDING_INITIAL;
  return entry && entry->averaged && entry->state != HV_PEERS_LOST ? HV_STANDING_PARTNER : HV_STANDING_STRANGER;
}
