/* The contents of BEGIN (HV_MSG_BEGIN), the message that starts a group: the host's plan of it, and a member's check of that plan.
 *
 * Room: core (uses partition, gauge, contact, match). Pure, apart from env's sha256 and memory.
 * Owner: the caller, also of the group that hv_group_read makes.
 * Thread: the hive thread.
 * Errors: HV_STATE or HV_NOMEM for a plan; HV_MALFORMED with a reason, or HV_NOMEM, for a check.
 * Rules: docs/design/matchmaking.md, "What a member believes".
 */
#ifndef HV_CORE_GROUP_H
#define HV_CORE_GROUP_H

#include "core/match/match.h"
#include "core/match/roster.h"

/* A member's own knowledge, with which it compares a BEGIN. */
typedef struct hv_group_facts {
  hv_span key, epoch;
  hv_hash schema;
  uint32_t n_chunks;
  hv_peer_id me;
  int client;
  uint8_t auxiliary;
  hv_span gather;          /* as this member sent it */
  const hv_roster *roster; /* the addresses at which members can be dialled */
} hv_group_facts;

/* Plans a group: sets `first` and `count`, the span of chunks, of each member by bandwidth[] (bytes per second; 0: not known),
 * which it changes (hv_gauge_settle). Sets *leader to the index of the first member that can be dialled. The caller sets id, addrs,
 * auxiliary and gather_size of each member before the call. A member that would own fewer chunks than `least` owns none, if
 * enough other members can own them (hv_partition_most). HV_STATE: no member can own a span, or none has values to average.
 * HV_NOMEM. */
hv_status hv_group_plan(hv_env *env, hv_match_member *members, uint64_t *bandwidth, size_t n, uint32_t n_chunks, uint32_t least,
                        uint32_t *leader);

/* Compares a BEGIN with this member's facts and builds the group from it. The caller owns *out and frees it with hv_mem_free.
 * HV_MALFORMED, also for a BEGIN of another round: err says why. HV_NOMEM. */
hv_status hv_group_read(hv_env *env, const hv_group_facts *facts, const hv_msg_begin *begin, const hv_payload *gathers,
                        hv_match_group **out, hv_error *err);

/* Writes one sentence of at most `size` bytes about the first line in which two descriptions of tensors differ, for the reader of
 * `mine`. */
void hv_group_difference(hv_span mine, hv_span theirs, char *out, size_t size);

#endif
