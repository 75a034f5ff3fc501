/* How far is the swarm? One contributor of a run says how far it is, and learns how far all are.
 *
 * Room: core (uses env, dht, zones, tally, report). The trackers of a node are in its registry; the hive thread only. The
 * program's side of it (a snapshot that any thread writes and reads, and nobody waits at) is net/hive/hive_progress.c;
 * hv_progress_now is pure and runs there, too.
 *
 * Two ways, so that it works in any DHT, and costs little where most of its nodes take part.
 *
 * Zones (zones.h): contributors are asked one by one, and for the sums of zones where there are many.
 *
 * Records: a contributor's report (report.h) is a record of its own in the DHT: key PREFIX_progress, subkey
 * N[owner:PEERID], signed, with expiration_ms to live; N counts the contributors of one node under one prefix. Times are
 * relative: a count is as old as its report said plus what has passed of the record's lease. Said anew: at once when the
 * epoch changes, when the count has moved away from what others would make of the last one by its speed, and at least
 * every max_refresh_ms. Asked: whenever a refresh is due. What was found is kept until its own end, so that an answer
 * that lacks somebody takes nobody away; an owner's newest word counts.
 *
 * While all whose records were found are heard directly, records are said three times in their life and asked for once
 * in it, for newcomers and onlookers; in a swarm wider than a leaf by some of its peers, HV_PROGRESS_KNOWN or so.
 *
 * A refresh follows the ETA: at the time when the target would be reached if expected_drift_peers more (or
 * expected_drift_rate of all) came, between min_refresh_ms and max_refresh_ms; every default_refresh_ms while nobody's
 * speed is known. The figures follow tally.h's rule.
 *
 * Where I stand (hv_progress_standing) and what follows from it:
 *
 * - IN_STEP: my epoch is the swarm's.
 *
 * - LATE: the swarm is one further: its step is under way or just done. Who takes part in it goes on; who does not must
 *   load the state.
 *
 * - BEHIND: the swarm is two or more further: what I have is stale. Load the state before contributing again.
 *
 * - AHEAD: I have made a step that the swarm has not (f + 1 owners have not said so yet). I go on with my epoch's samples
 *   and wait: the swarm's epoch is what others are to reach, never a reason to go back.
 *
 * ready: it is time to make the step: the swarm's epoch is beyond mine, or is mine and its samples are enough. (Those that
 * have made it already count with what they gave, so that it stays reached for the rest.)
 *
 * Others' counts are carried on by their speed between what is heard of them. A program that reports nothing for much longer than
 * its batches take (it validates, saves, waits for a person) stands still: its node says what it has told, and of its speed
 * what one batch in all that time would be, so that no step is called for samples that nobody makes.
 *
 * match: it is time to form a group: ready, or in step and either the ETA is within matchmaking_ms or batch_size_lead
 * samples are all that lacks.
 */
#ifndef HV_CORE_PROGRESS_H
#define HV_CORE_PROGRESS_H

#include "core/notice.h"
#include "core/peers/peers.h"
#include "core/progress/zones.h"

#define HV_PROGRESS_PREFIX_MAX 512
#define HV_PROGRESS_CLAIMS_MAX 2048 /* contributors that are remembered */
#define HV_PROGRESS_NEVER UINT64_MAX
#define HV_PROGRESS_KNOWN 48 /* how many of a wide swarm have records */

typedef struct hv_progress hv_progress;
typedef struct hv_progress_run hv_progress_run;

/* What the program says of this contributor, as of at_us. */
typedef struct hv_progress_own {
  int any; /* 0: it has said nothing yet, and is no contributor */
  uint64_t epoch, samples, before;
  double speed;
  uint64_t at_us;
  uint64_t serial; /* counts its changes of epoch */
  uint64_t step;   /* the samples that its latest report added, a batch; 0: not known */
  int paused;      /* the program averages or loads state: that is no standstill */
} hv_progress_own;

typedef struct hv_progress_terms {
  uint64_t target;                                             /* samples of one epoch; 1 or more */
  uint64_t batch_size_lead;                                    /* a group is sought when so many samples lack */
  uint32_t matchmaking_ms;                                     /* or so long before the target is reached */
  uint32_t min_refresh_ms, max_refresh_ms, default_refresh_ms; /* 0: 500, 10,000, 3,000 */
  double drift_peers, drift_rate;                              /* < 0: 3 and 0.2 */
  uint32_t expiration_ms;                                      /* 0: 60,000; no less than 2 max_refresh_ms is taken */
  double fast;                                                 /* tally.h; 0: 8 */
} hv_progress_terms;

/* What was counted at at_us: all that the figures need. */
typedef struct hv_progress_view {
  hv_tally tally;
  uint64_t at_us, next_us; /* next_us: when it asks again */
  uint64_t fetched;        /* how often an answer came (or it turned out that nobody is there) */
  uint64_t fetched_serial; /* the own serial before the latest of them */
  uint32_t age_ms;         /* of what is counted by zones, on average */
  int wide;                /* counted by zones */
  int mine;                /* the own claim is in it */
} hv_progress_view;

typedef enum hv_progress_standing {
  HV_PROGRESS_IN_STEP,
  HV_PROGRESS_LATE,
  HV_PROGRESS_BEHIND,
  HV_PROGRESS_AHEAD,
  HV_PROGRESS_STANDINGS
} hv_progress_standing;

typedef struct hv_progress_figures {
  uint64_t epoch;
  double samples, speed;
  size_t n_peers, n_clients;
  uint64_t eta_us; /* from now until the target is reached; HV_PROGRESS_NEVER: nobody's speed is known */
  uint64_t next_us;
  hv_progress_standing standing;
  int ready, match;
} hv_progress_figures;

typedef struct hv_progress_config {
  hv_span prefix; /* copied */
  hv_progress_terms terms;
  int client_mode;
  /* What the program says now. */
  void (*own)(void *arg, hv_progress_own *out);
  /* It was counted anew. May be NULL. */
  void (*counted)(void *arg, const hv_progress_view *view);
  /* The node ends and the tracker with it; the last call. Not after hv_progress_close. May be NULL. */
  void (*ended)(void *arg);
  void *arg;
} hv_progress_config;

/* All trackers of a node. */
typedef struct hv_progress_registry {
  hv_env *env;
  hv_dht *dht;
  hv_peer_id me;
  hv_notices *notices;   /* NULL: nobody is told of a tracker's end but by its record */
  const hv_peers *peers; /* who has ended; NULL: nobody is known to have */
  hv_progress *trackers;
  hv_progress_run *runs;
  int ended;
} hv_progress_registry;

void hv_progress_registry_init(hv_progress_registry *registry, hv_env *env, hv_dht *dht, const hv_peer_id *me);
/* Ends all trackers, for good; before the DHT is stopped or freed. May be called twice. */
void hv_progress_registry_fini(hv_progress_registry *registry);

/* Opens a tracker; it begins to ask at once. HV_INVALID (err names it), HV_BUDGET (HV_TALLY_INSTANCES_MAX of a prefix are the
 * limit), HV_NOMEM, HV_CLOSED. */
hv_status hv_progress_open(hv_progress_registry *registry, const hv_progress_config *config, hv_progress **out, hv_error *err);
/* The program's epoch changed, or it wants to know: counts and says at once what is new; asks at once, or (ask: 0) soon. */
void hv_progress_wake(hv_progress *self, int ask);
/* Says that this contributor has gone, and frees it when that is said. */
void hv_progress_close(hv_progress *self);
const hv_progress_view *hv_progress_look(const hv_progress *self);

/* A peer has ended: it counts no more. */
void hv_progress_gone(hv_progress_registry *registry, const hv_peer_id *id);
/* A peer takes no part in that run any more. */
void hv_progress_departed(hv_progress_registry *registry, const hv_peer_id *id, uint32_t run);
/* HV_MSG_PROGRESS: answers it. */
void hv_progress_asked(hv_progress_registry *registry, const hv_event *event);

/* What a contributor counts for at now_us: what it said, or if it stands still that and a speed that makes no more of it. Pure. */
hv_progress_own hv_progress_as_of(const hv_progress_own *own, uint64_t now_us);

/* The terms with their defaults. HV_INVALID. */
hv_status hv_progress_check(hv_progress_terms *terms, hv_error *err);

/* The figures now, from what was counted and what the program says by now. Pure. */
void hv_progress_now(const hv_progress_view *view, const hv_progress_own *own, const hv_progress_terms *terms, uint64_t now_us,
                     hv_progress_figures *out);

#endif
