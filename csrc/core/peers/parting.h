/* Who ends a stream on which the last word has been said? Streams that nobody needs any more, until they have closed.
 *
 * Room: core (uses env). Owned by whoever has streams to give away; the hive thread.
 * What still comes is not read. A stream whose other side does not end it within PATIENCE_MS is broken off.
 */
#ifndef HV_CORE_PARTING_H
#define HV_CORE_PARTING_H

#include "core/env.h"

typedef struct hv_parting {
  hv_env *env;
  struct hv_parting_stream *first;
  hv_timer sweep;
} hv_parting;

void hv_parting_init(hv_parting *parting, hv_env *env);
/* When the world has ended. */
void hv_parting_fini(hv_parting *parting);

/* Sends a last word (NULL: none; payload may be NULL) and takes the stream over. */
void hv_parting_say(hv_parting *parting, hv_stream *stream, const hv_msg *last, hv_payload *payload);
/* Takes a stream over and breaks it off. */
void hv_parting_cut(hv_parting *parting, hv_stream *stream);

#endif
