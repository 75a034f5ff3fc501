/* Peers that get other addresses, and this node when it does.
 *
 * Room: core (uses peers). Used by peers and node.
 * Thread: the hive thread.
 * Rules: docs/explanation/coming-and-going.md, "A machine that moves".
 */
#ifndef HV_CORE_MOVES_H
#define HV_CORE_MOVES_H

#include "core/peers/peers.h"

/* True if both cards have the same addresses in the same order. */
int hv_moves_same(const hv_card *a, const hv_card *b);
/* Takes the card of a peer from its own hello. If it lacks the address in use, the peer has moved: its connections are closed. */
void hv_moves_take(hv_peers_entry *entry, const hv_card *card);

/* Sets this node's addresses, which its next hellos name. Does nothing for a client. */
void hv_moves_set_addrs(hv_peers *peers, const hv_addr *addrs, size_t n_addrs);
/* This machine's network has changed, or it slept: all known peers that can be dialled, and the initial peers that do not answer,
 * are asked now. */
void hv_moves_network(hv_peers *peers);

#endif
