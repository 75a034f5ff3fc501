/* Which messages leave a node's line first: those of rounds, of which members wait for each other, before those of loads.
 *
 * Room: core; depends on no other module. Each world keeps one for each node and asks it before a message of a load leaves.
 * Owner: the world.
 * Thread: the hive thread; plain values.
 * Terms: a load is a stream of a state or of a log's entry; ahead are the messages of rounds that have not left yet.
 * Limits: while some are ahead, loads have one byte of HV_TURNS_SHARE. If none of those leaves for HV_TURNS_STUCK_US, receivers
 * are waited for and not the line, so a message of a load leaves.
 * Rules: docs/design/state.md, "Uploads".
 */
#ifndef HV_CORE_TURNS_H
#define HV_CORE_TURNS_H

#include <stddef.h>
#include <stdint.h>

#define HV_TURNS_SHARE 4
#define HV_TURNS_STUCK_US 250000u

typedef struct hv_turns {
  uint64_t ahead;   /* bytes of rounds that wait */
  uint64_t wanted;  /* bytes of the largest message of a load that has waited meanwhile */
  uint64_t earned;  /* bytes that loads may send before the rest of the rounds' */
  uint64_t left_us; /* time at which the latest message left */
} hv_turns;

/* A message of a round waits for the line. */
static inline void hv_turns_wait(hv_turns *turns, size_t size, uint64_t now_us) {
  if (!turns->ahead)
    *turns = (hv_turns){.left_us = now_us};
  turns->ahead += size;
}

/* It has left. */
static inline void hv_turns_left(hv_turns *turns, size_t size, uint64_t now_us) {
  turns->ahead -= size;
  turns->earned += size / (HV_TURNS_SHARE - 1);
  turns->earned = turns->earned < turns->wanted ? turns->earned : turns->wanted;
  turns->left_us = now_us;
}

/* The time at which a message of a load may leave, if no message of a round leaves before; now_us or earlier: now. */
static inline uint64_t hv_turns_due_us(const hv_turns *turns, size_t size, uint64_t now_us) {
  return !turns->ahead || turns->earned >= size ? now_us : turns->left_us + HV_TURNS_STUCK_US;
}

/* True if a message of a load leaves now. Else it earns its turn from now on. */
static inline int hv_turns_load(hv_turns *turns, size_t size, uint64_t now_us) {
  if (hv_turns_due_us(turns, size, now_us) > now_us) {
    turns->wanted = turns->wanted > size ? turns->wanted : size;
    return 0;
  }
  if (turns->earned >= size)
    turns->earned -= size;
  else
    turns->left_us = now_us;
  return 1;
}

#endif
