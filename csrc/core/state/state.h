/* How does a joiner get the swarm's state? Peers offer snapshots; a joiner takes the one that a majority names, from several at
 * once.
 *
 * Room: core (uses env, dht, manifest, ballot, snapshot, upload, load). Owned by node; the hive thread only, hashing and coding on
 * the pool.
 *
 * OFFER. A snapshot is borrowed memory: a counted payload of one span for each part, kept until a newer offer (or a withdrawal) has
 * taken its place and no download uses it; its bytes must not change until the payload's `free` is called, on any thread. There is
 * no second copy: plain chunks leave from where they lie, encoded ones are encoded when asked for. Digests are made chunk by chunk
 * on the pool, with pauses as long as the work took; until they are made the offer before it stands. Then it is announced
 * (ballot.h) under PREFIX + ".state", signed and owned, at once and every declare_ms; the record lives for two and a half of these.
 * A peer that cannot be dialled has a voice, and serves nobody.
 *
 * SERVING. A stream that begins with HV_MSG_STATE names a manifest; the asker then sends HV_MSG_CHUNK with an index
 * (HV_STATE_MANIFEST: the manifest's own bytes) and gets the same header back with the bytes as payload, in the order of asking.
 * HV_MSG_REFUSAL says NOT_FOUND (no such snapshot any more) or BUSY. Limits: UPLOADS_MAX at once, UPLOADS_PEER_MAX for each peer,
 * HV_STATE_ASKED_MAX chunks asked and not sent, one chunk in the making; who takes nothing and asks nothing for 30 s is dropped, as
 * is who still downloads a snapshot five minutes after it was replaced. When all places are taken, a newcomer gets that of who
 * takes least, if that is less than 32 KiB/s and it has had 20 s (a place costs an identity, and these cost nothing). Memory: the
 * windows of the streams.
 *
 * LOAD. Looks at all announcements, counts them by ballot.h's rule, gets the manifest (held against its digest) and then chunks
 * from up to `donors` at once. Idle donors take what is next, so the fast ones serve more; what is asked of one donor follows its
 * speed and is bounded. A donor that breaks off gives back what it had not sent: since answers come in order, at most one chunk for
 * each death has begun to arrive and is fetched twice. A donor from whom nothing came within a time that follows measured speed is
 * given up; a slow one is asked no more while others wait to be asked, and overtaken at the end; one that sends a wrong chunk or
 * manifest is not asked again. Some may be slow on purpose, and say the highest priority: as long as fewer than `donors` have shown
 * that they are good (32 chunks, two seconds each at most) one more is asked every three seconds, up to 16, by lot, and nobody is
 * waited for longer than silence_ms while others were never asked. Each chunk is checked where it lies in the end, and the whole
 * again; nothing else of the program is touched, so what it had stands until `done` says HV_OK. When all donors of a manifest have
 * gone, announcements are looked at anew; if another one is chosen the load begins again (`room` too). Busy donors are waited for;
 * when nothing comes and nobody else is left, announcements are looked at after silence_ms all the same, then after twice as long,
 * and so on: some may be busy for ever, while the others have moved on.
 */
#ifndef HV_CORE_STATE_H
#define HV_CORE_STATE_H

#include "core/dht/dht.h"
#include "core/state/ballot.h"
#include "core/state/manifest.h"

#define HV_STATE_MANIFEST UINT32_MAX /* as the index of a chunk: the manifest itself */
#define HV_STATE_ASKED_MAX 32        /* chunks asked of one donor and not there yet */
#define HV_STATE_PREFIX_MAX 512      /* bytes */
#define HV_STATE_OFFERS_MAX 64       /* prefixes of one node */

typedef struct hv_state hv_state;
typedef struct hv_state_offer hv_state_offer;
typedef struct hv_state_load hv_state_load;

typedef struct hv_state_config {
  hv_peer_id me;
  int client_mode;
  uint32_t declare_ms;  /* 0: 30,000 */
  uint32_t chunk_bytes; /* 0: by size; a power of two (manifest.h) */
  uint32_t donors;      /* asked at once, more only while these are slow; 0: 4, at most 16 */
  uint32_t silence_ms;  /* before anything was measured: a donor from whom nothing comes for so long is given up; 0: 15,000 */
  uint32_t looks;       /* how often announcements are looked at again for want of a majority or of donors; 0: 12 */
} hv_state_config;

/* HV_NOMEM: nothing to free. dht is borrowed. */
hv_status hv_state_new(hv_env *env, const hv_state_config *config, hv_dht *dht, hv_state **out);
/* When its world is dead or has delivered all completions. Ops still under way end with HV_CLOSED. */
void hv_state_free(hv_state *state); /* NULL is fine */
/* Where this node can be dialled; begins to announce. */
void hv_state_start(hv_state *state, const hv_addr *addrs, size_t n_addrs);
/* Ends all ops with HV_CANCELLED, all uploads; announces nothing any more. */
void hv_state_stop(hv_state *state);
/* A peer has ended: what it announced is not kept here any more. */
void hv_state_gone(hv_state *state, const hv_peer_id *id);
/* A peer opened a stream with HV_MSG_STATE: takes it on, or leaves stream->on NULL. */
void hv_state_opened(hv_state *state, const hv_event *event);

/* A snapshot to offer: the caller's struct, alive until done, which comes once. HV_OK: the digests are made, and it has been
 * announced (or that was tried: it will be again). HV_CANCELLED: a newer offer or a withdrawal came first, or the node ends;
 * HV_CLOSED from hv_state_free; HV_NOMEM. Nothing of it but bytes is used afterwards. */
struct hv_state_offer {
  void (*done)(hv_state_offer *self, hv_status status, const char *text);
  void *owner;
  hv_span prefix;
  uint64_t epoch;
  hv_hash state_hash;
  hv_payload *bytes;             /* kept: one span for each part, in order */
  const hv_manifest_part *parts; /* codec and dtype for each span; NULL: all plain. Sizes are the spans'. */
  hv_span metadata;
  float priority;
  uint8_t lineage[HV_BALLOT_LINEAGE]; /* ballot.h; zeros: none */
  uint32_t declare_ms;                /* announced anew so often; 0: as configured */
  hv_hash digest;                     /* out, within done: the manifest's */
  struct hv_state_entry *entry;       /* state's; NULL while not under way */
};

/* Not HV_OK: nothing was begun, what was offered before stands; err (may be NULL) says why. done never comes from within this
 * function. */
hv_status hv_state_offer_start(hv_state *state, hv_state_offer *offer, hv_error *err);
/* No more of this prefix: says so to the swarm, lets those who are downloading finish. at_once: breaks them off, those too who
 * download what was replaced or withdrawn before. HV_NOT_FOUND: nothing is offered, and nobody was to be broken off. */
hv_status hv_state_withdraw(hv_state *state, hv_span prefix, int at_once);
/* Says from now on this priority. HV_NOT_FOUND. */
hv_status hv_state_set_priority(hv_state *state, hv_span prefix, float priority);

/* What came of a load, to look at. */
typedef struct hv_state_seen {
  uint32_t looks, voices;               /* announcements looked at, signers in the last look */
  uint32_t donors, liars;               /* that sent anything right; that sent anything wrong */
  uint32_t broken, given_up, overtaken; /* streams that ended with something asked: by themselves, by our patience, at the end */
  uint32_t restarts;                    /* other manifests begun */
  uint64_t asked, arrived;              /* chunks, of the last manifest */
} hv_state_seen;

/* A state to get: the caller's struct, alive until done, which comes exactly once. */
struct hv_state_load {
  /* HV_OK: image and metadata are whole. HV_NOT_FOUND: nobody offers a state. HV_STATE: no majority. HV_UNREACHABLE: no donor
   * answers. HV_TOO_LARGE: over size_max. HV_TIMEOUT, HV_CANCELLED, HV_NOMEM, HV_CLOSED. text: one sentence. The image is not
   * touched any more. */
  void (*done)(hv_state_load *self, hv_status status, const char *text);
  /* The manifest is known (borrowed): gives memory for manifest->image bytes (aligned to 64 or better if parts are to be), the
   * caller's also on failure. NULL: HV_NOMEM. Comes again, if the load has to begin again: what it gave before is not touched any
   * more. */
  uint8_t *(*room)(hv_state_load *self, const hv_manifest *manifest);
  void *owner;
  hv_span prefix;       /* borrowed until done */
  uint32_t timeout_ms;  /* 0: 600,000 */
  uint64_t size_max;    /* of the image; 0: HV_MANIFEST_IMAGE_MAX */
  uint64_t epoch_least; /* older ones are not wanted; other than 0, it is waited a few looks long for one to be offered */
  const hv_kern *kern;  /* NULL: the best of this processor */
  /* out, within done */
  const hv_manifest *manifest; /* HV_OK: epoch, metadata, parts with their places */
  hv_hash digest;
  hv_peer_id donor; /* who gave most */
  hv_state_seen seen;
  struct hv_loader *loader; /* state's; NULL while not under way */
};

/* Not HV_OK: nothing was begun. done never comes from within this function. */
hv_status hv_state_load_start(hv_state *state, hv_state_load *load, hv_error *err);
/* Asks for its end: done comes soon (it waits for the pool to let go of the image). Fine when not under way. */
void hv_state_load_cancel(hv_state *state, hv_state_load *load);

/* To look at. */
size_t hv_state_uploads(const hv_state *state);

#endif
