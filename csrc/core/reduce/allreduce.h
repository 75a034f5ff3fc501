/* One round of averaging: a butterfly all-reduce over streams that ends even if members die.
 *
 * Room: core (uses council, reducer, share, view, round).
 * Owner: the code that formed the group owns the round; node owns the registry, in which early streams wait for their round.
 * Thread: the hive thread.
 * Limits: HV_ALLREDUCE_REGISTRY_ROOM streams wait, 15 s each; HV_ALLREDUCE_REGISTRY_OF_PEER of them from one peer, and half of all
 * from peers that are not trusted. Others are refused. Messages of the latter before their round begins have the limits below.
 * Errors: a status in done. A chunk always holds either its average or the value before.
 * Terms: the run is all values of the round, in order, cut into chunks. The owner of a chunk is the member that averages it. A view
 * is the list of members that take part, numbered anew when a member is lost. The coordinator is the member that decides on views.
 * Rules: docs/design/round.md.
 */
#ifndef HV_CORE_ALLREDUCE_H
#define HV_CORE_ALLREDUCE_H

#include "core/notice.h"
#include "core/round/round.h"

#define HV_ALLREDUCE_REGISTRY_ROOM 1024
#define HV_ALLREDUCE_REGISTRY_OF_PEER 16
#define HV_ALLREDUCE_REGISTRY_OF_STRANGERS (HV_ALLREDUCE_REGISTRY_ROOM / 2)
#define HV_ALLREDUCE_REGISTRY_BYTES (256u << 20)       /* payload bytes of waiting streams of peers that are not trusted */
#define HV_ALLREDUCE_REGISTRY_ORIGIN_BYTES (64u << 20) /* of those, of one public network, or of one peer of a private one */
#define HV_ALLREDUCE_LEFT 16                           /* number of rounds remembered after this member left them */
#define HV_ALLREDUCE_DEPARTED 16 /* notes of peers that left rounds; as many again of peers that are not trusted */

typedef struct hv_allreduce hv_allreduce;

/* All rounds of a node, and the streams that wait for rounds that have not begun here. */
typedef struct hv_allreduce_registry {
  hv_env *env;
  hv_allreduce *rounds;
  struct hv_allreduce_early *early;
  size_t n_early, strange_bytes; /* strange_bytes: payload bytes that they brought from peers that are not trusted */
  hv_tier (*tier)(void *arg, const hv_peer_id *peer);                     /* NULL: all peers are trusted */
  int (*has_ended)(void *arg, const hv_peer_id *peer, uint64_t since_us); /* true if it has ended since then; NULL: never */
  /* A member is silent: sends it a hello. True if it has answered no call of this node since since_us. NULL: never. */
  int (*is_lost)(void *arg, const hv_peer_id *peer, uint64_t since_us);
  void (*turned_away)(void *arg, const hv_peer_id *peer,
                      const uint8_t round[HV_ROUND_ID_SIZE]); /* its stream was refused: no such round; may be NULL */
  void *arg;
  int (*expects)(void *averages, const uint8_t round[HV_ROUND_ID_SIZE]); /* true if that round may begin here; NULL: any */
  /* True if that round's group has formed here with that peer in it. NULL: never. */
  int (*has_member)(void *averages, const uint8_t round[HV_ROUND_ID_SIZE], const hv_peer_id *peer);
  void *averages;
  uint8_t left[HV_ALLREDUCE_LEFT][HV_ROUND_ID_SIZE];
  size_t n_left;
  hv_notices *notices; /* for HV_MSG_DEPART; NULL: none is sent */
  struct {
    hv_peer_id peer;
    uint8_t round[HV_ROUND_ID_SIZE];
  } departed[2][HV_ALLREDUCE_DEPARTED]; /* peers that left rounds that have not begun here, one note each, and one for each group
                                           that has formed here; [1]: trusted ones */
  size_t n_departed[2];                 /* notes that took a new place */
  hv_timer sweep;
} hv_allreduce_registry;

/* env is borrowed until fini. */
void hv_allreduce_registry_init(hv_allreduce_registry *registry, hv_env *env);
/* Frees all rounds without calling done, when the world has ended. */
void hv_allreduce_registry_fini(hv_allreduce_registry *registry);
/* A peer opened a stream with HV_MSG_SHARE or HV_MSG_ATTEND: passes it to its round, lets it wait, or leaves stream->on NULL. */
void hv_allreduce_opened(hv_allreduce_registry *registry, const hv_event *event);

/* A live peer has announced that it takes no part in that round (zeros: no round). */
void hv_allreduce_departed(hv_allreduce_registry *registry, const hv_peer_id *peer, const uint8_t round[HV_ROUND_ID_SIZE]);
/* A peer has ended: rounds of groups that formed until until_us continue without it, or end. */
void hv_allreduce_gone(hv_allreduce_registry *registry, const hv_peer_id *peer, uint64_t until_us);

/* A connection that this node had opened to a peer broke. */
void hv_allreduce_cut(hv_allreduce_registry *registry, const hv_peer_id *peer);

/* This member takes no part in a group's round, which it has not begun. Sends HV_MSG_DEPART to all members that can be dialled. */
void hv_allreduce_depart(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE], const hv_round_member *members,
                         size_t n, size_t me);
/* This member takes no part in that round, or no longer. Streams for it that arrive from now on are refused at once, so that their
 * senders need not wait. */
void hv_allreduce_leave(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE]);

/* Begins a round. `round` and its members are copied. The values in the caller's buffers are borrowed until hv_allreduce_free. The
 * structs round.in and round.out, whose layout is still read after that, are borrowed until round.released is called.
 * done is called once, never from within this function, at the latest after round.timeout_ms. It may free the round. After done
 * nothing is written, and no other thread reads. The averages are still forwarded to members that lost an owner, so they should
 * stay unchanged until hv_allreduce_finished, or until the buffers are needed.
 * At done, HV_OK: every chunk is averaged. Else some chunks are not (hv_allreduce_averaged): HV_CLOSED (too few members are left,
 * the round continued without this member, or no member's values counted), HV_TIMEOUT, HV_CANCELLED, HV_UNREACHABLE, HV_NOMEM.
 * Not HV_OK here: not begun, done never comes. HV_INVALID (err has the reason), HV_EXISTS, HV_NOMEM. */
typedef void hv_allreduce_done(void *arg, hv_allreduce *self, hv_status status);
hv_status hv_allreduce_begin(hv_allreduce_registry *registry, const hv_round *round, hv_allreduce_done *done, void *arg,
                             hv_allreduce **out, hv_error *err);
void hv_allreduce_cancel(hv_allreduce *self); /* done comes soon, with HV_CANCELLED */
/* After done: gives the round up. The buffers are the caller's again at once. The round keeps serving its own span for at most
 * twice stall_ms, then frees itself. NULL is fine. */
void hv_allreduce_free(hv_allreduce *self);

/* ---- after done ---- */

/* True if this chunk holds the average. */
int hv_allreduce_averaged(const hv_allreduce *self, uint32_t chunk);
/* True if this chunk holds an average that contains that member's values. */
int hv_allreduce_counts(const hv_allreduce *self, uint32_t chunk, size_t member);
/* Number of values of the run whose average contains that member's values. The same part of the member's samples was averaged; the
 * rest is lost, and that member reports it. */
uint64_t hv_allreduce_counted(const hv_allreduce *self, size_t member);
/* The last view that this member took part in: members that ended a round with HV_OK in one view hold the same bits. */
uint32_t hv_allreduce_view(const hv_allreduce *self);
/* A number for the origin of all averages here: for each chunk its contributors, its view and the round. Valid after HV_OK. Members
 * with equal stamps hold the same bits, and members of one view have equal stamps. Members with different stamps may still hold
 * the same bits. It is no digest: a malicious peer can forge it. */
uint64_t hv_allreduce_stamp(const hv_allreduce *self);
/* All averages as their owners encoded them, one span for each chunk; the caller releases it. Members with equal stamps have the
 * same bytes. NULL: round.keep is 0, an average came from another member than its owner, this member is auxiliary and did not
 * average all chunks, or no memory. Call it once, after HV_OK. */
hv_payload *hv_allreduce_kept(hv_allreduce *self);
/* True if an average of the last view came here, or was made here, under a narrow codec (core/round/run.h). */
int hv_allreduce_narrow(const hv_allreduce *self);
/* Bytes per second of this member's link, as the owners and this member measured it (core/round/gauge.h). 0: not known, because the
 * round was too small or had more than one view. */
uint64_t hv_allreduce_link(const hv_allreduce *self);
/* Bytes per second at which data arrived here in this round (core/util/flow.h). 0: not known, because it had more than one view. */
uint64_t hv_allreduce_speed(const hv_allreduce *self);
/* True if all members are known to have all averages: no member needs this member's copies. */
int hv_allreduce_finished(const hv_allreduce *self);
/* True if some member is known to lack an average: this member's copies may be needed soon. */
int hv_allreduce_troubled(const hv_allreduce *self);
/* Index of the present coordinator, as far as this member knows (core/agree/council). If it changes, some member may lack an
 * average. */
size_t hv_allreduce_coordinator(const hv_allreduce *self);

#endif
