/* The next deed of a peer of a run: of a trainer, or (epoch_follower.h) of an auxiliary peer or a hub.
 *
 * Room: core (uses plan, lineage, ledger, progress). It does nothing itself: events go in, orders come
 * out. driver.h carries out those for the node; the program's hands carry out the actions.
 * Owner: the driver; the machine is a struct of its owner.
 * Thread: the hive thread.
 * Limits: HV_EPOCH_* below; HV_EPOCH_ORDERS orders at a time.
 * Rules: docs/design/epoch.md; each rule's number stands beside its code.
 * Terms: told is the epoch that others hear; made is the epoch whose beginning the replica is. Aside: not counted, not waited for.
 */
#ifndef HV_CORE_EPOCH_H
#define HV_CORE_EPOCH_H

#include "core/epoch/ledger.h"
#include "core/epoch/lineage.h"
#include "core/epoch/plan.h"
#include "core/progress/progress.h"

#define HV_EPOCH_NONE UINT64_MAX /* no epoch, or no time */

/* Each wait of the machine: its name, its longest time in microseconds (0: an option says it), and what it waits for. */
#define HV_EPOCH_WAIT_MAP(X)                                                                                                       \
  X(SWARM, 5000000, "the first count of the swarm, before the first batch counts")                                                 \
  X(LOOK, 3000000, "the answer whether a state is on offer")                                                                       \
  X(GONE, 15000000, "the records of dead trainers to end, before a hub's state is continued")                                      \
  X(LATE, 0, "the late lane, whose rounds and hands have their own waits")                                                         \
  X(GROUP, 0, "a group: matchmaking_time after the epoch's end")                                                                   \
  X(ROUND, 0, "a round: averaging_timeout, or what the line needs")                                                                \
  X(HANDS, 0, "the program's answer to an action; no limit")                                                                       \
  X(COMES, 0, "the next epoch, whose state is loaded: matchmaking_time at most")                                                   \
  X(LOAD, 0, "a state: load_state_timeout after its last byte")                                                                    \
  X(ENTRY, 0, "an average that it repeats: averaging_timeout until the others have it, then as long as the log looks for it")      \
  X(REST, 5000000, "the next attempt to load: 0.25 s, then twice as long each time")                                               \
  X(DOUBT, 60000000, "claims without a state to count again: 1 s, then twice as long each time")                                   \
  X(WRONG, 30000000, "a wrong replica's peer until it doubts the others")                                                          \
  X(HELD, 5000000, "those who are behind to be in this epoch, which goes on meanwhile")

typedef enum hv_epoch_wait {
  HV_EPOCH_WAITS_NOTHING,
#define HV_EPOCH_WAIT_ENUM(name, us, what) HV_EPOCH_WAITS_##name,
  HV_EPOCH_WAIT_MAP(HV_EPOCH_WAIT_ENUM)
#undef HV_EPOCH_WAIT_ENUM
} hv_epoch_wait;

/* HV_EPOCH_MOST_SWARM_US and so on. */
enum {
#define HV_EPOCH_WAIT_MOST(name, us, what) HV_EPOCH_MOST_##name##_US = us,
  HV_EPOCH_WAIT_MAP(HV_EPOCH_WAIT_MOST)
#undef HV_EPOCH_WAIT_MOST
};

#define HV_EPOCH_LINE_US UINT64_C(3600000000) /* the longest time for a round that the line, and no option, makes so long */

enum {
  HV_EPOCH_LEAST_US = 100000,        /* of a search for a group, whatever matchmaking_time says */
  HV_EPOCH_AHEAD_US = 500000,        /* groups form so long before an epoch's end, or when half of its samples are there */
  HV_EPOCH_CHASE_US = 300000,        /* a peer that loads a state within this time is waited for as an epoch begins */
  HV_EPOCH_NOTICE_US = 100000,       /* the others are to know so long before the epoch begins */
  HV_EPOCH_AGAIN_US = 500000,        /* between two looks for states */
  HV_EPOCH_ASK_US = 10000,           /* between two questions whether the epoch has begun whose state is loaded */
  HV_EPOCH_REST_US = 250000,         /* the first pause after a load that failed */
  HV_EPOCH_DOUBT_US = 1000000,       /* the first doubt */
  HV_EPOCH_GIVEN_US = 10000000,      /* without a doubt, once a state has been given */
  HV_EPOCH_OFFER_US = 250000,        /* between two offers at least */
  HV_EPOCH_OFFER_COST = 50,          /* offering takes 1/50 of the time at most */
  HV_EPOCH_OFFER_BURST = 8,          /* offers for those who come that may be ahead of that */
  HV_EPOCH_HOLD_COST = 10,           /* holding takes 1/10 of the time at most, after two holds */
  HV_EPOCH_NO_HUB_US = 30000000,     /* after a round to which a hub did not come; twice as long each time */
  HV_EPOCH_KEEPS_OWN_US = 600000000, /* after somebody was on the way the log has the steps of a peer by itself */
  HV_EPOCH_SHORT_US = 1000000,       /* epochs that are shorter are over before a state has come through a hub */
  HV_EPOCH_SLACK_US = 100000,        /* a step's time beyond those of its parts */
  HV_EPOCH_LEAP = 1 << 20,           /* epochs by which a count may be ahead without a state */
  HV_EPOCH_FAR_AHEAD = 2,            /* epochs that a peer is ahead of the others, which follow it no more */
  HV_EPOCH_BEYOND = 2,               /* offers by which claims may be ahead of the newest state that was found */
  HV_EPOCH_ENTRIES = 32,             /* averages that a peer repeats rather than to load a state, at most */
  HV_EPOCH_STAMPS = 16,              /* of one of them */
  HV_EPOCH_ORDERS = 32,
  HV_EPOCH_MEMBERS = 256
};

typedef enum hv_epoch_state {
  HV_EPOCH_LOOKING,   /* not counted; asks for the swarm */
  HV_EPOCH_GATHERING, /* counted; its sums grow */
  HV_EPOCH_ENDING,    /* the epoch's end, as its plan says */
  HV_EPOCH_COMING,    /* aside; waits for the epoch whose state it loads */
  HV_EPOCH_LOADING,   /* aside; loads, and takes over */
  HV_EPOCH_REPEATING, /* aside; makes the steps that the others have made */
  HV_EPOCH_RESTING,   /* aside; a load has failed */
  HV_EPOCH_LEAVING,   /* says goodbye */
  HV_EPOCH_OVER,
  HV_EPOCH_STATES
} hv_epoch_state;

typedef enum hv_epoch_late {
  HV_EPOCH_LATE_IDLE,
  HV_EPOCH_LATE_WORKS,
  HV_EPOCH_LATE_TO_TAKE, /* over; the model has yet to take the outcome over */
  HV_EPOCH_LATE_VOID,    /* what it does is of no use any more: it begins nothing, and ends */
  HV_EPOCH_LATES
} hv_epoch_late;

typedef enum hv_epoch_company { HV_EPOCH_ALONE_TRAINS, HV_EPOCH_ALONE_WAITS, HV_EPOCH_ALONE_STOPS } hv_epoch_company;

typedef enum hv_epoch_which { HV_EPOCH_GRADIENTS, HV_EPOCH_REPLICA_STATE, HV_EPOCH_ROUNDS } hv_epoch_which;

/* A hand's work that no plan names; the numbers go on from hv_epoch_action. */
typedef enum hv_epoch_work {
  HV_EPOCH_PREPARE = HV_EPOCH_ACTIONS, /* the sums become what is averaged */
  HV_EPOCH_TAKE,                       /* the state becomes what is averaged */
  HV_EPOCH_SNAPSHOT,                   /* a copy of the state, for joiners */
  HV_EPOCH_ADOPT,                      /* the loaded state becomes this peer's */
  HV_EPOCH_DROP,                       /* the sums are of no use */
  HV_EPOCH_MEET,                       /* the swarm was asked for: may this peer train with it? */
  HV_EPOCH_RETURN,                     /* what PREPARE made is the sums again */
  HV_EPOCH_REPEAT,                     /* the average of an entry becomes this peer's, for a step */
  HV_EPOCH_WORKS
} hv_epoch_work;

typedef enum hv_epoch_lane { HV_EPOCH_NOW, HV_EPOCH_LATE, HV_EPOCH_LANES } hv_epoch_lane;

typedef struct hv_epoch_config {
  hv_epoch_options options;
  uint64_t target, matchmaking_us, averaging_us;
  int averaging_given; /* 1: the program has chosen averaging_us, so no line makes it longer */
  hv_epoch_company company;
  uint64_t alone_us; /* until company is acted on */
  int begins_run;    /* 1: it has no initial peers, so it is never alone in that sense */
  int reachable;     /* 1: joiners can download its state from it */
  hv_peer_id me;
  /* Of an average as it travels; 0: this peer repeats no steps. And of its state, against which that is weighed. */
  uint64_t entry_bytes, state_bytes;
  int differs;         /* 1: a part of the state differs among equal replicas, so only an average of it is offered */
  double alpha;        /* weight of the newest batch in this peer's speed, 0 to 1; 0: 0.1 */
  hv_env *env;         /* for its sha256 alone */
  uint64_t epoch;      /* from a checkpoint; 0 */
  hv_lineage *lineage; /* whose mark is known at each event that moves it; borrowed, as the next one */
  hv_epoch_ledger *ledger;
} hv_epoch_config;

typedef enum hv_epoch_event_kind {
  HV_EPOCH_TIME,     /* time has passed, or the count has changed */
  HV_EPOCH_BATCH,    /* a batch of `samples` is summed; 0: the training thread is here without one */
  HV_EPOCH_OVERFLOW, /* a batch of `samples` has overflowed, and `number` samples of the sums with it, which lie where it does */
  HV_EPOCH_DONE,     /* the hands have answered action `number`: `ok` */
  HV_EPOCH_BROKE,    /* the hands could not do action `number`, and the program is told so */
  HV_EPOCH_PAUSE,    /* the training thread is here between two batches: it may take over what came of the late lane, or beside */
  HV_EPOCH_RESTORED, /* the program has restored the state of `epoch` from a checkpoint */
  HV_EPOCH_ASKED,    /* the program asks for the swarm's state, of `epoch` or later */
  HV_EPOCH_ROUND,    /* round `which` is over: outcome, stamp, share, members */
  HV_EPOCH_OFFERED,  /* the offer of `epoch` stands, or not: `ok` */
  HV_EPOCH_LOOKED,   /* `ok`: a state of `epoch` is on offer */
  HV_EPOCH_LOADED,   /* `ok`: a state of `epoch` with `mark` is there */
  HV_EPOCH_LOADS,    /* the bytes of a state of `epoch` begin to come */
  HV_EPOCH_ENTRY,    /* `ok`: the average of `epoch` that was wanted is there, for a replica with `mark`; else it is lost */
  HV_EPOCH_WANTED,   /* a joiner wants the state of `epoch`; `ok`: a hub asks to be given that, or a later one */
  HV_EPOCH_LEAVE,
  HV_EPOCH_BEHIND, /* the training thread is here; its batch of `samples` has gradients of the model before a load, and counts
                      nowhere */
  HV_EPOCH_SUMMED, /* between two batches: `samples` of other processes of this peer, or of a checkpoint, are in the sums; `number`
                    * were made too, with the model before a load, and count nowhere */
  HV_EPOCH_EVENTS
} hv_epoch_event_kind;

/* Facts of a step that move the mark besides the stamp of the round (lineage.h); zeros: there are none. */
typedef struct hv_epoch_step_facts {
  const uint64_t *stamps; /* of averages of several rounds; none: that of the round */
  size_t n_stamps;
  const uint64_t *frozen;
  size_t n_frozen;
  hv_span setup; /* under which it steps from here on */
} hv_epoch_step_facts;

typedef struct hv_epoch_event {
  hv_epoch_event_kind kind;
  uint64_t now_us;
  const hv_progress_figures *figures; /* one reading, made for this event (rule 1) */
  uint64_t fetched;                   /* searches for peers that were answered */
  uint64_t samples, epoch, number, stamp;
  uint64_t took_us; /* of a BATCH, of DONE, and of a ROUND since its trigger */
  /* Of DONE: < 0: the values are not finite. Of a ROUND of the state: 1: the replica is to the bit what it was; 0: only if that of
   * all members was the same; < 0: it is not. */
  int ok;
  hv_epoch_which which;
  hv_epoch_outcome outcome;
  double share; /* of this peer's values in the average */
  const hv_lineage_member *members;
  size_t n_members;
  int ran_out;   /* of a ROUND: 1: it had a group, and its time ended */
  size_t n_lost; /* of these: with a replica, and not with all values in the average; a peer without a replica knows of none */
  hv_mark mark;  /* of LOADED and ENTRY, where has_mark */
  int has_mark;
  hv_epoch_step_facts step; /* of DONE of a STEP; of ENTRY: its stamps */
} hv_epoch_event;

typedef enum hv_epoch_order_kind {
  HV_EPOCH_WAKE,     /* the report has changed; `ask`: and look for peers */
  HV_EPOCH_REACHED,  /* of `which`: this peer seeks no round before `epoch` */
  HV_EPOCH_SEEK,     /* of `which`: a group for `epoch`; `ask`: this peer listens to its round, which begins without a trigger */
  HV_EPOCH_TRIGGER,  /* of `which`: its round begins, with `samples`; `ask`: under narrow codecs */
  HV_EPOCH_CANCEL,   /* of `which` */
  HV_EPOCH_GIVE_UP,  /* of `which`: its search, if it has no group yet, which ends with NOBODY */
  HV_EPOCH_ASIDE,    /* nobody waits for this peer */
  HV_EPOCH_COMES,    /* this peer comes at `epoch` */
  HV_EPOCH_OFFER,    /* the latest snapshot, as the state of `epoch` */
  HV_EPOCH_EXPECT,   /* the hubs of this round's group expect the state of `epoch`, which nobody can download from this peer */
  HV_EPOCH_GIVE,     /* the latest snapshot, as the state of `epoch`, to the hubs that expect it; `ask`: to the one that asks */
  HV_EPOCH_WITHDRAW, /* the offer */
  HV_EPOCH_LOOK,     /* for a state of `epoch` or later */
  HV_EPOCH_LOAD,     /* the same, and take it */
  /* the averages of `epoch` to `number` - 1, of which `samples` bytes may wait; `ask`: so many of the last ones may still be made;
     none: wants nothing more */
  HV_EPOCH_WANT,
  HV_EPOCH_REFUSE,     /* the average of `epoch` that came: it is of another replica, or does not fit */
  HV_EPOCH_DISBELIEVE, /* claims of `epoch` or later, for wait_us */
  /* samples: of PREPARE: behind it when the epoch began to end, and end.samples with batches since; of STEP: behind it, and 0 if it
     is repeated, and `ask`: the log keeps it; of SCHEDULE: steps; of APPLY: 1: with the averaged state; of ADOPT: the epoch */
  HV_EPOCH_ACT,  /* the hands of `lane` do `action` (hv_epoch_action or hv_epoch_work), and answer with `number` */
  HV_EPOCH_TELL, /* a notice for the log */
  HV_EPOCH_GOODBYE,
  HV_EPOCH_ORDER_KINDS
} hv_epoch_order_kind;

typedef enum hv_epoch_notice {
  HV_EPOCH_SAYS_ALONE,    /* nobody else trains, and it waits */
  HV_EPOCH_SAYS_COMPANY,  /* somebody trains again */
  HV_EPOCH_SAYS_STOP,     /* nobody else trains, and it is to stop */
  HV_EPOCH_SAYS_OWN_STEP, /* a round failed, and this peer stepped by itself */
  HV_EPOCH_SAYS_STAYS,    /* nobody came, and it has nothing to step with */
  HV_EPOCH_SAYS_LEFT_OUT, /* the others made the step without it */
  HV_EPOCH_SAYS_NO_STEP,  /* it counts an epoch, and has nothing to step with */
  HV_EPOCH_SAYS_WRONG,    /* its replica is not the swarm's */
  HV_EPOCH_SAYS_DOUBT,    /* peers claim an epoch of which nobody has a state */
  HV_EPOCH_SAYS_SILENT,   /* the swarm did not answer, and it begins alone */
  HV_EPOCH_SAYS_ENTERS,   /* others count it from now on */
  HV_EPOCH_SAYS_ASIDE,    /* nobody counts it from now on */
  HV_EPOCH_SAYS_ENDED,    /* the `now` lane of an epoch's end is over */
  HV_EPOCH_SAYS_SETTLED,  /* both lanes of it are */
  HV_EPOCH_SAYS_LOADED,   /* it has the swarm's state */
  HV_EPOCH_SAYS_RESTS,    /* a load has failed */
  HV_EPOCH_SAYS_CARRIES,  /* a round failed, and the next one has what it had */
  HV_EPOCH_SAYS_REPEATS,  /* it makes the steps from `epoch` to `number` that the others have made */
  HV_EPOCH_NOTICES
} hv_epoch_notice;

typedef struct hv_epoch_order {
  hv_epoch_order_kind kind;
  hv_epoch_which which;
  hv_epoch_lane lane;
  unsigned action; /* hv_epoch_action, hv_epoch_work; of TELL: hv_epoch_notice */
  uint64_t number, epoch, samples, wait_us, timeout_us;
  int ask;
} hv_epoch_order;

/* The machine's own. */
typedef struct hv_epoch_run {
  hv_epoch_plan plan;
  size_t at[HV_EPOCH_LANES];       /* in the plan's lists */
  uint64_t acting[HV_EPOCH_LANES]; /* the number of the action under way; 0: none */
  unsigned action[HV_EPOCH_LANES]; /* which */
  int rounding[HV_EPOCH_LANES];    /* 1 + hv_epoch_which of the round waited for; 0: none */
  uint64_t epoch, samples;         /* that ends; of this peer in it */
  uint64_t stamp;
  int alone, averaged, stepped, state_averaged, nobody, meets_another, taken;
  int with_hub;       /* nobody but a hub is to come to its rounds, which counts (rule 3) */
  int lost_some;      /* a member has gone in the round of gradients */
  int returns;        /* its samples go back into the sums */
  int is_over;        /* its round is, and the end goes on when the training thread is here */
  uint64_t lonely_us; /* since when nobody else is counted while it seeks; 0: somebody is */
  uint64_t begun_us;  /* when it began */
  uint64_t sought_us; /* when the search for a group of gradients was last waited for */
  uint64_t again_us;  /* when the next search for a group of gradients begins, in again_lane; 0: none is to */
  hv_epoch_lane again_lane;
  uint64_t missed_us; /* since when the others are past the round for which a peer without a replica waits; 0: they are not */
} hv_epoch_run;

/* The hub that a lone client averages with. */
typedef struct hv_epoch_hub {
  uint64_t us;       /* when it last asked for a state, or came to a round; HV_EPOCH_NONE: never, or it did not come */
  uint64_t after_us; /* its requests count from then on */
  unsigned misses;   /* rounds in a row to which it did not come */
} hv_epoch_hub;

/* The data of one state, its deadline among them. A move clears them, so nothing of another state can end or delay its wait. */
typedef struct hv_epoch_looking {
  uint64_t until_us; /* the swarm is asked until then; HV_EPOCH_NONE: the program has made no batch yet */
  uint64_t gone_us;  /* since when records of the dead are waited for; HV_EPOCH_NONE: they are not */
  uint64_t again_us; /* no look for the state of those who are counted before this time */
  uint64_t samples;  /* of the batch that waits */
  int is_here;       /* the batch waits */
  int has_heard, has_looked;
} hv_epoch_looking;

typedef struct hv_epoch_coming {
  uint64_t until_us; /* the load begins then, or when the wanted epoch has begun */
  uint64_t ask_us;   /* the swarm is not asked again before this time */
  uint64_t most;     /* claims beyond this epoch are believed later; HV_EPOCH_NONE: all are */
  int repeats;       /* it makes the steps of the others, and needs no state */
  int is_first;      /* the program has asked for a state before its first batch */
} hv_epoch_coming;

typedef struct hv_epoch_loading {
  uint64_t begun_us, epoch;
  uint64_t comes, asked; /* the epoch whose bytes come; averages from there on are wanted before this one. HV_EPOCH_NONE; 0 */
  uint64_t most;         /* as above */
  hv_mark mark;
  int has_mark;
  int gives_up; /* kept samples are not in that state */
  int is_first; /* as above */
  int is_there; /* the state has come, and the training thread is to take it */
} hv_epoch_loading;

typedef struct hv_epoch_repeating {
  uint64_t goal;     /* the epoch in which it is to be */
  uint64_t asked;    /* averages before that of this epoch are wanted; 0: none is */
  uint64_t until_us; /* the others are to have ended the epoch that left it out */
  uint64_t again_us; /* until then it asks each HV_EPOCH_AGAIN_US whether they have */
  uint64_t near_us;  /* it looks again whether their next group is near; 0: it need not */
  uint64_t most;     /* as above */
  uint64_t heard;    /* 1 + the latest epoch whose average it has from the others' round; 0: none */
  int gives_up;      /* it is there before a group has formed to whose round it would listen */
  uint64_t stamps[HV_EPOCH_STAMPS];
  size_t n_stamps;
  int is_there; /* as above: the average with these stamps */
} hv_epoch_repeating;

typedef union hv_epoch_own {
  hv_epoch_looking looking;
  hv_epoch_coming coming;
  hv_epoch_loading loading;
  hv_epoch_repeating repeating;
  uint64_t resting_until_us; /* the first batch after it may come back */
} hv_epoch_own;

/* Looks for a state on offer (rule 10). */
typedef struct hv_epoch_look {
  int is_under_way;
  uint64_t begun_us;  /* the latest one; HV_EPOCH_NONE: none */
  uint64_t found;     /* the newest state; HV_EPOCH_NONE: none */
  uint64_t lacked_us; /* since when looks for the state of those who are ahead have failed */
} hv_epoch_look;

/* An epoch that lasts for those who load its state (rule 22). */
typedef struct hv_epoch_hold {
  uint64_t since_us; /* HV_EPOCH_NONE: it is not held */
  uint64_t paid_us;  /* when the holds until now have taken their part of the time */
  int is_due;        /* the epoch was ready when it was held */
} hv_epoch_hold;

/* The time that rounds of differences need on this line. */
typedef struct hv_epoch_line {
  uint64_t begun_us;           /* when the round under way was begun; HV_EPOCH_NONE: none is */
  uint64_t need_us;            /* 0: not known */
  uint64_t took_us, before_us; /* of the latest average, and of the one before it */
  int ran_out;                 /* a round did since the latest average */
  int narrow;                  /* this peer sends under narrow codecs (core/round/run.h), where there are any */
} hv_epoch_line;

/* States for joiners (rule 15). */
typedef struct hv_epoch_offers {
  uint64_t offered;    /* the epoch of the state on offer; HV_EPOCH_NONE: none */
  uint64_t copied;     /* that of the copy under way */
  uint64_t wanted;     /* somebody waits for that of this epoch, or of an older one; HV_EPOCH_NONE: nobody */
  uint64_t expected;   /* the hubs of a group wait to be given that of this epoch, or of a later one; HV_EPOCH_NONE: they do not */
  uint64_t asked;      /* the same of a hub that asks */
  uint64_t settled_us; /* when the latest epoch's end was over */
  uint64_t counted_us; /* when the epoch of others began */
  uint64_t epoch_us;   /* how long epochs last */
  uint64_t cost_us;    /* of a copy */
  uint64_t paid_us;    /* when the copies until now have taken their part of the time */
  uint64_t again_us;   /* none before this time */
} hv_epoch_offers;

typedef struct hv_epoch {
  hv_epoch_config config;
  hv_epoch_traits traits;
  hv_epoch_ledger *ledger;
  hv_epoch_state state;
  hv_epoch_own own; /* of the state */
  hv_epoch_late late;
  hv_lineage *lineage;
  uint64_t at_us; /* the latest event */
  uint64_t told, made, serial, batch_us, before, step;
  uint64_t replica;  /* as made, and also of a state that was loaded, or repeated; HV_EPOCH_NONE: not known */
  int leads_nowhere; /* no log leads on from that */
  hv_meter meter;    /* fed by took_us of batches */
  hv_epoch_run end;
  uint64_t numbers;             /* of actions */
  uint64_t sought;              /* the epoch whose groups are sought; HV_EPOCH_NONE */
  int seeking[HV_EPOCH_ROUNDS]; /* 1: under way */
  int has_to_step;              /* with the batch, where updates are local */
  uint64_t wanted;              /* older states are of no use */
  uint64_t left_out;            /* the epoch in which the others began a round without it, until it is back; HV_EPOCH_NONE */
  uint64_t load_us;             /* what the quickest load took */
  uint64_t loaded_us;           /* when the latest one was over */
  uint64_t aside_us;            /* when it went aside; HV_EPOCH_NONE: while its training thread was in a batch */
  uint64_t alone_since_us, wrong_since_us, doubt_until_us;
  uint64_t again_us; /* a round of differences failed: the epoch does not end before this time */
  uint64_t lasts_us; /* the epoch lasts until then, so that its difference travels beside batches */
  unsigned failures, doubts, loads;
  hv_epoch_line line;
  hv_epoch_look look;
  hv_epoch_hold hold;
  hv_epoch_offers offers;
  int is_apart;     /* its latest step was its own */
  int has_to_apply; /* a step of the late lane is not in the model, which keeps it unless a state takes its place */
  hv_epoch_hub hub;
  uint64_t came_us;  /* when somebody was last on the way; HV_EPOCH_NONE: never */
  uint64_t ahead_us; /* since when it is far ahead of the others; HV_EPOCH_NONE: it is not */
  int goes_back;     /* the state that it loads is of an epoch before its own */
  int told_alone, has_met, is_unfit, goes_on, has_begun, only_takes, is_asked;
  unsigned moves_wrong; /* moves that the table does not allow: 0 */
  hv_epoch_order orders[HV_EPOCH_ORDERS], lost;
  size_t n_orders, first_order, lost_orders; /* lost_orders: 0 */
} hv_epoch;

/* HV_INVALID: err says what contradicts. */
hv_status hv_epoch_init(hv_epoch *self, const hv_epoch_config *config, uint64_t now_us, hv_error *err);
/* Handles one event; the orders that follow are to be taken with hv_epoch_next before the next event. */
void hv_epoch_on(hv_epoch *self, const hv_epoch_event *event);
/* 1: *out is the next order. */
int hv_epoch_next(hv_epoch *self, hv_epoch_order *out);
/* When the next HV_EPOCH_TIME is due, later than the latest event; HV_EPOCH_NONE: by no clock. */
uint64_t hv_epoch_due_us(const hv_epoch *self);
/* Sets *out to the report for the others. samples: of a batch whose event follows. */
void hv_epoch_report(const hv_epoch *self, uint64_t samples, hv_progress_own *out);
/* The longest time of a step of averaging, the search for its group included. */
uint64_t hv_epoch_averaging_us(const hv_epoch *self);
/* The wait that is under way. */
hv_epoch_wait hv_epoch_waits(const hv_epoch *self);
/* The outcome of this round is awaited; of one that was cancelled with its lane it is not. */
int hv_epoch_awaits_round(const hv_epoch *self, hv_epoch_which which);
/* 1: this peer gives a group of these rounds its word; 0: no word of it would be judged. */
int hv_epoch_has_word(const hv_epoch *self, hv_epoch_which which);
/* 1: the training thread may go on to its next batch; 0: it waits for actions. */
int hv_epoch_is_free(const hv_epoch *self);
/* 1: batches count, and go on after a moment, while this peer is aside: with local steps, unless the program waits for a state. */
int hv_epoch_trains_aside(const hv_epoch *self);
/* 1: the next batch counts. */
int hv_epoch_counts_batches(const hv_epoch *self);
/* 1: a state, or an average, has come beside the batches, and is taken when the training thread is here: HV_EPOCH_PAUSE. */
int hv_epoch_waits_for_thread(const hv_epoch *self);
const char *hv_epoch_state_name(hv_epoch_state state);
const char *hv_epoch_wait_name(hv_epoch_wait wait);
const char *hv_epoch_work_name(unsigned action); /* of an hv_epoch_action, or hv_epoch_work */
const char *hv_epoch_notice_name(hv_epoch_notice notice);

#endif
