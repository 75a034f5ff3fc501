/* The state sharing of one node: snapshots that it offers, uploads to joiners, and its own downloads.
 *
 * Room: core (uses env, dht, manifest, ballot, snapshot, upload, load, demand, want).
 * Owner: node.
 * Thread: the hive thread; hashing and encoding run on the pool.
 * Limits: the constants below; 16 uploads at a time, 2 for each peer.
 * Errors: hv_status from each function; done of an offer or a load gets the result and one sentence.
 * Rules: docs/design/state.md: offer, uploads, download, vote, states on demand.
 */
#ifndef HV_CORE_STATE_H
#define HV_CORE_STATE_H

#include "core/dht/dht.h"
#include "core/state/ballot.h"
#include "core/state/manifest.h"

#define HV_STATE_MANIFEST UINT32_MAX /* the chunk index that stands for the manifest itself */
#define HV_STATE_ASKED_MAX 32        /* chunks requested from one donor and not there yet */
#define HV_STATE_OFFERS_MAX 128      /* prefixes of one node: a log has one for each entry, and those that were just withdrawn */
#define HV_STATE_REFUSED_MAX 16      /* states that one load refuses */

typedef struct hv_state hv_state;
typedef struct hv_state_offer hv_state_offer;
typedef struct hv_state_load hv_state_load;
typedef struct hv_state_wait hv_state_wait;
typedef struct hv_state_want hv_state_want;

typedef struct hv_state_config {
  hv_peer_id me;
  int client_mode;
  uint32_t declare_ms;  /* between announcements; 0: 30,000 */
  uint32_t chunk_bytes; /* a power of two (manifest.h); 0: chosen by size */
  uint32_t donors;      /* that a download asks at the same time, more only while these are slow; at most 16; 0: 4 */
  uint32_t silence_ms;  /* after which a donor of unknown speed is given up; 0: 15,000 */
  uint32_t looks;       /* searches for announcements before a download without donors fails; 0: 12 */
  hv_standing (*standing)(void *arg, const hv_peer_id *id);     /* of an announcer; NULL: all are strangers */
  hv_contact_source (*source)(void *arg, const hv_peer_id *id); /* of the addresses that it announces; NULL: public ones count */
  void *arg;
} hv_state_config;

/* Makes the state sharing of a node; borrows dht. HV_NOMEM: there is nothing to free. */
hv_status hv_state_new(hv_env *env, const hv_state_config *config, hv_dht *dht, hv_state **out);
/* Frees it after its world has ended or has delivered all completions. Offers and loads under way end with HV_CLOSED. NULL is
 * fine. */
void hv_state_free(hv_state *state);
/* Sets the addresses at which this node can be dialled, and starts to announce; later: announces all offers with other addresses.
 */
void hv_state_start(hv_state *state, const hv_addr *addrs, size_t n_addrs);
/* Ends all offers and loads with HV_CANCELLED, breaks uploads off, and announces nothing any more. */
void hv_state_stop(hv_state *state);
/* Drops the announcements of a peer that has ended. */
void hv_state_gone(hv_state *state, const hv_peer_id *id);
/* Starts an upload on a stream that a peer opened with HV_MSG_STATE; else stream->on stays NULL. */
void hv_state_opened(hv_state *state, const hv_event *event);

/* A snapshot to offer. The caller owns the struct and keeps it until done, which is called once. Afterwards only `bytes` is used.
 * done gets HV_OK: the digests are made and the state was announced; if announcing failed, it is tried again. HV_CANCELLED: a newer
 * offer, a withdrawal or the node's end came first. HV_CLOSED: hv_state_free. HV_NOMEM. */
struct hv_state_offer {
  void (*done)(hv_state_offer *self, hv_status status, const char *text);
  void *owner;
  hv_span prefix;
  uint64_t epoch;
  hv_hash state_hash;            /* the program's own */
  hv_payload *bytes;             /* one span for each part, in order; state keeps a reference */
  const hv_manifest_part *parts; /* codec and dtype of each span; NULL: none is encoded. Sizes are the spans'. */
  hv_span metadata;
  float priority;                     /* joiners ask donors of higher priority first */
  uint8_t lineage[HV_BALLOT_LINEAGE]; /* ballot.h; zeros: not known */
  uint32_t declare_ms;                /* between announcements; 0: that of the config */
  hv_hash digest;                     /* set before done: of the manifest */
  struct hv_state_entry *entry;       /* state's own; NULL while not under way */
};

/* Starts to hash and announce a snapshot. Until its digests are made the earlier offer of the prefix stands. done is not called
 * from within. Any error: nothing was started, the earlier offer stands, and err (may be NULL) says why. */
hv_status hv_state_offer_start(hv_state *state, hv_state_offer *offer, hv_error *err);
/* Withdraws the offer of a prefix and announces that. Downloads under way finish, unless `at_once`: then those of this and earlier
 * snapshots of the prefix are broken off. HV_NOT_FOUND: there was no offer, and no download to break off. */
hv_status hv_state_withdraw(hv_state *state, hv_span prefix, int at_once);
/* Changes the announced priority. HV_NOT_FOUND: nothing is offered under this prefix. */
hv_status hv_state_set_priority(hv_state *state, hv_span prefix, float priority);

/* Statistics of one download. */
typedef struct hv_state_seen {
  uint32_t looks, voters;               /* searches for announcements; announcers that the last one found */
  uint32_t donors, liars;               /* donors that sent something right; that sent something wrong */
  uint32_t broken, given_up, overtaken; /* streams with chunks outstanding: ended by the donor, by our timeout, at the end */
  uint32_t restarts;                    /* downloads of another manifest */
  uint64_t asked, arrived;              /* chunks of the last manifest */
} hv_state_seen;

/* A state to download. The caller owns the struct and keeps it until done, which is called exactly once. */
struct hv_state_load {
  /* HV_OK: image and metadata are whole (unless only_look). HV_NOT_FOUND: no peer offers a state. HV_STATE: no state had a majority
   * in all its time. HV_UNREACHABLE: no donor answers. HV_TOO_LARGE: all states on offer are over size_max. HV_TIMEOUT,
   * HV_CANCELLED, HV_NOMEM, HV_CLOSED. text: one sentence. The image is not written after done. */
  void (*done)(hv_state_load *self, hv_status status, const char *text);
  /* Returns memory for manifest->image bytes, aligned to 64 or better if the parts must be; NULL ends the load with HV_NOMEM. The
   * memory stays the caller's. The manifest is borrowed. If the load starts over, room is called again, and the memory from before
   * is not written any more. */
  uint8_t *(*room)(hv_state_load *self, const hv_manifest *manifest);
  void *owner;
  hv_span prefix;      /* borrowed until done */
  uint32_t timeout_ms; /* longest time in which nothing right arrives; 0: 600,000 */
  uint64_t size_max;   /* bytes of the image; 0: HV_MANIFEST_IMAGE_MAX. A larger state is refused at its manifest. */
  /* The digests of states that are refused: peers that announce them have no vote. The load adds those that are too large. */
  hv_hash refused[HV_STATE_REFUSED_MAX];
  size_t n_refused;
  uint64_t epoch_least; /* no older epoch is loaded; if not 0, the load searches some more times for such an offer */
  int only_look;        /* 1: searches once, and ends when the vote has chosen; HV_OK: there is such a state, and `epoch` is set */
  const hv_kern *kern;  /* NULL: the best for this processor */
  /* set before done */
  const hv_manifest *manifest; /* with HV_OK: epoch, metadata, parts with their places */
  uint64_t epoch;              /* with HV_OK: of the state */
  hv_hash digest;              /* of the manifest */
  hv_peer_id donor;            /* that sent most */
  hv_state_seen seen;
  struct hv_loader *loader; /* state's own; NULL while not under way */
};

/* Starts a download. done is not called from within. Any error: nothing was started. */
hv_status hv_state_load_start(hv_state *state, hv_state_load *load, hv_error *err);
/* Cancels a download: done is called soon, after the pool has let go of the image. Does nothing if none is under way. */
void hv_state_load_cancel(hv_state *state, hv_state_load *load);
/* Bytes of the image that have come, and all of them; 0, 0 before the manifest is there, or if no download is under way. */
void hv_state_load_progress(const hv_state_load *load, uint64_t *come, uint64_t *all);

/* How far a download is. */
typedef struct hv_state_loading {
  uint64_t epoch;
  uint64_t came, size; /* bytes as they travel: that are here and right; of the whole. size 0: it is not known yet */
  uint64_t donors;     /* that send */
} hv_state_loading;

/* Sets *out to how far the download of this prefix is. HV_NOT_FOUND: none is under way. */
hv_status hv_state_load_look(const hv_state *state, hv_span prefix, hv_state_loading *out);

/* A donor that waits until a joiner wants its state. The caller owns the struct and keeps it until done, which is called once. */
struct hv_state_wait {
  /* HV_OK: a joiner wants the state as it is now. Offer it with `number` as its epoch, and then wait again; until then no other
   * number comes. HV_CANCELLED: hv_state_wait_end, or the node's end. HV_CLOSED: hv_state_free. text: one sentence. */
  void (*done)(hv_state_wait *self, hv_status status, const char *text);
  void *owner;
  hv_span prefix;    /* borrowed until done */
  uint64_t clock_ms; /* the program's clock now, by which numbers are judged; that of joiners may differ */
  uint64_t number;   /* set before done */
};

/* Waits for a joiner, and declares this node a donor of the prefix if it was none. done is not called from within. Any error:
 * nothing was started. */
hv_status hv_state_wait_start(hv_state *state, hv_state_wait *wait, hv_error *err);
/* This node gives no state of the prefix on demand any more: withdraws the declaration. A wait under way ends with HV_CANCELLED. */
void hv_state_wait_end(hv_state *state, hv_span prefix);
/* Answers HV_MSG_STATE_WANTED. */
void hv_state_asked(hv_state *state, const hv_event *event);

/* A joiner that wants the state of donors that give one on demand. The caller owns the struct and keeps it until done, which is
 * called once. */
struct hv_state_want {
  /* HV_OK: donors offer their state under `number`, or soon will; load it with that as epoch_least. HV_NOT_FOUND: no peer gives a
   * state of this prefix. HV_STATE: they do not agree. HV_UNREACHABLE: none could be asked. HV_CANCELLED, HV_CLOSED,
   * HV_NOMEM. text: one sentence. */
  void (*done)(hv_state_want *self, hv_status status, const char *text);
  void *owner;
  hv_span prefix;  /* borrowed until done */
  uint64_t number; /* in: the program's clock in ms, or a number that donors agreed to; out: the number that they agree to */
  size_t n_donors; /* out: donors that agree */
  struct hv_wanting *wanting; /* state's own; NULL while not under way */
};

/* Asks the donors. done is not called from within. Any error: nothing was started. */
hv_status hv_state_want_start(hv_state *state, hv_state_want *want, hv_error *err);
/* Cancels: done is called within this call. Does nothing if none is under way. */
void hv_state_want_cancel(hv_state *state, hv_state_want *want);

/* The number of uploads under way. */
size_t hv_state_uploads(const hv_state *state);

#endif
