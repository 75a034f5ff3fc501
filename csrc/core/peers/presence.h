/* Presence: streams that show a hub that the process of a peer in client mode lives, and the reports when one ends.
 *
 * Room: core (uses peers, pauses, standing, parting, notice). Used by node.
 * Owner: the node.
 * Thread: the hive thread.
 * Limits: HV_PRESENCE_HUBS streams of this node's own; HV_PRESENCE_GUESTS of others, one for each peer, of which untrusted peers
 * have HV_PRESENCE_STRANGERS, and those of one public network HV_PRESENCE_NEIGHBOURS. Reports are HV_PRESENCE_REPORT_US apart.
 * Errors: without a stream, a peer in client mode counts until it is silent for long enough.
 * Rules: docs/explanation/coming-and-going.md, "A peer in client mode that is killed".
 */
#ifndef HV_CORE_PRESENCE_H
#define HV_CORE_PRESENCE_H

#include "core/notice.h"
#include "core/peers/parting.h"
#include "core/peers/peers.h"

enum { HV_PRESENCE_HUBS = 16, HV_PRESENCE_GUESTS = 256, HV_PRESENCE_STRANGERS = 192, HV_PRESENCE_NEIGHBOURS = 64 };
#define HV_PRESENCE_PATIENCE_US 1000000u /* in which a peer may open another stream */
#define HV_PRESENCE_REPORT_US 250000u

typedef struct hv_presence hv_presence;

/* A stream of this node to an initial peer. */
typedef struct hv_presence_hub {
  hv_presence *presence;
  hv_peer_id id;      /* unknown: a free place */
  hv_stream *stream;  /* NULL: not open */
  unsigned failures;  /* streams in a row that ended soon */
  uint64_t opened_us; /* time at which the last one was opened */
  uint64_t open_us;   /* earliest time of the next one */
} hv_presence_hub;

struct hv_presence {
  hv_env *env;
  hv_peers *peers;
  hv_notices *notices;
  int (*is_dialled)(void *arg, const hv_peer_id *id); /* true: this peer is known to answer at an address; may be NULL */
  void *arg;
  hv_presence_hub hubs[HV_PRESENCE_HUBS];
  struct hv_presence_guest *guests; /* peers whose stream is open, or ended a moment ago */
  size_t n_guests, n_strangers;
  uint64_t reported_us; /* time of the last report */
  uint64_t moved_us;    /* time at which this node's network changed; 0: never */
  int stopping;
  hv_parting parting;
  hv_timer timer;
};

/* All arguments are borrowed until fini. is_dialled and arg may be set afterwards. */
void hv_presence_init(hv_presence *presence, hv_env *env, hv_peers *peers, hv_notices *notices);
/* Frees everything; only when the world has ended. */
void hv_presence_fini(hv_presence *presence);
/* The node ends: opens no stream and reports nothing any more. The world closes the streams. */
void hv_presence_stop(hv_presence *presence);

/* The table of peers has changed: opens the streams that are missing. */
void hv_presence_look(hv_presence *presence);
/* This machine's network has changed: streams that end now say nothing about their peers, and this node's own are opened at once.
 */
void hv_presence_moved(hv_presence *presence);

/* A peer has opened a stream (HV_MSG_PRESENT). If there is no room, or the peer can be dialled, the world refuses it. */
void hv_presence_opened(hv_presence *presence, const hv_event *event);
/* This peer has said goodbye, which other clients cannot hear: it is reported as the end of a stream is. */
void hv_presence_left(hv_presence *presence, const hv_peer_id *id);
/* Answers a report (HV_MSG_ENDED) and, if an initial peer sent it, believes it. */
void hv_presence_told(hv_presence *presence, const hv_event *event);

#endif
