/* Of which members must a round do without something, by what members say of each other?
 *
 * Room: core (uses view). Owned by a round's coordinator (core/agree/council), through all its views. Pure values, the hive thread.
 * Two things are said of a member that answers the coordinator. That it is not reached: said in a second view, by one who is there
 * and of one who did not break off itself because of others. And that its words were false: broken chunks, or none where there must
 * be one. That needs no second view, and no excuse of its own: streams do not change what they carry. Either way it owns and
 * forwards nothing more; whose words were false again, though there was only its copy left to forward, is out. Who owns nothing and
 * is missed yet is missed for a copy that it alone holds: who misses it owns nothing more either, so that the copy goes over
 * another one; whom more than a quarter of the members have missed is out.
 *
 * WHO IS BELIEVED. One who says so alone may be the one to doubt. It is out itself when it alone could not reach a second one, or
 * alone charges more than a quarter of the members with false words, and when it had trouble in more views than twice the members.
 * What another one, who is not out, charged too, in whatever view, is not its alone. Members are counted, not charges: what only
 * one member holds goes over one owner, who alone sees that it is broken, again and again. So a lone member that lies costs a
 * quarter of the others their spans or their places at most, until it is out. The coordinator believes its own eyes: it is out by
 * its own charges only when they leave nobody else, and by another one's alone only if that one charges no more than a quarter of
 * those who are left. And who twice could not reach somebody who then answered, or owns nothing more, does not hasten others any
 * more: whom it names has as long to answer as all have. Nor does who is charged in this view by anybody.
 */
#ifndef HV_CORE_DOUBTS_H
#define HV_CORE_DOUBTS_H

#include "core/agree/view.h"

/* What one member has said. */
typedef struct hv_voice {
  hv_members named;   /* with whom it had trouble in this view */
  hv_members unseen;  /* those of them whom it could not reach, as far as is known */
  hv_members before;  /* and in earlier ones, though they were there */
  hv_members liars;   /* whose words were false in this view */
  hv_members charged; /* whom it charged with false words, in any view */
  size_t alone;       /* how many it alone could not reach twice */
  size_t mistaken;    /* in how many views somebody whom it could not reach was there */
  int mistaken_now;   /* in this one */
  size_t troubles;
  uint32_t trouble_in; /* the last view it had trouble in, and one */
} hv_voice;

typedef struct hv_doubts {
  size_t n, me; /* me: the coordinator */
  hv_voice *voices;
  hv_members no_owner, barred; /* who owns and forwards nothing more; who is out */
} hv_doubts;

/* n members; `me` coordinates. HV_NOMEM. */
hv_status hv_doubts_init(hv_doubts *doubts, hv_mem *mem, size_t n, size_t me);
void hv_doubts_fini(hv_doubts *doubts);

/* `who` had trouble in this view with these: one of those to whom its streams broke may have stopped for somebody else. */
void hv_doubts_trouble(hv_doubts *doubts, size_t who, uint32_t view, const hv_members *named);
/* These it could not reach. */
void hv_doubts_unseen(hv_doubts *doubts, size_t who, const hv_members *named);
/* What these told it was false. */
void hv_doubts_false(hv_doubts *doubts, size_t who, const hv_members *liars);

/* 1 when those whom it cannot reach are likely to be gone; not while its words are said to be false: they may have broken off for
 * that. */
int hv_doubts_believes(const hv_doubts *doubts, size_t who);
/* Whom those who are believed, or the coordinator, could not reach in this view. */
hv_members hv_doubts_missed(const hv_doubts *doubts);

/* Before a plan is made, with those who have answered. */
void hv_doubts_weigh(hv_doubts *doubts, const hv_members *here);

#endif
