/* How do many bytes get from one peer to another? A stream of pieces, and one receipt.
 *
 * Room: core (uses env, msg). Owned by node; the hive thread only. The simplest user of bulk streams.
 * The sender's bytes are borrowed until its payload has been released; they leave in pieces of PIECE bytes, as fast as the
 * stream's window allows. The receiver takes memory for the whole only after it has checked the size against its limits, and
 * piece by piece only what fits where it belongs. A parcel is whole, or it is not there.
 * Limits: `size_max` bytes in one parcel, `held_max` bytes in parcels under way or waiting to be taken (each counts, also an empty
 * one: there are never more than 4,096); of one peer half of that at most (but one parcel always), and half of all strangers
 * together, so that those who are known find room. A peer that sends no whole piece for silence_ms loses its parcel.
 */
#ifndef HV_CORE_PARCEL_H
#define HV_CORE_PARCEL_H

#include "core/env.h"

#define HV_PARCEL_PIECE (1u << 20)

/* A parcel that came: bytes belong to whoever takes it (hv_mem_free both). */
typedef struct hv_parcel {
  struct hv_parcel *next;
  hv_peer_id from;
  uint8_t *bytes;
  size_t size;
  int stranger; /* its sender was not known when it began */
} hv_parcel;

/* One parcel to send: the caller's struct, alive until done. */
typedef struct hv_parcel_send hv_parcel_send;
struct hv_parcel_send {
  void (*done)(hv_parcel_send *self, hv_status status, const char *text); /* once; HV_OK: it arrived whole; see cause, too */
  void *owner;
  hv_payload *payload; /* of one part; borrowed until done (pieces under way keep it) */
  uint32_t timeout_ms; /* for the whole transfer */
  hv_cause cause;      /* out, with done: of a failure; HV_CAUSE_OTHER: the status' own */
  /* parcel's */
  hv_env *env;
  hv_stream *stream;
  hv_timer timer;
  size_t sent;
  int received, timed_out;
};

typedef struct hv_parcels {
  hv_env *env;
  size_t size_max, held_max, held;
  uint32_t silence_ms;
  hv_parcel *first, **last; /* whole ones, waiting to be taken */
  struct hv_parcel_incoming *incoming;
  void (*arrived)(void *arg);                      /* one more waits; may be NULL */
  int (*knows)(void *arg, const hv_peer_id *peer); /* 1: no stranger; NULL: nobody is */
  void *arg;
} hv_parcels;

void hv_parcels_init(hv_parcels *parcels, hv_env *env, size_t size_max, size_t held_max, void (*arrived)(void *arg), void *arg);
void hv_parcels_fini(hv_parcels *parcels);

/* A peer opened a stream with HV_MSG_PARCEL: takes it on, or leaves stream->on NULL. */
void hv_parcels_opened(hv_parcels *parcels, const hv_event *event);

/* The oldest whole parcel, or NULL. */
hv_parcel *hv_parcels_take(hv_parcels *parcels);
/* It was taken and is not wanted: it is the oldest again (given). */
void hv_parcels_return(hv_parcels *parcels, hv_parcel *parcel);

/* Starts sending. Not HV_OK: done will not come. */
hv_status hv_parcel_send_start(hv_parcel_send *send, hv_env *env, const hv_target *to);
void hv_parcel_send_cancel(hv_parcel_send *send);

#endif
