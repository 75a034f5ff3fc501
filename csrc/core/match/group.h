/* What does a host say to a group, and is it what a member may believe? The contents of BEGIN.
 *
 * Room: core (uses partition, gauge, contact, match.h's structs). Pure but for env's sha256 and memory; the hive thread.
 */
#ifndef HV_CORE_GROUP_H
#define HV_CORE_GROUP_H

#include "core/match/match.h"
#include "core/match/roster.h"

/* What a member knows itself, and holds a BEGIN against. */
typedef struct hv_group_facts {
  hv_span key, epoch;
  hv_hash schema;
  uint32_t n_chunks;
  hv_peer_id me;
  int client;
  uint8_t auxiliary;
  hv_span gather;
  const hv_roster *roster; /* where members may be dialled */
} hv_group_facts;

/* Gives the members (id, addrs, auxiliary, gather_size are set) their spans by bandwidth[] (bytes per second, 0: not known;
 * hv_gauge_settle) and names the leader, the first that can be dialled. Who would own fewer chunks than `least` owns none, as long
 * as somebody else does. HV_STATE: nobody could own a span, or nobody has anything to average. HV_NOMEM.
 */
hv_status hv_group_plan(hv_env *env, hv_match_member *members, uint64_t *bandwidth, size_t n, uint32_t n_chunks, uint32_t least,
                        uint32_t *leader);

/* Holds a BEGIN against what this member knows, and makes the group of it: *out is given. HV_MALFORMED with the reason in err (also
 * when it is about somebody else's round); HV_NOMEM. */
hv_status hv_group_read(hv_env *env, const hv_group_facts *facts, const hv_msg_begin *begin, const hv_payload *gathers,
                        hv_match_group **out, hv_error *err);

/* The first line in which two descriptions differ, in one sentence of at most `size` bytes, for the reader of `mine`. */
void hv_group_difference(hv_span mine, hv_span theirs, char *out, size_t size);

#endif
