#include "core/peers/pauses.h"

#include "core/peers/spoken.h"

enum { FIRST_PAUSE_MS = 500, LONGEST_PAUSE_MS = 30000, ALONE_PAUSE_MS = 4000, ALONE_EACH_MS = 250 };

uint64_t hv_pauses_spread(hv_peers *peers, uint64_t us) {
  uint32_t r;
  peers->env->random(peers->env, &r, sizeof r);
  return us - us / 4 + (us / 2) * (r >> 16) / 65536;
}

/* While nobody answers, the line itself may be down, and its return is to be noticed soon. */
static uint64_t longest_ms(const hv_peers *peers) {
  uint64_t ms = (uint64_t)ALONE_EACH_MS * peers->n_entries;
  if (hv_peers_alive(peers) || ms > LONGEST_PAUSE_MS)
    return LONGEST_PAUSE_MS;
  return ms > ALONE_PAUSE_MS ? ms : ALONE_PAUSE_MS;
}

uint64_t hv_pauses_after_failures(hv_peers *peers, unsigned failures) {
  uint64_t ms = FIRST_PAUSE_MS, longest = longest_ms(peers);
  while (failures-- > 1 && ms < longest)
    ms *= 2;
  return hv_pauses_spread(peers, (ms < longest ? ms : longest) * 1000);
}

uint64_t hv_pauses_again_at(hv_peers *peers, const hv_peer_id *id, uint64_t now_us, unsigned failures) {
  uint64_t paused = now_us + hv_pauses_after_failures(peers, failures), apart = hv_spoken_apart_until(peers->env, id);
  return paused > apart ? paused : apart;
}

uint64_t hv_pauses_hello_ms(const hv_peers_entry *entry) {
  uint64_t ms = (uint64_t)FIRST_PAUSE_MS << (entry->answers < 16 ? entry->answers : 16);
  uint32_t most = entry->peers->config.hello_every_ms;
  return ms < most ? ms : most;
}

uint64_t hv_pauses_after_answer(hv_peers_entry *entry) {
  uint64_t ms = hv_pauses_hello_ms(entry);
  entry->answers++;
  return hv_pauses_spread(entry->peers, ms * 1000);
}
