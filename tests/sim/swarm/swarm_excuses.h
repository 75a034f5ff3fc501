/* Why may a member of a group lack something? The excuses that the checker of the swarm room `average` accepts, and no more.
 *
 * A part of swarm_average.c, which includes it where its checker begins. test_sim_average_checker.c holds each excuse to its
 * bounds.
 */
/* A member of a group that ran all the time. */
static int stayed(room *r, const seat *first, size_t i) {
  const entry *e = &r->seats[i].now;
  return e->begun && first->now.members >> i & 1 && is_live(r, i) && (!e->done || e->group == first->now.group);
}

/* Room `nat`: the lease of a member ended while the round ran, or so shortly before that keepalive had not found out: until then
 * all that was sent to it was lost, and it may have begun its seek as one that others can dial. */
static int had_a_lease_end(const room *r, const seat *first) {
  uint64_t keepalive_us = hv_sim_defaults(0).keepalive_us;
  for (size_t i = 0; i < r->n && r->nat.homes; i++)
    if (first->now.members >> i & 1 && homes_lapsed(r->nat.homes, i) &&
        r->nat.homes->nodes[i].until_us + keepalive_us > r->epoch_us)
      return 1;
  return 0;
}

/* Those of `among` whom i reached then, through each other. */
static uint64_t side_of(const room *r, const glance *g, uint64_t among, size_t i) {
  uint64_t side = UINT64_C(1) << i, before = 0;
  while (side != before) {
    before = side;
    for (size_t j = 0; j < r->n; j++)
      if (before >> j & 1)
        side |= g->reached[j] & among;
  }
  return side;
}

/* It was in that group's round by then. Not, if it ended in another one, or in none, or died in none, or in one that it began only
 * later: its host may have died, or a cut come, before it had the word that this one begins. */
static int came(const entry *e, uint64_t group, uint64_t us) {
  return e->begun && (e->done ? e->group == group : e->in_us && e->in_us <= us);
}

/* It ended well in that group, and so was there until then, though it may have stood still before. */
static int ended_well(const entry *e, uint64_t group) {
  return e->done && e->group == group && e->status == HV_OK;
}

/* It stood still then, and had for longer than a suspect is waited for. */
static int stands_still(const entry *e, uint64_t us) {
  for (size_t k = 0; k < e->n_halts; k++)
    if (e->halts[k].from_us + CUT_US <= us && us <= e->halts[k].to_us)
      return 1;
  return 0;
}

/* It stood still for longer than a suspect is waited for, from that time to this. */
static int stood_still_within(const entry *e, uint64_t from, uint64_t to) {
  for (size_t k = 0; k < e->n_halts; k++) {
    uint64_t since = e->halts[k].from_us > from ? e->halts[k].from_us : from,
             until = e->halts[k].to_us < to ? e->halts[k].to_us : to;
    if (until >= since + CUT_US)
      return 1;
  }
  return 0;
}

/* When the first of a group began its round: from then on the others wait for who does not come. It may itself hear of it only when
 * a cut has ended, and they have gone on without it. */
static uint64_t round_began(const room *r, const seat *first) {
  uint64_t us = UINT64_MAX;
  for (size_t j = 0; j < r->n; j++) {
    const entry *o = &r->seats[j].now;
    if (o->done && o->group == first->now.group && o->round_us < us)
      us = o->round_us;
  }
  return us;
}

/* It died later than that, and until then had not stood still in this round, though it may have before. */
static int died_later(const room *r, const seat *first, const entry *o, uint64_t us) {
  return o->died_us >= us && !stood_still_within(o, round_began(r, first), us);
}

/* The members of a group that were in its round and ran all the time until then, or came back in time and ran then. */
static uint64_t ran_until(room *r, const seat *first, uint64_t us) {
  uint64_t them = 0, group = first->now.group;
  for (size_t j = 0; j < r->n; j++) {
    const entry *o = &r->seats[j].now;
    int was_back = (ended_well(o, group) && o->done_us >= us && !stands_still(o, us)) || died_later(r, first, o, us);
    int ran = was_never_away(r, j) || (o->disturbed && o->away_us >= us) || was_back;
    them |= (uint64_t)(first->now.members >> j & 1 && came(o, group, us) && ran) << j;
  }
  return them;
}

/* The fault at i's place at a moment: with that member, or with any. */
typedef int wrong_then(room *r, const seat *first, const glance *g, size_t i, size_t other);

/* From then on in its round that was wrong for longer than a suspect is waited for: shorter than that costs nobody its place. */
static int was_wrong_since(room *r, const seat *first, size_t i, size_t other, wrong_then *wrong, uint64_t from) {
  const entry *e = &r->seats[i].now;
  uint64_t since = 0;
  for (size_t k = 0; k < r->n_glances; k++) {
    const glance *g = &r->glances[k];
    if (g->at_us + LOOK_US < from || g->at_us > e->done_us)
      continue;
    since = wrong(r, first, g, i, other) ? since ? since : g->at_us : 0;
    if (since && g->at_us - since >= CUT_US)
      return 1;
  }
  return 0;
}

static int was_wrong(room *r, const seat *first, size_t i, size_t other, wrong_then *wrong) {
  return was_wrong_since(r, first, i, other, wrong, round_began(r, first));
}

/* Nobody among these could have averaged with it: nobody but itself, none who can be dialled, or none with values that may count.
 */
static int nobody_is_among(const room *r, uint64_t these, size_t i) {
  int others = 0, dialled = 0, sound = 0;
  for (size_t j = 0; j < r->n; j++)
    if (these >> j & 1) {
      others += j != i && !r->seats[j].liar.tells;
      dialled += !r->seats[j].client && !r->seats[j].liar.tells;
      sound += is_sound(r, j);
    }
  return !others || !dialled || !sound;
}

/* Nobody on its side could. */
static int alone_then(room *r, const seat *first, const glance *g, size_t i, size_t other) {
  (void)other;
  return nobody_is_among(r, side_of(r, g, ran_until(r, first, r->seats[i].now.done_us), i), i);
}

/* It was not on one side with that one. */
static int apart_then(room *r, const seat *first, const glance *g, size_t i, size_t other) {
  return !(side_of(r, g, first->now.members, i) >> other & 1);
}

/* Those members who were cut off from it from then on in its round, each at one time or another: for it they are dead since then,
 * though a cut that ended made way for one from the others. */
static uint64_t lost_since(room *r, const seat *first, size_t i, uint64_t from) {
  uint64_t lost = 0;
  for (size_t j = 0; j < r->n; j++)
    lost |= (uint64_t)(first->now.members >> j & 1 && was_wrong_since(r, first, i, j, apart_then, from)) << j;
  return lost;
}

/* They are clients, or have told false averages since the round began: with a liar that only might have one can average. */
static int none_owns(const room *r, const seat *first, uint64_t these) {
  for (size_t j = 0; j < r->n; j++)
    if (these >> j & 1 && !r->seats[j].client && r->seats[j].liar.false_us < round_began(r, first))
      return 0;
  return 1;
}

/* It did not reach that one, who did reach others on its side: some must do without others, and it is theirs to say who, whatever
 * becomes of that one later. */
static int between_then(room *r, const seat *first, const glance *g, size_t i, size_t other) {
  uint64_t live = ran_until(r, first, g->at_us);
  return (side_of(r, g, live, i) & live & ~g->reached[i]) >> other & 1;
}

/* The members were on several sides, and its own was not the larger one: for the others it is dead by then, and does not come back
 * into their round. With those on its side it averages if they find each other in time. */
static int aside_then(room *r, const seat *first, const glance *g, size_t i, size_t other) {
  uint64_t live = ran_until(r, first, r->seats[i].now.done_us);
  (void)other;
  return 2 * __builtin_popcountll(side_of(r, g, live, i) & live) <= __builtin_popcountll(live);
}

static int was_between(room *r, const seat *first, size_t i) {
  for (size_t j = 0; j < r->n; j++)
    if (j != i && first->now.members >> j & 1 && was_wrong(r, first, i, j, between_then))
      return 1;
  return 0;
}

/* Of those with whom the round went on to its end. */
static int was_left_behind(room *r, const seat *first, size_t i) {
  for (size_t j = 0; j < r->n; j++) {
    const entry *o = &r->seats[j].now;
    if (ended_well(o, first->now.group) && was_wrong(r, first, i, j, apart_then))
      return 1;
  }
  return 0;
}

/* Two did not reach each other; `other` is both. */
static int two_apart_then(room *r, const seat *first, const glance *g, size_t i, size_t other) {
  (void)r, (void)first, (void)i;
  return !(g->reached[other / NODES_MAX] >> other % NODES_MAX & 1);
}

/* Those who were in that round then: also who stood still before, and came back, however it ended. */
static uint64_t were_there(room *r, const seat *first, uint64_t us) {
  uint64_t them = ran_until(r, first, us);
  for (size_t j = 0; j < r->n; j++)
    them |= (uint64_t)(r->seats[j].now.done && r->seats[j].now.group == first->now.group && r->seats[j].now.done_us >= us) << j;
  return them;
}

/* From then on in its round two were, who were there, be it itself: all must agree how to do without one of them, or what goes
 * where. */
static int two_were_apart(room *r, const seat *first, size_t i, uint64_t from) {
  uint64_t there = were_there(r, first, from);
  for (size_t j = 0; j < r->n; j++)
    for (size_t k = 0; k < j; k++)
      if (there >> j & 1 && there >> k & 1 && was_wrong_since(r, first, i, j * NODES_MAX + k, two_apart_then, from))
        return 1;
  return 0;
}

/* From that moment on there was no time to find that out, and to do without. */
static int was_just_before(uint64_t us, uint64_t done_us) {
  return us <= done_us && us + LOSS_US >= done_us;
}

/* Its step's time was over; also of one that had everything by then, and stayed for the others. */
static int no_time_is_left(const entry *e) {
  return e->status == HV_TIMEOUT || (e->status == HV_OK && e->done_us - e->begun_us + DRIFT_US >= TIMEOUT_MS * 1000ull);
}

/* Its streams, or what it says, belong to another member, or to views that are none: those who wait for it have nothing of it. */
static int spoke_for_others(const swarm_liar *liar, uint64_t began_us) {
  return liar->tells & SWARM_LIES_ORDER || (liar->tells && liar->told_us >= began_us);
}

/* Somebody was never in that group's round, or not for as long as anybody is waited for. */
static int was_never_there(const room *r, const seat *first, size_t j) {
  const entry *o = &r->seats[j].now;
  uint64_t began = round_began(r, first), late_us = began + STALL_MS * 1000;
  return first->now.members >> j & 1 &&
         (!came(o, first->now.group, late_us) || o->round_us >= late_us || spoke_for_others(&r->seats[j].liar, began));
}

/* The time to continue without all of those: a member that misses one of them comes to the next in order, and waits for that one's
 * first word.
 */
static uint64_t time_for_those(const room *r, const seat *first) {
  uint64_t n = 0;
  for (size_t j = 0; j < r->n; j++)
    n += (uint64_t)was_never_there(r, first, j);
  return n ? LOSS_US + (n - 1) * STALL_MS * 500 : 0;
}

/* It came to stand still then, for longer than a suspect is waited for; not only the first time. */
static int stopped_just_before(const entry *o, uint64_t done_us) {
  for (size_t k = 0; k < o->n_halts; k++)
    if (was_just_before(o->halts[k].from_us, done_us) && o->halts[k].to_us >= o->halts[k].from_us + CUT_US)
      return 1;
  return 0;
}

/* Its step's time was over while it missed another member that had just gone, or come to stand still, or was cut off, be it from
 * another one, or some that were never there. */
static int ran_out_of_time(room *r, const seat *first, size_t i) {
  const entry *e = &r->seats[i].now;
  uint64_t began = round_began(r, first), late = e->done_us > began + LOSS_US ? e->done_us - LOSS_US : began;
  uint64_t all_there = late > began + CUT_US ? late : began + CUT_US; /* some begin a moment later than the first */
  if (!no_time_is_left(e))
    return 0;
  if (lost_since(r, first, i, late) & ran_until(r, first, all_there) || two_were_apart(r, first, i, late))
    return 1;
  if (e->done_us <= began + time_for_those(r, first))
    return 1;
  for (size_t j = 0; j < r->n; j++) {
    const entry *o = &r->seats[j].now;
    int went = (o->disturbed && was_just_before(o->away_us, e->done_us)) || (o->died_us && was_just_before(o->died_us, e->done_us));
    int just = went || stopped_just_before(o, e->done_us);
    if (first->now.members >> j & 1 && just)
      return 1;
  }
  return 0;
}

/* Those whom the others did without by then, since they did not reach one of them (was_between), whoever that one was, or since
 * their time was over. */
static uint64_t done_without(room *r, const seat *first, uint64_t us) {
  uint64_t them = 0;
  for (size_t j = 0; j < r->n; j++) {
    const entry *o = &r->seats[j].now;
    int ended = o->done && o->group == first->now.group, lacks = ended && o->status != HV_OK;
    them |= (uint64_t)((lacks && was_between(r, first, j)) || (ended && o->done_us <= us && ran_out_of_time(r, first, j))) << j;
  }
  return them;
}

/* In the end no member was left who could be dialled and told no false averages, whether anything was cut or not: glances are of
 * cuts, not of deaths. Or all who could average with it were gone by then for one of those reasons. */
static int was_left_alone(room *r, const seat *first, size_t i) {
  uint64_t us = r->seats[i].now.done_us, ran = ran_until(r, first, us);
  uint64_t gone = ran & (lost_since(r, first, i, round_began(r, first)) | done_without(r, first, us)) & ~(UINT64_C(1) << i);
  return none_owns(r, first, ran & ~gone) || (gone && nobody_is_among(r, ran & ~gone, i));
}

/* A cut was there when the round began, or by when a word of that which was lost is sent again, and it had the word when the others
 * had waited for it for as long as for anybody: what was sent in a cut comes when it is sent again. */
static int heard_too_late(room *r, const seat *first, size_t i) {
  uint64_t from = round_began(r, first), all = r->n < 64 ? (UINT64_C(1) << r->n) - 1 : UINT64_MAX;
  int cut = 0;
  for (size_t k = 0; k < r->n_glances; k++) {
    const glance *g = &r->glances[k];
    cut |= g->at_us + LOOK_US >= from && g->at_us <= from + RESENT_US && (g->reached[i] | UINT64_C(1) << i) != all;
  }
  return cut && r->seats[i].now.round_us >= from + STALL_MS * 1000;
}

/* To the others that is a cut from all of them. */
static int stood_still(const room *r, const seat *first, size_t i) {
  const entry *e = &r->seats[i].now;
  return stood_still_within(e, round_began(r, first), e->done_us);
}

/* Some in its group tell lies, and can be dialled. */
static int is_beside_liars(const room *r, const seat *first) {
  for (size_t j = 0; j < r->n; j++)
    if ((first->now.members >> j & 1) && r->seats[j].liar.tells && !r->seats[j].client)
      return 1;
  return 0;
}

/* One of them, who may coordinate, has lied about views or members since the round began: a liar that only might have is no
 * excuse. */
static int was_lied_to(const room *r, const seat *first) {
  for (size_t j = 0; j < r->n; j++)
    if ((first->now.members >> j & 1) && !r->seats[j].client && r->seats[j].liar.told_us >= round_began(r, first))
      return 1;
  return 0;
}

/* More than a quarter of them have told false averages since the round began: who alone charges so many is itself the one to doubt
 * (core/agree/doubts). */
static int too_many_lied(const room *r, const seat *first) {
  size_t liars = 0, all = 0;
  for (size_t j = 0; j < r->n; j++)
    if (first->now.members >> j & 1) {
      all++;
      liars += r->seats[j].liar.tells && r->seats[j].liar.false_us >= round_began(r, first);
    }
  return liars > (all + 3) / 4;
}
