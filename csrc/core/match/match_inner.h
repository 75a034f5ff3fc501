/* What is a match made of? Shared by the match*.c files only; core/match/match.h is the contract.
 *
 * match.c: life, the door for streams and requests. match_seek.c: a seeker's way to a group. match_host.c: those who gather here.
 * match_count.c: how many they are to be. match_ask.c: questions to single peers: are you coming, and how do your tensors differ?
 */
#ifndef HV_CORE_MATCH_INNER_H
#define HV_CORE_MATCH_INNER_H

#include "core/match/group.h"
#include "core/match/match.h"
#include "core/match/roster.h"
#include "core/peers/parting.h"

#define MATCH_BEGUN_MAX 16      /* epochs remembered that have begun */
#define MATCH_GATHERINGS_MAX 16 /* epochs hosted at a time */
#define MATCH_JOINERS_MAX (2 * HV_ROUND_MEMBERS_MAX)
#define MATCH_PULSE_MS 1000       /* how often a host gives a sign of life */
#define MATCH_SILENCE_MS 3000     /* without one for so long, a host is given up */
#define MATCH_ANSWER_MS 2000      /* so long it may take to answer, if nothing else is said; */
#define MATCH_ANSWER_LEAST_MS 500 /* so long at least, in a short seek too */
#define MATCH_STOOD_STILL_MS 1000 /* so late, this node itself stood still: what has arrived meanwhile is heard first, */
#define MATCH_HEAR_MS 100         /* for so long */
#define MATCH_DOUBTED_MAX 3       /* hosts whose word is not taken alone */
#define MATCH_RETRY_MS 500        /* a client that knows nobody tries again */
#define MATCH_STRANGERS_ASKED 4
#define MATCH_SETTLE_MS 3000 /* a match that has stood for less does not take its roster for all there are */
#define MATCH_STUCK_MS 5000  /* who found no group is at that epoch for so long */
#define MATCH_GREETINGS 3    /* a new match asks those whom this node knows otherwise: at once, */
#define MATCH_GREET_MS 1000  /* and again after this */

typedef struct match_gathering match_gathering;
typedef struct match_joiner match_joiner;

/* ---- who gathers here ---- */
struct match_joiner {
  match_joiner *next, **link;
  match_gathering *at;
  hv_stream *stream; /* NULL: this node's own seek */
  hv_peer_id id;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size;               /* 0: a client */
  uint8_t auxiliary, present, stay; /* present: all that it has to tell has arrived */
  uint64_t bandwidth, since_us, heard_us, deadline_us;
  uint32_t expected, known, gather_size;
  hv_payload *gather;
  size_t avoid_size;
  uint8_t avoid[HV_MATCH_AVOID_MAX * sizeof(hv_peer_id)];
};

struct match_gathering {
  match_gathering *next, **link;
  hv_match *match;
  char epoch[HV_MATCH_EPOCH_MAX];
  size_t epoch_size;
  hv_rank rank;
  uint64_t at; /* 1 + its number; 0: it has none */
  match_joiner *joiners;
  size_t n_joiners, n_present, begun;
  uint64_t since_us, pulse_us, summon_us, summon_pause_us;
  uint64_t due_us, hear_us; /* the timer's; nothing begins before hear_us */
  hv_timer timer;
};

/* ---- the way of this node's own seek ---- */
typedef enum seek_state {
  SEEK_IDLE,
  SEEK_CHOOSING, /* it has no host */
  SEEK_JOINING,  /* a host has been asked */
  SEEK_WAITING,  /* it said yes */
  SEEK_LEAVING,  /* it has been asked to let go, for one that comes sooner in the order */
  SEEK_HOSTING,  /* this node is the host */
  SEEK_OVER,     /* done will be called in a step of its own */
  SEEK_STATES
} seek_state;

/* Why a host sends a seeker away for good. */
typedef enum match_verdict { MATCH_HAS_BEGUN, MATCH_IS_FURTHER, MATCH_IS_BEHIND } match_verdict;

typedef struct match_seek {
  seek_state state;
  hv_match_seek *wish; /* the program's */
  hv_rank rank;
  int client;
  hv_stream *stream;
  hv_peer_id host;
  hv_timer timer;
  uint64_t started_us, ends_us, due_us; /* due_us: the timer's */
  unsigned redirects;
  hv_peer_id avoid[HV_MATCH_AVOID_MAX]; /* what the host was told: where this node cannot be sent on to, */
  size_t n_avoid;
  int stay;          /* or that it cannot be at all */
  uint32_t present;  /* at the host, as it said last */
  uint64_t alone_us; /* since when that may have been this node alone; 0: it has said nothing */
  uint64_t asked_us; /* when the others were asked whether they seek, too; 0: they were not */
  struct {
    hv_peer_id host;
    match_verdict said;
    uint64_t at;
  } doubted[MATCH_DOUBTED_MAX]; /* hosts that said that it is over, which nobody else had said by then */
  size_t n_doubted;
  hv_status status; /* with which it is over */
  int further;
  hv_match_group *group;
  char text[400];
} match_seek;

struct hv_match {
  hv_match *next, **link;
  hv_match_registry *registry;
  hv_env *env;
  hv_match_config config; /* spans are into the copies below */
  char key[HV_MATCH_KEY_MAX];
  size_t key_size, prefix_size;
  uint8_t *schema_text;
  hv_roster roster;
  hv_timer news; /* the roster has changed: looked at in a step of its own */
  hv_timer greet;
  int closing; /* it is being freed: nothing begins any more */
  unsigned greetings;
  size_t unanswered;  /* of those asked when it entered */
  int settled;        /* all those have answered: this node knows who there is */
  uint64_t opened_us; /* under this key */
  uint64_t comes;     /* it missed a step, and comes to this epoch: 1 + the number; 0: nothing of the kind */
  uint64_t stuck_us;  /* when its last seek ended without a group; 0: it had one */
  uint64_t behind_us; /* since when it has known that others are further; 0: they are not */
  match_gathering *gatherings;
  size_t n_gatherings;
  match_seek seek;
  struct {
    char epoch[HV_MATCH_EPOCH_MAX];
    size_t size;
    uint64_t at_us;
  } begun[MATCH_BEGUN_MAX];
  size_t begun_at;
  hv_stream *asking; /* a stranger, how its tensors differ */
  unsigned n_asked;
  char difference[300];
};

/* A question: are you coming? */
typedef struct hv_match_summons {
  struct hv_match_summons *next, **link;
  hv_match *match; /* NULL: it has gone */
  hv_call call;
  uint8_t addrs[HV_CONTACT_ADDRS_MAX];
  uint8_t addrs_size;
  uint8_t again; /* it was silent once: one packet may be lost */
  uint8_t first; /* it was asked when its match entered */
} match_summons;

static inline hv_span match_key(const hv_match *match) {
  return hv_span_of(match->key, match->key_size);
}

/* ---- match.c ---- */
/* 1 + the number with which an epoch's name begins ("5", "5/1"); 0: it begins with none, and has no place among others. */
uint64_t match_number(hv_span epoch);
/* This node is there now. */
void match_moves_to(hv_match *match, uint64_t at);
/* 1: it has not done that epoch yet: it seeks a group, or has just found none. */
int match_is_stuck(const hv_match *match);
size_t match_target(const hv_match *match); /* members of a group at most */
size_t match_least(const hv_match *match);
int match_has_begun(const hv_match *match, hv_span epoch);
void match_note_begun(hv_match *match, hv_span epoch);
/* It is in a group of this epoch. */
void match_group_has(hv_match *match, hv_span epoch, const hv_match_member *member);
hv_group_facts match_facts(const hv_match *match, hv_span epoch);

/* ---- match_seek.c ---- */
/* The roster has changed: is there a better host? */
void match_seek_news(hv_match *match);
/* Nobody else will come to its epoch: the others are further, or about to be (at: where), or behind (0). In a step of its own,
 * done. */
void match_seek_in_vain(hv_match *match, uint64_t at);
/* It has a group (given). In a step of its own, done. */
void match_seek_begun(hv_match *match, hv_match_group *group);
/* Ends it within this call. Fine when there is none. */
void match_seek_end(hv_match *match, hv_status status, const char *text);
/* What JOIN says of this node. `addrs` has room for HV_CONTACT_ADDRS_MAX. */
void match_seek_join(hv_match *match, const hv_peer_id *host, uint8_t *addrs, hv_msg_join *out);

/* ---- match_count.c: who is there, who may come, and is it time? ---- */
static inline hv_span match_epoch_of(const match_gathering *g) {
  return hv_span_of(g->epoch, g->epoch_size);
}
match_joiner *match_joiner_of(const match_gathering *g, const hv_peer_id *id);
/* All who are there, or declared, not known to be gone, and may yet come; this node among them. */
size_t match_known(const match_gathering *g);
/* How many make it whole. */
size_t match_expected(const match_gathering *g);
/* From then on this node knows who there is; 0: it does. */
uint64_t match_settled_us(const hv_match *match);
/* How many come to that epoch, as this node's roster has it, this node among them, but for that host; 0: it has only just begun. */
size_t match_knows_of(const hv_match *match, uint64_t at, const hv_peer_id *host);
/* 1: the swarm has had its group of this epoch; or too few are here to be one, or clients alone, and nobody else comes. The others
 * are further (*at: how far), or behind (0). */
int match_is_in_vain(const match_gathering *g, uint64_t *at);
/* When the time of the next one who is there is over, after that moment; UINT64_MAX: of none. */
uint64_t match_next_end(const match_gathering *g, uint64_t after_us);
/* When one who is catching up is not waited for any more, after that moment; UINT64_MAX: nobody is. */
uint64_t match_next_given_up(const match_gathering *g, uint64_t after_us);
/* 1: the time of one is over, and that is a reason for all. */
int match_is_late(const match_gathering *g);

/* ---- match_host.c ---- */
void match_host_opened(hv_match *match, const hv_event *event);
/* This node's own seek gathers here, or does not any more. HV_NOMEM, HV_BUSY. */
hv_status match_host_join(hv_match *match);
void match_host_leave(hv_match *match);
/* 1: somebody gathers here for this epoch, or more groups of it are to begin. */
int match_host_is_open(hv_match *match, hv_span epoch);
/* The roster has changed, or an epoch has begun elsewhere: who waits here may have to go on, or fewer may be expected. */
void match_host_news(hv_match *match);
/* Sends everybody away. */
void match_host_close(hv_match *match);

/* ---- match_ask.c ---- */
/* Asks those who are expected and not there yet whether they are; those who do not answer are not expected any more. */
void match_ask_missing(match_gathering *gathering);
/* Asks somebody who called and could not be reached before: only its answer shows that it can be now. */
void match_ask_back(hv_match *match, const hv_peer_id *id);
/* Asks the others whether they seek, for a seeker whose host says that nobody else does. */
void match_ask_company(hv_match *match);
/* Asks those whom this node knows otherwise and who are not in the roster. */
void match_ask_acquaintances(hv_match *match);
/* This match has entered: tells all who may be there, and so learns where they are. */
void match_ask_all(hv_match *match);
/* In a small swarm those of whom only a record tells, each once: so it is known soon who of them lives. */
void match_ask_unmet(hv_match *match);
void match_ask_strangers(hv_match *match);
/* Tells those who seek an earlier epoch that this node is further. */
void match_ask_laggards(hv_match *match);
/* A host refused, and said what it averages. */
void match_ask_learned(hv_match *match, const hv_peer_id *who, hv_span schema_text);
void match_ask_fini(hv_match *match);

#endif
