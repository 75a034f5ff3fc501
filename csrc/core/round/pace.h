/* How long is too long? What a round has seen of its own speed says when a silent member stands still.
 *
 * Room: core (knows nothing). Owned by allreduce, one for each round, through all its views; fed and asked by reducer, share and
 * council. Pure values.
 * Whenever somebody who was waited for goes on, the wait is told. A member is silent for too long after six times the longest wait
 * of this round, and HV_PACE_FLOOR_US at least; never later than the limit that was given (stall_ms), which alone counts until
 * enough was seen. Whatever comes from a member on any stream is a sign that it lives: what it has to say on one of them may wait
 * behind what it sends on others.
 */
#ifndef HV_CORE_PACE_H
#define HV_CORE_PACE_H

#include "core/round/round.h"
#include "core/util/flow.h"

#define HV_PACE_FLOOR_US 4000000ull /* what a lossy link or a busy machine may stand still by itself */
#define HV_PACE_TIMES 6
#define HV_PACE_TICK_US 125000ull /* so often it is looked, at least */

typedef struct hv_pace {
  uint64_t longest_us;
  unsigned n;
  uint64_t heard_us[HV_ROUND_MEMBERS_MAX]; /* of each member: when anything came from it last */
  hv_flow flow;                            /* and how much, of all that is to come */
} hv_pace;

/* Something came from a member, with so many bytes. */
static inline void hv_pace_heard(hv_pace *pace, size_t member, uint64_t now_us, const hv_payload *payload) {
  pace->heard_us[member] = now_us;
  if (payload)
    hv_flow_saw(&pace->flow, now_us, payload->size);
}

/* The later one of this and when anything came. */
static inline uint64_t hv_pace_sign_us(const hv_pace *pace, size_t member, uint64_t us) {
  return pace->heard_us[member] > us ? pace->heard_us[member] : us;
}

/* Somebody went on after so long. */
static inline void hv_pace_saw(hv_pace *pace, uint64_t us) {
  pace->n += pace->n < 1000;
  pace->longest_us = us > pace->longest_us ? us : pace->longest_us;
}

/* After this long somebody is silent for too long. */
static inline uint64_t hv_pace_patience_us(const hv_pace *pace, uint64_t limit_us) {
  enum { ENOUGH = 8 };
  uint64_t us = pace->longest_us < limit_us ? pace->longest_us * HV_PACE_TIMES : limit_us;
  us = us > HV_PACE_FLOOR_US ? us : HV_PACE_FLOOR_US;
  return pace->n >= ENOUGH && us < limit_us ? us : limit_us;
}

/* How often whoever waits at most limit_us looks. */
static inline uint64_t hv_pace_tick_us(uint64_t limit_us) {
  uint64_t us = limit_us / 8 + 1;
  return us < HV_PACE_TICK_US ? us : HV_PACE_TICK_US;
}

#endif
