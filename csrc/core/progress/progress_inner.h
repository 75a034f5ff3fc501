/* What is a tracker made of? Shared by the progress*.c files only; core/progress/progress.h is the contract.
 *
 * progress.c: life, what is said and asked, and when. progress_count.c: what is heard, and how it is counted.
 * progress_now.c: the figures.
 */
#ifndef HV_CORE_PROGRESS_INNER_H
#define HV_CORE_PROGRESS_INNER_H

#include "core/progress/progress.h"

#define PROGRESS_SUBKEY_MAX 96

/* A contributor as its record said last. */
typedef struct progress_heard {
  hv_claim claim;
  uint64_t version, ends_us;
  uint64_t gone_us; /* when its contributor ended; 0: it did not */
  uint8_t instance;
} progress_heard;

/* What the trackers of one prefix share. */
struct hv_progress_run {
  hv_progress_run *next;
  hv_progress_registry *registry;
  uint32_t id;
  size_t n, open; /* trackers; those of them that are not closing */
  hv_zones zones;
};

struct hv_progress {
  hv_progress *next;
  hv_progress_registry *registry;
  hv_progress_run *run;
  hv_progress_config config;
  hv_progress_terms terms;
  uint8_t instance;
  int closing, saying, asking;
  int was_any; /* the program had said something when it woke this tracker last */
  progress_heard *heard;
  size_t n_heard, room;
  hv_progress_view view;
  int covered;                /* all that have records are heard directly */
  uint64_t serial, serial_us; /* the own serial, and since when */
  hv_progress_own said, being_said;
  uint64_t said_us, opened_us;
  uint64_t again_us; /* after a failure not before */
  uint64_t asked_us, ask_us, asked_serial;
  unsigned failures;
  hv_timer timer;
  hv_dht_op store, get;
  hv_dht_item item;
  hv_dht_spots spots; /* where the last record went */
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
/* What this contributor counts for now. */
hv_progress_own progress_own(const hv_progress *self, uint64_t now_us);
hv_report progress_report(const hv_progress *self, const hv_progress_own *own, uint64_t now_us);
/* Its contributor has ended. */
void progress_forget(hv_progress *self, const hv_peer_id *owner, uint64_t now_us);
/* A record was found. */
void progress_hear(hv_progress *self, const hv_record *record, uint64_t now_us);
/* Counts all that was heard and tells the program; on failure the last figures stand. */
void progress_count(hv_progress *self, const hv_progress_own *own, uint64_t now_us);
/* How long until the swarm is to be asked again. */
uint64_t progress_refresh_us(const hv_progress *self, const hv_progress_own *own, uint64_t now_us);
/* What this node itself has in a run. */
void progress_own_sum(void *run, hv_sum *out);

#endif
