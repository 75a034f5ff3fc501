#include "core/peers/moves.h"

static unsigned index_of(const hv_card *card, const hv_addr *addr) { /* n_addrs: it is not there */
  unsigned i = 0;
  while (i < card->n_addrs && !hv_addr_equal(&card->addrs[i], addr))
    i++;
  return i;
}

int hv_moves_same(const hv_card *a, const hv_card *b) {
  unsigned i = 0;
  while (a->n_addrs == b->n_addrs && i < a->n_addrs && hv_addr_equal(&a->addrs[i], &b->addrs[i]))
    i++;
  return i == a->n_addrs && i == b->n_addrs;
}

void hv_moves_take(hv_peers_entry *entry, const hv_card *card) {
  if (entry->card.n_addrs == 0) {
    entry->card = *card;
    return;
  }
  hv_target old = {entry->card.id, entry->card.addrs[entry->addr % entry->card.n_addrs]};
  unsigned kept = index_of(card, &old.addr);
  entry->card = *card;
  entry->addr = kept < card->n_addrs ? kept : 0;
  if (kept < card->n_addrs)
    return;
  entry->failures = 0;
  entry->peers->env->forget(entry->peers->env, &old);
}

void hv_moves_set_addrs(hv_peers *peers, const hv_addr *addrs, size_t n_addrs) {
  hv_card *me = &peers->config.me;
  me->n_addrs = 0;
  for (size_t i = 0; i < n_addrs && me->n_addrs < HV_CARD_ADDRS_MAX && !me->client_mode; i++)
    me->addrs[me->n_addrs++] = addrs[i];
}

void hv_moves_network(hv_peers *peers) {
  uint64_t now = peers->env->now_us(peers->env);
  if (peers->leaving)
    return;
  for (size_t i = 0; i < peers->n_entries; i++) {
    hv_peers_entry *entry = peers->entries[i];
    if (entry->card.client_mode || entry->card.n_addrs == 0 || entry->left)
      continue;
    entry->failures = entry->answers = entry->spared = 0;
    if (!entry->asking)
      entry->ask_us = now;
  }
  for (size_t i = 0; i < peers->n_starts; i++) {
    hv_peers_start *start = &peers->starts[i];
    start->tries = 0;
    if (!start->asking && (start->ask_us != UINT64_MAX || peers->n_alive == 0))
      start->ask_us = now;
  }
  peers->armed_us = now; /* the timer's function sets it again */
  peers->env->timer_set(peers->env, &peers->timer, 0);
}
