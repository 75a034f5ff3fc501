/* The inner parts of a tracker, shared by the progress*.c files only.
 *
 * Room: core. The contract of the whole is core/progress/progress.h.
 * Owner: the registry owns trackers and runs; a run lives as long as one of its trackers.
 * Thread: the hive thread.
 * Files: progress.c (life; when records are published and searched for), progress_count.c (what arrives, and how it is counted),
 * progress_now.c (the figures).
 */
#ifndef HV_CORE_PROGRESS_INNER_H
#define HV_CORE_PROGRESS_INNER_H

#include "core/progress/ignored.h"
#include "core/progress/progress.h"

#define PROGRESS_SUBKEY_MAX 96 /* bytes */

/* The newest record of one contributor. */
typedef struct progress_heard {
  hv_claim claim;
  uint64_t version;
  uint64_t ends_us; /* end of its lease */
  uint64_t gone_us; /* when its contributor ended; 0: it did not */
  uint8_t instance; /* the number of the contributor among those of its node */
} progress_heard;

/* The common part of all trackers of one prefix. */
struct hv_progress_run {
  hv_progress_run *next;
  hv_progress_registry *registry;
  uint32_t id;
  size_t n, open; /* trackers; trackers that are not closing */
  hv_zones zones; /* the progress of the run's other contributors (zones.h) */
};

struct hv_progress {
  hv_progress *next;
  hv_progress_registry *registry;
  hv_progress_run *run;
  hv_progress_config config;
  hv_progress_terms terms;
  uint8_t instance;
  int closing;
  int publishing, asking; /* a store, a search is under way */
  int was_any;            /* the program had reported something at its last wake */
  progress_heard *heard;
  size_t n_heard, room; /* records; records that the array can hold */
  hv_ignored ignored;   /* owners whose claims do not count */
  hv_progress_view view;
  int covered;                /* 1: `zones` reports all contributors, so records in the DHT are needed for newcomers only */
  uint64_t serial;            /* number of times that this contributor has changed its epoch (hv_progress_own.serial) */
  uint64_t serial_us;         /* time at which this node noticed the last of these changes; 0: it has noticed none */
  hv_progress_own published;  /* the progress in the last record that was stored; any 0: there is none */
  hv_progress_own to_publish; /* the progress in the record that is being stored */
  uint64_t published_us;      /* when the last store began; 0: never */
  uint64_t opened_us;
  uint64_t again_us;     /* after a failure: nothing is stored before this time */
  uint64_t asked_us;     /* when the last search began */
  uint64_t ask_us;       /* when the next one is due */
  uint64_t asked_serial; /* `serial` when the last search began */
  unsigned failures;     /* of searches, in a row */
  hv_timer timer;
  hv_dht_op store, get;
  hv_dht_item item;
  hv_dht_spots spots; /* the nodes that keep the last record */
  uint8_t value[HV_REPORT_BYTES];
  char subkey[PROGRESS_SUBKEY_MAX];
  size_t key_size;
  char key[];
};

static inline uint64_t progress_ms(uint64_t n) {
  return n * 1000;
}

static inline uint64_t progress_clock(const hv_progress *self) {
  return self->registry->env->now_us(self->registry->env);
}

/* ---- progress_count.c ---- */
/* This contributor's own progress at now_us, as its program reported it and hv_progress_as_of shows it to others. */
hv_progress_own progress_own(const hv_progress *self, uint64_t now_us);
/* The report to publish of `own`. */
hv_report progress_report(const hv_progress *self, const hv_progress_own *own, uint64_t now_us);
/* Contributors of this owner have ended: their records do not count any more. */
void progress_forget(hv_progress *self, const hv_peer_id *owner, uint64_t now_us);
/* A record was found: remembers it, if it is its contributor's newest. */
void progress_hear(hv_progress *self, const hv_record *record, uint64_t now_us);
/* Counts all contributors and calls config.counted. On failure the last figures stand. */
void progress_count(hv_progress *self, const hv_progress_own *own, uint64_t now_us);
/* The time in us until the next search. */
uint64_t progress_refresh_us(const hv_progress *self, const hv_progress_own *own, uint64_t now_us);
/* Sets *out to this node's own sum in a run, which is an hv_progress_run. */
void progress_own_sum(void *run, hv_sum *out);

#endif
