/* Members that have ended, or never come to a round (contract in allreduce.h). */
#include "core/reduce/allreduce_inner.h"

#include <string.h>

enum { SENTRY_LOOKS = 16 }; /* in the time that a silence takes */

/* The values for which this view waits from members that have ended. */
void allreduce_lose_the_gone(hv_allreduce *self) {
  turn *t = self->present;
  for (size_t i = 0; t && i < self->round.n_members; i++) {
    if (!hv_members_has(&self->gone, i))
      continue;
    if (t->reducer)
      hv_reducer_gone(t->reducer, i);
    if (t->shares[i])
      hv_share_gone(t->shares[i]);
  }
}

static void member_is_gone(hv_allreduce *self, size_t member) {
  if (hv_members_has(&self->gone, member))
    return;
  hv_members_put(&self->gone, member);
  allreduce_lose_the_gone(self);
  if (self->council)
    hv_council_gone(self->council, member);
  self->env->timer_set(self->env, &self->look, 0);
}

/* Nothing has come from it for a good part of what a silence takes. */
static int is_quiet(const hv_allreduce *self, size_t member) {
  uint64_t sign_us = hv_pace_sign_us(&self->pace, member, self->begun_us);
  return self->env->now_us(self->env) >= sign_us + (uint64_t)self->round.stall_ms * 1000 / 4;
}

void allreduce_look_for_the_silent(hv_timer *sentry, const hv_event *event) {
  hv_allreduce *self = sentry->owner;
  const hv_allreduce_registry *registry = self->registry;
  (void)event;
  if (self->given_up || !registry->is_lost || !self->council)
    return;
  self->env->timer_set(self->env, sentry, (uint64_t)self->round.stall_ms * 1000 / SENTRY_LOOKS);
  for (size_t i = 0; i < self->round.n_members; i++) {
    uint64_t heard_us = self->pace.heard_us[i], since_us = heard_us > self->round.formed_us ? heard_us : self->round.formed_us;
    int missed = self->reported || hv_members_has(&self->suspects, i) || hv_council_gave_up(self->council, i);
    if (i != self->round.me && (missed || is_quiet(self, i)) &&
        registry->is_lost(registry->arg, &self->round.members[i].at.id, since_us) && missed)
      hv_council_mute(self->council, i);
  }
}

void hv_allreduce_gone(hv_allreduce_registry *registry, const hv_peer_id *peer, uint64_t until_us) {
  for (hv_allreduce *self = registry->rounds; self; self = self->next)
    for (size_t i = 0; self->round.formed_us <= until_us && i < self->round.n_members; i++)
      if (i != self->round.me && hv_peer_equal(&self->round.members[i].at.id, peer))
        member_is_gone(self, i);
}

static size_t count_departed(const hv_allreduce_registry *registry, int trusted) {
  size_t n = registry->n_departed[trusted];
  return n < HV_ALLREDUCE_DEPARTED ? n : HV_ALLREDUCE_DEPARTED;
}

static int is_member(const hv_allreduce_registry *registry, const hv_peer_id *peer, const uint8_t round[HV_ROUND_ID_SIZE]) {
  return registry->has_member && registry->has_member(registry->averages, round, peer);
}

/* True if this note is of a round that may still begin here. */
static int is_of_use(const hv_allreduce_registry *registry, int trusted, size_t at) {
  return is_member(registry, &registry->departed[trusted][at].peer, registry->departed[trusted][at].round);
}

/* Where to note that a peer has left a round. It has one note, and one more for each group that has formed here with it. The note
 * that makes way for a new one is the first one that is of no use, if there is one. */
static size_t place_of_note(hv_allreduce_registry *registry, int trusted, const hv_peer_id *peer,
                            const uint8_t round[HV_ROUND_ID_SIZE]) {
  size_t n = count_departed(registry, trusted), at;
  for (at = 0; at < n; at++)
    if (hv_peer_equal(&registry->departed[trusted][at].peer, peer) &&
        (memcmp(registry->departed[trusted][at].round, round, HV_ROUND_ID_SIZE) == 0 || !is_of_use(registry, trusted, at)))
      return at;
  for (size_t tries = 0; tries < HV_ALLREDUCE_DEPARTED; tries++) {
    at = registry->n_departed[trusted]++ % HV_ALLREDUCE_DEPARTED;
    if (at >= n || !is_of_use(registry, trusted, at))
      break;
  }
  return at;
}

void hv_allreduce_departed(hv_allreduce_registry *registry, const hv_peer_id *peer, const uint8_t round[HV_ROUND_ID_SIZE]) {
  static const uint8_t none[HV_ROUND_ID_SIZE];
  if (memcmp(round, none, sizeof none) == 0)
    return;
  hv_allreduce *self = allreduce_find(registry, round);
  for (size_t i = 0; self && i < self->round.n_members; i++)
    if (i != self->round.me && hv_peer_equal(&self->round.members[i].at.id, peer))
      member_is_gone(self, i);
  hv_tier tier = registry->tier ? registry->tier(registry->arg, peer) : HV_TIER_TRUSTED;
  if (is_member(registry, peer, round)) /* the table of peers may have no room for it */
    tier = HV_TIER_TRUSTED;
  if (self || tier == HV_TIER_STRANGER)
    return; /* strangers would leave no room for those that were met */
  int trusted = tier == HV_TIER_TRUSTED;
  size_t at = place_of_note(registry, trusted, peer, round);
  registry->departed[trusted][at].peer = *peer;
  memcpy(registry->departed[trusted][at].round, round, HV_ROUND_ID_SIZE);
}

/* It ended, or said that it does not come, before this round began here. */
static int comes_not(const hv_allreduce *self, size_t member) {
  const hv_allreduce_registry *registry = self->registry;
  const hv_peer_id *peer = &self->round.members[member].at.id;
  for (int trusted = 0; trusted < 2; trusted++)
    for (size_t i = 0; i < count_departed(registry, trusted); i++)
      if (hv_peer_equal(&registry->departed[trusted][i].peer, peer) &&
          memcmp(registry->departed[trusted][i].round, self->round.id, HV_ROUND_ID_SIZE) == 0)
        return 1;
  return registry->has_ended && self->round.formed_us && registry->has_ended(registry->arg, peer, self->round.formed_us);
}

void hv_allreduce_depart(hv_allreduce_registry *registry, const uint8_t id[HV_ROUND_ID_SIZE], const hv_round_member *members,
                         size_t n, size_t me) {
  hv_msg msg = {.kind = HV_MSG_DEPART};
  hv_allreduce_leave(registry, id);
  memcpy(msg.u.depart.round, id, HV_ROUND_ID_SIZE);
  for (size_t i = 0; registry->notices && i < n; i++)
    if (i != me && !members[i].client)
      hv_notice_send(registry->notices, &members[i].at, &msg);
}

void allreduce_look_for_the_gone(hv_allreduce *self) {
  for (size_t i = 0; i < self->round.n_members; i++)
    if (i != self->round.me && comes_not(self, i))
      member_is_gone(self, i);
}
