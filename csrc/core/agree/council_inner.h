/* What do a round's members and its coordinator share? The inside of council.c, council_member.c and council_chair.c: for them
 * alone.
 *
 * Room: core (uses council, doubts). The council, a seat for each member as the coordinator knows it, and what each part tells the
 * others. Everybody is a member; who coordinates attends itself, without a line.
 */
#ifndef HV_CORE_COUNCIL_INNER_H
#define HV_CORE_COUNCIL_INNER_H

#include "core/agree/council.h"
#include "core/agree/doubts.h"

enum { NOBODY = HV_ROUND_MEMBERS_MAX };

/* No view has a higher number: those of a round are small, and one near the end of numbers could not be followed by another. So
 * each coordinator may have raised them, as a liar would, and those after it in order go on: so far for each. */
#define COUNCIL_VIEW_MAX (1u << 31)
#define COUNCIL_VIEWS_EACH (COUNCIL_VIEW_MAX / HV_ROUND_MEMBERS_MAX)

/* A member, as the coordinator knows it. */
typedef struct seat {
  hv_council *council;
  size_t member;
  hv_stream *stream;
  hv_stream *former; /* this member's own line to it, kept open when it was silent: it may only have stood still */
  int came, gone, done, suspected, answered;
  int spoke;         /* something came on that one: it goes on, */
  uint64_t spoke_us; /* and when that was first */
  int lost;          /* this member's own line to it has ended, or its connection: it has left, or died */
  int ended;         /* it has ended, for certain */
  int mute;          /* silent in the round, and to hellos */
  int raised;        /* how often it has come with a higher number than is known here */
  int away;          /* it attends another one, as it said or as it seems, for this one was silent, */
  uint64_t away_us;  /* and when */
  int slipped;       /* it had said nothing for a while when this one asked, and has ended its line since: it went to another one */
  int leads;         /* that other one is itself, and others are with it: */
  hv_members with;   /* these, itself among them */
  uint64_t came_us;  /* when it first came */
  uint64_t said_us;  /* when it said anything last */
  uint32_t told;     /* the last view whose plan was sent to it */
  uint32_t promised; /* the last one that it had promised before it was asked */
  hv_view_report report;
  uint8_t *held; /* the report's */
} seat;

struct hv_council {
  hv_env *env;
  const hv_round *round;
  const hv_hold *hold;
  const hv_pace *pace;
  const hv_council_acts *acts;
  void *arg;
  hv_members members; /* of the present view */
  uint32_t installed, promised;
  hv_promises promises;     /* all those that it has promised */
  hv_members other_members; /* of the view before that one; or of the later one, where this member has gone back to that, */
  uint32_t other;           /* and its number */
  uint32_t held_then;       /* how many chunks were held here when the later one of these two began */
  uint32_t highest;         /* that anyone here has promised */
  int stopped, quiet;       /* for the view that was promised: told to stop; all has stopped */
  int trouble, done, finished, over;
  int told_finished;                  /* by a coordinator, while this one lacked something in this view */
  int left_out;                       /* a coordinator has said so: whether the others are with that one only the next one knows */
  hv_members suspects, silent, liars; /* silent, liars: those of the suspects who said nothing, or what is false */
  hv_members broke_off;               /* those of the suspects who did so themselves */
  hv_members owed;                    /* those who were silent, as owners, in an earlier view */
  hv_members given_up;
  hv_members recalled; /* given up, and attended again at its own word or others': once each; */
  hv_members tried;    /* or without any, as there was nobody else: likewise */

  size_t chair;      /* who coordinates, as far as this member knows; NOBODY */
  uint64_t chair_us; /* since when that has been this member */
  hv_stream *line;   /* to it */
  int heard;         /* something from it, on this line */
  int waits;         /* for the coordinator, until then */
  uint64_t until_us;
  int asked_me;         /* it has asked this one for a view of which there is no plan yet, */
  uint64_t asked_me_us; /* and when that was first */
  uint64_t sign_us;     /* when it gave a sign of life last, */
  uint64_t pulse_us;    /* and when this one did */
  uint64_t view_us;     /* when the present view was installed */
  uint64_t woke_us;     /* when this one had stood still for so long that others may have gone for that, or had heard of its
                           round so late; or was told that another one had asked meanwhile */
  uint64_t listens_us; /* it went on only now: until then it hears what came meanwhile, greets nobody who comes, and asks nobody; */
  int owes_ask;        /* it would have asked: it does not say either that it is there */

  seat *seats; /* what this member needs to coordinate */
  uint32_t asking;
  uint64_t asked_us, grace_us, deadline_us;
  uint64_t again_us; /* since then all are asked again, as another one says that it coordinates some; 0: not so */
  int cut_off;       /* so few have answered in that time that it may be this member that was: they all have more */
  hv_doubts doubts;

  size_t streams;
  uint64_t looked_us;
  hv_timer look;
};

static inline uint64_t council_stall_us(const hv_council *c) {
  return (uint64_t)c->round->stall_ms * 1000;
}

static inline uint64_t council_now(const hv_council *c) {
  return c->env->now_us(c->env);
}

static inline uint64_t council_patience_us(const hv_council *c) {
  return hv_pace_patience_us(c->pace, council_stall_us(c));
}

/* Which one it is in the order in which members coordinate. */
static inline size_t council_place(const hv_council *c, size_t member) {
  return (member + c->round->n_members - c->round->leader) % c->round->n_members;
}

/* 1: a view may have that number once so many in order have coordinated. */
static inline int council_may_be(const hv_council *c, uint32_t view, size_t coordinators) {
  return view <= COUNCIL_VIEW_MAX && view <= c->installed + (uint64_t)coordinators * COUNCIL_VIEWS_EACH;
}

/* ---- council.c ---- */
void council_tell(hv_council *c, hv_stream *stream, hv_news what, uint32_t view, const hv_members *members, hv_payload *payload);
void council_tell_plan(hv_council *c, hv_stream *stream, const hv_view *view, hv_payload *bytes);
/* That this one is there; and if another one coordinates who has given a sign of life since that member came here, who it is. To
 * who coordinates some itself: who is here. */
void council_say_here(hv_council *c, const seat *s);
void council_say_here_to_all(hv_council *c);
/* This member's part in the round is over. Fine when it is already. */
void council_go_out(hv_council *c, hv_status status, const char *text);
/* The view is given. */
void council_install(hv_council *c, hv_view *view);
/* 1: these bytes name members of this round. */
int council_names(const hv_council *c, hv_span bytes, hv_members *out);
void council_room_again(hv_stream *stream, const hv_event *event);
/* If nothing was looked at for longer than the timer takes it was this node that stood still: the others get their time anew. What
 * came meanwhile may be heard before the timer is, so whoever hears anything begins with this. */
void council_notice_time(hv_council *c);
/* Sets the timer anew: there may be less time to answer now. */
void council_look_again(hv_council *c);

/* ---- council_member.c ---- */
/* Who comes next is attended; that may be this member. */
void council_attend_next(hv_council *c);
/* It is lost, or contradicts itself. For good, unless others say that it goes on. */
void council_give_up_chair(hv_council *c);
/* The same of one that was silent, unless it says something itself while nobody else coordinates here. */
void council_miss_chair(hv_council *c);
/* Of the lines that were kept open: somebody else coordinates. */
void council_cancel_formers(hv_council *c);
/* 1: it answers too late, or has been silent for as long as anybody may be; or it never even said that it is there: it may have
 * been cut off, or started anew, and know of no round. Members who wait for nothing see that as soon as others do, and so come to
 * the next one together with them. */
int council_chair_is_silent(const hv_council *c);
/* There is a line. */
void council_say_trouble(hv_council *c);
/* Nothing of earlier views is done any more, from here on. */
void council_promise(hv_council *c, uint32_t view);
void council_send_report(hv_council *c);

/* ---- council_chair.c ---- */
/* This member coordinates, and cannot go on: it cannot reach these, and those told it what is false. */
void council_own_trouble(hv_council *c, const hv_members *suspects, const hv_members *liars);
/* It has heard what came while it stood still. */
void council_ask_if_owed(hv_council *c);
/* It coordinates from now on, and could not go on before. */
void council_take_over(hv_council *c);
/* All has stopped here: its own answer. */
void council_own_report(hv_council *c);
/* This member, and those who attend it. */
hv_members council_company(const hv_council *c);
/* 1: nobody attends this member, or more of those who came have gone again than are here. */
int council_was_left(const hv_council *c);
/* Tells the plan, once nobody is awaited any more. */
void council_try_plan(hv_council *c);
void council_see_if_finished(hv_council *c);

#endif
