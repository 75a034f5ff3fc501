/* The patience of a round: the silence after which a member counts as stalled, learned from the waits of this round.
 *
 * Room: core (uses round, flow). Updated and read by reducer, share and council.
 * Owner: allreduce, one for each round, through all its views.
 * Thread: the hive thread; plain values.
 * Limits: patience is HV_PACE_TIMES the longest wait of this round, at least HV_PACE_FLOOR_US, at most the given limit (stall_ms).
 * Until eight waits were seen, it is the limit.
 * Rules: docs/design/round.md, "How long is too long".
 */
#ifndef HV_CORE_PACE_H
#define HV_CORE_PACE_H

#include "core/round/round.h"
#include "core/util/flow.h"

#define HV_PACE_FLOOR_US 4000000ull /* the pause that a lossy link or a busy machine may cause */
#define HV_PACE_TIMES 6
#define HV_PACE_TICK_US 125000ull /* longest time between two checks */

typedef struct hv_pace {
  uint64_t longest_us;                     /* longest wait so far */
  unsigned n;                              /* waits counted */
  uint64_t heard_us[HV_ROUND_MEMBERS_MAX]; /* for each member: time of the last message from it, on any stream */
  hv_flow flow;                            /* bytes that have arrived */
} hv_pace;

/* A message of a member arrived, with payload or without (NULL). */
static inline void hv_pace_heard(hv_pace *pace, size_t member, uint64_t now_us, const hv_payload *payload) {
  pace->heard_us[member] = now_us;
  if (payload)
    hv_flow_saw(&pace->flow, now_us, payload->size);
}

/* The later of `us` and the time of the member's last message. */
static inline uint64_t hv_pace_sign_us(const hv_pace *pace, size_t member, uint64_t us) {
  return pace->heard_us[member] > us ? pace->heard_us[member] : us;
}

/* A member that was waited for moved on after a wait of `us`. */
static inline void hv_pace_saw(hv_pace *pace, uint64_t us) {
  pace->n += pace->n < 1000;
  pace->longest_us = us > pace->longest_us ? us : pace->longest_us;
}

/* The patience: a member that is silent for longer counts as stalled. */
static inline uint64_t hv_pace_patience_us(const hv_pace *pace, uint64_t limit_us) {
  enum { ENOUGH = 8 };
  uint64_t us = pace->longest_us < limit_us ? pace->longest_us * HV_PACE_TIMES : limit_us;
  us = us > HV_PACE_FLOOR_US ? us : HV_PACE_FLOOR_US;
  return pace->n >= ENOUGH && us < limit_us ? us : limit_us;
}

/* Time between two checks of code that waits at most limit_us. */
static inline uint64_t hv_pace_tick_us(uint64_t limit_us) {
  uint64_t us = limit_us / 8 + 1;
  return us < HV_PACE_TICK_US ? us : HV_PACE_TICK_US;
}

#endif
