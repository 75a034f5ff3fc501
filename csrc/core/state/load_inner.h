/* What the files of one download share: load.c (phases), load_voices.c (who of those who announce is there), load_donor.c (who is
 * asked, and how much), load_check.c (what came).
 *
 * Room: core. Contract in load.h. Streams and jobs belong to a loader until they end; a donor stands at one place as long as its
 * manifest is wanted.
 */
#ifndef HV_CORE_LOAD_INNER_H
#define HV_CORE_LOAD_INNER_H

#include "core/state/load.h"

enum { LOAD_AHEAD_MAX = 16, LOAD_TICK_US = 100000 };

typedef enum load_phase { LOAD_LOOKING, LOAD_ASKING, LOAD_PAUSE, LOAD_FETCHING, LOAD_ENDING } load_phase;

typedef enum voice_state {
  VOICE_UNASKED, /* it has no address, or too many announce */
  VOICE_ASKED,
  VOICE_THERE,
  VOICE_SILENT,
  VOICE_GONE /* nobody listens at its addresses, or somebody else does */
} voice_state;

/* A peer that announces a state, in one look. */
typedef struct load_voice {
  hv_loader *loader;
  hv_ballot ballot; /* its addrs lie in addrs */
  voice_state state;
  size_t tried; /* addresses */
  hv_call call;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
} load_voice;

typedef enum donor_state {
  DONOR_FRESH,   /* not asked yet */
  DONOR_OPEN,    /* has a stream */
  DONOR_WAITING, /* failed, or is busy: again at retry_us */
  DONOR_TIRED,   /* too slow: when nobody else is left */
  DONOR_OUT      /* not again: does not have it any more, failed too often, or lied */
} donor_state;

typedef struct load_donor {
  hv_loader *loader;
  hv_peer_id id;
  float priority;
  uint32_t rank; /* random: which of equals comes first */
  donor_state state;
  int liar, draining;      /* draining: is asked no more */
  int busy;                /* it said so last, and has given nothing right since */
  unsigned failures, addr; /* in a row; which of its addresses */
  hv_stream *stream;
  int closing; /* we broke it off: what still comes is not looked at */
  uint32_t asked[LOAD_AHEAD_MAX];
  uint64_t asked_us[LOAD_AHEAD_MAX];
  uint32_t n_asked, came; /* came: messages on this stream */
  uint64_t last_us, retry_us;
  uint64_t busy_us, pace_us; /* while something was asked; of that for each chunk (0: not known) */
  uint32_t n_timed;
  uint64_t good; /* chunks that were right */
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size;
} load_donor;

struct hv_loader {
  hv_env *env;
  hv_state_config config; /* with what is usual filled in */
  hv_dht *dht;
  hv_state_load *load; /* until done has been told */
  hv_loader_memory *memory;
  void (*over)(void *arg, hv_loader *self);
  void *arg;
  load_phase phase;
  hv_dht_op op;
  hv_timer deadline, tick;
  unsigned looks_left, pauses, vain; /* vain: looks past busy donors, in a row */
  load_voice *voices;
  size_t n_voices, n_asked_voices; /* n_asked_voices: calls under way */
  /* what was chosen */
  int chosen;
  uint64_t epoch, claimed;
  hv_hash digest;
  load_donor *donors[HV_LOADER_KNOWN_MAX];
  size_t n_donors;
  uint64_t fetching_us, widened_us; /* since when it is fetched; when one more than usual was asked */
  uint64_t moved_us;                /* when something right came last, or fetching began */
  /* the manifest, and what it leads to */
  int has_manifest, checking;
  hv_manifest manifest;
  uint8_t *image;  /* the program's */
  uint8_t *states; /* of chunks: a load_chunk each */
  hv_hash *found;  /* what the chunks that came hash to */
  uint32_t low, todo, done;
  size_t jobs;
  hv_state_seen seen;
  int told;
  hv_status status;
  char text[360];
  size_t key_size;
  uint8_t key[];
};

typedef enum load_chunk { CHUNK_TODO, CHUNK_ASKED, CHUNK_DONE } load_chunk;

/* load.c */
void load_end(hv_loader *l, hv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
void load_settle(hv_loader *l); /* the last thing in an event: tells and frees when there is nothing left to wait for */
void load_count(hv_loader *l);  /* all who announce were asked, or had time enough: chooses */
void load_mind(hv_loader *l);   /* looks after everything while FETCHING */
void load_give_back(hv_loader *l, uint32_t chunk); /* it is to be fetched (again) */
void load_moved(load_donor *from);                 /* it gave something right */

/* load_voices.c */
/* These announce something; addresses are copied. HV_NOMEM. */
hv_status voices_take(hv_loader *l, const hv_ballot *ballots, size_t n);
/* Asks each whether it is there; then, a second later at most, load_count. */
void voices_ask(hv_loader *l);
/* The ballots of those whose state counts; returns how many. `out` has room for all voices. */
size_t voices_that(const hv_loader *l, int (*count)(voice_state state), hv_ballot *out);
void voices_cancel(hv_loader *l); /* calls under way end soon */
void voices_forget(hv_loader *l); /* none is under way */

/* load_donor.c */
void donor_mind(hv_loader *l); /* patience, demotion, overtaking, new streams, more to ask */
void donor_ask(load_donor *d);
void donor_cut(load_donor *d); /* breaks its stream off; what was asked is given back */
void donor_liar(load_donor *d, const char *what);
int donor_any_stream(const hv_loader *l); /* 1: some stream has not ended */
int donor_any_hope(const hv_loader *l);   /* 1: somebody may still be asked */
/* 1: of those only busy ones are left, and nothing right has come for wait_us (of one that opens at last: for as long as it may
 * take besides). */
int donor_all_busy(const hv_loader *l, uint64_t wait_us);
void donor_rest(hv_loader *l); /* breaks all streams off; their donors may be asked again */

/* load_check.c */
void check_manifest(load_donor *d, hv_payload *payload);
void check_chunk(load_donor *d, uint32_t chunk, hv_payload *payload);
void check_whole(hv_loader *l);

#endif
