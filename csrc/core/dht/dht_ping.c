#include "core/dht/dht_inner.h"
#include "core/peers/contact.h"

static void ping_done(void *owner, size_t mark, hv_status status, const hv_msg *msg, const char *text) {
  hv_dht *dht = owner;
  (void)mark, (void)status, (void)msg, (void)text; /* the asker has taught the table */
  dht->pings--;
}

void dht_ping(hv_dht *dht, const hv_peer_id *id, hv_span addrs) {
  hv_msg msg = {.kind = HV_MSG_FIND};
  msg.u.find = (hv_msg_find){.target = dht->route.me, .key = dht->route.me, .me = hv_span_of(dht->me, dht->me_size)};
  if (dht->pings < DHT_PINGS_MAX && hv_asker_ask(&dht->asker, id, addrs, &msg, 1, ping_done, dht, 0, NULL) == HV_OK)
    dht->pings++;
}

void dht_ping_contact(hv_dht *dht, const hv_route_contact *contact) {
  dht_ping(dht, &contact->id, hv_span_of(contact->addrs, contact->addrs_size));
}

void dht_consider(hv_dht *dht, const hv_peer_id *peer, const hv_addr *seen, hv_span addrs) {
  uint8_t kept[HV_CONTACT_ADDRS_MAX];
  hv_hash hash;
  addrs = hv_span_of(kept, hv_contact_keep(addrs, hv_contact_source_at(seen), kept));
  if (addrs.size == 0 || dht->pings >= DHT_PINGS_MAX || dht->stopping)
    return;
  hv_route_hash(dht->env, peer, &hash);
  if (hv_route_wants(&dht->route, peer, &hash))
    dht_ping(dht, peer, addrs);
}
