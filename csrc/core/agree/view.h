/* Who is in, and who makes which average now? One view of a round, and what is so of each chunk here.
 *
 * Room: core (uses round, partition). Views are made by a round's coordinator (core/agree/council) and told to its members;
 * allreduce, reducer and share read them. Pure, the hive thread. Bytes of a plan are hostile: they are held against what this
 * member knows. A view names its members and its work: the chunks that are still to come, each with the member whose copy of the
 * average is forwarded, or none: then it is averaged anew. Each member owns a row of the work. The first view is the group's own
 * plan: everybody, and all chunks in order. A plan as bytes: for each member a u32 (how many items it owns, and HV_VIEW_FITS if it
 * is of `fits`), then for each chunk of the run a u16: HV_VIEW_NONE (nobody lacks it), HV_VIEW_REDUCE, or the member who holds it.
 * Little-endian.
 */
#ifndef HV_CORE_VIEW_H
#define HV_CORE_VIEW_H

#include "core/round/round.h"

#define HV_VIEW_REDUCE 0xffffu
#define HV_VIEW_NONE 0xfffeu
#define HV_VIEW_FITS 0x80000000u

/* A set of members. */
typedef struct hv_members {
  uint8_t bits[HV_ROUND_MEMBERS_MAX / 8];
} hv_members;
static inline int hv_members_has(const hv_members *set, size_t member) {
  return set->bits[member / 8] >> member % 8 & 1;
}
static inline void hv_members_put(hv_members *set, size_t member) {
  set->bits[member / 8] |= (uint8_t)(1u << member % 8);
}
static inline void hv_members_drop(hv_members *set, size_t member) {
  set->bits[member / 8] &= (uint8_t) ~(1u << member % 8);
}
static inline void hv_members_join(hv_members *set, const hv_members *more) {
  for (size_t i = 0; i < sizeof set->bits; i++)
    set->bits[i] |= more->bits[i];
}
static inline void hv_members_take_out(hv_members *set, const hv_members *others) {
  for (size_t i = 0; i < sizeof set->bits; i++)
    set->bits[i] &= (uint8_t)~others->bits[i];
}
static inline void hv_members_keep(hv_members *set, const hv_members *those) {
  for (size_t i = 0; i < sizeof set->bits; i++)
    set->bits[i] &= those->bits[i];
}
size_t hv_members_count(const hv_members *set);
int hv_members_equal(const hv_members *a, const hv_members *b);

/* What this member has. */
typedef struct hv_hold {
  uint8_t *held;    /* a bit for each chunk: its average is in place */
  hv_members *from; /* for each chunk that is held, or noted: whose values are in it, */
  uint32_t *made;   /* and in which view it was averaged: twice from the same values is not twice the same bits */
  uint16_t *denied; /* for each chunk: who has said that nobody's values count, though this member gave its own, and one; or 0 */
  uint32_t n_chunks, n_held;
} hv_hold;
hv_status hv_hold_init(hv_hold *hold, hv_mem *mem, uint32_t n_chunks);
void hv_hold_fini(hv_hold *hold);
static inline int hv_hold_has(const hv_hold *hold, uint32_t chunk) {
  return hold->held[chunk / 8] >> chunk % 8 & 1;
}
void hv_hold_put(hv_hold *hold, uint32_t chunk, const hv_members *from, uint32_t made);
/* The same of an average that this member has made for others, and has no place for: it knows what the others hold. */
void hv_hold_note(hv_hold *hold, uint32_t chunk, const hv_members *from, uint32_t made);
static inline size_t hv_hold_bytes(uint32_t n_chunks) {
  return ((size_t)n_chunks + 7) / 8;
}

/* Which views this member has promised: of those that it was asked for, the last ones. */
enum { HV_PROMISES_KEPT = 64 };
typedef struct hv_promises {
  uint32_t kept[HV_PROMISES_KEPT];
  size_t n; /* of all, also of those that are forgotten */
} hv_promises;
static inline void hv_promises_put(hv_promises *promises, uint32_t view) {
  promises->kept[promises->n++ % HV_PROMISES_KEPT] = view;
}
static inline int hv_promises_has(const hv_promises *promises, uint32_t view) {
  for (size_t i = 0; i < promises->n && i < HV_PROMISES_KEPT; i++)
    if (promises->kept[i] == view)
      return 1;
  return 0;
}

typedef struct hv_view {
  uint32_t number; /* 0: the group's own plan */
  uint32_t latest; /* that any of its members was in before, as its coordinator says */
  hv_members members;
  hv_members fits; /* of those who were not in the view of all others before: what they hold agrees with what the others do, as its
                      coordinator says */
  uint32_t n_work;
  uint32_t *chunks;        /* of each item of the work: which chunk it is, ascending */
  uint16_t *sources;       /* HV_VIEW_REDUCE, or the member whose copy is forwarded */
  uint32_t *first, *count; /* of each member: its items */
} hv_view;

/* The group's own plan. HV_NOMEM. */
hv_status hv_view_first(hv_mem *mem, const hv_round *round, hv_view **out);

/* What a member said of itself. */
typedef struct hv_view_report {
  hv_members members;          /* of the last view that it took part in */
  uint32_t installed;          /* its number */
  uint32_t promised;           /* the highest view that it had promised before it was asked, as far as the coordinator knows, */
  const hv_promises *promises; /* which it knows exactly of itself alone; else NULL */
  const uint8_t *held;         /* hv_hold_bytes */
} hv_view_report;

/* Those of them with whom the round goes on: whom the latest view has, of all that are reported and may be so; and who holds
 * nothing that the others may hold otherwise: what it has, some of the latest view have, too, from the view that was its own last,
 * or nobody else has who was not in that one.
 *
 * Who is in a view promised just that number before it had a plan: who promises a later one alone goes on in its own view until
 * then. So a view is not so if the coordinator itself would be in it, and never promised it, or was in another one of that number;
 * or if as many who would be in it never did, or were in another one of that number, as say that they were in it; nor is it
 * believed of one alone if it leaves out half of those who answered, and it is of no use if nobody is left but one. Who says that
 * it was in such a view is not among them: it may hold what nobody else does. So a lone member that lies of views puts nobody out
 * but itself. Nor is who was in another one of the number that counts, as it was told or says: those have no common plan. */
hv_members hv_view_left(const hv_round *round, const hv_view_report *reports, const hv_members *answered);

/* The coordinator's work: who answered (reports of `answered`), who may own. Members are hv_view_left; which is the latest view
 * among theirs is told, and of strangers to some of them that they fit. HV_STATE: nobody is left who could own anything, or fewer
 * than two are. HV_NOMEM. */
hv_status hv_view_plan(hv_mem *mem, const hv_round *round, uint32_t number, const hv_view_report *reports,
                       const hv_members *answered, const hv_members *may_own, hv_view **out);

/* As bytes. NULL: no memory. */
hv_payload *hv_view_write(hv_mem *mem, const hv_round *round, const hv_view *view);
/* Reads a plan that names this member. HV_MALFORMED: it contradicts itself, the round, or what this member has. HV_NOMEM. */
hv_status hv_view_read(hv_mem *mem, const hv_round *round, const hv_hold *hold, uint32_t number, const hv_members *members,
                       const hv_payload *bytes, hv_view **out);
void hv_view_free(hv_view *view); /* NULL is fine */

/* 1 when a member gives something for an item: its values, or the copy that is forwarded. */
static inline int hv_view_gives(const hv_view *view, const hv_round *round, size_t member, uint32_t item) {
  return view->sources[item] == HV_VIEW_REDUCE ? !round->members[member].auxiliary : view->sources[item] == member;
}

#endif
