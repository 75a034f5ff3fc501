/* Streams that have sent their last message and are being closed.
 *
 * Room: core (uses env).
 * Owner: any part of core that has streams to close; the parting owns each stream until it has closed.
 * Thread: the hive thread.
 * Limits: a stream that the other side does not end within 5 s is broken off. Messages that still arrive are not read.
 */
#ifndef HV_CORE_PARTING_H
#define HV_CORE_PARTING_H

#include "core/env.h"

typedef struct hv_parting {
  hv_env *env;
  struct hv_parting_stream *first; /* streams that have not closed yet */
  hv_timer sweep;                  /* looks for streams that are too late */
} hv_parting;

/* env is borrowed until fini. */
void hv_parting_init(hv_parting *parting, hv_env *env);
/* Frees everything; only when the world has ended. */
void hv_parting_fini(hv_parting *parting);

/* Takes the stream over, sends a last message (NULL: none; payload may be NULL) and ends this side. */
void hv_parting_say(hv_parting *parting, hv_stream *stream, const hv_msg *last, hv_payload *payload);
/* Takes the stream over and breaks it off. */
void hv_parting_cut(hv_parting *parting, hv_stream *stream);

#endif
