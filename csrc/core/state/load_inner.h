/* The inner parts of one download: voters, donors and checks, shared by the load*.c files only.
 *
 * Room: core. The contract of the whole is core/state/load.h.
 * Owner: the loader owns streams, jobs and donors. While its manifest is wanted, a load_donor is neither moved nor freed.
 * Thread: the hive thread; jobs of load_check.c write the image and their own memory on the pool.
 * Terms: a voter is a peer that announces a state; a donor is one that sends it.
 * Files: load.c (phases, decisions), load_voters.c (announcers that answer), load_donor.c (requests to donors), load_check.c
 * (digests). load.c calls the other three; these report to it through hv_loader.on.
 */
#ifndef HV_CORE_LOAD_INNER_H
#define HV_CORE_LOAD_INNER_H

#include "core/state/load.h"

enum { LOAD_AHEAD_MAX = 32, LOAD_TICK_US = 100000 };

/* LOOKING for announcements -> ASKING the announcers -> FETCHING, or a PAUSE before the next look -> ENDING. */
typedef enum load_phase { LOAD_LOOKING, LOAD_ASKING, LOAD_PAUSE, LOAD_FETCHING, LOAD_ENDING } load_phase;

typedef enum voter_state {
  VOTER_UNASKED, /* it has no address, or too many peers announce */
  VOTER_ASKED,
  VOTER_THERE,
  VOTER_SILENT,
  VOTER_GONE /* its addresses refuse, or belong to another peer */
} voter_state;

/* A peer that announces a state, in one look. */
typedef struct load_voter {
  hv_loader *loader;
  hv_ballot ballot; /* its addrs lie in addrs below */
  voter_state state;
  uint64_t claimed; /* network of its first address */
  size_t n_tried;   /* addresses */
  hv_call call;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
} load_voter;

typedef enum donor_state {
  DONOR_FRESH,   /* not asked yet */
  DONOR_OPEN,    /* has a stream */
  DONOR_WAITING, /* failed or busy: asked again at retry_us */
  DONOR_TIRED,   /* too slow: asked only if no other donor is left */
  DONOR_OUT      /* never asked again: it lost the state, failed too often, or lied */
} donor_state;

typedef struct load_donor {
  hv_loader *loader;
  hv_peer_id id;
  float priority;
  uint32_t rank;  /* random order among donors of equal priority */
  int was_silent; /* in another load: it comes last */
  donor_state state;
  int liar, draining; /* draining: gets no further requests */
  int busy;           /* its last answer was BUSY, and nothing right has come since */
  unsigned failures;  /* in a row */
  unsigned addr;      /* index of the address in use */
  hv_stream *stream;
  int closing;                       /* this peer broke the stream off and ignores what still comes */
  uint32_t asked[LOAD_AHEAD_MAX];    /* chunks requested and not there yet, in order */
  uint64_t asked_us[LOAD_AHEAD_MAX]; /* when each was requested */
  uint32_t n_asked, n_came;          /* n_came: messages on this stream */
  uint64_t last_us, retry_us;        /* of its last message; of its next attempt */
  uint64_t busy_us, pace_us;         /* time with requests outstanding; of it for each chunk (0: not known) */
  uint32_t n_timed;                  /* chunks in pace_us */
  uint64_t n_good;                   /* chunks that were right */
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size;
} load_donor;

/* Callbacks. With them load_voters.c, load_donor.c and load_check.c report to load.c; `wrong` goes from load_check.c to
 * load_donor.c. load.c sets them once. */
typedef struct load_reports {
  /* Ends the download with a status and one sentence. */
  void (*end)(hv_loader *l, hv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
  /* The last call in an event: reports the result, and frees the loader if nothing is under way. */
  void (*settle)(hv_loader *l);
  /* Every announcer has answered or had its time: chooses a manifest. */
  void (*asked_all)(hv_loader *l);
  /* Something changed while FETCHING: looks after donors, requests and patience. */
  void (*changed)(hv_loader *l);
  /* The chosen state is of no use, as the sentence says: looks for another one. */
  void (*refuse)(hv_loader *l, hv_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
  /* A donor sent something wrong; `what` names it. */
  void (*wrong)(load_donor *d, const char *what);
} load_reports;

struct hv_loader {
  hv_env *env;
  const load_reports *on;
  hv_state_config config; /* defaults filled in */
  hv_dht *dht;
  hv_state_load *load; /* the caller's; NULL after its done */
  hv_loader_memory *memory;
  void (*over)(void *arg, hv_loader *self);
  void *arg;
  load_phase phase;
  hv_dht_op op;
  hv_timer deadline, tick;
  uint32_t timeout_ms;
  unsigned looks_left, n_pauses;
  int undecided, warned; /* the votes of the last look chose no state; the log says so */
  unsigned n_busy_looks; /* looks in a row because all donors were busy */
  load_voter *voters;
  size_t n_voters, n_asked_voters; /* n_asked_voters: calls under way */

  /* the choice */
  int chosen;
  int refusing;     /* the choice was refused: the next look begins when its streams and jobs have ended */
  hv_error refused; /* why the latest state was refused in this load; HV_OK: none was */
  uint64_t epoch;
  uint64_t claimed; /* bytes of the image, as announced */
  hv_hash digest;
  load_donor *donors[HV_LOADER_KNOWN_MAX];
  size_t n_donors;
  uint64_t fetching_us; /* when fetching began */
  uint64_t widened_us;  /* when one more donor than configured was asked */
  uint64_t moved_us;    /* when something right arrived last, or fetching began */
  uint64_t came_us;     /* when something right arrived last, or the load began */

  /* the manifest and its chunks */
  int has_manifest, checking;
  hv_manifest manifest;
  uint8_t *image;  /* the program's memory */
  uint8_t *states; /* a load_chunk for each chunk */
  hv_hash *found;  /* the digests of the chunks that arrived */
  uint32_t low;    /* no chunk before it is CHUNK_TODO */
  uint32_t n_todo, n_done;
  uint64_t came, size;       /* bytes as they travel: of the chunks that are done, of all */
  size_t n_jobs;             /* on the pool */
  struct load_check *checks; /* of these jobs */
  hv_state_seen seen;

  /* the result */
  int reported; /* load->done was called */
  hv_status status;
  char text[360];
  size_t key_size;
  uint8_t key[];
};

typedef enum load_chunk { CHUNK_TODO, CHUNK_ASKED, CHUNK_DONE } load_chunk;

/* ---- load_voters.c ---- */
/* Replaces the voters by those of these ballots; copies their addresses. HV_NOMEM. */
hv_status voters_take(hv_loader *l, const hv_ballot *ballots, size_t n);
/* Asks each voter whether it is there. Then, or a second later at most, calls on->asked_all. */
void voters_ask(hv_loader *l);
/* Copies the ballots of the voters of at least this standing whose state counts; returns their number. `out` has room for all
 * voters. */
size_t voters_in(const hv_loader *l, int (*counts)(voter_state state), hv_standing least, hv_ballot *out);
/* Cancels the calls under way; they end soon. */
void voters_cancel(hv_loader *l);
/* Frees the voters; no call may be under way. */
void voters_forget(hv_loader *l);

/* True if this announcer of this manifest, or this donor (of zeros), was silent not long ago. */
int silence_is_known(const hv_loader *l, const hv_peer_id *id, const hv_hash *of);
void silence_remember(hv_loader *l, const hv_peer_id *id, const hv_hash *of);

/* ---- load_donor.c ---- */
/* Drops slow and silent donors, opens streams, and requests chunks. */
void donor_mind(hv_loader *l);
/* Breaks a donor's stream off and takes its requests back. */
void donor_cut(load_donor *d);
/* Excludes a donor that sent `what`, something wrong. */
void donor_liar(load_donor *d, const char *what);
/* True if some stream has not ended. */
int donor_any_stream(const hv_loader *l);
/* True if some donor may still be asked. */
int donor_any_hope(const hv_loader *l);
/* True if all donors left are busy and nothing right has come for wait_us (longer if a stream was opened only now). */
int donor_all_busy(const hv_loader *l, uint64_t wait_us);
/* True if this peer kept another load waiting not long ago. */
int donor_was_silent(const hv_loader *l, const hv_peer_id *id);
/* Remembers the donors that keep this load waiting as it ends. */
void donor_remember_silent(hv_loader *l);
/* Breaks all streams off; their donors may be asked again. */
void donor_rest(hv_loader *l);

/* ---- load_check.c ---- */
/* Marks a requested chunk as not requested. */
void check_give_back(hv_loader *l, uint32_t chunk);
/* Checks the bytes of a manifest, and takes it on if it is the chosen one. */
void check_manifest(load_donor *d, hv_payload *payload);
/* Checks the bytes of a chunk, and decodes it into the image. */
void check_chunk(load_donor *d, uint32_t chunk, hv_payload *payload);
/* Frees the checks whose jobs have not returned, when the world has ended. */
void check_forget(hv_loader *l);

#endif
