/* The log of a run at one node: the averages of its latest epochs, as they came, which absent peers fetch and repeat.
 *
 * An entry is offered and loaded as a state, under a prefix of its own, so votes, donors and checks are those of states.
 *
 * Room: core (uses env, msg, state).
 * Owner: core/epoch/driver, or the program of a trainer (net/hive).
 * Thread: the hive thread.
 * Limits: HV_STEP_LOG_ENTRIES entries and `memory` bytes of them, those that were fetched ahead beside.
 * Errors: hv_status; an entry that cannot be had is HV_STEP_LOG_LOST.
 * Rules: docs/design/log.md
 */
#ifndef HV_CORE_STEP_LOG_H
#define HV_CORE_STEP_LOG_H

#include "core/state/state.h"

#define HV_STEP_LOG_ENTRIES 32
#define HV_STEP_LOG_PLACES 64 /* keys of a run, used in turn: a key of its own for each epoch would stay in the DHT for an hour */
#define HV_STEP_LOG_STAMPS 16
#define HV_STEP_LOG_HEARD 4              /* averages from rounds that wait for those before them */
#define HV_STEP_LOG_LOOK_US 5000000ull   /* ENTRY: for an offer of it, once it has been made */
#define HV_STEP_LOG_STALL_US 30000000ull /* ENTRY: from one byte of it to the next */
#define HV_STEP_LOG_AGAIN_US 500000ull
#define HV_STEP_LOG_SHORT_US 100000ull /* of an epoch whose average is not kept, so that announcements of entries stay few */
#define HV_STEP_LOG_DECLARE_MS 120000  /* between announcements of an entry */

typedef struct hv_step_log hv_step_log;

/* The metadata of an entry. */
typedef struct hv_step_log_facts {
  uint64_t epoch;                    /* that the step ended */
  uint8_t before[HV_BALLOT_LINEAGE]; /* mark of the replica that made the step */
  uint64_t stamps[HV_STEP_LOG_STAMPS];
  size_t n_stamps;
} hv_step_log_facts;

typedef struct hv_step_log_config {
  hv_span key;     /* of the run's states; copied. Entries are offered under KEY.log.N, N: EPOCH modulo HV_STEP_LOG_PLACES */
  uint64_t memory; /* most bytes of the entries on offer; 0: none is kept */
  /* An entry that is wanted came, or is lost. Not called from within a call of the log. */
  void (*changed)(void *arg);
  void *arg;
} hv_step_log_config;

/* HV_NOMEM, HV_INVALID: err says why. Borrows state. */
hv_status hv_step_log_new(hv_env *env, hv_state *state, const hv_step_log_config *config, hv_step_log **out, hv_error *err);
/* Withdraws and cancels all. `over` is called once nothing is under way, perhaps from within; then it may be freed. */
void hv_step_log_stop(hv_step_log *log, void (*over)(void *arg), void *arg);
/* After `over`, or after its node has ended. NULL is fine. */
void hv_step_log_free(hv_step_log *log);

/* ---- to keep ---- */

/* The average that ended an epoch, as this epoch ends; the caller adds none that it repeated. chunks: one span for each chunk of
 * the round, in the order of the values; the log keeps a reference. An entry whose epoch does not follow the latest one begins a
 * new log. HV_NOT_FOUND: chunks is NULL, because the average cannot be had; HV_STATE: it comes HV_STEP_LOG_SHORT_US after the one
 * before, or sooner; HV_TOO_LARGE: it is over `memory`, or has more chunks than a state has parts; HV_INVALID: it has no chunk, or
 * too many stamps; HV_NOMEM; HV_CLOSED. Without HV_OK the log has no entry, because the next one would follow a gap. */
hv_status hv_step_log_add(hv_step_log *log, const hv_step_log_facts *facts, hv_payload *chunks);
/* The replica is another one now, or was changed by more than these averages: all entries are withdrawn. */
void hv_step_log_end(hv_step_log *log);
/* Entries on offer; *first: epoch of the oldest, *bytes: of all (both may be NULL). */
size_t hv_step_log_offered(const hv_step_log *log, uint64_t *first, uint64_t *bytes);

/* ---- to repeat ---- */

typedef enum hv_step_log_standing {
  HV_STEP_LOG_NOT_WANTED,
  HV_STEP_LOG_COMES, /* it is looked for, or bytes come */
  HV_STEP_LOG_THERE,
  HV_STEP_LOG_LOST /* nobody offers it, or all that is offered was refused */
} hv_step_log_standing;

/* Wants the entries of the epochs first to until - 1, which the others have ended; they come one after another, at most `ahead`
 * bytes of them wait, and an entry that is larger is lost. Those of `made` and later epochs may still be averaged, and are waited
 * for. Called again as the swarm proceeds; entries before `first` are dropped, and first == until wants none. An entry that was
 * lost stays so until it is not wanted any more. */
void hv_step_log_want(hv_step_log *log, uint64_t first, uint64_t until, uint64_t made, uint64_t ahead);
/* The average of an epoch that this peer has from its round, to which it listened: it is THERE once it is wanted and those before
 * it are, and is forgotten as entries that are not wanted are. chunks: as of hv_step_log_add, checked by the step that repeats it;
 * the log keeps a reference. HV_STATE: nothing is wanted, or it is of an earlier epoch than what is. HV_TOO_LARGE: it has a stamp
 * too many, or waits with HV_STEP_LOG_HEARD others. HV_NOMEM. */
hv_status hv_step_log_hear(hv_step_log *log, const hv_step_log_facts *facts, hv_payload *chunks);
/* THERE: *facts, and *chunks with one span for each chunk, borrowed; the caller may keep a reference. Both may be NULL. */
hv_step_log_standing hv_step_log_look(const hv_step_log *log, uint64_t epoch, hv_step_log_facts *facts, hv_payload **chunks);
/* This entry is of another replica, or does not fit: it is looked for again without it, and those after it are dropped. Once
 * HV_STATE_REFUSED_MAX of an epoch were refused, the entry is lost. Does nothing if the entry is not there. */
void hv_step_log_refuse(hv_step_log *log, uint64_t epoch);
/* Bytes that have come of the entry under way, and all of them; 0, 0: none is. */
void hv_step_log_progress(const hv_step_log *log, uint64_t *come, uint64_t *all);

/* ---- bytes ---- */

#define HV_STEP_LOG_FACTS_MAX (1 + 8 + HV_BALLOT_LINEAGE + 1 + 8 * HV_STEP_LOG_STAMPS)
/* Writes an entry's metadata; returns its size. */
size_t hv_step_log_facts_write(const hv_step_log_facts *facts, uint8_t out[HV_STEP_LOG_FACTS_MAX]);
/* Reads a stranger's. HV_MALFORMED, HV_VERSION. */
hv_status hv_step_log_facts_read(hv_span bytes, hv_step_log_facts *out);

#endif
