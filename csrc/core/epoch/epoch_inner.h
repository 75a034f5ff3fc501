/* Private to core/epoch: what the files of the machine share.
 *
 * epoch.c: moves, events, batches. epoch_end.c: an epoch's end and its rounds. epoch_come.c: aside, and back. epoch_ahead.c: ahead
 * of the others. epoch_aside.c: batches meanwhile. epoch_repeat.c: the others' steps made again. epoch_offer.c: the state for
 * joiners. epoch_follower.h: a peer without a replica, which has no end of its own.
 */
#ifndef HV_CORE_EPOCH_INNER_H
#define HV_CORE_EPOCH_INNER_H

#include "core/epoch/epoch.h"

/* One event's look at the world: no rule reads it twice (rule 1). */
typedef hv_epoch_event epoch_event;

/* epoch.c */
void epoch_moves(hv_epoch *self, hv_epoch_state to);
hv_epoch_order *epoch_order(hv_epoch *self, hv_epoch_order_kind kind);
hv_epoch_order *epoch_tell(hv_epoch *self, hv_epoch_notice notice);
hv_epoch_order *epoch_act(hv_epoch *self, hv_epoch_lane lane, unsigned action, uint64_t n);
void epoch_wake(hv_epoch *self, int ask);
void epoch_reached(hv_epoch *self);
void epoch_cancel(hv_epoch *self);
void epoch_counts(hv_epoch *self, uint64_t epoch, uint64_t now_us); /* begins to gather for it */
void epoch_looks_around(hv_epoch *self, const epoch_event *e);
void epoch_goes_on(hv_epoch *self, const epoch_event *e);                   /* with the batch, or the end, that waited */
int epoch_forms_groups(const hv_epoch *self, const hv_progress_figures *f); /* it is time for it (rule 5) */
void epoch_keeps_sums(hv_epoch *self);                       /* with local updates each batch is in the replica already */
int epoch_has_company(hv_epoch *self, const epoch_event *e); /* or may end an epoch without (rule 4) */
int epoch_may_be_alone(const hv_epoch *self);
int epoch_is_on_the_way(const hv_epoch *self);                                 /* somebody, or was so lately */
int epoch_meets_hub_alone(const hv_epoch *self, const hv_progress_figures *f); /* in rounds of gradients, for the log */
int epoch_has_met_hub_alone(const epoch_event *e);                             /* in the round that is over */
int epoch_has_partners(const hv_epoch *self, const hv_progress_figures *f);    /* to average with (rule 3) */
int epoch_is_aside(const hv_epoch *self);
int epoch_is_unusable(const hv_epoch *self);
uint64_t epoch_sooner(const hv_epoch *self, uint64_t due_us, uint64_t other_us); /* the first of two that is still to come */
uint64_t epoch_doubled(uint64_t first_us, unsigned times, uint64_t most_us);

/* epoch_end.c */
void epoch_begins_end(hv_epoch *self, const epoch_event *e);
uint64_t epoch_left_us(const hv_epoch *self, const hv_progress_figures *f); /* of the epoch */
int epoch_end_prepares(const hv_epoch *self); /* 1: PREPARE is not answered yet, so the sums are still the program's (rule 2) */
void epoch_end_takes_sums(hv_epoch *self);    /* all that are there */
void epoch_seeks(hv_epoch *self, const hv_progress_figures *f);
void epoch_seeks_to_listen(hv_epoch *self, const hv_progress_figures *f); /* a group of the others' epoch */
void epoch_round_is_over(hv_epoch *self, const epoch_event *e);
void epoch_end_acted(hv_epoch *self, hv_epoch_lane lane, unsigned action, const epoch_event *e);
void epoch_end_goes_on(hv_epoch *self, const epoch_event *e);
int epoch_end_is_free(const hv_epoch *self); /* batches go on while the difference travels */
void epoch_end_has_batch(hv_epoch *self, const epoch_event *e);
void epoch_end_lacks_step(hv_epoch *self);                          /* of such a batch, which failed: the round goes on */
uint64_t epoch_end_due_us(const hv_epoch *self);                    /* when the next of its waits ends */
void epoch_end_is_lonely(hv_epoch *self, const epoch_event *e);     /* looks whether anybody may still come to its groups */
void epoch_end_leaves_rounds(hv_epoch *self, const epoch_event *e); /* after each event: rounds that are of no use any more */
void epoch_begins_round(hv_epoch *self, hv_epoch_lane lane, hv_epoch_which which);
void epoch_stays(hv_epoch *self, hv_epoch_notice notice); /* nobody made this step: the epoch goes on (rule 7) */
int epoch_takes(hv_epoch *self);                          /* 1: the outcome of the late lane is being taken over */
void epoch_voids(hv_epoch *self);
/* Its samples are lost, and without a step the epoch has not ended here. */
void epoch_end_breaks(hv_epoch *self, hv_epoch_lane lane, const epoch_event *e);
void epoch_void_ends(hv_epoch *self);

/* epoch_come.c */
int epoch_lacks_state(const hv_epoch *self, uint64_t epoch); /* to be in that epoch */
/* Looks for a state of this epoch or a later one, unless it has just looked. */
void epoch_begins_look(hv_epoch *self, uint64_t least, uint64_t now_us);
/* The others are two epochs ahead, and have a state that is so many ahead. */
int epoch_is_passed(hv_epoch *self, const epoch_event *e, uint64_t ahead);
int epoch_must_come(hv_epoch *self, const epoch_event *e);
void epoch_comes(hv_epoch *self, const epoch_event *e);
void epoch_come_goes_on(hv_epoch *self, const epoch_event *e);
void epoch_come_acted(hv_epoch *self, unsigned action, const epoch_event *e);
void epoch_has_loaded(hv_epoch *self, const epoch_event *e);
void epoch_has_looked(hv_epoch *self, const epoch_event *e);
void epoch_rests(hv_epoch *self, const epoch_event *e); /* a batch while it rests */
void epoch_waits_for_batch(hv_epoch *self);             /* in LOOKING: the next one asks for the swarm again */
uint64_t epoch_come_due_us(const hv_epoch *self);
void epoch_enters(hv_epoch *self, const epoch_event *e);                       /* the epoch that it tells: rule 14 */
void epoch_comes_to_load(hv_epoch *self, const epoch_event *e, uint64_t most); /* from REPEATING, which led nowhere */
void epoch_looks(hv_epoch *self, const epoch_event *e);                        /* in LOOKING */

/* epoch_repeat.c */
int epoch_may_lead(const hv_epoch *self, const hv_progress_figures *f, uint64_t found); /* averages may, from that state on */
int epoch_prefers_entries(const hv_epoch *self, const epoch_event *e, uint64_t most);   /* to a state */
/* True if the state of the swarm's epoch is not made yet, and averages lead there from that of `found`, which is on offer. */
int epoch_leads_on(const hv_epoch *self, const epoch_event *e, uint64_t found);
int epoch_has_to_repeat(const hv_epoch *self, const epoch_event *e, uint64_t most); /* with the state that it has loaded */
/* Its progress, since an anchor that was the swarm's, stays beside a later one. */
int epoch_keeps_progress(const hv_epoch *self);
uint64_t epoch_repeats_for(const hv_epoch *self); /* the epoch of which others hear, before the last step; HV_EPOCH_NONE */
void epoch_repeats(hv_epoch *self, const epoch_event *e, uint64_t most); /* from COMING or LOADING */
void epoch_repeats_on(hv_epoch *self, const epoch_event *e);
/* Its replica leads no further: rule 10 decides, as without a log. */
void epoch_repeats_no_more(hv_epoch *self, const epoch_event *e);
void epoch_repeat_acted(hv_epoch *self, unsigned action, const epoch_event *e);
void epoch_has_entry(hv_epoch *self, const epoch_event *e);
uint64_t epoch_repeat_due_us(const hv_epoch *self);            /* in REPEATING: when the next of its waits ends */
void epoch_has_listened(hv_epoch *self, const epoch_event *e); /* that round is over, or was none */
void epoch_loads_begin(hv_epoch *self, const epoch_event *e);
void epoch_loads_beside(hv_epoch *self, const epoch_event *e); /* the averages that follow the state that comes */
void epoch_wants_no_entries(hv_epoch *self);

/* epoch_aside.c */
int epoch_comes_back(const hv_epoch *self);    /* aside, and neither at its first look nor at its end */
int epoch_is_free_aside(const hv_epoch *self); /* it makes batches meanwhile, from now on */
uint64_t epoch_aside_due_us(const hv_epoch *self);
void epoch_steps_aside(hv_epoch *self, const epoch_event *e, uint64_t samples); /* with a batch */
void epoch_aside_goes_on(hv_epoch *self, const epoch_event *e); /* the training thread is here, between two batches */
void epoch_has_come(hv_epoch *self, const epoch_event *e);      /* a state, or an average: a thread that trains takes it later */

/* epoch_line.c: the time and bits of a round of differences */
void epoch_line_begins(hv_epoch *self, uint64_t now_us);
void epoch_line_took(hv_epoch *self, const epoch_event *e); /* a round is over */
void epoch_line_loaded(hv_epoch *self);
/* An epoch ends: chooses narrow codecs for its difference, or wide ones. An epoch lasts as long as its samples take, without a wait
 * for its round. */
void epoch_line_chooses(hv_epoch *self, const hv_progress_figures *f);
/* The time of a round, without the wait for those who began it later: that is in one of two. */
uint64_t epoch_line_round_us(const hv_epoch *self);

/* epoch_ahead.c */
/* True if this peer is so far ahead of the others that it must come back to them. */
int epoch_is_ahead(hv_epoch *self, const epoch_event *e);

/* epoch_offer.c */
uint64_t epoch_offers_every(const hv_epoch *self); /* epochs from one offer to the next */
void epoch_offers_begin(hv_epoch *self, const epoch_event *e, int changed);
void epoch_offers_overdue(hv_epoch *self, const epoch_event *e);
uint64_t epoch_offers_due_us(const hv_epoch *self);
void epoch_offers_withdraw(hv_epoch *self);
void epoch_snapshot_is_made(hv_epoch *self, const epoch_event *e);
void epoch_was_offered(hv_epoch *self, const epoch_event *e);
void epoch_is_wanted(hv_epoch *self, const epoch_event *e);
void epoch_is_giver(hv_epoch *self, const epoch_event *e, uint64_t epoch); /* of the group of this event */
void epoch_snapshot(hv_epoch *self, uint64_t epoch);

#endif
