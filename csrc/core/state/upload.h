/* One download from this node, on the donor's side: a stream of requested chunks, answered in order.
 *
 * Room: core (uses env, snapshot).
 * Owner: state.
 * Thread: the hive thread; chunks are encoded on the pool, one at a time.
 * Limits: HV_UPLOAD_ASKED_MAX requested chunks, and one that the stream has not taken yet.
 * Errors: a refusal is sent to the peer, then the stream ends.
 * Rules: docs/design/state.md, "Uploads".
 */
#ifndef HV_CORE_UPLOAD_H
#define HV_CORE_UPLOAD_H

#include "core/state/snapshot.h"

#define HV_UPLOAD_SILENCE_MS 30000u  /* without a request or a byte taken, after which a peer is dropped */
#define HV_UPLOAD_RETIRED_MS 300000u /* for which a replaced snapshot is served to all; then rule 11 ends slow downloads */
#define HV_UPLOAD_LEAST (32u << 10)  /* bytes per second of a joiner that does not have to give way */
#define HV_UPLOAD_ASKED_MAX 32

typedef struct hv_upload hv_upload;
struct hv_upload {
  hv_upload *next, **link; /* in state's list */
  hv_env *env;
  hv_stream *stream; /* NULL: it has ended */
  hv_peer_id peer;
  hv_snapshot *snapshot;                         /* a reference; NULL: the upload is refused */
  uint32_t asked[HV_UPLOAD_ASKED_MAX], first, n; /* a ring of chunk numbers */
  hv_payload *ready;                             /* the bytes of asked[first] that the stream has not taken yet */
  uint8_t *codes;                                /* the bytes that a job is encoding */
  int working, cancelled;
  hv_status coded; /* the job's result */
  hv_job job;
  hv_timer silence;
  uint64_t began_us, moved_us;              /* when it began; when the peer last asked or took something */
  uint64_t sent, since_us;                  /* bytes that the stream took recently, counted from since_us */
  void (*over)(void *arg, hv_upload *self); /* called once, when the upload may be freed */
  void *arg;
};

/* Answers a stream with chunks of a snapshot, to which it keeps a reference. snapshot NULL: answers with `refusal` and ends.
 * Returns NULL if memory lacks; then stream->on is unchanged. */
hv_upload *hv_upload_new(hv_env *env, hv_stream *stream, hv_snapshot *snapshot, hv_status refusal,
                         void (*over)(void *arg, hv_upload *self), void *arg);
/* Recent speed in bytes per second; bytes of more than half a minute ago count less and less. */
uint64_t hv_upload_pace(const hv_upload *upload);
/* Breaks an upload off; `over` is called soon. */
void hv_upload_cancel(hv_upload *upload);
/* Frees an upload after `over`, or after its world has ended. */
void hv_upload_free(hv_upload *upload);

#endif
