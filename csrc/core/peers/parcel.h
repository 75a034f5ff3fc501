/* Parcels: bulk bytes from one peer to another, as a stream of pieces and one receipt.
 *
 * Room: core (uses env, msg).
 * Owner: node. The sender's bytes are borrowed until its payload is released. A received parcel belongs to the code that takes it.
 * Thread: the hive thread only.
 * Limits: `size_max` bytes in one parcel, `held_max` bytes in all parcels that wait or are under way, at most 4,096 parcels.
 * One peer may use half of held_max. All untrusted peers together may use strange_max, and those of one public network (/24, /48)
 * half of that. A peer and a network that hold nothing may always send one parcel, within these limits of all.
 * A sender that completes no piece within silence_ms loses its parcel.
 * The receiver checks the size first, then allocates piece by piece. A parcel arrives whole or not at all.
 */
#ifndef HV_CORE_PARCEL_H
#define HV_CORE_PARCEL_H

#include "core/env.h"

#define HV_PARCEL_PIECE (1u << 20) /* bytes of one piece */

/* A received parcel. The code that takes it frees the bytes and the struct with hv_mem_free. */
typedef struct hv_parcel {
  struct hv_parcel *next;
  hv_peer_id from;
  uint8_t *bytes;
  size_t size;
  int stranger;     /* 1: its sender was not trusted when it began */
  uint64_t network; /* from which it came (hv_stream) */
} hv_parcel;

/* One parcel to send: the caller's struct, alive until done. */
typedef struct hv_parcel_send hv_parcel_send;
struct hv_parcel_send {
  void (*done)(hv_parcel_send *self, hv_status status, const char *text); /* called once; HV_OK: it arrived whole */
  void *owner;
  hv_payload *payload; /* one part; borrowed until done (pieces under way keep it) */
  uint32_t timeout_ms; /* for the whole transfer */
  hv_cause cause;      /* out, at done: the cause of a failure; HV_CAUSE_OTHER: take hv_cause_of(status) */
  /* private to parcel.c */
  hv_env *env;
  hv_stream *stream;
  hv_timer timer;
  size_t sent;
  int received, timed_out, cancelled;
};

/* All received parcels of a node. */
typedef struct hv_parcels {
  hv_env *env;
  size_t size_max, held_max, strange_max, held; /* bytes */
  uint32_t silence_ms;
  hv_parcel *first, **last; /* complete parcels that wait to be taken */
  struct hv_parcel_incoming *incoming;
  void (*arrived)(void *arg);                         /* one more parcel waits; may be NULL */
  hv_tier (*tier)(void *arg, const hv_peer_id *peer); /* NULL: all peers are trusted */
  void *arg;
} hv_parcels;

/* Sizes as in hv_parcels; env and arg are borrowed until fini. */
void hv_parcels_init(hv_parcels *parcels, hv_env *env, size_t size_max, size_t held_max, size_t strange_max,
                     void (*arrived)(void *arg), void *arg);
/* Frees everything, when the world has ended. */
void hv_parcels_fini(hv_parcels *parcels);

/* A peer opened a stream with HV_MSG_PARCEL: accepts it, or leaves stream->on NULL. */
void hv_parcels_opened(hv_parcels *parcels, const hv_event *event);

/* Takes the oldest complete parcel, or returns NULL. */
hv_parcel *hv_parcels_take(hv_parcels *parcels);
/* Gives a taken parcel back; it is the oldest again. */
void hv_parcels_return(hv_parcels *parcels, hv_parcel *parcel);

/* Starts sending. Not HV_OK: not started, done never comes. */
hv_status hv_parcel_send_start(hv_parcel_send *send, hv_env *env, const hv_target *to);
/* Ends the transfer early: done comes soon. */
void hv_parcel_send_cancel(hv_parcel_send *send);

#endif
