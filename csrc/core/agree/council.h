/* Who is still in the round, and what is to become of it? Members, their coordinator, and how they agree on the next view.
 *
 * Room: core (uses env, round, view). Owned by allreduce, one for each round; the hive thread.
 *
 * The coordinator is the first of the members, in their order from round->leader on, who can be dialled and has not been given up.
 * Everybody else keeps a stream open to it from the beginning (clients need not be dialled). Nothing is said on it in a round
 * without faults but DONE and FINISHED.
 *
 * A member that cannot go on says TROUBLE, and whom it suspects. The coordinator then asks all (ASK v). Who answers has stopped
 * before: it takes no average of an earlier view any more, and says what it holds. When all have answered, or the others had time
 * enough (those under suspicion less), the coordinator tells the plan of view v (core/agree/view) to those who answered and whom
 * the latest view among their reports has, or who hold nothing that differs; the others are OUT. Who is told so asks the next
 * coordinator, once: all may be with that one.
 *
 * A coordinator that is silent, lost, or tells a plan that contradicts what is here is given up, and the next one is attended; for
 * good, unless that one says (HERE) that it attends the other itself, and has heard it since: then it is attended again, once. Or
 * unless one that was only silent says something itself before anybody else coordinates here: the line to it stays open for that,
 * and on it this member says (HERE) whom it attends meanwhile.
 * Who coordinates and stood still may hear from another one that it coordinates now. If half of the members have left for that one
 * already, this one goes there, too, with those whom it has. Else it says (HERE) who those are: if they are more than the other one
 * has, and that one has told no plan yet, that one comes back with its own.
 * A coordinator may be lost with its plan, which one member alone got. Where nothing was averaged in that view, that member goes
 * back to the view before, once those whom it finds attend one who is in that view, and not in its own.
 * The same for who made a view itself, if nothing shows that anybody else has its plan.
 * Views of another coordinator have other numbers, and a member's promise holds for all of them. So every view has one plan. Of two
 * that do not know of each other (a partition) each has its own members from then on: nobody is ever in both.
 *
 * When the coordinator and all others that are there are done, all have finished. One that took over waits for those who never came
 * to it only as long as a silent member is waited for: they have died with the coordinator before, or were told by it.
 *
 * A member whom another one cannot reach in two views, while it answers the coordinator, owns and forwards nothing more, and so one
 * whose words were false at once (core/agree/doubts).
 */
#ifndef HV_CORE_COUNCIL_H
#define HV_CORE_COUNCIL_H

#include "core/agree/view.h"
#include "core/round/pace.h"

typedef struct hv_council hv_council;

/* What the owner of a council does when it says so, within steps. */
typedef struct hv_council_acts {
  void (*stop)(void *arg);                                    /* stop all that the present view does, then hv_council_report */
  void (*go_on)(void *arg, hv_view *view);                    /* the next view; given */
  void (*out)(void *arg, hv_status status, const char *text); /* this member is out, or nobody is left */
  void (*changed)(void *arg);                                 /* hv_council_over may have become true */
} hv_council_acts;

/* round, hold and pace are borrowed; `first` is the first view, read within this call. HV_NOMEM. */
hv_status hv_council_new(hv_env *env, const hv_round *round, const hv_hold *hold, const hv_pace *pace, const hv_view *first,
                         const hv_council_acts *acts, void *arg, hv_council **out);
/* waited_us: for how long others of the round had waited here when this member heard of it. */
void hv_council_start(hv_council *council, uint64_t waited_us);
/* Breaks off its streams; nothing is heard or said any more. Fine when it has left. */
void hv_council_leave(hv_council *council);
/* 1 when it has left, or all have finished, and its streams are over: it may be freed. */
int hv_council_over(const hv_council *council);
/* When it is over, or its world is dead. NULL is fine. */
void hv_council_free(hv_council *council);

/* A member opened its line (checked to be that member). Takes it on, or leaves stream->on NULL. */
void hv_council_opened(hv_council *council, const hv_msg_attend *attend, hv_stream *stream);

/* A member opened another stream to this one: it lives, whatever others say. */
void hv_council_seen(hv_council *council, size_t member);

/* A member has ended: nothing is awaited of it. */
void hv_council_gone(hv_council *council, size_t member);
/* A member is silent in the round, and to hellos: the end of the round does not wait for it. If all others are, the round ends. */
void hv_council_mute(hv_council *council, size_t member);
/* 1: it was given up as coordinator. */
int hv_council_gave_up(const hv_council *council, size_t member);

/* The connection that this node had opened to a member broke, as it does when its process has died. */
void hv_council_cut(hv_council *council, size_t member);

/* This member cannot go on in the present view, because of these. `silent` are those of them who said nothing, `liars` those whose
 * words were false, `stopped` those who were there and broke off or refused themselves; the others' streams broke. */
void hv_council_trouble(hv_council *council, const hv_members *suspects, const hv_members *silent, const hv_members *liars,
                        const hv_members *stopped);
/* After `stop`: all has stopped, the hold says what is held. */
void hv_council_report(hv_council *council);
/* This member has everything, and has told its outcome. */
void hv_council_done(hv_council *council);

/* 1 when all members are known to have everything. */
int hv_council_finished(const hv_council *council);
/* 1 when a new view is needed, or being agreed on, as far as is known here. */
int hv_council_troubled(const hv_council *council);
/* Who coordinates, as far as is known here: a member, or HV_ROUND_MEMBERS_MAX when nobody is left. */
size_t hv_council_chair(const hv_council *council);

#endif
