/* The replay of a machine's record (trace.h): a machine of this build gets the same events, and its decisions are compared.
 *
 * Room: core (uses trace, epoch, mem).
 * Owner: the code that made it. Thread: one at a time.
 * Limits: HV_TRACE_*; the memory of one machine and one event.
 * Errors: HV_MALFORMED with the line and a sentence: the bytes are no record that this build can read.
 */
#ifndef HV_CORE_EPOCH_REPLAY_H
#define HV_CORE_EPOCH_REPLAY_H

#include "core/epoch/trace.h"

#define HV_REPLAY_TEXT_MAX 6144

typedef struct hv_replay hv_replay;

typedef struct hv_replay_found {
  uint64_t events;    /* that are whole: a program that was killed may leave a part of one */
  uint64_t differing; /* of these: in which the machine decided otherwise */
  /* The first difference in words: the event's number and kind, the time since the first one, the state before, what the record
   * has, and what this build does. Empty: there is none. */
  char first[HV_REPLAY_TEXT_MAX];
  char end[HV_QUOTE_MAX];     /* why the record ends before the machine did; empty: it does not say */
  char unknown[HV_QUOTE_MAX]; /* a field of the record that this build does not have, and passes over; empty: there is none */
} hv_replay_found;

/* env: for its sha256 alone, borrowed. NULL: no memory. */
hv_replay *hv_replay_new(hv_mem *mem, hv_env *env);
/* The next bytes of the record, in pieces of any size. After an error it takes no more. */
hv_status hv_replay_feed(hv_replay *replay, hv_span bytes, hv_error *err);
/* Borrowed. */
const hv_replay_found *hv_replay_look(const hv_replay *replay);
void hv_replay_free(hv_replay *replay); /* NULL is fine */

#endif
