#include "core/match/match_inner.h"
#include "core/peers/contact.h"
#include "core/versions.h"

#include <stdio.h>
#include <string.h>

enum { SUMMON_FIRST_MS = 300, SUMMON_FACTOR = 3 };

static uint64_t host_now(const hv_match *match) {
  return match->env->now_us(match->env);
}

/* ---- joiners ---- */

/* Takes one out; its stream, if any, is the caller's now. */
static hv_stream *joiner_take_out(match_joiner *joiner) {
  match_gathering *g = joiner->gathering;
  hv_stream *stream = joiner->stream;
  *joiner->link = joiner->next;
  if (joiner->next)
    joiner->next->link = joiner->link;
  g->n_joiners--;
  g->n_present -= joiner->present;
  hv_payload_release(joiner->gather);
  hv_mem_free(joiner);
  return stream;
}

static void drop_if_empty(match_gathering *g) {
  if (g->joiners)
    return;
  g->match->env->timer_clear(g->match->env, &g->timer);
  *g->link = g->next;
  if (g->next)
    g->next->link = g->link;
  g->match->n_gatherings--;
  hv_mem_free(g);
}

static void say_no(hv_match *match, hv_stream *stream, hv_status status, const char *text, uint64_t at) {
  hv_msg msg = {.kind = HV_MSG_DISBAND, .u.disband = {.status = status, .text = hv_span_of(text, strlen(text)), .at = at}};
  if (status == HV_INVALID)
    msg.u.disband.schema_text = match->config.schema_text;
  hv_parting_say(&match->registry->parting, stream, &msg, NULL);
}

/* Sends one away; its gathering stays, perhaps empty. */
static void send_away(match_joiner *joiner, hv_status status, const char *text) {
  hv_match *match = joiner->gathering->match;
  hv_stream *stream = joiner_take_out(joiner);
  if (stream)
    say_no(match, stream, status, text, 0);
}

static void send_on(hv_match *match, hv_stream *stream, const hv_roster_entry *to) {
  hv_msg msg = {.kind = HV_MSG_REDIRECT, .u.redirect.to = {.id = to->id, .addrs = hv_span_of(to->addrs, to->addrs_size)}};
  hv_parting_say(&match->registry->parting, stream, &msg, NULL);
}

/* ---- the beginning ---- */

static int can_own(const match_joiner *j) {
  return j->addrs_size && !j->auxiliary;
}

/* All who are present: those who can own and contribute first, then who can own, then clients; each kind shuffled. */
static size_t line_up(const match_gathering *g, match_joiner **line) {
  hv_env *env = g->match->env;
  size_t n = 0;
  for (int kind = 0; kind < 3; kind++) {
    size_t from = n;
    for (match_joiner *j = g->joiners; j; j = j->next)
      if (j->present && n < MATCH_JOINERS_MAX && (can_own(j) ? 0 : j->addrs_size ? 1 : 2) == kind)
        line[n++] = j;
    for (size_t i = n; i > from + 1; i--) {
      uint32_t r;
      env->random(env, &r, sizeof r);
      size_t other = from + (size_t)((uint64_t)r * (i - from) >> 32);
      match_joiner *kept = line[i - 1];
      line[i - 1] = line[other];
      line[other] = kept;
    }
  }
  return n;
}

static void in_order(const hv_rank *rank, match_joiner **group, size_t n) {
  for (size_t i = 1; i < n; i++)
    for (size_t at = i; at > 0 && hv_rank_compare(rank, &group[at]->id, &group[at - 1]->id) < 0; at--) {
      match_joiner *kept = group[at];
      group[at] = group[at - 1];
      group[at - 1] = kept;
    }
}

/* Joins the members' gather data. *out is the caller's; NULL with HV_OK: there is none. */
static hv_status join_gathers(hv_env *env, match_joiner *const *group, size_t n, hv_payload **out) {
  hv_buf all;
  hv_status status = HV_OK;
  hv_buf_init(&all, env->mem, HV_MATCH_GATHERS_MAX);
  *out = NULL;
  for (size_t i = 0; i < n && status == HV_OK; i++) {
    uint8_t *at;
    if (!group[i]->gather)
      continue;
    status = hv_buf_reserve(&all, group[i]->gather->size, &at);
    if (status == HV_OK)
      all.size += hv_payload_read(group[i]->gather, 0, at, group[i]->gather->size);
  }
  if (status == HV_OK && all.size && !(*out = hv_payload_copy(env->mem, all.data, all.size)))
    status = HV_NOMEM;
  hv_buf_fini(&all);
  return status;
}

static void tell_group(match_gathering *g, match_joiner **group, size_t n, const hv_msg *msg, hv_payload *gathers) {
  hv_match *match = g->match;
  g->helped += match_note_members(match, match_epoch_of(g), msg->u.begin.members, n) ? 0 : n;
  for (size_t i = 0; i < n; i++) {
    if (group[i]->stream) {
      hv_parting_say(&match->registry->parting, joiner_take_out(group[i]), msg, gathers);
      continue;
    }
    hv_group_facts facts = match_facts(match, match_epoch_of(g));
    hv_match_group *mine;
    hv_error err = {0};
    hv_status status = hv_group_read(match->env, &facts, &msg->u.begin, gathers, &mine, &err);
    joiner_take_out(group[i]);
    if (status == HV_OK)
      match->on->begun(match, mine);
    else
      hv_env_log(match->env, HV_LOG_ERROR, "match", "group_refused", "cannot form this node's own group: %s", err.text);
  }
}

/* Copies of what is told, since joiners go while the others are told. */
typedef struct draft {
  hv_match_member members[HV_ROUND_MEMBERS_MAX];
  uint64_t bandwidth[HV_ROUND_MEMBERS_MAX];
  uint8_t addrs[HV_ROUND_MEMBERS_MAX][HV_CONTACT_ADDRS_MAX];
} draft;

static void write_draft(draft *d, match_joiner *const *group, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const match_joiner *j = group[i];
    memcpy(d->addrs[i], j->addrs, j->addrs_size);
    d->members[i] = (hv_match_member){.id = j->id, .addrs = hv_span_of(d->addrs[i], j->addrs_size), .auxiliary = j->auxiliary};
    d->members[i].gather_size = j->gather ? (uint32_t)j->gather->size : 0;
    d->bandwidth[i] = j->bandwidth;
  }
}

/* One group of these. 0: they cannot be one. */
static int begin_group(match_gathering *g, match_joiner **group, size_t n) {
  hv_env *env = g->match->env;
  draft *d = hv_mem_zalloc(env->mem, sizeof *d);
  hv_payload *gathers = NULL;
  hv_msg msg = {.kind = HV_MSG_BEGIN, .u.begin.n_members = n};
  in_order(&g->rank, group, n);
  hv_status status = d ? join_gathers(env, group, n, &gathers) : HV_NOMEM;
  if (status == HV_OK) {
    write_draft(d, group, n);
    msg.u.begin.members = d->members;
    status = hv_group_plan(env, d->members, d->bandwidth, n, g->match->config.n_chunks, g->match->config.least_chunks,
                           &msg.u.begin.leader);
  }
  if (status == HV_OK) {
    env->random(env, msg.u.begin.nonce, sizeof msg.u.begin.nonce);
    tell_group(g, group, n, &msg, gathers);
  }
  hv_payload_release(gathers);
  hv_mem_free(d);
  return status == HV_OK;
}

/* Sends away those present who do not speak the version that most of them speak. */
static void part_versions(match_gathering *g) {
  int all;
  uint32_t version = match_common_version(g, &all);
  if (all)
    return;
  char text[HV_VERSIONS_TEXT_MAX];
  snprintf(text, sizeof text, "the group speaks version %u of the protocol, and this peer does not: upgrade the older hivemind_c",
           version);
  for (match_joiner *j = g->joiners, *next; j; j = next) {
    next = j->next;
    if (j->present && j->stream && !match_speaks(j, version))
      send_away(j, HV_VERSION, text);
  }
}

/* Everybody who is present, in groups of even sizes. Returns how many were taken. */
static size_t begin_all(match_gathering *g) {
  part_versions(g);
  if (g->n_present < match_least(g->match))
    return 0;
  match_joiner *line[MATCH_JOINERS_MAX], *group[HV_ROUND_MEMBERS_MAX];
  size_t n = line_up(g, line), owners = 0, taken = 0;
  while (owners < n && can_own(line[owners]))
    owners++;
  size_t groups = (n + match_target(g->match) - 1) / match_target(g->match);
  if (groups > owners)
    groups = owners ? owners : 1;
  for (size_t k = 0; k < groups; k++) {
    size_t size = 0;
    for (size_t i = k; i < n && size < HV_ROUND_MEMBERS_MAX; i += groups)
      group[size++] = line[i];
    if (begin_group(g, group, size))
      taken += size;
  }
  return taken;
}

/* Closes a gathering whose group has begun; the joiners still here came too late. A few peers can have a group at any host: such a
 * group is not the epoch's, and the others gather anew. */
static void close_gathering(match_gathering *g) {
  size_t begun = g->begun - g->helped;
  int is_the_epochs = begun >= match_target(g->match) || begun > (g->begun + match_known(g)) / 3;
  if (is_the_epochs)
    match_note_begun(g->match, match_epoch_of(g));
  for (match_joiner *j = g->joiners, *next; j; j = next) {
    next = j->next;
    if (j->stream) /* this node's own seek has its own time */
      send_away(j, is_the_epochs ? HV_EXISTS : HV_TIMEOUT,
                is_the_epochs ? "the others have begun: next time" : "a few have begun: come again");
  }
  drop_if_empty(g);
}

/* Nobody else comes: all who wait here are told at once. */
static void give_up(match_gathering *g, uint64_t at) {
  hv_match *match = g->match;
  for (match_joiner *j = g->joiners, *next; j; j = next) {
    next = j->next;
    hv_stream *stream = joiner_take_out(j);
    if (stream)
      say_no(match, stream, at ? HV_EXISTS : HV_NOT_FOUND, at ? "the others are further" : "the others are behind", at);
    else
      match->on->hopeless(match, at);
  }
  drop_if_empty(g);
}

static void gathering_arm(match_gathering *g);

/* Begins if it is time, or gives up. The gathering may be gone afterwards. */
static void consider(match_gathering *g) {
  hv_match *match = g->match;
  if (host_now(match) > g->due_us + MATCH_STALLED_MS * 1000ull) /* some may have gone long ago */
    g->hear_us = host_now(match) + MATCH_HEAR_MS * 1000ull;
  if (host_now(match) < g->hear_us) {
    gathering_arm(g);
    return;
  }
  uint64_t at;
  if (!match->behind_us && hv_roster_is_behind(match->roster.place, match_is_stuck(match), g->place))
    match->behind_us = host_now(match);
  if (match_is_hopeless(g, &at)) {
    give_up(g, at);
    return;
  }
  size_t target = match_target(match), want = match_expected(g), n = g->n_present;
  int late = match_is_late(g), waves = want >= 2 * target;
  if (n < match_least(match) || (!late && n < (waves ? target : want))) {
    gathering_arm(g);
    return;
  }
  size_t taken = begin_all(g);
  if (g->epoch_size == 0) { /* never over: those who have had a group may come again, and the others wait on */
    if (g->joiners)
      gathering_arm(g);
    else
      drop_if_empty(g);
    return;
  }
  g->begun += taken;
  if (taken && (late || !waves || want - taken < 2))
    close_gathering(g);
  else
    gathering_arm(g); /* more waves are to come: it is kept for them, also when it is empty */
}

/* ---- the gathering's clock ---- */

static void gathering_arm(match_gathering *g) {
  uint64_t now = host_now(g->match), next = g->pulse_us, end = match_next_end(g, now);
  if (g->hear_us > now && g->hear_us < next)
    next = g->hear_us;
  if (end < next)
    next = end;
  if (g->summon_us < next)
    next = g->summon_us;
  uint64_t given_up = match_next_given_up(g, now);
  if (given_up < next)
    next = given_up;
  if (match_settled_us(g->match) > now && match_settled_us(g->match) < next)
    next = match_settled_us(g->match);
  g->due_us = next > now ? next : now;
  g->match->env->timer_set(g->match->env, &g->timer, next > now ? next - now : 0);
}

static void pulse(match_gathering *g, uint64_t now_us) {
  hv_env *env = g->match->env;
  hv_msg msg = {.kind = HV_MSG_ACCEPTED, .u.accepted = {(uint32_t)g->n_present, (uint32_t)match_expected(g)}};
  for (match_joiner *j = g->joiners, *next; j; j = next) {
    next = j->next;
    uint64_t silent_us = now_us - (j->present ? j->heard_us : j->since_us);
    if (j->stream && silent_us >= MATCH_SILENCE_MS * 1000ull)
      send_away(j, HV_TIMEOUT, "this peer gave no sign of life, or what it has to tell did not arrive");
    else if (j->stream)
      env->stream_send(env, j->stream, &msg, NULL); /* if it has no room for that, it will miss us, rightly */
  }
}

static void gathering_tick(hv_timer *timer, const hv_event *event) {
  match_gathering *g = timer->owner;
  if (event->now_us > g->due_us + MATCH_STALLED_MS * 1000ull) {
    consider(g);
    return;
  }
  if (event->now_us >= g->pulse_us) {
    g->pulse_us = event->now_us + MATCH_PULSE_MS * 1000ull;
    pulse(g, event->now_us);
  }
  if (event->now_us >= g->summon_us) {
    g->summon_pause_us *= SUMMON_FACTOR;
    g->summon_us = event->now_us + g->summon_pause_us;
    match_ask_missing(g);
  }
  if (!g->joiners && !g->begun)
    drop_if_empty(g);
  else if (!g->joiners && event->now_us - g->since_us > MATCH_SILENCE_MS * 10000ull)
    close_gathering(g); /* the last waves have not come */
  else
    consider(g);
}

static match_gathering *gathering_find(hv_match *match, hv_span epoch) {
  match_gathering *g = match->gatherings;
  while (g && !hv_span_equal(match_epoch_of(g), epoch))
    g = g->next;
  return g;
}

/* How much would be lost with it? */
static size_t weight_of(const match_gathering *g) {
  return match_joiner_of(g, &g->match->roster.config.me) ? SIZE_MAX : g->n_joiners + g->begun;
}

/* Drops the smallest gathering, among equals the oldest, so that a peer alone under a name of its own keeps no place from a group.
 * This node's own seek stays. */
static void gathering_make_room(hv_match *match) {
  match_gathering *least = match->gatherings;
  for (match_gathering *g = least; g; g = g->next) /* the oldest is the last */
    if (weight_of(g) <= weight_of(least))
      least = g;
  while (least->joiners)
    send_away(least->joiners, HV_BUSY, "too many gather at this peer");
  drop_if_empty(least);
}

static match_gathering *open_gathering(hv_match *match, hv_span epoch) {
  match_gathering *g = gathering_find(match, epoch);
  if (g)
    return g;
  if (match->n_gatherings == MATCH_GATHERINGS_MAX)
    gathering_make_room(match);
  g = hv_mem_zalloc(match->env->mem, sizeof *g);
  if (!g)
    return NULL;
  uint64_t now = host_now(match);
  *g = (match_gathering){
      .next = match->gatherings, .link = &match->gatherings, .match = match, .epoch_size = epoch.size, .since_us = now};
  if (epoch.size)
    memcpy(g->epoch, epoch.data, epoch.size);
  g->rank = hv_rank_for(match->env, match_key(match), epoch);
  g->place = match_place_of(epoch);
  g->pulse_us = now + MATCH_PULSE_MS * 1000ull;
  g->summon_pause_us = SUMMON_FIRST_MS * 1000ull;
  g->summon_us = now + g->summon_pause_us;
  g->timer = (hv_timer){.fire = gathering_tick, .owner = g};
  if (g->next)
    g->next->link = &g->next;
  match->gatherings = g;
  match->n_gatherings++;
  gathering_arm(g);
  return g;
}

/* ---- streams ---- */

static void gather_came(match_joiner *joiner, hv_payload *payload) {
  match_gathering *g = joiner->gathering;
  if (joiner->present || !payload || payload->size != joiner->gather_size) {
    send_away(joiner, HV_MALFORMED, "what this peer has to tell has another size than it said");
    drop_if_empty(g);
    return;
  }
  joiner->gather = hv_payload_keep(payload);
  joiner->present = 1;
  g->n_present++;
  consider(g);
}

static void joiner_heard(hv_stream *stream, const hv_event *event) {
  match_joiner *joiner = stream->owner;
  match_gathering *g = joiner->gathering;
  joiner->heard_us = event->now_us;
  if (event->msg->kind == HV_MSG_ACCEPTED)
    return; /* it is alive */
  if (event->msg->kind == HV_MSG_GATHER) {
    gather_came(joiner, event->payload);
    return;
  }
  send_away(joiner, event->msg->kind == HV_MSG_DISBAND ? HV_CANCELLED : HV_MALFORMED, "");
  consider(g);
}

static void joiner_ready(hv_stream *stream, const hv_event *event) {
  (void)stream, (void)event;
}

static void joiner_closed(hv_stream *stream, const hv_event *event) {
  match_joiner *joiner = stream->owner;
  match_gathering *g = joiner->gathering;
  (void)event;
  joiner_take_out(joiner);
  if (!g->joiners && !g->begun)
    drop_if_empty(g);
  else
    consider(g);
}

/* 1: it would be too much if it came too, and all who have more to tell went. g may be NULL: nobody is there. */
static int too_much_to_tell(const match_gathering *g, uint32_t more) {
  uint64_t sum = more;
  for (const match_joiner *j = g ? g->joiners : NULL; j; j = j->next)
    sum += !j->stream || j->gather_size <= more ? j->gather_size : 0;
  return more > HV_MATCH_GATHER_MAX || sum > HV_MATCH_GATHERS_MAX;
}

/* Sends joiners away until `more` bytes have room: the one with the most gather data first, among equals the last that came. So a
 * few peers that announce much keep none away that has little. This node's own seek stays. */
static void make_room_to_tell(match_gathering *g, uint32_t more) {
  for (;;) {
    match_joiner *most = NULL;
    uint64_t sum = more;
    for (match_joiner *j = g->joiners; j; j = j->next) {
      sum += j->gather_size;
      most = j->stream && (!most || j->gather_size > most->gather_size) ? j : most;
    }
    if (!most || sum <= HV_MATCH_GATHERS_MAX)
      return;
    send_away(most, HV_TOO_LARGE, "others here have less to tell, and together it would be too much");
  }
}

static match_joiner *gathering_add(match_gathering *g, const hv_peer_id *id, const hv_msg_join *join) {
  match_joiner *j = g->n_joiners < MATCH_JOINERS_MAX ? hv_mem_zalloc(g->match->env->mem, sizeof *j) : NULL;
  uint64_t now = host_now(g->match);
  hv_addr one;
  int dialable = hv_contact_unpack(join->addrs, &one, 1) > 0; /* a member whose address cannot be read owns nothing */
  if (!j)
    return NULL;
  make_room_to_tell(g, join->gather_size);
  *j = (match_joiner){.next = g->joiners,
                      .link = &g->joiners,
                      .gathering = g,
                      .id = *id,
                      .addrs_size = (uint8_t)(dialable ? join->addrs.size : 0),
                      .auxiliary = join->auxiliary,
                      .stay = join->stay,
                      .bandwidth = join->bandwidth,
                      .since_us = now,
                      .heard_us = now,
                      .expected = join->expected,
                      .known = join->known,
                      .gather_size = join->gather_size,
                      .avoid_size = join->avoid.size};
  if (dialable)
    memcpy(j->addrs, join->addrs.data, join->addrs.size);
  if (join->avoid.size)
    memcpy(j->avoid, join->avoid.data, join->avoid.size);
  j->deadline_us = now + (join->wait_ms < HV_MATCH_WAIT_MAX_MS ? join->wait_ms : HV_MATCH_WAIT_MAX_MS) * 1000ull;
  if (j->next)
    j->next->link = &j->next;
  g->joiners = j;
  g->n_joiners++;
  return j;
}

/* Nobody is in two places: where that peer waited before, it waits no more. */
static void leave_all(hv_match *match, const hv_peer_id *id, const match_gathering *keep) {
  for (match_gathering *g = match->gatherings, *next; g; g = next) {
    match_joiner *joiner = match_joiner_of(g, id);
    next = g->next;
    if (!joiner)
      continue;
    send_away(joiner, HV_CANCELLED, "this peer has joined again");
    if (g != keep && !g->begun)
      drop_if_empty(g);
  }
}

/* Why not? NULL: it may. */
static const char *joiner_refusal(hv_match *match, const hv_msg_join *join, match_gathering *g, hv_status *status) {
  *status = HV_INVALID;
  if (memcmp(&join->schema, &match->config.schema, sizeof join->schema) != 0 || join->n_chunks != match->config.n_chunks)
    return "this peer has another setup, or averages other tensors under that prefix";
  *status = HV_EXISTS;
  if (!g && match_has_begun(match, join->epoch))
    return "the others have begun: next time";
  *status = HV_TOO_LARGE;
  if (too_much_to_tell(g, join->gather_size))
    return "the members of that group would have too much to tell together";
  *status = HV_OK;
  return NULL;
}

/* Somebody who comes sooner in the order, and could serve that joiner. */
static hv_roster_entry *better_host(hv_match *match, const hv_rank *rank, int stay, hv_span avoid) {
  return stay ? NULL : hv_roster_first(&match->roster, rank, &match->roster.config.me, avoid);
}

void match_host_opened(hv_match *match, const hv_event *event) {
  static const hv_stream_events on = {joiner_heard, joiner_ready, joiner_closed, .heavy = 0};
  const hv_msg_join *join = &event->msg->u.join;
  hv_stream *stream = event->stream;
  match_gathering *g = gathering_find(match, join->epoch);
  hv_status status;
  const char *no = joiner_refusal(match, join, g, &status);
  hv_peer_id peer = stream->peer;
  if (status != HV_INVALID)
    hv_roster_called(&match->roster, &peer, join->addrs);
  hv_roster_schema(&match->roster, &peer, &join->schema);
  hv_roster_set_place(&match->roster, &peer, match_place_of(join->epoch), 1);
  hv_roster_set_return(&match->roster, &peer, 0);
  if (status != HV_INVALID)
    match_ask_back(match, &peer);
  if (no) {
    say_no(match, stream, status, no, 0);
    return;
  }
  hv_rank rank = g ? g->rank : hv_rank_for(match->env, match_key(match), join->epoch);
  hv_roster_entry *better = better_host(match, &rank, join->stay, join->avoid);
  if (better && !hv_peer_equal(&better->id, &peer)) {
    send_on(match, stream, better);
    return;
  }
  leave_all(match, &peer, g);
  g = open_gathering(match, join->epoch);
  match_joiner *joiner = g ? gathering_add(g, &peer, join) : NULL;
  if (!joiner) {
    say_no(match, stream, HV_BUSY, "too many gather at this peer", 0);
    if (g)
      drop_if_empty(g);
    return;
  }
  joiner->stream = stream;
  stream->on = &on;
  stream->owner = joiner;
  joiner->present = join->gather_size == 0;
  g->n_present += joiner->present;
  hv_msg yes = {.kind = HV_MSG_ACCEPTED, .u.accepted = {(uint32_t)g->n_present, (uint32_t)match_expected(g)}};
  if (g->n_present < yes.u.accepted.expected || !joiner->present) /* otherwise BEGIN says it all */
    match->env->stream_send(match->env, stream, &yes, NULL);
  consider(g);
}

/* ---- this node's own seek ---- */

hv_status match_host_join(hv_match *match, const hv_msg_join *join) {
  hv_payload *gather = NULL;
  hv_span mine = match->seek.request->gather;
  match_gathering *g = open_gathering(match, join->epoch);
  if (mine.size && !(gather = hv_payload_copy(match->env->mem, mine.data, mine.size)))
    g = NULL;
  match_joiner *joiner = g && !too_much_to_tell(g, join->gather_size) ? gathering_add(g, &match->roster.config.me, join) : NULL;
  if (!joiner) {
    hv_payload_release(gather);
    if (g)
      drop_if_empty(g);
    return HV_BUSY;
  }
  joiner->gather = gather;
  joiner->present = 1;
  g->n_present++;
  if (match->seek.n_doubted) { /* another host said that it is over: whether it is they all are asked at once */
    g->summon_pause_us = SUMMON_FIRST_MS * 1000ull / SUMMON_FACTOR;
    g->summon_us = host_now(match);
  }
  consider(g);
  return HV_OK;
}

void match_host_leave(hv_match *match) {
  for (match_gathering *g = match->gatherings; g; g = g->next)
    for (match_joiner *j = g->joiners; j; j = j->next)
      if (!j->stream) {
        joiner_take_out(j);
        if (!g->begun)
          drop_if_empty(g);
        return;
      }
}

int match_host_is_open(hv_match *match, hv_span epoch) {
  return gathering_find(match, epoch) != NULL;
}

/* ---- news ---- */

/* Those who can be served sooner in the order go there. */
static void send_on_all(match_gathering *g) {
  hv_match *match = g->match;
  for (match_joiner *j = g->joiners, *next; j; j = next) {
    next = j->next;
    hv_roster_entry *better = j->stream ? better_host(match, &g->rank, j->stay, hv_span_of(j->avoid, j->avoid_size)) : NULL;
    if (better && !hv_peer_equal(&better->id, &j->id))
      send_on(match, joiner_take_out(j), better);
  }
}

void match_host_news(hv_match *match) {
  for (match_gathering *g = match->gatherings, *next; g; g = next) {
    next = g->next;
    send_on_all(g);
    int elsewhere = !g->begun && match_has_begun(match, match_epoch_of(g));
    uint64_t at;
    if (elsewhere && match_is_hopeless(g, &at)) {
      give_up(g, at);
      continue;
    }
    if (elsewhere && g->n_present >= match_least(match) && begin_all(g))
      g->begun = 1;
    if (elsewhere)
      close_gathering(g);
    else if (!g->joiners && !g->begun)
      drop_if_empty(g);
    else
      consider(g);
  }
}

void match_host_close(hv_match *match) {
  for (match_gathering *g = match->gatherings, *next; g; g = next) {
    next = g->next;
    while (g->joiners)
      send_away(g->joiners, HV_CLOSED, "this peer does not average under that key any more");
    drop_if_empty(g);
  }
}
