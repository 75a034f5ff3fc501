/* Drives the machine of epoch.h on a node: carries out its orders with the node's averagers, progress and state, and tells it what
 * came of them. The program's hands do the rest. A peer that holds no replica, such as a hub, has no hands: the driver answers
 * each action itself, and looks at the run on a timer, in place of a training thread.
 *
 * Room: core (uses epoch, keep, trace, facts, average, progress, state, step_log).
 * Owner: the code that made it, which owns the averagers and the tensors.
 * Thread: the hive thread.
 * Limits: HV_EPOCH_OFFERS offers of one peer at a time.
 * Errors: hv_status.
 */
#ifndef HV_CORE_EPOCH_DRIVER_H
#define HV_CORE_EPOCH_DRIVER_H

#include "core/average/average.h"
#include "core/epoch/trace.h"
#include "core/state/giver.h"
#include "core/state/step_log.h"
#include "core/state/taker.h"

typedef struct hv_epoch_driver hv_epoch_driver;

/* A round that is over, with its members and their words. */
typedef struct hv_epoch_met {
  hv_epoch_which which;
  uint64_t number;
  hv_status status;
  const char *text; /* why it failed */
  const hv_lineage_member *members;
  size_t n_members, trainers;
  const hv_average_range *missed; /* as of hv_average_outcome */
  size_t n_missed;
} hv_epoch_met;

/* The part that only a program can do. Each is called within an event of the driver, and calls nothing of it. */
typedef struct hv_epoch_hands {
  /* Do this action, and answer it with hv_epoch_driver_done. NULL: this peer has no hands, and neither act, tell, offer, give,
   * room, mark nor were_alike is called. */
  void (*act)(void *arg, const hv_epoch_order *order);
  void (*tell)(void *arg, hv_epoch_notice notice);
  /* Start to offer the latest snapshot as the state of `epoch`, and answer with hv_epoch_driver_offered. 0: it was not started. */
  int (*offer)(void *arg, uint64_t epoch, const hv_mark *mark);
  /* Give the same to these hubs under this ticket, or (NULL) to the one that asks. Hubs may ask again while it goes on, or if it
   * was not begun. */
  void (*give)(void *arg, uint64_t epoch, const hv_mark *mark, const hv_peer_id *hubs, size_t n, const uint8_t *ticket);
  /* Memory for a state that is loaded, as hv_state_load.room. */
  uint8_t *(*room)(void *arg, const hv_manifest *manifest);
  /* The mark of the state that was loaded. 0: it is no state of this run. */
  int (*mark)(void *arg, const hv_manifest *manifest, hv_mark *out);
  /* After a round of the state: 1: the numbers of the mark that came with the values were all this replica's. */
  int (*were_alike)(void *arg, const hv_mark *mine);
  void (*met)(void *arg, const hv_epoch_met *round); /* NULL: it need not know */
  /* It has left, and nothing is under way any more. Not called if its node ends before. NULL: it need not know. */
  void (*over)(void *arg);
  void *arg;
} hv_epoch_hands;

/* The parts of a node that it drives, borrowed. */
typedef struct hv_epoch_node {
  hv_env *env;
  hv_progress_registry *progress;
  hv_state *state;
  hv_givers *givers;
  hv_takers *takers; /* they hear the words of each round of gradients; NULL: this is no hub */
} hv_epoch_node;

typedef struct hv_epoch_driver_config {
  /* env, lineage, ledger and entry_bytes are filled in; without hands: auxiliary is set. state_bytes 0: it repeats no steps. */
  hv_epoch_config epoch;
  uint64_t log_memory; /* bytes of the averages that it keeps for others; 0: none */
  hv_mark mark;        /* of the replica that it begins with */
  hv_span run_id;      /* prefix of progress; borrowed, as the next one */
  hv_span state_key;   /* prefix of states */
  hv_progress_terms terms;
  int client_mode;
  uint32_t load_ms;
  hv_average *averages[HV_EPOCH_ROUNDS]; /* borrowed; NULL: it has none of these */
  hv_epoch_hands hands;
  hv_trace *trace; /* records its machine; borrowed until the driver is freed; NULL: nothing is recorded */
} hv_epoch_driver_config;

/* HV_INVALID, HV_BUDGET, HV_NOMEM, HV_CLOSED: err says why. */
hv_status hv_epoch_driver_new(const hv_epoch_node *node, const hv_epoch_driver_config *config, hv_epoch_driver **out,
                              hv_error *err);
/* Frees it. No step of its averagers and no load may be under way; hv_epoch_driver_is_over tells. After its node has ended it may
 * be freed at once. */
void hv_epoch_driver_free(hv_epoch_driver *driver);

/* The training thread is here with a batch of so many samples, which took so long; with 0, with none. */
void hv_epoch_driver_batch(hv_epoch_driver *driver, uint64_t samples, uint64_t took_us);
/* The hands have done an action. ok: 1, or 0: there was nothing; -1: its values are not finite. */
void hv_epoch_driver_done(hv_epoch_driver *driver, uint64_t number, int ok, uint64_t took_us);
/* The hands could not do an action: it has not happened, and the program gets the error. */
void hv_epoch_driver_broke(hv_epoch_driver *driver, uint64_t number);
void hv_epoch_driver_offered(hv_epoch_driver *driver, uint64_t epoch, int ok);
/* Of REPEAT, within hands.act alone: the averages of that epoch, encoded, borrowed. The hands may keep a reference. NULL: they are
 * not there. */
hv_payload *hv_epoch_driver_entry(hv_epoch_driver *driver, const hv_epoch_order *order);
/* The training thread is here with a batch whose gradients are of the model before a load. */
void hv_epoch_driver_behind(hv_epoch_driver *driver, uint64_t samples);
/* Between two batches: so many samples of other processes of this peer, or of a checkpoint, are in the sums. `behind`: and so many
 * others are of the model before a load. */
void hv_epoch_driver_summed(hv_epoch_driver *driver, uint64_t samples, uint64_t behind);
/* A batch has overflowed, and so many samples of the sums with it. */
void hv_epoch_driver_overflow(hv_epoch_driver *driver, uint64_t samples, uint64_t summed);
/* The training thread is here between two batches. */
void hv_epoch_driver_pause(hv_epoch_driver *driver);
/* The program has restored the state of an epoch, and has dropped its sums. mark: the checkpoint's, or a digest of the state. */
void hv_epoch_driver_restored(hv_epoch_driver *driver, uint64_t epoch, const hv_mark *mark);
/* The program asks for the swarm's state, of this epoch or later. */
void hv_epoch_driver_asked(hv_epoch_driver *driver, uint64_t least);
/* The peer says goodbye. */
void hv_epoch_driver_leave(hv_epoch_driver *driver);
int hv_epoch_driver_is_over(const hv_epoch_driver *driver);

/* To inspect between events. */
const hv_epoch *hv_epoch_driver_look(const hv_epoch_driver *driver);
/* The reading of the latest event. */
const hv_progress_figures *hv_epoch_driver_figures(const hv_epoch_driver *driver);
/* True if trainers are counted; *epoch is then their epoch. It also asks the swarm for news of them. */
int hv_epoch_driver_counts(hv_epoch_driver *driver, uint64_t *epoch);
/* 1: the training thread may go on to its next batch. */
int hv_epoch_driver_is_free(const hv_epoch_driver *driver);

#endif
