/* hivemind_c: train one model together, on machines that come and go. The only public C header.
 *
 * A hive is one peer: its identity, its sockets, its hive thread and pool, and the protocol core. A program makes one
 * (or several: nothing is global), asks it for things from any thread, and gets futures.
 * Nothing here takes Python's GIL, forks, or aborts the process. After fork() every call on a hive in the child answers HV_FORKED;
 * futures and the log from before the fork are not to be touched there (their locks may be held for good).
 */
#ifndef HIVEMIND_C_H
#define HIVEMIND_C_H

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/msg.h"

#define HV_VERSION_TEXT "0.1.0"

typedef struct hv_hive hv_hive;
typedef struct hv_future hv_future;

/* This node's place in the DHT; 0 is the default of core/dht/dht.h everywhere. */
typedef struct hv_hive_dht_config {
  size_t bucket_size;       /* nodes of one distance that are remembered */
  size_t num_replicas;      /* nodes that keep each record */
  size_t parallel_rpc;      /* questions of one lookup at once */
  size_t cache_records;     /* how many that were got are remembered for some seconds */
  int cache_locally;        /* < 0: none of them */
  int cache_nearest;        /* near nodes that are given what was got and they did not have; < 0: none */
  uint32_t wait_timeout_ms; /* of one question */
  uint32_t refresh_ms;
  uint32_t blacklist_ms, backoff_rate;
} hv_hive_dht_config;

typedef struct hv_hive_config {
  const char *const *listen; /* multiaddrs or short forms; none and not client_mode: every interface, a free port */
  size_t n_listen;
  const char *const *announce; /* what others are told instead of what was found out */
  size_t n_announce;
  const char *const *initial_peers; /* multiaddrs or HOST:PORT; a comma-separated string counts as several */
  size_t n_initial_peers;
  const char *identity_path; /* NULL: a fresh key */
  int client_mode;           /* only dials out */
  int insecure;              /* no TLS: for benchmarks and closed networks */
  unsigned pool_threads;     /* 0: as many as there are processors, at most 8 */
  size_t memory_limit;       /* 0: unlimited */
  hv_log_level log_level;
  hv_hive_dht_config dht;
} hv_hive_config;

/* Starts a hive: when it returns HV_OK the ports are bound and addresses known. Initial peers are contacted in the background
 * (hv_hive_wait_peers waits). Every error comes with its sentence. config is borrowed. HV_FORKED: this is the child of a process
 * that had a hive, whose threads gRPC still counts on here. */
hv_status hv_hive_start(const hv_hive_config *config, hv_hive **out, hv_error *err);

/* Says goodbye, ends what is under way with HV_CANCELLED and what waits for something to come with HV_CLOSED, stops all threads:
 * under 2 s. Afterwards every call answers HV_CLOSED and every future is done. May be called twice and from any thread. From within
 * a `done` of hv_hive_send it cannot wait: HV_STATE, and nothing has happened. In a forked child: HV_FORKED. */
hv_status hv_hive_stop(hv_hive *hive);
/* Stops if need be and frees. Futures of it stay valid (each is counted on its own). NULL is fine. Not HV_OK, as hv_hive_stop:
 * nothing was freed. */
hv_status hv_hive_free(hv_hive *hive);

const hv_peer_id *hv_hive_peer(const hv_hive *hive);
/* Where this peer can be reached, best first; returns how many there are, writes at most max. */
size_t hv_hive_addrs(hv_hive *hive, hv_addr *out, size_t max);
/* The log ring, for draining. */
hv_log *hv_hive_log(hv_hive *hive);
hv_mem *hv_hive_mem(hv_hive *hive);

/* A peer as hv_hive_peers tells of it. */
typedef struct hv_hive_peer_info {
  hv_peer_id id;
  hv_addr addr; /* kind HV_ADDR_NONE: it cannot be dialled */
  int client_mode;
  uint64_t rtt_us;
  uint64_t seen_ago_us;
} hv_hive_peer_info;

/* The futures below resolve to HV_OK with a result, or to an error with its sentence. On HV_OK *out belongs to the caller. */
hv_status hv_hive_peers(hv_hive *hive, hv_future **out); /* result: bytes = an array of hv_hive_peer_info */
hv_status hv_hive_wait_peers(
    hv_hive *hive, size_t at_least,
    hv_future **out); /* done when that many are known; fails with a list of addresses and causes if no initial peer answers */
hv_status hv_hive_echo(hv_hive *hive, const hv_peer_id *to, hv_span bytes, uint32_t timeout_ms,
                       hv_future **out); /* result: the bytes */
/* Sends bytes in bulk; they are borrowed until `done(arg)` has been called (once; never if this does not return HV_OK). It may be
 * called on the hive thread or one of gRPC's: it must not wait, nor call the hive. */
hv_status hv_hive_send(hv_hive *hive, const hv_peer_id *to, hv_span bytes, void (*done)(void *arg), void *arg, uint32_t timeout_ms,
                       hv_future **out);
/* The next whole parcel that a peer sent here. Result: bytes, and peer who sent them. */
hv_status hv_hive_receive(hv_hive *hive, hv_future **out);
/* A parcel that was received and that nobody looked at goes back, to be received again before all others. Only by the last holder
 * of the future, whose result is empty afterwards; it is still to be released. HV_NOT_FOUND: there is none. Not HV_OK: it is lost.
 */
hv_status hv_hive_unreceive(hv_hive *hive, hv_future *future);

/* ---- the DHT: small records that the swarm keeps; their rules are in core/dht/store.h ---- */

typedef struct hv_hive_record {
  hv_span subkey, value;
  int has_subkey;
  uint64_t ttl_ms;   /* how much longer it lives */
  uint64_t end_us;   /* got: its end on this machine's CLOCK_MONOTONIC, as ttl_ms was true when it arrived */
  hv_peer_id signer; /* got: whose it is; unknown: anybody's */
} hv_hive_record;

/* Keeps a record (its bytes are copied) at the nodes nearest to its key. Result: a uint32_t, how many keep it. HV_EXISTS: something
 * newer is there. HV_UNREACHABLE, HV_TIMEOUT: nobody took it. HV_DENIED: the key is another's. HV_TOO_LARGE, also from here.
 * timeout_ms 0: 30 s. */
hv_status hv_hive_dht_store(hv_hive *hive, hv_span key, const hv_hive_record *record, uint32_t timeout_ms, hv_future **out);
/* Result: an array of hv_hive_record, whose spans borrow from the future too: one without a subkey, or some with. HV_NOT_FOUND,
 * HV_UNREACHABLE, HV_TIMEOUT. latest: 1 asks all who may have it for the newest. */
hv_status hv_hive_dht_get(hv_hive *hive, hv_span key, int latest, uint32_t timeout_ms, hv_future **out);

typedef struct hv_hive_dht_state {
  size_t peers;       /* that are alive */
  size_t contacts;    /* nodes of the DHT that are known */
  size_t records;     /* kept here for the swarm */
  size_t bytes;       /* of them */
  size_t published;   /* this node's own, which it says again */
  uint64_t calls;     /* to other nodes, so far */
  uint64_t questions; /* asked in them */
  size_t memory;      /* bytes that this node holds, all told */
  int is_initial;     /* one of the initial peers is this node itself */
} hv_hive_dht_state;
hv_status hv_hive_dht_look(hv_hive *hive, hv_future **out); /* result: an hv_hive_dht_state */

/* ---- states: what a joiner needs; the rules are in core/state/state.h and core/state/ballot.h ---- */

typedef struct hv_hive_state_part {
  hv_span bytes;
  uint8_t codec; /* kern/codec.h; 0: travels as it is. Offered: how its floats are encoded. Loaded: how they were. */
  uint8_t dtype; /* kern/dtype.h; 0 for what is not floats */
} hv_hive_state_part;

typedef struct hv_hive_snapshot {
  hv_span prefix; /* of the run; up to HV_STATE_PREFIX_MAX bytes */
  uint64_t epoch;
  hv_span metadata;   /* up to 1 MiB; the same at all peers whose state is the same */
  hv_hash state_hash; /* the program's own; may be zero */
  const hv_hive_state_part *parts;
  size_t n_parts;
  float priority;      /* who has more is asked first */
  uint32_t declare_ms; /* announced anew so often; 0: 30 s */
  uint8_t
      lineage[16]; /* core/state/ballot.h: how the state came about; alike where states are, but for rounding. Zeros: not told */
} hv_hive_snapshot;

/* Offers a snapshot in place of the one before. The parts' bytes are borrowed, and must not change, until `done(arg)` has been
 * called (once; never if this does not return HV_OK): a newer offer or a withdrawal has come and nobody downloads it any more, or
 * the hive has stopped. It may be called on the hive thread or one of gRPC's: it must not wait, nor call the hive. Everything else
 * is copied. Resolves when it is being announced; result: the hv_hash of its manifest. HV_CANCELLED: a newer offer came before. */
hv_status hv_hive_state_offer(hv_hive *hive, const hv_hive_snapshot *given, void (*done)(void *arg), void *arg, hv_future **out);
/* No more under this prefix; at_once breaks off who is downloading, older snapshots too. HV_NOT_FOUND: there was nothing to end. */
hv_status hv_hive_state_withdraw(hv_hive *hive, hv_span prefix, int at_once, hv_future **out);
hv_status hv_hive_state_set_priority(hv_hive *hive, hv_span prefix, float priority, hv_future **out);

typedef struct hv_hive_state {
  uint64_t epoch;
  hv_hash state_hash, digest;
  hv_span metadata;
  const hv_hive_state_part *parts;
  size_t n_parts;
} hv_hive_state;

/* Gets the state that a majority of the swarm names. Result: an hv_hive_state, whose metadata and parts are the future's too (each
 * part at a multiple of 64 bytes; nobody else's, so they may be written); peer: who gave most. timeout_ms 0: 600 s; size_max 0: no
 * limit but the hive's memory. HV_NOT_FOUND: nobody offers one (of such an epoch). HV_STATE: no majority. HV_UNREACHABLE: no donor
 * answers. HV_TOO_LARGE, HV_TIMEOUT, HV_NOMEM. */
hv_status hv_hive_state_load(hv_hive *hive, hv_span prefix, uint32_t timeout_ms, uint64_t size_max, uint64_t epoch_least,
                             hv_future **out);

/* ---- progress: how far is the swarm? Its rules are in core/progress/progress.h and core/progress/tally.h ---- */

/* A contributor to a run. Any thread; nobody waits for the network here, and reporting allocates nothing. */
typedef struct hv_hive_progress hv_hive_progress;

typedef struct hv_hive_progress_config {
  const char *prefix; /* the run's name */
  uint64_t target_batch_size, batch_size_lead;
  uint32_t matchmaking_ms;
  uint32_t min_refresh_ms, max_refresh_ms, default_refresh_ms, expiration_ms; /* 0: core/progress/progress.h's */
  double expected_drift_peers, expected_drift_rate;                           /* < 0: 3 and 0.2 */
  double ema_alpha;                                                           /* 0: 0.1 */
  double fast; /* no peer counts for more than so many times the reference of tally.h; 0: 8 */
  int client_mode;
} hv_hive_progress_config;

typedef struct hv_hive_progress_state {
  /* this contributor, as it reported; any: it has */
  int any, client_mode;
  uint64_t local_epoch, local_samples;
  double local_speed;
  uint64_t local_us; /* when, on CLOCK_MONOTONIC */
  /* the swarm, as of now */
  uint64_t now_us, epoch, target;
  double samples, speed; /* speed: per second, as counted */
  size_t n_peers, n_clients;
  double eta_s; /* infinite while nobody's speed is known */
  uint64_t next_fetch_us;
  int standing;     /* core/progress/progress.h: 0 in step, 1 late, 2 behind, 3 ahead */
  int ready, match; /* time to make the step; time to form a group */
  int fetched;      /* the swarm was heard since this contributor's epoch began */
  hv_status status; /* HV_OK, or why it does not follow the swarm (any more) */
} hv_hive_progress_state;

/* Opens it; config is borrowed. Free it before the hive is freed. HV_INVALID with a sentence, HV_NOMEM, HV_CLOSED, HV_FORKED. */
hv_status hv_hive_progress_open(hv_hive *hive, const hv_hive_progress_config *config, hv_hive_progress **out, hv_error *err);
/* This contributor has gone; what it reported and what was heard last can still be read. May be called twice. */
void hv_hive_progress_close(hv_hive_progress *progress);
/* Closes it if need be. NULL is fine. Nobody may be in another call with it. */
void hv_hive_progress_free(hv_hive_progress *progress);
/* This contributor has so many samples in so high an epoch. The latest counts; well under a microsecond but when the epoch changes.
 */
hv_status hv_hive_progress_report(hv_hive_progress *progress, uint64_t epoch, uint64_t samples);
/* Its speed is not measured meanwhile. */
void hv_hive_progress_pause(hv_hive_progress *progress, int on);
void hv_hive_progress_read(hv_hive_progress *progress, hv_hive_progress_state *out);
/* Asks the swarm now instead of when it is due. */
hv_status hv_hive_progress_refresh(hv_hive_progress *progress);
/* This contributor counts no more, until it reports again. */
hv_status hv_hive_progress_withdraw(hv_hive_progress *progress);
/* Waits until the swarm was heard since this contributor's epoch began, or for timeout_ms (UINT32_MAX: for good). HV_OK,
 * HV_TIMEOUT, HV_CLOSED. */
hv_status hv_hive_progress_wait(hv_hive_progress *progress, uint32_t timeout_ms);

/* ---- averaging: rounds of tensors with whoever has the same prefix; their rules are in core/average/average.h ---- */

typedef struct hv_hive_averager hv_hive_averager;

typedef struct hv_hive_tensor {
  void *data;           /* aligned; borrowed until hv_hive_averager_free has returned. NULL only without values */
  int dtype, codec;     /* hv_dtype; hv_codec: how its values travel */
  const int64_t *shape; /* members must agree on it */
  size_t n_dims;
  const struct hv_device *device; /* where data is (kern/device.h), borrowed likewise; NULL: in plain memory */
} hv_hive_tensor;

/* 0 and NULL are the defaults of core/average/average.h. */
typedef struct hv_hive_averager_config {
  const char *prefix;
  const hv_hive_tensor *tensors; /* the array is copied */
  size_t n_tensors;
  size_t part_bytes; /* of a chunk as it is, before a codec */
  double alpha;
  size_t target_group, min_group;
  const char *group_bits;
  uint32_t round_ms, stall_ms, request_ms;
  size_t min_vector;
  double bandwidth;
  int auxiliary;
  int apart; /* 1: others know of it, and may wait for it, only from its first step or hv_hive_averager_reached on */
} hv_hive_averager_config;

/* HV_INVALID with its sentence. HV_EXISTS: this hive averages under that prefix already. config is borrowed. */
hv_status hv_hive_averager_new(hv_hive *hive, const hv_hive_averager_config *config, hv_hive_averager **out, hv_error *err);
/* Ends its steps (HV_CANCELLED); when this returns nobody but the program touches the tensors: under 2 s. May be called after
 * hv_hive_stop, and must be called before hv_hive_free. NULL is fine. */
void hv_hive_averager_free(hv_hive_averager *averager);

/* The program's lock on the tensors: held, no round reads or writes them. Waits while a round has them. 1: locked; 0: not within
 * the time. One thread at a time holds it, any may let go. A round that comes meanwhile waits for it, and so do the other members.
 */
int hv_hive_averager_lock(hv_hive_averager *averager, uint32_t timeout_ms);
void hv_hive_averager_unlock(hv_hive_averager *averager);

typedef struct hv_hive_step {
  hv_span epoch; /* members must agree on it; none: whoever steps now. Copied */
  float weight;
  hv_span gather;      /* copied */
  uint32_t wait_ms;    /* for a group to form, at most */
  uint32_t timeout_ms; /* for all of it; UINT32_MAX: for good */
  size_t expected;     /* so many begin at once; 0: not known */
  int require_trigger, allow_retries;
} hv_hive_step;

typedef struct hv_hive_member {
  hv_peer_id id;
  int me, client, auxiliary;
  double share; /* of its values, that is in the averages here */
  hv_span gather;
} hv_hive_member;

typedef struct hv_hive_average {
  const hv_hive_member *members; /* in the group's order */
  size_t n_members;
  uint32_t n_chunks, averaged;
  uint64_t stamp; /* members in whom it is alike hold the same averages, to the bit; 0 when alone */
  uint64_t bytes;
  double matching_s, waiting_s, reducing_s;
  unsigned tries;
} hv_hive_average;

/* One step. Result: an hv_hive_average, whose arrays borrow from the future too. HV_BUSY: a step is under way already. */
hv_status hv_hive_averager_step(hv_hive_averager *averager, const hv_hive_step *step, hv_future **out);
/* To the step of that future, if it is still under way: its all-reduce may begin; its weight is another (until it begins). */
hv_status hv_hive_averager_trigger(hv_hive_averager *averager, hv_future *step);
hv_status hv_hive_averager_weight(hv_hive_averager *averager, hv_future *step, float weight);

/* The program is in this epoch, and will not step for an earlier one (a step whose epoch is a number says so, too): others that
 * look for a group there need not wait for it, and are told where the swarm is. Nobody waits for this. */
hv_status hv_hive_averager_reached(hv_hive_averager *averager, uint64_t epoch);
/* 1: another peer missed a step, and comes to this epoch with a state that it has yet to load. */
int hv_hive_averager_awaits(hv_hive_averager *averager, uint64_t epoch);
/* It missed a step, and comes to this epoch with the swarm's state, not sooner: there others wait for it, for a moment. */
hv_status hv_hive_averager_comes(hv_hive_averager *averager, uint64_t epoch);
/* Others do not wait for this peer until its next step, or hv_hive_averager_reached. Does nothing while a step looks for a group.
 */
hv_status hv_hive_averager_step_aside(hv_hive_averager *averager);

/* Which group of a large swarm it looks for: '0' and '1', at most HV_GROUP_BITS_MAX. */
#define HV_GROUP_BITS_MAX 64
void hv_hive_averager_bits(hv_hive_averager *averager, char out[HV_GROUP_BITS_MAX + 1]);
hv_status hv_hive_averager_set_bits(hv_hive_averager *averager, const char *bits, hv_error *err);

/* ---- futures: counted, any thread ---- */
/* Waits until done or for timeout_ms (UINT32_MAX: for good). 1: done. */
int hv_future_wait(hv_future *future, uint32_t timeout_ms);
int hv_future_done(hv_future *future);
/* Asks for its end: it is done soon after, with HV_CANCELLED or what it had anyway. 0: it was done already. A receive that was
 * asked so takes no parcel any more. */
int hv_future_cancel(hv_future *future);
/* Once done: status, sentence, bytes (borrowed from the future), peer. err may be NULL. */
hv_status hv_future_result(hv_future *future, hv_span *bytes, hv_peer_id *peer, hv_error *err);
hv_future *hv_future_keep(hv_future *future);
void hv_future_release(hv_future *future); /* NULL is fine */

#endif
