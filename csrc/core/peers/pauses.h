/* The times of the next hello to a peer: after an answer, and after failures.
 *
 * Room: core (uses peers, spoken). Used by peers.
 * Thread: the hive thread.
 * Limits: after failures 0.5 s to 30 s, doubled each time; while no peer lives 4 s at most, or 0.25 s for each that is known. All
 * pauses vary by a quarter, so that a swarm does not ask in step.
 */
#ifndef HV_CORE_PAUSES_H
#define HV_CORE_PAUSES_H

#include "core/peers/peers.h"

/* Three to five quarters of the given time. */
uint64_t hv_pauses_spread(hv_peers *peers, uint64_t us);

/* The pause in us after so many failures in a row. */
uint64_t hv_pauses_after_failures(hv_peers *peers, unsigned failures);
/* The time at which a peer that failed is asked again. A peer without a common version of the protocol is not dialled before. */
uint64_t hv_pauses_again_at(hv_peers *peers, const hv_peer_id *id, uint64_t now_us, unsigned failures);

/* The pause in ms between hellos to a peer, which is short while both sides are still learning about the swarm. */
uint64_t hv_pauses_hello_ms(const hv_peers_entry *entry);
/* Counts an answer, and returns the pause in us until the next hello. */
uint64_t hv_pauses_after_answer(hv_peers_entry *entry);

#endif
