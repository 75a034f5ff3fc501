/* How far are those whom I cannot all ask? Sums of zones, told from peer to peer; the cost grows with the swarm's logarithm.
 *
 * Room: core (uses env, the DHT's routing table and asker, sum, words). One for each run that this node takes part in, owned by
 * progress; the hive thread.
 *
 * Zones. The zone of depth d around a node is formed by the contributors that share its first d bits (of SHA-256 of the
 * identity). The leaf is the widest zone with no more than HV_ZONES_LEAF others in this node's routing table: its members
 * are asked one by one. Each zone wider than the leaf is a node's own half and the other half: of that, a random contact
 * there is asked once a round, and tells its sum. So a node speaks with some HV_ZONES_LEAF members and with one contact for
 * each bit of log2(N / HV_ZONES_LEAF); and anybody, asked for a zone around itself, adds up its leaf and the halves within.
 *
 * Who asks tells the same of itself along with the question, so that each exchange serves both; whoever was not heard for
 * longest is asked next. There are no special nodes, and nobody is asked more than others. Sums are carried on by their
 * speed to the moment when they are told or counted. Nothing is signed: a count comes from who owns it, over a connection
 * that proves who that is. A peer in client mode takes part likewise, but cannot be asked: its leaf hears it, and it is the
 * contact of nobody.
 *
 * What is passed on. A message also carries what its sender counts of the halves that are the same for both (their level is
 * below the bits that the two share), those of which it heard something new last, HV_ZONES_PASSED of them (words.h): what is
 * new about a half so reaches all that look at it within some exchanges, and not only whoever asked there.
 *
 * An epoch's end. Each message says which epoch its sender itself is in: the epoch is what more than a third of those have
 * reached who were heard themselves. A sum that is older than the epoch says nothing of whether its contributors have begun
 * it: they are taken to have done so with the others (hv_sum_carry), until something newer says that they have not. Each word is,
 * before it is added to others: what is told to others, too, is of the teller's epoch as far as that can be known.
 *
 * Liars. In a leaf tally.h's limits hold: no owner counts for more than `fast` times the (f+1)-th highest there. Of each
 * half three voices are kept: of the last two contacts that this node chose, at random, from its routing table (which has
 * its own guards against crowds), and the last one there that came by itself. The newest counts if it agrees with the one
 * in the middle, else the one in the middle does. What was passed on has no vote, since nobody knows whose word it is: it
 * counts if it is fresher and agrees with the one in the middle within a 200th (a 20th in the first 5 s of an epoch, when
 * nothing is decided). So who forges words moves each half by that much, and the epoch not at all. A half counts for no more
 * than four times as many owners as the own half (and some: hashes spread evenly), and for each of them no more than `fast`
 * times the (f+1)-th highest mean of all halves. So a single liar is outvoted everywhere; with a share p of liars that act
 * together some 2 p of the halves are believed wrongly at a time, within these limits. Who has most of the identities near
 * one point can bend that leaf.
 *
 * A node that is no contributor says so, and is left alone for a while. A run in which few of the DHT's nodes take part is
 * not found this way: progress.h falls back on records then.
 */
#ifndef HV_CORE_ZONES_H
#define HV_CORE_ZONES_H

#include "core/dht/dht.h"
#include "core/progress/words.h"

#define HV_ZONES_LEAF 8
#define HV_ZONES_MEMBERS 64
#define HV_ZONES_LEVELS 32 /* halves, at most */
#define HV_ZONES_SELF 256  /* as a depth: a node itself */
#define HV_ZONES_PASSED 2  /* halves that a message passes on */

typedef struct hv_zones_config {
  uint32_t run; /* which: the first bytes of SHA-256 of its key */
  uint64_t target;
  double fast;
  int client_mode;
  void (*own)(void *arg, hv_sum *out);              /* this node's own sum, of one owner; no owner: nothing said yet, or gone */
  void (*moved)(void *arg);                         /* something was heard; may be NULL */
  int (*has_left)(void *arg, const hv_peer_id *id); /* 1: what still comes of it was on its way; NULL: nobody has */
  void *arg;
} hv_zones_config;

/* One that is asked by itself. */
typedef struct hv_zones_member {
  hv_peer_id id;          /* unknown: a free slot */
  uint16_t bits;          /* that it shares with this node */
  uint8_t client, in_one; /* in_one: it is in an epoch */
  uint64_t epoch;         /* the one that it is in */
  uint64_t heard_us;      /* 0: not yet */
  uint64_t tried_us;
  hv_sum sum;
  hv_ask *ask;
} hv_zones_member;

typedef struct hv_zones_voice {
  uint64_t from, heard_us; /* heard_us 0: none */
  uint64_t epoch;          /* that the speaker itself is in */
  int in_one;
  hv_sum sum;
} hv_zones_voice;

/* The other half of a zone. */
typedef struct hv_zones_half {
  hv_zones_voice asked[2], told; /* the newest two that were asked, and the newest that came by itself */
  hv_zones_voice passed;         /* the freshest that somebody passed on */
  hv_sum picked;
  uint64_t picked_us, renewed_us; /* renewed: when something fresher came */
  uint64_t tried_us;
  hv_ask *ask;
  hv_peer_id whom; /* it is asked */
} hv_zones_half;

typedef struct hv_zones {
  hv_env *env;
  hv_dht *dht;
  hv_zones_config config;
  hv_hash me;
  unsigned leaf_bits;
  hv_zones_member members[HV_ZONES_MEMBERS];
  hv_zones_half halves[HV_ZONES_LEVELS]; /* [i]: those that share exactly i bits */
  struct {
    uint64_t who, until_us;
  } absent[64];
  size_t absent_at, active;
  uint64_t round_us, looked_us, due_us;      /* due_us: the timer's */
  uint64_t epoch, begun_us;                  /* begun_us: when those who are in it began it, by their samples and speed */
  double most_samples, most_speed;           /* of one owner in the leaf */
  double most_zone_samples, most_zone_speed; /* of one owner in the mean of a zone */
  double share;
  hv_timer timer;
  int ended;
} hv_zones;

void hv_zones_init(hv_zones *zones, hv_env *env, hv_dht *dht, const hv_zones_config *config);
/* Before the DHT is stopped or freed. */
void hv_zones_fini(hv_zones *zones);
/* How long a round takes, from now on: what is due later than that is due sooner. */
void hv_zones_pace(hv_zones *zones, uint64_t round_us);

/* Asks all members of the leaf now. */
void hv_zones_hurry(hv_zones *zones);

/* HV_MSG_PROGRESS of this run: answers it. */
void hv_zones_asked(hv_zones *zones, const hv_event *event);

/* Where those can be dialled who were heard themselves; `out` has room for HV_ZONES_MEMBERS. Returns how many there are. */
size_t hv_zones_heard_from(const hv_zones *zones, hv_target *out);
/* A peer has ended, or takes no part any more: what it said of itself is forgotten. */
void hv_zones_gone(hv_zones *zones, const hv_peer_id *id);

/* How many others answer for themselves or for zones. */
size_t hv_zones_heard(const hv_zones *zones);
/* What is heard of one peer itself: 1, and its sum as of *heard_us; 0: nothing lately. */
int hv_zones_member_of(const hv_zones *zones, const hv_peer_id *id, hv_sum *out, uint64_t *heard_us);
/* Is there more than the leaf? */
int hv_zones_is_wide(const hv_zones *zones);
/* All there is, by now; limits are set anew. */
void hv_zones_count(hv_zones *zones, hv_sum *out);

#endif
