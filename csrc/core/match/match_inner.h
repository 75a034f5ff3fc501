/* The inner parts of one match, shared by the match*.c files only.
 *
 * Room: core. The contract of the whole is core/match/match.h.
 * Owner: a match owns its gatherings, its seek and its roster; the registry owns the questions under way.
 * Thread: the hive thread.
 * Files: match.c (life, registry; calls all others), match_seek.c (this node's way to a group), match_host.c (peers that gather at
 * this node), match_count.c (how many a group is to have, and when it begins), match_move.c (this node's way from epoch to epoch),
 * match_ask.c (questions to single peers), match_speak.c (versions of the protocol), match_facts.c (epochs that began, limits).
 * Each calls only files named after it; match_host.c reports to the seek through hv_match.on. match_setup.c (what members must have
 * in common) calls match_host.c. Place: the number of an epoch plus 1; 0 stands for none (roster.h).
 */
#ifndef HV_CORE_MATCH_INNER_H
#define HV_CORE_MATCH_INNER_H

#include "core/match/group.h"
#include "core/match/match.h"
#include "core/match/roster.h"
#include "core/peers/parting.h"

#define MATCH_BEGUN_MAX 16      /* epochs that began and are remembered */
#define MATCH_GATHERINGS_MAX 16 /* epochs hosted at a time */
#define MATCH_JOINERS_MAX (2 * HV_ROUND_MEMBERS_MAX)
#define MATCH_PULSE_MS 1000       /* interval between two signs of life of a host */
#define MATCH_SILENCE_MS 3000     /* time without a sign of life after which a host or a joiner is given up */
#define MATCH_ANSWER_MS 2000      /* timeout of an answer, unless hv_match_config.request_ms is set */
#define MATCH_ANSWER_LEAST_MS 500 /* smallest timeout of an answer in a short seek */
#define MATCH_STALLED_MS 1000     /* a timer that fires this much too late shows that this node itself was stalled */
#define MATCH_HEAR_MS 100         /* time that a node waits after its own stall, to receive the messages that came meanwhile */
#define MATCH_DOUBTED_MAX 3       /* hosts whose verdict needs a confirmation */
#define MATCH_RETRY_MS 500        /* time after which a client that knows no host tries again */
#define MATCH_STRANGERS_ASKED 4   /* strangers that are asked for their setup and tensors */
#define MATCH_STRANGERS_TOLD 16   /* strangers whose difference is logged, for each setup of this node */
#define MATCH_SETTLE_MS 3000      /* age from which a match takes its roster for complete */
#define MATCH_STUCK_MS 5000       /* time for which a peer that found no group counts as being at that epoch */
#define MATCH_GREETINGS 3         /* times that a new match asks the peers that this node knows from elsewhere */
#define MATCH_GREET_MS 1000       /* interval between these times; the first is at once */

typedef struct match_gathering match_gathering;
typedef struct match_joiner match_joiner;

/* ---- peers that gather at this node ---- */
struct match_joiner {
  match_joiner *next, **link;
  match_gathering *gathering;
  hv_stream *stream; /* NULL: this node's own seek */
  hv_peer_id id;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size; /* 0: a client */
  uint8_t auxiliary;
  uint8_t present; /* 1: all its gather data has arrived */
  uint8_t stay;    /* 1: it cannot be redirected any more */
  uint64_t bandwidth;
  uint64_t since_us, heard_us; /* when it joined; its last sign of life */
  uint64_t deadline_us;        /* end of its own waiting time */
  uint32_t expected, known;    /* members that it wants to begin with; members that it knows of */
  uint32_t gather_size;
  hv_payload *gather;
  size_t avoid_size;
  uint8_t avoid[HV_MATCH_AVOID_MAX * sizeof(hv_peer_id)]; /* hosts to which it is not redirected */
};

/* The joiners of one epoch. */
struct match_gathering {
  match_gathering *next, **link;
  hv_match *match;
  char epoch[HV_MATCH_EPOCH_MAX];
  size_t epoch_size;
  hv_rank rank;
  uint64_t place;
  match_joiner *joiners;
  size_t n_joiners, n_present;
  size_t begun;             /* members of groups that began here */
  size_t helped;            /* of these, in groups with a single contributor */
  uint64_t since_us;        /* when it was opened */
  uint64_t pulse_us;        /* the next sign of life to its joiners */
  uint64_t summon_us;       /* the next question to the peers that it lacks */
  uint64_t summon_pause_us; /* after that one; three times longer each time */
  uint64_t due_us;          /* when the timer is due */
  uint64_t hear_us;         /* nothing begins before */
  hv_timer timer;
};

/* ---- this node's own seek ---- */
typedef enum seek_state {
  SEEK_IDLE,
  SEEK_CHOOSING, /* it has no host */
  SEEK_JOINING,  /* a host was asked */
  SEEK_WAITING,  /* the host accepted */
  SEEK_LEAVING,  /* the host was asked to let go, because another comes before it in the order */
  SEEK_HOSTING,  /* this node is the host */
  SEEK_OVER,     /* done is called in an event of its own */
  SEEK_STATES
} seek_state;

/* A host's reason for refusing a seeker for ever. */
typedef enum match_verdict { MATCH_HAS_BEGUN, MATCH_IS_FURTHER, MATCH_IS_BEHIND } match_verdict;

typedef struct match_seek {
  seek_state state;
  hv_match_seek *request; /* the program's; NULL: none */
  hv_rank rank;
  int client; /* this node cannot be dialled */
  hv_stream *stream;
  hv_peer_id host;
  hv_timer timer;
  uint64_t started_us, ends_us, due_us; /* due_us: when the timer is due */
  unsigned redirects;
  hv_peer_id avoid[HV_MATCH_AVOID_MAX]; /* the hosts that JOIN named as failing this node */
  size_t n_avoid;
  int stay;          /* JOIN said that this node cannot be redirected any more */
  uint32_t present;  /* peers at the host, as it reported last */
  uint64_t alone_us; /* since when that may have been this node alone; 0: no report yet */
  uint64_t asked_us; /* when the other peers were asked whether they seek too; 0: not yet */
  struct {
    hv_peer_id host;
    match_verdict verdict;
    uint64_t place;             /* of the others, with MATCH_IS_FURTHER */
  } doubted[MATCH_DOUBTED_MAX]; /* hosts whose verdict no other host had given before */
  size_t n_doubted;
  hv_status status; /* the result */
  int further;
  hv_match_group *group;
  char text[400]; /* one sentence about the result */
} match_seek;

/* Calls from a gathering to this node's own seek. Set once, by match.c. */
typedef struct match_reports {
  /* The seek is in this group, which is given to it. done is called in an event of its own. */
  void (*begun)(hv_match *match, hv_match_group *group);
  /* No other peer will come to the seek's epoch: the others are at this place, or behind (0). */
  void (*hopeless)(hv_match *match, uint64_t place);
} match_reports;

struct hv_match {
  hv_match *next, **link;
  hv_match_registry *registry;
  hv_env *env;
  const match_reports *on;
  hv_match_config config; /* its spans are parts of the copies below */
  char key[HV_MATCH_KEY_MAX];
  size_t key_size, prefix_size;
  uint8_t *schema_text; /* room for a setup, whose end is written to the end of that room, and the tensors after it */
  size_t setup_size, tensors_size;
  hv_hash tensors; /* the schema without a setup */
  hv_roster roster;
  hv_timer news_timer; /* the roster has changed: handled in an event of its own */
  hv_timer greet_timer;
  int closing; /* it is being freed: nothing begins any more */
  unsigned greetings;
  size_t unanswered;     /* questions of its entering that are under way */
  int settled;           /* all of them were answered: the roster is complete */
  uint64_t opened_us;    /* when it took this key */
  uint64_t return_place; /* it missed a step and returns at this place; 0: it did not miss one */
  uint64_t stuck_us;     /* when its last seek ended without a group; 0: it had one */
  uint64_t behind_us;    /* since when it has known that others are further; 0: they are not */
  match_gathering *gatherings;
  size_t n_gatherings;
  match_seek seek;
  struct {
    char epoch[HV_MATCH_EPOCH_MAX];
    size_t size;
    uint64_t at_us; /* 0: a free slot */
  } begun[MATCH_BEGUN_MAX];
  size_t n_begun;    /* epochs noted so far */
  hv_stream *asking; /* to a stranger, about its tensors */
  unsigned n_asked;  /* strangers */
  unsigned n_told;   /* differences that were logged */
  char difference[300];
};

/* A question to one peer: are you coming? */
typedef struct hv_match_summons {
  struct hv_match_summons *next, **link;
  hv_match *match; /* NULL: it has gone */
  hv_call call;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size;
  uint64_t asked_us; /* time of the last asking */
  uint8_t again;     /* 1: asked a second time, because one packet may be lost */
  uint8_t first;     /* 1: one of the questions of its match's entering */
} match_summons;

static inline hv_span match_key(const hv_match *match) {
  return hv_span_of(match->key, match->key_size);
}

static inline hv_span match_epoch_of(const match_gathering *g) {
  return hv_span_of(g->epoch, g->epoch_size);
}

/* ---- match_facts.c ---- */
/* The place of an epoch whose name begins with a number ("5", "5/1"); 0: it begins with none. */
uint64_t match_place_of(hv_span epoch);
/* True if this node has not done its epoch yet: it seeks a group, or has just found none. */
int match_is_stuck(const hv_match *match);
/* True if this node had a group of the epoch that it is in. */
int match_had_group(const hv_match *match);
/* The most and the fewest members of a group. */
size_t match_target(const hv_match *match);
size_t match_least(const hv_match *match);
/* True if this epoch is known to have begun. */
int match_has_begun(const hv_match *match, hv_span epoch);
/* Remembers that an epoch has begun. */
void match_note_begun(hv_match *match, hv_span epoch);
/* True if a group is one of the epoch: with a single contributor it averages nothing, and the others wait on. */
int match_is_of_epoch(const hv_match *match, size_t contribute);
/* Remembers that these have a group. Returns match_is_of_epoch. */
int match_note_members(hv_match *match, hv_span epoch, const hv_match_member *members, size_t n);
/* This node's own knowledge for hv_group_read. */
hv_group_facts match_facts(const hv_match *match, hv_span epoch);

/* ---- match_ask.c ---- */
/* Asks the peers that a gathering expects and lacks whether they come. A peer that does not answer is not expected any more. */
void match_ask_missing(match_gathering *gathering);
/* Asks a peer that called and could not be reached before, because only its answer shows that it can be reached. */
void match_ask_back(hv_match *match, const hv_peer_id *id);
/* Asks the other peers whether they seek, for a seeker whose host reports no others. */
void match_ask_company(hv_match *match);
/* Asks the peers that this node knows from elsewhere and that are not in the roster. */
void match_ask_acquaintances(hv_match *match);
/* Asks all peers that may be there when this match enters, and so learns their places. */
void match_ask_all(hv_match *match);
/* In a small swarm: asks each peer known only from a record, once, to learn soon which of them live. */
void match_ask_unmet(hv_match *match);
/* Asks strangers for a description of their setup and tensors, one by one. */
void match_ask_strangers(hv_match *match);
/* Tells the peers that seek an earlier epoch that this node is further. */
void match_ask_laggards(hv_match *match);
/* A host refused this node and described its setup and tensors: logs the difference. */
void match_ask_learned(hv_match *match, const hv_peer_id *host, hv_span schema_text);
/* Ends all questions of a match. */
void match_ask_fini(hv_match *match);

/* ---- match_speak.c ---- */
/* The version of the protocol that most of those present speak, among equals the highest. Members talk to each other, so that a
 * group needs a common one. *all: 1 if all present speak it. */
uint32_t match_common_version(const match_gathering *g, int *all);
/* True if the joiner speaks this version. */
int match_speaks(const match_joiner *joiner, uint32_t version);

/* ---- match_move.c ---- */
/* This node is at that place from now on (0: at an epoch without a number). */
void match_moves_to(hv_match *match, uint64_t place);

/* ---- match_count.c ---- */
/* The joiner of that identity; NULL: none. */
match_joiner *match_joiner_of(const match_gathering *g, const hv_peer_id *id);
/* The number of peers that are there, or declared, not known to be gone, and may still come; this node among them. */
size_t match_known(const match_gathering *g);
/* The number of members that make a gathering complete. */
size_t match_expected(const match_gathering *g);
/* When this node's roster will be complete; 0: it is. */
uint64_t match_settled_us(const hv_match *match);
/* Counts this node and the peers of its roster that may come to `place`, except `host`. Returns 0 if this match is too young to
 * know them. */
size_t match_knows_of(const hv_match *match, uint64_t place, const hv_peer_id *host);
/* True if a gathering will be no group: the swarm had its group of this epoch, or too few are here, or clients alone, and no other
 * peer comes. *place: of the others; 0: they are behind. */
int match_is_hopeless(const match_gathering *g, uint64_t *place);
/* The first moment after after_us at which a joiner's waiting time ends; UINT64_MAX: none. */
uint64_t match_next_end(const match_gathering *g, uint64_t after_us);
/* The first moment after after_us at which a peer that is catching up is not waited for any more; UINT64_MAX: none. */
uint64_t match_next_given_up(const match_gathering *g, uint64_t after_us);
/* True if a joiner's waiting time is over, and that lets all begin. */
int match_is_late(const match_gathering *g);

/* ---- match_host.c ---- */
/* A peer opened a stream with HV_MSG_JOIN: accepts, redirects or refuses it. */
void match_host_opened(hv_match *match, const hv_event *event);
/* Adds this node's own seek, described by `join`, to the gathering of its epoch. HV_BUSY: there is no room. */
hv_status match_host_join(hv_match *match, const hv_msg_join *join);
/* Removes this node's own seek from its gathering. */
void match_host_leave(hv_match *match);
/* True if peers gather here for this epoch, or more groups of it are to begin. */
int match_host_is_open(hv_match *match, hv_span epoch);
/* The roster has changed, or an epoch began elsewhere: redirects joiners, begins or gives up. */
void match_host_news(hv_match *match);
/* Sends all joiners away. */
void match_host_close(hv_match *match);

/* ---- match_seek.c ---- */
/* The roster has changed: looks for a better host. */
void match_seek_news(hv_match *match);
/* match_reports.hopeless and match_reports.begun. */
void match_seek_hopeless(hv_match *match, uint64_t place);
void match_seek_begun(hv_match *match, hv_match_group *group);
/* Ends the seek within this call. Does nothing if there is none. */
void match_seek_end(hv_match *match, hv_status status, const char *text);

#endif
