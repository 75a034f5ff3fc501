/* How does one peer download from here? A stream on which it asks for chunks, and gets them in order.
 *
 * Room: core (uses env, snapshot). Owned by state; the hive thread, with one job at a time on the pool.
 * Holds at most HV_STATE_ASKED_MAX numbers and one chunk that the stream has not taken yet. Who takes nothing and asks nothing for
 * HV_UPLOAD_SILENCE_MS is dropped. So is who is still at it HV_UPLOAD_RETIRED_MS after the snapshot was replaced: the program wants
 * its memory back. One without a snapshot only says why not, and ends.
 */
#ifndef HV_CORE_UPLOAD_H
#define HV_CORE_UPLOAD_H

#include "core/state/snapshot.h"

#define HV_UPLOAD_SILENCE_MS 30000u
#define HV_UPLOAD_RETIRED_MS 300000u
#define HV_UPLOAD_ASKED_MAX 32

typedef struct hv_upload hv_upload;
struct hv_upload {
  hv_upload *next, **link; /* state's */
  hv_env *env;
  hv_stream *stream; /* NULL: it has ended */
  hv_peer_id peer;
  hv_snapshot *snapshot; /* NULL: refused */
  uint32_t asked[HV_UPLOAD_ASKED_MAX], first, n;
  hv_payload *ready; /* for asked[first]; not taken by the stream yet */
  uint8_t *codes;    /* being encoded */
  int working, cancelled;
  hv_status coded;
  hv_job job;
  hv_timer silence;
  uint64_t began_us, moved_us;
  uint64_t sent, since_us;                  /* bytes that the stream has taken, of late, and since when */
  void (*over)(void *arg, hv_upload *self); /* it may be freed now; called once */
  void *arg;
};

/* Takes a stream on. snapshot is kept; NULL: answers with this refusal. NULL: no memory, stream->on is as it was. */
hv_upload *hv_upload_new(hv_env *env, hv_stream *stream, hv_snapshot *snapshot, hv_status refusal,
                         void (*over)(void *arg, hv_upload *self), void *arg);
/* Bytes per second that its stream has taken, of late: what is longer ago than half a minute or so counts less and less. */
uint64_t hv_upload_pace(const hv_upload *upload);
/* Breaks it off: over comes soon. */
void hv_upload_cancel(hv_upload *upload);
/* When it is over, or its world is dead. */
void hv_upload_free(hv_upload *upload);

#endif
