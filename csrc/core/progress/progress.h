/* A tracker of one run: publishes this contributor's progress and counts that of the swarm.
 *
 * Room: core (uses env, dht, zones, tally, ignored, report).
 * Owner: the node's registry, of all trackers. The program's side, a snapshot that any thread reads and writes without waiting, is
 * net/hive/hive_progress.c.
 * Thread: the hive thread; hv_progress_now, hv_progress_as_of and hv_progress_check: any.
 * Limits: HV_PROGRESS_* below; HV_TALLY_INSTANCES_MAX trackers of one prefix in a node.
 * Errors: hv_status; if counting fails, the last figures stand.
 * Rules: docs/design/progress.md: the rule, standing, records, zones.
 */
#ifndef HV_CORE_PROGRESS_H
#define HV_CORE_PROGRESS_H

#include "core/notice.h"
#include "core/peers/peers.h"
#include "core/progress/zones.h"

#define HV_PROGRESS_PREFIX_MAX 512  /* bytes */
#define HV_PROGRESS_CLAIMS_MAX 2048 /* contributors that are remembered */
#define HV_PROGRESS_NEVER UINT64_MAX
#define HV_PROGRESS_KNOWN 48 /* contributors of a wide swarm that have records */

typedef struct hv_progress hv_progress;
typedef struct hv_progress_run hv_progress_run;

/* This contributor's progress, as the program reported it. */
typedef struct hv_progress_own {
  int any; /* 0: no report yet, so it is no contributor */
  uint64_t epoch;
  uint64_t samples; /* in this epoch */
  uint64_t before;  /* samples with which it left the epoch before */
  double speed;     /* samples per second; 0: not known */
  uint64_t at_us;   /* time at which these numbers were true */
  uint64_t serial;  /* the number of its changes of epoch while it is counted */
  uint64_t step;    /* samples that the latest report added, a batch; 0: not known */
  int paused;       /* 1: the program averages or loads a state, which is no standstill */
  uint64_t comes;   /* without any: 1 + the epoch whose state it loads, to be a contributor soon; 0: it is not about to */
} hv_progress_own;

typedef struct hv_progress_terms {
  uint64_t target;                         /* samples of one epoch; 1 or more */
  uint64_t batch_size_lead;                /* missing samples at which a group is sought */
  uint32_t matchmaking_ms;                 /* time before the target at which a group is sought */
  uint32_t min_refresh_ms, max_refresh_ms; /* limits between two searches; 0: 500, 10,000 */
  uint32_t default_refresh_ms;             /* between two searches while no speed is known; 0: 3,000 */
  double drift_peers, drift_rate;          /* peers, and their part of all, that may join before the target; < 0: 3, 0.2 */
  uint32_t expiration_ms;                  /* lease of a record, at least 2 max_refresh_ms; 0: 60,000 */
  double fast;                             /* tally.h; 0: 8 */
} hv_progress_terms;

/* The result of counting at at_us, from which the figures follow. */
typedef struct hv_progress_view {
  hv_tally tally;
  uint64_t at_us, next_us; /* next_us: the next search */
  uint64_t fetched;        /* searches that were answered, or found no peer */
  uint64_t fetched_serial; /* the own serial before the latest of them */
  uint32_t age_ms;         /* of sums, on average */
  int wide;                /* 1: counted from sums */
  size_t n_coming;         /* that load the state of this epoch or an older one; 0 where they are not known one by one */
  int mine;                /* 1: the own claim is part of it */
} hv_progress_view;

/* This contributor's epoch, compared with the swarm's (docs/design/progress.md, "Where I stand"). */
typedef enum hv_progress_standing {
  HV_PROGRESS_IN_STEP, /* the same */
  HV_PROGRESS_LATE,    /* one before: a step is under way, or just done */
  HV_PROGRESS_BEHIND,  /* two or more before: the state must be loaded */
  HV_PROGRESS_AHEAD,   /* beyond: the others follow */
  HV_PROGRESS_STANDINGS
} hv_progress_standing;

typedef struct hv_progress_figures {
  uint64_t epoch;
  double samples, speed; /* speed: samples per second */
  size_t n_peers, n_clients;
  size_t n_behind; /* of these, in an earlier epoch than the swarm's */
  size_t n_coming; /* others, that load the state of this epoch or an older one */
  uint64_t eta_us; /* time from now until the target is reached; HV_PROGRESS_NEVER: no speed is known */
  uint64_t next_us;
  hv_progress_standing standing;
  int ready; /* 1: make the step: the swarm's epoch is beyond this one, or is this one and has its samples */
  int match; /* 1: form a group: ready, or in step and near the target by matchmaking_ms or batch_size_lead */
} hv_progress_figures;

typedef struct hv_progress_config {
  hv_span prefix; /* copied */
  hv_progress_terms terms;
  int client_mode;
  /* Sets *out to the program's latest report. */
  void (*own)(void *arg, hv_progress_own *out);
  /* The swarm was counted. May be NULL. */
  void (*counted)(void *arg, const hv_progress_view *view);
  /* The node ends, and the tracker with it; the last call. Not called after hv_progress_close. May be NULL. */
  void (*ended)(void *arg);
  void *arg;
} hv_progress_config;

/* All trackers of a node. */
typedef struct hv_progress_registry {
  hv_env *env;
  hv_dht *dht;
  hv_peer_id me;
  hv_notices *notices;   /* for departures; NULL: none are sent */
  const hv_peers *peers; /* the peers that have ended; NULL: none are known */
  hv_progress *trackers;
  hv_progress_run *runs;
  int ended;
} hv_progress_registry;

/* Sets an empty registry up; borrows env and dht. */
void hv_progress_registry_init(hv_progress_registry *registry, hv_env *env, hv_dht *dht, const hv_peer_id *me);
/* Ends and frees all trackers. Call it before the DHT is stopped or freed; a second call does nothing. */
void hv_progress_registry_fini(hv_progress_registry *registry);

/* Opens a tracker, which searches at once. HV_INVALID (err says why), HV_BUDGET: this prefix has HV_TALLY_INSTANCES_MAX trackers
 * here, HV_NOMEM, HV_CLOSED. */
hv_status hv_progress_open(hv_progress_registry *registry, const hv_progress_config *config, hv_progress **out, hv_error *err);
/* The program's epoch changed, or it wants to know: counts, and publishes what is new. Searches at once if `ask`, else soon. */
void hv_progress_wake(hv_progress *self, int ask);
/* Nobody had a state of `epoch`: leaves the claims of its owners that claim it or a later one out of the count for for_ms (at most
 * HV_IGNORED_MS_MAX), and counts. Has no effect on the count of a wide swarm. */
void hv_progress_disbelieve(hv_progress *self, uint64_t epoch, uint32_t for_ms);
/* Publishes that this contributor has gone, then frees the tracker. */
void hv_progress_close(hv_progress *self);
/* The latest view, borrowed until the next event. */
const hv_progress_view *hv_progress_look(const hv_progress *self);

/* A peer has ended: it does not count any more. */
void hv_progress_gone(hv_progress_registry *registry, const hv_peer_id *id);
/* A peer has left that run: it does not count there any more. */
void hv_progress_departed(hv_progress_registry *registry, const hv_peer_id *id, uint32_t run);
/* A peer sent HV_MSG_PROGRESS: answers it. */
void hv_progress_asked(hv_progress_registry *registry, const hv_event *event);

/* A contributor's progress for others at now_us. If the program has reported nothing for much longer than its batches take, it is
 * stalled: then the speed is reduced to one batch in all that time, so that no step is made for samples that do not exist. */
hv_progress_own hv_progress_as_of(const hv_progress_own *own, uint64_t now_us);

/* Fills in default terms. HV_INVALID: err names the wrong one. */
hv_status hv_progress_check(hv_progress_terms *terms, hv_error *err);

/* Sets *out to the figures at now_us, from the latest view and the program's latest report. */
void hv_progress_now(const hv_progress_view *view, const hv_progress_own *own, const hv_progress_terms *terms, uint64_t now_us,
                     hv_progress_figures *out);

#endif
