/* The progress of a run's other contributors, of which this node asks its neighbours by hash one by one, and the rest as sums.
 *
 * Room: core (uses env, the DHT's routing table and asker, sum, zone_msg).
 * Owner: progress; one for each run in which this node takes part.
 * Thread: the hive thread.
 * Limits: HV_ZONES_* below. Messages: one exchange a round with each of some 8 neighbours and one for each doubling of the swarm.
 * Errors: none; a peer that does not answer is asked again later.
 * Terms: a zone is the contributors whose hash begins with the same bits as this node's. The leaf is the smallest zone in use; its
 * members are asked one by one. A half is the other part of a larger zone, which is known as a sum.
 * Rules: docs/design/progress.md, "Zones": leaf and halves, passing on, the end of an epoch, liars.
 */
#ifndef HV_CORE_ZONES_H
#define HV_CORE_ZONES_H

#include "core/dht/dht.h"
#include "core/progress/zone_msg.h"

#define HV_ZONES_LEAF 9     /* most nodes in a leaf that can be asked, this one included */
#define HV_ZONES_MEMBERS 64 /* members of the leaf that are remembered */
#define HV_ZONES_ABSENT 64  /* peers that are remembered not to take part */
#define HV_ZONES_LEVELS 32  /* most halves */
#define HV_ZONES_SELF 256   /* the depth that stands for a node itself */
#define HV_ZONES_PASSED 2   /* sums of halves that a message passes on */

typedef struct hv_zones_config {
  uint32_t run;    /* the first bytes of SHA-256 of the run's key */
  uint64_t target; /* samples of one epoch */
  double fast;     /* tally.h */
  int client_mode;
  void (*own)(void *arg, hv_sum *out);              /* sets this node's own sum, of one owner; of none: no report, or gone */
  void (*moved)(void *arg);                         /* a peer's sum arrived; may be NULL */
  int (*has_left)(void *arg, const hv_peer_id *id); /* true: later messages of this peer are old; NULL: no peer has left */
  void *arg;
} hv_zones_config;

/* A neighbour that is asked for its own progress. */
typedef struct hv_zones_member {
  hv_peer_id id; /* zeros: a free slot */
  uint16_t bits; /* that its hash shares with this node's */
  uint8_t client;
  uint8_t in_one;    /* 1: it is in an epoch */
  uint64_t epoch;    /* that one */
  uint64_t heard_us; /* its last message; 0: none yet */
  uint64_t tried_us; /* when it was asked last */
  hv_sum sum;
  hv_ask *ask; /* the question under way; NULL: none */
} hv_zones_member;

/* One peer's answer about a half. */
typedef struct hv_zones_answer {
  uint64_t from;     /* a hash of the peer's identity */
  uint64_t heard_us; /* 0: none */
  uint64_t epoch;    /* of the peer itself, if in_one */
  int in_one;
  hv_sum sum;
} hv_zones_answer;

/* The other half of a zone: its contributors share i bits with this node, and differ in the next one. */
typedef struct hv_zones_half {
  hv_zones_answer asked[2];    /* the newest two answers of contacts that this node chose */
  hv_zones_answer volunteered; /* the newest message that came without a question */
  hv_zones_answer passed;      /* the freshest sum that another peer passed on */
  hv_sum picked;               /* the sum that counts */
  uint64_t picked_us;          /* the time for which it was true */
  uint64_t renewed_us;         /* when a fresher one came */
  uint64_t tried_us;           /* when a contact was asked last */
  hv_ask *ask;                 /* the question under way; NULL: none */
  hv_peer_id asked_peer;       /* to which it goes */
} hv_zones_half;

/* A peer that does not take part in the run, and is not asked for a while. */
typedef struct hv_zones_absent {
  uint64_t from; /* a hash of the peer's identity; 0: a free slot */
  uint64_t until_us, wait_us;
} hv_zones_absent;

typedef struct hv_zones {
  hv_env *env;
  hv_dht *dht;
  hv_zones_config config;
  hv_hash me;
  unsigned leaf_bits; /* that the members of the leaf share */
  hv_zones_member members[HV_ZONES_MEMBERS];
  hv_zones_half halves[HV_ZONES_LEVELS]; /* [i]: those that share exactly i bits; [HV_ZONE_CLIENTS]: as zone_msg.h says */
  hv_zones_absent absent[HV_ZONES_ABSENT];
  size_t active;                             /* members and halves that can be asked */
  uint64_t round_us, looked_us, due_us;      /* length of a round; last look at the routing table; when the timer is due */
  uint64_t outsider_us;                      /* last message of a peer that is no contributor; 0: none */
  uint64_t epoch, begun_us;                  /* the swarm's epoch; when it began, by its samples and speed */
  double most_samples, most_speed;           /* limits of one owner in the leaf */
  double most_zone_samples, most_zone_speed; /* limits of one owner in the mean of a zone */
  double share;                              /* the fair share of one owner: target / owners, in samples */
  hv_timer timer;
  int ended;
} hv_zones;

/* Starts to ask. Borrows env and dht. */
void hv_zones_init(hv_zones *zones, hv_env *env, hv_dht *dht, const hv_zones_config *config);
/* Ends all questions. Call it before the DHT is stopped or freed. */
void hv_zones_fini(hv_zones *zones);
/* Sets the length of a round; questions due later than that are asked sooner. */
void hv_zones_pace(hv_zones *zones, uint64_t round_us);
/* Asks all members of the leaf now. */
void hv_zones_hurry(hv_zones *zones);
/* A peer sent HV_MSG_PROGRESS of this run: answers it. */
void hv_zones_asked(hv_zones *zones, const hv_event *event);
/* A peer has ended or left the run: forgets its own sum. is_there: its node goes on, and is not asked for a while; one that has
 * ended is asked as soon as the routing table has it again. */
void hv_zones_gone(hv_zones *zones, const hv_peer_id *id, int is_there);

/* Writes the addresses of the peers that sent a message themselves; `out` has room for HV_ZONES_MEMBERS. Returns their number. */
size_t hv_zones_heard_from(const hv_zones *zones, hv_target *out);
/* The number of members and halves whose sum is known and recent. */
size_t hv_zones_heard(const hv_zones *zones);
/* True if a peer that is no contributor sent a message a moment ago. */
int hv_zones_hears_outsider(const hv_zones *zones);
/* True if a peer's own sum is known and recent: sets it, and *heard_us to its time. */
int hv_zones_member_of(const hv_zones *zones, const hv_peer_id *id, hv_sum *out, uint64_t *heard_us);
/* True if the swarm is larger than the leaf. */
int hv_zones_is_wide(const hv_zones *zones);
/* Sets *out to the sum of all contributors, extrapolated to now; updates the limits. */
void hv_zones_count(hv_zones *zones, hv_sum *out);

#endif
