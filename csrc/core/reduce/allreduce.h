/* How do a group's values become their average? One round: a butterfly all-reduce over streams, that ends whatever dies.
 *
 * Room: core (uses council, reducer, share, view, round). Owned by whoever formed the group; the hive thread. docs/ROUND.md tells
 * it as a story. Every contributor opens one stream to each owner: contributions there, averages back. This member's own span is
 * averaged here. The owner encodes an average once, so all members that got it hold the same bits. A sender that dies is left out
 * by the owners. When an owner dies the members agree on a new view (core/agree/council): what anyone holds is forwarded, the rest
 * is averaged anew by those who are left. A chunk holds either its average or what was there, nothing between; also in place.
 * Streams of a round or view that has not begun here yet wait in the registry for a while: members begin at different moments.
 * Those of earlier ones are refused, and those of a round that nobody here has a group for, or looks for one: this node has been
 * started anew since. Limits: HV_ALLREDUCE_REGISTRY_ROOM streams that wait, each for 15 s at most; HV_ALLREDUCE_REGISTRY_OF_PEER of
 * one peer, and half of all of strangers, of whom a whole group (core/round/round.h) finds room with the two streams that each of
 * its members has. Others are refused.
 */
#ifndef HV_CORE_ALLREDUCE_H
#define HV_CORE_ALLREDUCE_H

#include "core/notice.h"
#include "core/round/round.h"

#define HV_ALLREDUCE_REGISTRY_ROOM 1024
#define HV_ALLREDUCE_REGISTRY_OF_PEER 16
#define HV_ALLREDUCE_REGISTRY_OF_STRANGERS (HV_ALLREDUCE_REGISTRY_ROOM / 2)
#define HV_ALLREDUCE_LEFT 16 /* rounds remembered that were left, before they began here or after */

typedef struct hv_allreduce hv_allreduce;

/* Where streams find their round. */
typedef struct hv_allreduce_registry {
  hv_env *env;
  hv_allreduce *rounds;
  struct hv_allreduce_early *early;
  size_t n_early;
  int (*knows)(void *arg, const hv_peer_id *peer);                        /* 1: no stranger; NULL: nobody is one */
  int (*has_ended)(void *arg, const hv_peer_id *peer, uint64_t since_us); /* 1: since then; NULL: not known of anybody */
  /* A member is quiet: finds out whether it is there. 1: it has answered nobody of this node since then. NULL: nobody can tell. */
  int (*is_lost)(void *arg, const hv_peer_id *peer, uint64_t since_us);
  void (*turned_away)(void *arg, const hv_peer_id *peer,
                      const uint8_t round[HV_ROUND_ID_SIZE]); /* it came to no round; may be NULL */
  void *arg;
  int (*expects)(void *averages, const uint8_t round[HV_ROUND_ID_SIZE]); /* 1: that round may begin here; NULL: any may */
  void *averages;
  uint8_t left[HV_ALLREDUCE_LEFT][HV_ROUND_ID_SIZE];
  size_t n_left;
  hv_notices *notices; /* NULL: nobody is told who never comes */
  struct {
    hv_peer_id peer;
    uint8_t round[HV_ROUND_ID_SIZE];
  } departed[HV_ALLREDUCE_LEFT]; /* of rounds that have not begun here */
  size_t n_departed;
  hv_timer sweep;
} hv_allreduce_registry;

void hv_allreduce_registry_init(hv_allreduce_registry *registry, hv_env *env);
/* When the world has ended: ends the rounds that are still there, untold. */
void hv_allreduce_registry_fini(hv_allreduce_registry *registry);
/* A peer opened a stream with HV_MSG_SHARE or HV_MSG_ATTEND: brings it to its round, lets it wait, or leaves stream->on NULL. */
void hv_allreduce_opened(hv_allreduce_registry *registry, const hv_event *event);

/* A peer that stays never comes to that round (zeros: none). */
void hv_allreduce_departed(hv_allreduce_registry *registry, const hv_peer_id *peer, const uint8_t round[HV_ROUND_ID_SIZE]);
/* A peer has ended: rounds whose groups were formed by then go on without it, or end. */
void hv_allreduce_gone(hv_allreduce_registry *registry, const hv_peer_id *peer, uint64_t until_us);

/* A connection that this node had opened to a peer broke. */
void hv_allreduce_cut(hv_allreduce_registry *registry, const hv_peer_id *peer);

/* This member takes no part in a group's round, which it has not begun: the other members are told, as far as they can be dialled.
 */
void hv_allreduce_depart(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE], const hv_round_member *members,
                         size_t n, size_t me);
/* This member takes no part, or no more, in a round that it is in: whoever calls for what has not begun here is told so at once,
 * and need not wait. */
void hv_allreduce_leave(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]);

/* Begins a round. `round` and its members are copied; its values are borrowed until hv_allreduce_free, the runs themselves, which
 * tell the layout of what still comes, until round.released. done is called once, not from within this function, as soon as this
 * member has its averages, or will not have them: at the latest after the round's time. From then on nothing is written any more,
 * and nothing read by other threads; what is there is forwarded to members that lost an owner, so it should stay as it is until
 * hv_allreduce_finished or the buffers are needed. done may free the round. HV_OK: every chunk is averaged. HV_CLOSED: not all; too
 * few members are left, or the round went on without this one, or nobody's values counted. HV_TIMEOUT, HV_CANCELLED,
 * HV_UNREACHABLE, HV_NOMEM: likewise not all. hv_allreduce_averaged tells of each chunk. What begin says: HV_INVALID (err says
 * why), HV_EXISTS, HV_NOMEM: nothing was begun. */
typedef void hv_allreduce_done(void *arg, hv_allreduce *self, hv_status status);
hv_status hv_allreduce_begin(hv_allreduce_registry *registry, const hv_round *round, hv_allreduce_done *done, void *arg,
                             hv_allreduce **out, hv_error *err);
void hv_allreduce_cancel(hv_allreduce *self); /* done comes soon, with HV_CANCELLED */
/* After done: gives it up, and the buffers are the caller's again at once. It goes on by itself until all that it owns has been
 * fetched, at most for twice stall_ms. NULL is fine. */
void hv_allreduce_free(hv_allreduce *self);

/* ---- after done ---- */

/* 1 when this chunk holds the average. */
int hv_allreduce_averaged(const hv_allreduce *self, uint32_t chunk);
/* 1 when the average that this chunk holds has this member's values in it. */
int hv_allreduce_counts(const hv_allreduce *self, uint32_t chunk, size_t member);
/* How many values of the run are averages, as this member holds them, that have that member's values in them. Of a member's samples
 * this part of all its values was averaged; the rest is lost, and its to report. */
uint64_t hv_allreduce_counted(const hv_allreduce *self, size_t member);
/* The last view that this member took part in: members that ended a round with HV_OK in one view hold the same bits. */
uint32_t hv_allreduce_view(const hv_allreduce *self);
/* What the averages here are made of: whose values are in which chunk, in which view of which round it was averaged. Members whose
 * stamps are equal hold the same bits, whatever happened on the way, and those of one view have equal stamps; for a member that has
 * all averages (HV_OK). (Of two views in which the same values were averaged anew the stamps differ, though the bits may be the
 * same by chance.) Not for judging strangers: it is no digest. */
uint64_t hv_allreduce_stamp(const hv_allreduce *self);
/* Bytes per second that this member's line carries, as the owners saw it (core/round/gauge.h); 0: not known, since the round was
 * too small, or went through another view. */
uint64_t hv_allreduce_line(const hv_allreduce *self);
/* Bytes per second at which this round came here while all went well (core/util/flow.h); 0: not known, it went through another
 * view. */
uint64_t hv_allreduce_speed(const hv_allreduce *self);
/* 1 when all members are known to have everything: nobody will ask for this one's copies any more. */
int hv_allreduce_finished(const hv_allreduce *self);
/* 1 when some member is known to lack something: this one's copies may be asked for soon. */
int hv_allreduce_troubled(const hv_allreduce *self);
/* Who coordinates, as far as this member knows (core/agree/council). Another one than before: somebody may lack something, of which
 * that one is told only now. */
size_t hv_allreduce_coordinator(const hv_allreduce *self);

#endif
