/* The only public C header of hivemind_c, with which programs on machines that come and go train one model together.
 *
 * A hive is one peer of the swarm: its identity, sockets, hive thread, pool of threads, and protocol core. A program starts one
 * hive or several, because nothing is global. It calls functions of the hive from any thread; those that take time return a future.
 * Owner: each struct that is passed in is the caller's; text and arrays in it are borrowed during the call, unless said otherwise.
 * Thread: any. No function here takes Python's GIL, forks, or aborts the process.
 * Errors: a function that returns hv_status may return HV_NOMEM, HV_CLOSED (the hive has stopped) or HV_FORKED.
 * fork(): in the child each such call on a hive returns HV_FORKED. A child must not use futures or the log of a hive of its parent,
 * because their locks may be held for ever there.
 */
#ifndef HIVEMIND_C_H
#define HIVEMIND_C_H

#include "base/log.h"
#include "base/mem.h"
#include "base/status.h"
#include "core/msg.h"
#include "core/peers/admission.h"
#include "core/peers/denials.h"
#include "core/progress/progress.h"
#include "core/versions.h"

#define HV_VERSION_TEXT "0.1.0"

typedef struct hv_hive hv_hive;
typedef struct hv_future hv_future;

/* The settings of this node in the DHT. In each field 0 stands for the default of core/dht/dht.h. */
typedef struct hv_hive_dht_config {
  size_t bucket_size;       /* most nodes of one bucket of the routing table */
  size_t num_replicas;      /* nodes that keep each record */
  size_t parallel_rpc;      /* calls of one lookup that are under way at a time */
  size_t cache_records;     /* most records in the cache of results of gets, which keeps them for some seconds */
  int cache_locally;        /* < 0: there is no such cache */
  int cache_nearest;        /* number of the nearest nodes without the record that get a copy of it after a get; < 0: none */
  uint32_t wait_timeout_ms; /* timeout of one call */
  uint32_t refresh_ms;      /* time without a lookup after which a bucket is refreshed */
  uint32_t blacklist_ms;    /* time for which a node that did not answer is not asked */
  uint32_t backoff_rate;    /* factor by which each further failure in a row lengthens that time */
} hv_hive_dht_config;

typedef struct hv_hive_config {
  const char *const *listen; /* addresses to listen on: multiaddrs or short forms; none: a free port of every interface */
  size_t n_listen;
  const char *const *announce; /* addresses to announce to other peers in place of those that were detected */
  size_t n_announce;
  const char *const *initial_peers; /* multiaddrs or HOST:PORT; a comma-separated string counts as several */
  size_t n_initial_peers;
  const char *identity_path; /* file of the private key; NULL: a new key, which is not kept */
  int client_mode;           /* 1: this peer only dials out, listens nowhere, and cannot be dialled */
  int insecure;              /* 1: without TLS, for benchmarks and closed networks */
  unsigned pool_threads;     /* threads of the pool; 0: as many as there are processors, at most 8 */
  size_t memory_limit;       /* bytes; 0: no limit */
  size_t strange_parcels;    /* bytes of received parcels of peers that are not trusted (docs/design/strangers.md); 0: 256
                                MiB */
  int open_port;       /* 1: asks this machine's gateway to open the port, if the addresses are private (docs/design/reach.md) */
  int keep_file_limit; /* 1: leave the limit on open files; 0: a hive that listens raises it, to 65,536 at most */
  hv_log_level log_level;
  hv_hive_dht_config dht;
  hv_versions versions;  /* of the protocol that this peer speaks, for tests; zeros: those of this code */
  const char *swarm_key; /* text of a swarm key (hv_swarm_key_new): this peer takes part in that closed swarm alone, as a holder of
                            its key; NULL: it has none */
  const char *invite;    /* text of an invitation (hv_invite_new), the same as a guest; NULL: it has none. Without both the swarm is
                            open to all peers */
  hv_span denials;       /* a list of denials (hv_denials_new, hv_hive_denials) that this peer begins with; empty: none. It does not
                            start with a list that is not signed by the swarm's key */
} hv_hive_config;

/* ---- closed swarms; the rules are in docs/design/invitations.md ---- */

/* Writes the text of a new swarm key, which is a secret. Any thread. */
void hv_swarm_key_new(char out[HV_SWARM_KEY_TEXT_MAX]);
/* Writes the text of a new invitation to the swarm of this key, which is a secret, and its ID, which is none. end_s: seconds since
 * 1970. name: at most 32 letters, digits and "-_."; may be empty. before: an invitation that this one renews, with the same ID;
 * NULL: none. Any thread. HV_MALFORMED, HV_INVALID, HV_CRYPTO, HV_NOMEM. */
hv_status hv_invite_new(const char *swarm_key, int64_t end_s, const char *name, const char *before, char out[HV_INVITE_TEXT_MAX],
                        char id[HV_INVITATION_TEXT_MAX], hv_error *err);

/* Writes a list of denials with the denial of one more ID, of an invitation or a peer. The caller frees out->data with hv_mem_free.
 * before: the list so far; empty: none. end_s: end of the invitation; HV_DENIALS_NO_END: not known, or a peer. Holders of the key
 * cannot be denied. HV_MALFORMED, HV_TOO_LARGE, HV_CRYPTO, HV_NOMEM. */
hv_status hv_denials_new(hv_mem *mem, const char *swarm_key, hv_span before, const char *id, int64_t end_s, hv_span *out,
                         hv_error *err);
/* The same, and takes back all denials of an ID. HV_NOT_FOUND: the list has none; and as above. */
hv_status hv_denials_take_back(hv_mem *mem, const char *swarm_key, hv_span before, const char *id, hv_span *out, hv_error *err);
/* Writes the union of two lists of the swarm to which this key or this invitation belongs (one of them is NULL). The caller frees
 * out->data. HV_MALFORMED, HV_TOO_LARGE, HV_CRYPTO, HV_NOMEM. */
hv_status hv_denials_union(hv_mem *mem, const char *swarm_key, const char *invite, hv_span one, hv_span other, hv_span *out,
                           hv_error *err);
/* Writes a list of an older release as one of this release. The caller frees out->data. HV_MALFORMED, HV_CRYPTO, HV_NOMEM. */
hv_status hv_denials_convert(hv_mem *mem, const char *swarm_key, hv_span old, hv_span *out, hv_error *err);

/* The version of the gRPC core that is loaded, such as "29.0.0" of release 1.51. Any thread. */
const char *hv_grpc_version(void);

/* True if this build can ask a gateway to open a port (open_port): it has miniupnpc and libnatpmp. Any thread. */
int hv_can_open_ports(void);

/* gRPC's own messages on stderr, which report even refused connections, are off unless GRPC_VERBOSITY is set. A gRPC of 1.65 or
 * later looks only when it is loaded, so there a C program is started with GRPC_VERBOSITY=NONE. */

/* Starts a hive. At HV_OK its ports are bound and its addresses are known. It contacts the initial peers in the background;
 * hv_hive_wait_peers waits for them. On any error err has one sentence. HV_FORKED: this process was forked from one that had a
 * hive, and gRPC needs threads that do not exist in this one. */
hv_status hv_hive_start(const hv_hive_config *config, hv_hive **out, hv_error *err);
/* Stops a hive within 2 s: sends a goodbye to its peers, ends its operations, and stops its threads. Operations that wait for
 * something to arrive end with HV_CLOSED, others with HV_CANCELLED. Afterwards every future is done, and every call returns
 * HV_CLOSED. May be called twice, and from any thread. HV_STATE: it was called within a `done` of this hive, so it cannot wait, and
 * nothing was stopped. HV_FORKED: in a forked child. */
hv_status hv_hive_stop(hv_hive *hive);
/* Frees a hive, which it stops first if it still runs. Futures of the hive stay valid, because each has its own references. NULL is
 * fine. Any other status is that of hv_hive_stop, and nothing was freed. */
hv_status hv_hive_free(hv_hive *hive);

/* The identity of this peer, borrowed from the hive. */
const hv_peer_id *hv_hive_peer(const hv_hive *hive);
/* Writes at most `max` addresses at which this peer can be reached, the best one first. Returns the number of addresses that it
 * has. */
size_t hv_hive_addrs(hv_hive *hive, hv_addr *out, size_t max);
/* Writes one sentence about the port at the gateway (open_port), and the address at which initial peers see this machine. Empty:
 * there is no answer yet, or no gateway was asked; kind HV_ADDR_NONE: no initial peer has answered. True if the gateway says that
 * the port is open. */
#define HV_PORT_TEXT_MAX 512
int hv_hive_port(hv_hive *hive, char out[HV_PORT_TEXT_MAX], hv_addr *seen);
/* Limits what this peer sends in bulk, which is averages, states and parcels, in bytes per second; 0: no limit. Heartbeats and
 * other small messages do not wait for it. HV_CLOSED, HV_FORKED. */
hv_status hv_hive_limit_upload(hv_hive *hive, uint64_t rate, hv_error *err);
/* The ring of log records, from which the program reads; borrowed from the hive. */
hv_log *hv_hive_log(hv_hive *hive);
/* The account to which the memory of the hive is charged, borrowed from the hive. */
hv_mem *hv_hive_mem(hv_hive *hive);

/* True if this peer is not admitted to its closed swarm any more, and the sentence that says why: its invitation has ended by this
 * machine's clock, or no peer is alive and the initial peers that answer refuse it. *cause: HV_CAUSE_NOT_INVITED,
 * HV_CAUSE_INVITATION_ENDED or HV_CAUSE_DENIED. */
int hv_hive_refused(hv_hive *hive, hv_cause *cause, char out[HV_MSG_TEXT_MAX]);
/* Which initial peers have returned all of the list of denials that this peer has now. */
typedef struct hv_hive_denials_told {
  size_t has, lacks;               /* initial peers; this peer itself is none */
  char text[HV_MSG_TEXT_MAX + 64]; /* one that lacks it, and why; empty: none does */
} hv_hive_denials_told;
/* Copies at most `max` bytes of the list of denials that this peer has, and returns its size; 0: there is none. Up to
 * HV_DENIALS_BYTES_MAX bytes. */
size_t hv_hive_denials(hv_hive *hive, uint8_t *out, size_t max, hv_hive_denials_told *told);
/* Adds a list of denials to that of this peer, which passes it on. HV_MALFORMED, HV_CORRUPT: it is none of this swarm; HV_STATE:
 * the swarm is open; HV_TOO_LARGE, HV_NOMEM. */
hv_status hv_hive_deny(hv_hive *hive, hv_span list, hv_error *err);
/* Replaces the invitation of this peer by its renewed one (hv_invite_new with `before`): its next connections show it. *end_s: when
 * it ends, in seconds since 1970. On an error the one before stays in use. HV_STATE: it has none; HV_MALFORMED: this is none, or
 * another one; HV_NOT_ADMITTED: it has ended; HV_UNSUPPORTED, HV_CRYPTO, HV_NOMEM. */
hv_status hv_hive_renew(hv_hive *hive, const char *invite, int64_t *end_s, hv_error *err);
/* Writes how this peer is a member of its closed swarm, as hv_membership_print does. Empty: the swarm is open. */
void hv_hive_membership(hv_hive *hive, char out[HV_MEMBERSHIP_TEXT_MAX]);

/* Writes the proof that this peer is a member of its closed swarm, which is no secret, and returns its size; 0: the swarm is open.
 */
size_t hv_hive_proof(hv_hive *hive, uint8_t out[HV_PROOF_MAX]);
/* Writes how another peer is a member of this closed swarm, if this is its proof; else nothing. */
void hv_hive_proved(hv_hive *hive, hv_span proof, const hv_peer_id *peer, char out[HV_MEMBERSHIP_TEXT_MAX]);

/* One known peer. */
typedef struct hv_hive_peer_info {
  hv_peer_id id;
  hv_addr addr;         /* address in use; kind HV_ADDR_NONE: the peer cannot be dialled */
  int client_mode;      /* 1: it only dials out */
  uint64_t rtt_us;      /* round trip of the last hello; 0: not known */
  uint64_t seen_ago_us; /* time since its last answer or hello */
  uint32_t version;     /* of the protocol between this peer and that one */
  hv_membership member; /* that its certificate proves in this closed swarm */
} hv_hive_peer_info;

/* A future below ends with HV_OK and a result, or with an error and one sentence. If a function returns HV_OK, *out is the caller's
 * reference to the future; else there is no future. */

/* Lists the live peers. Result: bytes, an array of hv_hive_peer_info. */
hv_status hv_hive_peers(hv_hive *hive, hv_future **out);
/* Waits until at_least peers are alive. If no initial peer answers, the future fails with a list of addresses and causes. */
hv_status hv_hive_wait_peers(hv_hive *hive, size_t at_least, hv_future **out);
/* Sends bytes to a peer, which sends them back. Result: these bytes. */
hv_status hv_hive_echo(hv_hive *hive, const hv_peer_id *to, hv_span bytes, uint32_t timeout_ms, hv_future **out);
/* Sends bytes in bulk, as one parcel. The bytes are borrowed until done(arg) is called, which happens once, or never if this
 * function does not return HV_OK. done runs on the hive thread or on a thread of gRPC, so it must neither wait nor call the hive.
 */
hv_status hv_hive_send(hv_hive *hive, const hv_peer_id *to, hv_span bytes, void (*done)(void *arg), void *arg, uint32_t timeout_ms,
                       hv_future **out);
/* Waits for the next whole parcel that a peer sends here. Result: the bytes, and `peer`, the sender. */
hv_status hv_hive_receive(hv_hive *hive, hv_future **out);
/* Gives back the parcel in a future of hv_hive_receive that the program has not used: the next hv_hive_receive gets it first. The
 * caller must hold the only reference to the future, and still releases it; the future's result is empty afterwards. HV_NOT_FOUND:
 * the future holds no parcel. After any other error the parcel may be lost. */
hv_status hv_hive_unreceive(hv_hive *hive, hv_future *future);

/* ---- the DHT: small records that the swarm keeps; their rules are in core/dht/store.h ---- */

typedef struct hv_hive_record {
  hv_span subkey, value;
  int has_subkey;    /* 1: the record is an entry of a dictionary under its key */
  uint64_t ttl_ms;   /* remaining lifetime; in a result: at the time when the record arrived */
  uint64_t end_us;   /* in a result: time at which the record expires, on this machine's CLOCK_MONOTONIC */
  hv_peer_id signer; /* in a result: the peer that signed the record; unknown: it is not signed */
} hv_hive_record;

/* Stores a record, whose bytes are copied, at the nodes nearest to its key. Result: a uint32_t, the number of nodes that keep it.
 * HV_EXISTS: a newer record is there. HV_UNREACHABLE, HV_TIMEOUT: no node keeps it. HV_DENIED: the key belongs to another signer.
 * HV_TOO_LARGE: a limit of the store, also as the return value of this function. timeout_ms 0: 30 s. */
hv_status hv_hive_dht_store(hv_hive *hive, hv_span key, const hv_hive_record *record, uint32_t timeout_ms, hv_future **out);
/* Gets the records under a key. Result: an array of hv_hive_record, either one without a subkey or several with subkeys. Its spans
 * are borrowed from the future, too. latest 1: asks all replicas and takes the newest records. HV_NOT_FOUND, HV_UNREACHABLE,
 * HV_TIMEOUT. timeout_ms 0: 30 s. */
hv_status hv_hive_dht_get(hv_hive *hive, hv_span key, int latest, uint32_t timeout_ms, hv_future **out);

typedef struct hv_hive_dht_state {
  size_t peers;       /* live peers */
  size_t contacts;    /* nodes of the DHT in the routing table */
  size_t records;     /* records that this node keeps for the swarm */
  size_t bytes;       /* bytes of these records */
  size_t published;   /* own records that this node stores again and again, so that they do not expire */
  uint64_t calls;     /* calls to other nodes so far */
  uint64_t questions; /* questions in these calls */
  size_t memory;      /* bytes that this node holds in total */
  int is_initial;     /* 1: one of the initial peers is this node itself */
  int is_hidden;      /* 1: no known peer can dial this node, which is behind a NAT */
} hv_hive_dht_state;
/* Reads the counts of the DHT. Result: an hv_hive_dht_state. */
hv_status hv_hive_dht_look(hv_hive *hive, hv_future **out);

/* ---- states, which a joiner downloads; the rules are in core/state/state.h and core/state/ballot.h ---- */

typedef struct hv_hive_state_part {
  hv_span bytes;
  uint8_t codec; /* hv_codec of kern/codec.h under which the part is sent; 0: its bytes are sent as they are */
  uint8_t dtype; /* hv_dtype of kern/dtype.h; 0: the part is no array of floats */
  uint8_t own;   /* 1: each donor has its own bytes here, which are in no digest (core/state/manifest.h) */
} hv_hive_state_part;

typedef struct hv_hive_snapshot {
  hv_span prefix; /* name of the run; at most HV_STATE_PREFIX_MAX bytes */
  uint64_t epoch;
  hv_span metadata;   /* at most 1 MiB; equal at all peers whose state is equal */
  hv_hash state_hash; /* a hash that the program chooses; may be zeros */
  const hv_hive_state_part *parts;
  size_t n_parts;
  float priority;      /* a joiner asks donors of higher priority first */
  uint32_t declare_ms; /* interval of the announcements; 0: 30 s */
  uint8_t lineage[16]; /* the averages and steps that made the state (core/state/ballot.h); states of one lineage differ at most by
                          rounding; zeros: not known */
} hv_hive_snapshot;

/* Offers a snapshot to joiners as a replacement of the earlier one under its prefix. Result, once it is announced: the hv_hash of
 * its manifest. HV_CANCELLED: a newer offer came before that. The bytes of the parts are borrowed, and must not change, until
 * done(arg) is called; all else is copied. done is called once, or never if this function does not return HV_OK. It is called when
 * a newer offer or a withdrawal has replaced this one and no download uses it, or when the hive has stopped. It runs on the hive
 * thread or on a thread of gRPC, so it must neither wait nor call the hive. */
hv_status hv_hive_state_offer(hv_hive *hive, const hv_hive_snapshot *given, void (*done)(void *arg), void *arg, hv_future **out);
/* Withdraws the offer under this prefix. Downloads under way finish, unless at_once is true: then those of this snapshot and of
 * earlier ones are broken off. HV_NOT_FOUND: there was no offer, and no download to break off. */
hv_status hv_hive_state_withdraw(hv_hive *hive, hv_span prefix, int at_once, hv_future **out);
/* Changes the priority that is announced. HV_NOT_FOUND: this hive offers nothing under that prefix. */
hv_status hv_hive_state_set_priority(hv_hive *hive, hv_span prefix, float priority, hv_future **out);

/* A state that was downloaded. */
typedef struct hv_hive_state {
  uint64_t epoch;
  hv_hash state_hash; /* the program's hash, as hv_hive_snapshot has it */
  hv_hash digest;     /* hash of the manifest */
  hv_span metadata;
  const hv_hive_state_part *parts;
  size_t n_parts;
} hv_hive_state;

/* Downloads the state that a majority of the announcements names. Result: an hv_hive_state, and `peer`, the donor that sent most.
 * The metadata and parts belong to the future, too. Each part begins at a multiple of 64 bytes, and the program may write to it.
 * timeout_ms: longest time in which nothing right arrives; 0: 600 s. size_max: most bytes; 0: no limit but the hive's memory.
 * epoch_least: no older epoch is loaded. refused: the digests of up to 16 states that are not loaded, 32 bytes each; peers that
 * announce them have no vote. HV_INVALID: refused has another size. HV_NOT_FOUND: no peer offers a state of such an epoch.
 * HV_STATE: no majority. HV_UNREACHABLE: no donor answers. HV_TOO_LARGE, HV_TIMEOUT, HV_NOMEM. */
hv_status hv_hive_state_load(hv_hive *hive, hv_span prefix, uint32_t timeout_ms, uint64_t size_max, uint64_t epoch_least,
                             hv_span refused, hv_future **out);
/* How far the download of a prefix is. Result: four numbers of 8 bytes, little endian: the epoch; the bytes that are here; of all,
 * 0 while that is not known; the peers that send. HV_NOT_FOUND: none is under way. */
hv_status hv_hive_state_loading(hv_hive *hive, hv_span prefix, hv_future **out);
/* Searches once for the state that hv_hive_state_load would download, and downloads nothing. Result: 8 bytes, the epoch of that
 * state, little endian. refused: as in hv_hive_state_load. HV_INVALID: refused has another size. The future fails as that of
 * hv_hive_state_load: HV_NOT_FOUND if nobody offers such a state. */
hv_status hv_hive_state_look(hv_hive *hive, hv_span prefix, uint32_t timeout_ms, uint64_t epoch_least, hv_span refused,
                             hv_future **out);

/* Gives a state on demand: declares this peer a donor of the prefix, and waits until a joiner wants the state as it is now. Result:
 * 8 bytes, a number, little endian. Offer the state with that as its epoch, then call this again; until then no other number comes.
 * clock_ms: the program's clock, by which numbers of joiners are judged. Cancel the future to end the declaration. HV_EXISTS:
 * another call waits. */
hv_status hv_hive_state_await(hv_hive *hive, hv_span prefix, uint64_t clock_ms, hv_future **out);
/* Asks the donors of a prefix for their state as it is now. number: the program's clock in ms, or a number that donors agreed to.
 * Result: 8 bytes, the number that they agree to, little endian: load the state with that as epoch_least. HV_NOT_FOUND: no peer
 * gives one on demand. HV_STATE: they do not agree. HV_UNREACHABLE: none could be asked. */
hv_status hv_hive_state_want(hv_hive *hive, hv_span prefix, uint64_t number, hv_future **out);

/* ---- states that trainers which only dial out give to hubs; the rules are in core/state/gift.h ---- */

/* Looks for requests of hubs under this prefix, and waits until one asks this peer for its state. Result: 8 bytes, the oldest epoch
 * that is of use, little endian. Give the state with hv_hive_gift_give, then call this again. Cancel the future to look no more.
 * HV_EXISTS: another call waits. */
hv_status hv_hive_gift_wait(hv_hive *hive, hv_span prefix, hv_future **out);
/* Gives a state: to these hubs under this ticket (16 bytes) of a round, or, with n_hubs 0, to the hub that asks. priority and
 * declare_ms are not used. Result, once all have it: nothing. HV_NOT_FOUND: no hub asks for such a state. HV_CANCELLED: a newer one
 * came. Else: what kept a hub from it. The bytes are borrowed as those of hv_hive_state_offer. */
hv_status hv_hive_gift_give(hv_hive *hive, const hv_hive_snapshot *given, const hv_peer_id *hubs, size_t n_hubs,
                            const uint8_t *ticket, void (*done)(void *arg), void *arg, hv_future **out);
/* Waits, as a hub, for the next state that a trainer gives. Result: as that of hv_hive_state_load; `peer` is the giver. HV_EXISTS:
 * another call waits. */
hv_status hv_hive_gift_take(hv_hive *hive, hv_span prefix, uint64_t size_max, hv_future **out);

/* A trainer as it reports itself. */
typedef struct hv_hive_trainer {
  hv_peer_id id;
  int is_client; /* 1: it only dials out */
  uint64_t epoch;
} hv_hive_trainer;

/* Tells the hive where the trainers of a run are. A hub calls it each second, and the hive asks one of them for its state if it can
 * dial none. least: the oldest epoch of use; every: epochs from one state to the next; size_max: most bytes of a state; has_room:
 * whether one more fits. */
hv_status hv_hive_gift_follow(hv_hive *hive, hv_span prefix, const hv_hive_trainer *trainers, size_t n_trainers, uint64_t least,
                              uint64_t every, uint64_t size_max, int has_room, hv_future **out);
/* Tells the hive that the state which came last is of no use: its giver is not asked again until all others gave nothing. */
hv_status hv_hive_gift_refuse(hv_hive *hive, hv_span prefix, hv_future **out);

/* ---- progress of this program and of the swarm; the rules are in core/progress/progress.h and core/progress/tally.h ---- */

/* A contributor to a run: a program that trains and reports its samples. No function but hv_hive_progress_wait and
 * hv_hive_progress_doze waits for the network, and a report allocates no memory. */
typedef struct hv_hive_progress hv_hive_progress;

typedef struct hv_hive_progress_config {
  const char *prefix;          /* name of the run */
  uint64_t target_batch_size;  /* samples of one epoch, of all contributors together */
  uint64_t batch_size_lead;    /* missing samples at which a group is sought */
  uint32_t matchmaking_ms;     /* time before the target at which a group is sought */
  uint32_t min_refresh_ms;     /* shortest interval between two searches for others' reports; 0: 500 */
  uint32_t max_refresh_ms;     /* longest interval; 0: 10,000 */
  uint32_t default_refresh_ms; /* interval while no speed is known; 0: 3,000 */
  uint32_t expiration_ms;      /* lease of a report in the DHT; 0: 60,000 */
  double expected_drift_peers; /* peers that may join before the target; < 0: 3 */
  double expected_drift_rate;  /* the same as a part of all peers; < 0: 0.2 */
  double ema_alpha;            /* weight of the newest batch in the smoothed speed, 0 to 1; 0: 0.1 */
  double fast;                 /* a peer counts for at most this many times the reference of tally.h; 0: 8 */
  int client_mode;             /* 1: this peer cannot be dialled */
} hv_hive_progress_config;

typedef struct hv_hive_progress_state {
  /* this contributor, as its program reported last */
  int any; /* 1: the program has reported something */
  int client_mode;
  uint64_t local_epoch, local_samples;
  double local_speed; /* samples per second; 0: not known */
  uint64_t local_us;  /* time of that report, on CLOCK_MONOTONIC */
  /* the swarm */
  uint64_t now_us; /* time for which the fields below hold, on CLOCK_MONOTONIC */
  uint64_t epoch, target;
  double samples, speed;     /* samples in this epoch, and samples per second, as tally.h counts them */
  size_t n_peers, n_clients; /* contributors; those of them in client mode */
  size_t n_behind;           /* contributors in an earlier epoch than the swarm's */
  size_t n_coming;           /* others, that load the state of this epoch or an older one */
  double eta_s;              /* seconds until the target is reached; infinite while no speed is known */
  uint64_t next_fetch_us;    /* time of the next search */
  int standing;              /* hv_progress_standing: 0 in step, 1 late, 2 behind, 3 ahead */
  int ready;                 /* 1: it is time to make the step */
  int match;                 /* 1: it is time to form a group */
  int fetched;               /* 1: the swarm's reports have arrived since this contributor's epoch began */
  hv_status status;          /* HV_OK, or the reason for which the figures of the swarm are not renewed any more */
} hv_hive_progress_state;

/* Opens a contributor. The caller frees it before the hive. HV_INVALID: err has a sentence. HV_NOMEM, HV_CLOSED, HV_FORKED. */
hv_status hv_hive_progress_open(hv_hive *hive, const hv_hive_progress_config *config, hv_hive_progress **out, hv_error *err);
/* Ends a contributor: other peers learn that it has gone, and the figures are not renewed any more. hv_hive_progress_read still
 * gives the last ones. May be called twice. */
void hv_hive_progress_close(hv_hive_progress *progress);
/* Frees a contributor, which it closes first if need be. No other thread may be in a call with it. NULL is fine. */
void hv_hive_progress_free(hv_hive_progress *progress);
/* Reports that this contributor has `samples` samples in this epoch, in place of its last report. It takes well under a
 * microsecond, unless the epoch changes. HV_INVALID: a number is too large. */
hv_status hv_hive_progress_report(hv_hive_progress *progress, uint64_t epoch, uint64_t samples);
/* Begins (on 1) or ends (on 0) a pause, during which the speed is not measured. */
void hv_hive_progress_pause(hv_hive_progress *progress, int on);
/* Reads the figures as of now. */
void hv_hive_progress_read(hv_hive_progress *progress, hv_hive_progress_state *out);
/* Searches for the reports of the others now, and not at the time that was planned. */
hv_status hv_hive_progress_refresh(hv_hive_progress *progress);
/* Withdraws the report: this contributor does not count until it reports again. */
hv_status hv_hive_progress_withdraw(hv_hive_progress *progress);
/* In place of these three: the whole report, as the machine of core/epoch makes it, with a speed that it has measured. */
hv_status hv_hive_progress_put(hv_hive_progress *progress, const hv_progress_own *own);
/* ema_alpha, as it was given. */
double hv_hive_progress_alpha(const hv_hive_progress *progress);
/* Nobody had a state of `epoch`: the owners that claim it or a later epoch do not count with such claims for for_ms (at most an
 * hour). Returns once the figures are without them. HV_INVALID: epoch 0, or no time. HV_TIMEOUT: the hive thread is too busy, and
 * does it later. HV_CLOSED. */
hv_status hv_hive_progress_disbelieve(hv_hive_progress *progress, uint64_t epoch, uint32_t for_ms);
/* Waits until hv_hive_progress_state.fetched is 1, for at most timeout_ms; UINT32_MAX: no limit. HV_OK, HV_TIMEOUT, HV_CLOSED. */
hv_status hv_hive_progress_wait(hv_hive_progress *progress, uint32_t timeout_ms);
/* The number of the latest news: a count, the end of this node, or hv_hive_progress_ring. */
uint64_t hv_hive_progress_news(hv_hive_progress *progress);
/* Adds one to it, for a thread that waits. */
void hv_hive_progress_ring(hv_hive_progress *progress);
/* Waits until the number of the latest news is another than `known`, for at most timeout_ms. 1: it is; 0: the time is over. */
int hv_hive_progress_doze(hv_hive_progress *progress, uint64_t known, uint32_t timeout_ms);

/* ---- averaging of tensors with the peers that have the same prefix; the rules are in core/average/average.h ---- */

typedef struct hv_hive_averager hv_hive_averager;

typedef struct hv_hive_tensor {
  void *data;           /* the values, aligned; borrowed until hv_hive_averager_free has returned; NULL: the tensor has no values */
  int dtype;            /* hv_dtype of kern/dtype.h */
  int codec;            /* hv_codec of kern/codec.h under which the values are sent */
  const int64_t *shape; /* sizes of the dimensions, on which members must agree */
  size_t n_dims;
  const struct hv_device *device; /* the device that holds data (kern/device.h), borrowed as long as data; NULL: plain memory */
  int apart;                      /* 1: no chunk holds values of this tensor and of the one before (core/round/run.h) */
  int narrow;                     /* hv_codec with fewer bits under which a member may send the values instead; 0: there is none */
} hv_hive_tensor;

/* In each field 0 or NULL stands for the default of core/average/average.h. */
typedef struct hv_hive_averager_config {
  const char *prefix;            /* the name that all members of the run share */
  const hv_hive_tensor *tensors; /* the array is copied */
  size_t n_tensors;
  size_t part_bytes;      /* most bytes of a chunk as float32, before it is encoded */
  double alpha;           /* tensor + alpha * (average - tensor) is the new value; 0: 1 */
  size_t target_group;    /* most members of a group; 0: no limit */
  size_t min_group;       /* fewest members of a group; 0: 2 */
  const char *group_bits; /* see hv_hive_averager_bits */
  uint32_t round_ms;      /* longest time of an all-reduce; 0: that of the step */
  uint32_t stall_ms;      /* longest time that one member may stall a round; 0: 10,000 */
  uint32_t request_ms;    /* timeout of one question in matchmaking; 0: 2,000 */
  size_t min_vector;      /* values: a member that would average fewer of them for the group averages none */
  double bandwidth;       /* bytes per second of this peer's link; 0: not known, so rounds measure it */
  double weight_max;      /* a member counts with at most this weight; the same at all members; 0: no limit */
  double norm_ratio;      /* largest norm of a chunk of a member, as a multiple of the members' median, 1 to 1e9; 0: no limit */
  size_t compared;        /* tensors, from the first on, that are compared with their averages; 0: none */
  int auxiliary;          /* 1: this peer averages for the others and contributes no values */
  int apart;              /* 1: no peer knows of this one, or waits for it, before its first step or hv_hive_averager_reached */
} hv_hive_averager_config;

/* Opens an averager. HV_INVALID: err has a sentence. HV_EXISTS: this hive already averages under that prefix. */
hv_status hv_hive_averager_new(hv_hive *hive, const hv_hive_averager_config *config, hv_hive_averager **out, hv_error *err);
/* Ends the step of an averager with HV_CANCELLED, and frees it, within 2 s. Afterwards only the program uses the tensors. May be
 * called after hv_hive_stop, and must be called before hv_hive_free. NULL is fine. */
void hv_hive_averager_free(hv_hive_averager *averager);

/* Locks the tensors: while the program holds the lock, no round reads or writes them. Waits while a round uses them, for at most
 * timeout_ms; UINT32_MAX: no limit. Returns 1 if they are locked. One thread at a time holds the lock, and any thread may unlock
 * it. A round that begins meanwhile waits for the lock, and so do its other members. */
int hv_hive_averager_lock(hv_hive_averager *averager, uint32_t timeout_ms);
void hv_hive_averager_unlock(hv_hive_averager *averager);

typedef struct hv_hive_step {
  hv_span epoch;       /* name of the epoch, on which members must agree; empty: any peer that steps now; copied */
  float weight;        /* samples behind the values, which is their weight in the average; 0 or more */
  hv_span gather;      /* bytes that each member of the group gets; copied */
  uint32_t wait_ms;    /* longest time in which a group may form */
  uint32_t timeout_ms; /* longest time of the whole step; UINT32_MAX: no limit */
  size_t expected;     /* number of members with which a group begins at once; 0: not known */
  int require_trigger; /* 1: the all-reduce begins only after hv_hive_averager_trigger */
  int allow_retries;   /* 1: a search that finds no group is repeated while the step has time */
  int repeats;         /* 1: if the round fails, the program looks for another group of this epoch */
  int keep;            /* 1: its encoded averages are kept until the next step, for hv_hive_step_log_add, or _hear */
  int listens;         /* 1: a member without values, of weight 0; the averages go into no tensor */
} hv_hive_step;

typedef struct hv_hive_member {
  hv_peer_id id;
  int me, client, auxiliary; /* 1: this peer itself; it cannot be dialled; it contributes no values */
  double share;              /* part of the member's values that is in the averages here, 0 to 1 */
  hv_span gather;            /* bytes that the member sent along */
} hv_hive_member;

typedef struct hv_hive_range { /* of values, counted through all tensors in their order */
  uint64_t at, size;
} hv_hive_range;

typedef struct hv_hive_average {
  const hv_hive_member *members; /* in the group's order */
  size_t n_members;
  const hv_hive_range *missed; /* values whose average lacks this peer's, in rising order */
  size_t n_missed;
  uint32_t n_chunks; /* chunks of the tensors */
  uint32_t averaged; /* chunks that hold the average */
  uint64_t stamp;    /* members with equal stamps hold the same averages, to the bit; 0: this peer was alone */
  uint64_t bytes;    /* encoded bytes that this member sends and receives in a round without losses */
  double part;       /* part of all chunks that this member reduces, 0 to 1; a slow link has a smaller one */
  double matching_s; /* seconds in which it looked for a group */
  double waiting_s;  /* seconds in which the group waited for the trigger or the lock */
  double reducing_s; /* seconds of the all-reduce */
  unsigned tries;    /* groups that were tried */
  int narrow;        /* 1: averages came under narrow codecs, because a member sent its values so */
} hv_hive_average;

/* Averages the tensors once. Result: an hv_hive_average, whose arrays are borrowed from the future, too. HV_BUSY: a step is under
 * way already. */
hv_status hv_hive_averager_step(hv_hive_averager *averager, const hv_hive_step *step, hv_future **out);
/* Chunks of the last step that hold its average though it failed, because there were several; the others are as they were. 0 after
 * a step that succeeded. */
uint32_t hv_hive_averager_in_part(hv_hive_averager *averager);
/* 1: averages of the last step changed values of the compared tensors by more than roundings, also if it failed. */
int hv_hive_averager_changed(hv_hive_averager *averager);
/* 1: the last step had a group, though it may have failed. */
int hv_hive_averager_had_group(hv_hive_averager *averager);
/* Bytes of the averages that a step keeps. */
uint64_t hv_hive_averager_kept_size(hv_hive_averager *averager);
/* Lets the step of that future begin its all-reduce (require_trigger). Does nothing if the step is not under way. */
hv_status hv_hive_averager_trigger(hv_hive_averager *averager, hv_future *step);
/* Cancels the step of that future, if it has no group yet. */
hv_status hv_hive_averager_give_up(hv_hive_averager *averager, hv_future *step);
/* Changes the weight of the step of that future. It has no effect once the all-reduce has begun. HV_INVALID: not a valid weight. */
hv_status hv_hive_averager_weight(hv_hive_averager *averager, hv_future *step, float weight);
/* Lets the step of that future send under narrow codecs, where tensors have them. It has no effect once the all-reduce has begun.
 */
hv_status hv_hive_averager_send_narrow(hv_hive_averager *averager, hv_future *step);

/* Announces that the program is in this epoch and will not step for an earlier one. So peers that look for a group of an earlier
 * epoch do not wait for this peer, and learn how far the swarm is. A step with a numbered epoch has the same effect. Returns at
 * once. */
hv_status hv_hive_averager_reached(hv_hive_averager *averager, uint64_t epoch);
/* True if another peer missed a step, loads the swarm's state, and has announced that it returns at this epoch. */
int hv_hive_averager_awaits(hv_hive_averager *averager, uint64_t epoch);
/* Announces that this peer missed a step, loads the swarm's state, and returns at this epoch. The others wait for it in that epoch
 * only, for 0.3 s. */
hv_status hv_hive_averager_comes(hv_hive_averager *averager, uint64_t epoch);
/* Announces that this peer takes no part for now: the others do not wait for it until its next step or hv_hive_averager_reached.
 * Does nothing while a step looks for a group. */
hv_status hv_hive_averager_step_aside(hv_hive_averager *averager);

/* Sets the setup: at most HV_SETUP_MAX bytes of text, one line for each setting on which the members of a group must agree besides
 * the tensors. Peers with another setup are refused, and the log names the first line that differs. HV_STATE while a step looks for
 * a group; HV_INVALID: err has a sentence. */
#define HV_SETUP_MAX 2048
hv_status hv_hive_averager_set_setup(hv_hive_averager *averager, hv_span setup, hv_error *err);

/* The group bits: at most HV_GROUP_BITS_MAX characters '0' and '1'. In a large swarm only peers with the same bits form a group. */
#define HV_GROUP_BITS_MAX 64
/* Writes the present bits and a terminator. */
void hv_hive_averager_bits(hv_hive_averager *averager, char out[HV_GROUP_BITS_MAX + 1]);
/* Moves the averager to the groups of other bits. HV_STATE while a step looks for a group; HV_INVALID: err has a sentence. */
hv_status hv_hive_averager_set_bits(hv_hive_averager *averager, const char *bits, hv_error *err);

/* ---- the log of a run; the rules are in core/state/step_log.h ---- */

typedef struct hv_hive_step_log hv_hive_step_log;

#define HV_HIVE_STEP_LOG_STAMPS 16
typedef struct hv_hive_entry {
  uint64_t epoch;     /* that the step ended */
  uint8_t before[16]; /* mark of the replica that made the step */
  uint64_t stamps[HV_HIVE_STEP_LOG_STAMPS];
  size_t n_stamps;
} hv_hive_entry;

typedef enum hv_hive_step_log_standing { /* as hv_step_log_standing */
                                         HV_HIVE_STEP_LOG_NOT_WANTED,
                                         HV_HIVE_STEP_LOG_COMES,
                                         HV_HIVE_STEP_LOG_THERE,
                                         HV_HIVE_STEP_LOG_LOST
} hv_hive_step_log_standing;

/* A log of the run with this key of states, with at most `memory` bytes on offer. Each function waits for the hive thread. */
hv_status hv_hive_step_log_open(hv_hive *hive, hv_span key, uint64_t memory, hv_hive_step_log **out, hv_error *err);
/* Withdraws all, and frees it. May be called after hv_hive_stop, and must be called before hv_hive_free. NULL is fine. */
void hv_hive_step_log_free(hv_hive_step_log *log);
/* Takes what the averager's last step kept as the entry of an epoch, which ends. HV_NOT_FOUND: it kept nothing; HV_STATE: the epoch
 * was too short; HV_TOO_LARGE, HV_NOMEM. The log has no entry then. */
hv_status hv_hive_step_log_add(hv_hive_step_log *log, hv_hive_averager *averager, const hv_hive_entry *entry, hv_error *err);
/* The same of the averager's values, as a step by this peer itself (core/average/average.h): they become what others will have,
 * which may be so after an error, too. Sets the entry's stamp. The caller holds the tensors. */
hv_status hv_hive_step_log_add_own(hv_hive_step_log *log, hv_hive_averager *averager, hv_hive_entry *entry, hv_error *err);
hv_status hv_hive_step_log_end(hv_hive_step_log *log, hv_error *err);
/* Number of entries on offer, epoch of the oldest, and their bytes. */
hv_status hv_hive_step_log_offered(hv_hive_step_log *log, size_t *n, uint64_t *first, uint64_t *bytes, hv_error *err);
hv_status hv_hive_step_log_want(hv_hive_step_log *log, uint64_t first, uint64_t until, uint64_t made, uint64_t ahead,
                                hv_error *err);
/* *entry is set if the entry is there. */
hv_status hv_hive_step_log_look(hv_hive_step_log *log, uint64_t epoch, hv_hive_step_log_standing *standing, hv_hive_entry *entry,
                                hv_error *err);
/* Writes the averages of an entry that is there into the averager's tensors, on this thread, which holds their lock. HV_NOT_FOUND;
 * else as hv_average_repeat (core/average/average.h). */
hv_status hv_hive_step_log_repeat(hv_hive_step_log *log, uint64_t epoch, hv_hive_averager *averager, hv_error *err);
/* The average that the averager's latest step kept, which listened to its round, becomes an entry: as hv_step_log_hear.
 * HV_NOT_FOUND: it kept none. */
hv_status hv_hive_step_log_hear(hv_hive_step_log *log, hv_hive_averager *averager, const hv_hive_entry *entry, hv_error *err);
hv_status hv_hive_step_log_refuse(hv_hive_step_log *log, uint64_t epoch, hv_error *err);
/* Bytes that have come of the entry under way, and all of them. */
hv_status hv_hive_step_log_progress(hv_hive_step_log *log, uint64_t *come, uint64_t *all, hv_error *err);
/* How often an entry came or was lost, without waiting. */
uint64_t hv_hive_step_log_changes(hv_hive_step_log *log);

/* ---- a hub's part in the rounds of a run; the rules are in core/epoch/epoch.h ---- */

/* Follows the epochs of a run, and goes to its rounds with averagers that are auxiliary. The hive thread decides what it does
 * next; the words of each round of gradients go to hv_hive_gift_follow's run. */
typedef struct hv_hive_follower hv_hive_follower;

typedef struct hv_hive_follower_config {
  const char *run_id;                    /* prefix of its progress */
  const char *state_key;                 /* prefix of its states */
  uint64_t target_batch_size;            /* as of hv_hive_progress_config */
  uint64_t matchmaking_ms, averaging_ms; /* longest wait for a group after an epoch's end, and for a round */
  uint64_t average_state_every;          /* epochs from one average of the state to the next; 1 or more */
  int is_late;                           /* 1: trainers count an epoch before its gradients are averaged */
  int has_anchor;                        /* 1: gradients are differences to an anchor, and no state is averaged */
  hv_hive_averager *gradients, *state;   /* borrowed until hv_hive_follower_free has returned; NULL: it averages none of these */
  uint64_t log_memory;                   /* bytes of averages that it keeps for trainers that were absent; 0: none */
  const char *record;                    /* a file to which its events are written (core/epoch/trace.h); NULL or empty: none */
} hv_hive_follower_config;

/* HV_INVALID, HV_IO (of the record): err has a sentence. */
hv_status hv_hive_follower_open(hv_hive *hive, const hv_hive_follower_config *config, hv_hive_follower **out, hv_error *err);
typedef struct hv_hive_count {
  int any;        /* 1: trainers are counted */
  uint64_t epoch; /* that they are counted at */
} hv_hive_count;

/* Sets *out to what it counts now; then it asks the swarm for news. HV_CLOSED, HV_FORKED: err has a sentence. */
hv_status hv_hive_follower_trainers(hv_hive_follower *follower, hv_hive_count *out, hv_error *err);
/* Rounds that it has been part of so far, and rounds that failed. */
void hv_hive_follower_count(hv_hive_follower *follower, uint64_t *rounds, uint64_t *failures);
/* Ends its rounds, and frees it. May be called after hv_hive_stop, and must be called before its averagers are freed. NULL is fine.
 */
void hv_hive_follower_free(hv_hive_follower *follower);

/* ---- futures: reference-counted, for any thread ---- */

/* Waits until a future is done, for at most timeout_ms; UINT32_MAX: no limit. True if it is done. */
int hv_future_wait(hv_future *future, uint32_t timeout_ms);
/* True if the future is done. */
int hv_future_done(hv_future *future);
/* Requests the end of an operation: its future is done soon, with HV_CANCELLED or with the result that it already had. A cancelled
 * hv_hive_receive takes no parcel any more. Returns 0 if the future was already done. */
int hv_future_cancel(hv_future *future);
/* The status of a future. At HV_OK it sets *bytes, borrowed from the future, and *peer; else it sets *err. Each pointer may be
 * NULL. HV_BUSY: the future is not done yet. */
hv_status hv_future_result(hv_future *future, hv_span *bytes, hv_peer_id *peer, hv_error *err);
/* Adds a reference; returns `future`. */
hv_future *hv_future_keep(hv_future *future);
/* Drops a reference, and frees the future with the last one. NULL is fine. */
void hv_future_release(hv_future *future);

#endif
