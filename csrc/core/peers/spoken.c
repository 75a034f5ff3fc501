#include "core/peers/spoken.h"

#include <stdio.h>
#include <string.h>

hv_status hv_spoken_init(hv_spoken *spoken, hv_mem *mem, const hv_versions *mine) {
  *spoken = (hv_spoken){.mem = mem, .mine = mine && mine->highest ? *mine : hv_versions_own()};
  return hv_versions_valid(&spoken->mine) ? HV_OK : HV_INVALID;
}

void hv_spoken_fini(hv_spoken *spoken) {
  for (size_t i = 0; i < HV_SPOKEN_BUCKETS; i++)
    hv_mem_free(spoken->buckets[i]);
}

static hv_spoken_entry **bucket_of(hv_spoken *spoken, const hv_peer_id *id) {
  return &spoken->buckets[id->key[0] % HV_SPOKEN_BUCKETS];
}

static hv_spoken_entry *find(const hv_env *env, const hv_peer_id *id) {
  hv_spoken_entry *bucket = env->spoken && hv_peer_is_known(id) ? *bucket_of(env->spoken, id) : NULL;
  for (size_t i = 0; bucket && i < HV_SPOKEN_WAYS; i++)
    if (hv_peer_equal(&bucket[i].id, id))
      return &bucket[i];
  return NULL;
}

/* The entry of a peer, if need be in the place of another one. NULL: no memory. */
static hv_spoken_entry *make(hv_spoken *spoken, const hv_peer_id *id) {
  hv_spoken_entry **bucket = bucket_of(spoken, id);
  if (!*bucket && !(*bucket = hv_mem_array(spoken->mem, HV_SPOKEN_WAYS, sizeof **bucket)))
    return NULL;
  hv_spoken_entry *oldest = *bucket;
  for (hv_spoken_entry *e = *bucket; e < *bucket + HV_SPOKEN_WAYS; e++)
    if (e->learned_us < oldest->learned_us)
      oldest = e;
  *oldest = (hv_spoken_entry){.id = *id};
  return oldest;
}

hv_versions hv_spoken_mine(const hv_env *env) {
  return env->spoken ? env->spoken->mine : hv_versions_own();
}

hv_versions hv_spoken_of(const hv_env *env, const hv_peer_id *id) {
  const hv_spoken_entry *entry = find(env, id);
  return entry && entry->versions.lowest ? entry->versions : hv_versions_plain(hv_spoken_mine(env).lowest);
}

uint32_t hv_spoken_choose(hv_env *env, const hv_peer_id *id, int *sure) {
  hv_versions mine = hv_spoken_mine(env);
  const hv_spoken_entry *entry = find(env, id);
  int guess = !entry || entry->apart_us;
  if (sure)
    *sure = !guess || mine.lowest == mine.highest;
  if (entry && entry->apart_us > env->now_us(env))
    return 0;
  return guess ? mine.lowest : hv_versions_common(&mine, &entry->versions);
}

uint64_t hv_spoken_apart_until(const hv_env *env, const hv_peer_id *id) {
  const hv_spoken_entry *entry = find(env, id);
  return entry ? entry->apart_us : 0;
}

/* True if one more such peer may be logged: strangers could fill the log otherwise. */
static int may_tell(hv_spoken *spoken, uint64_t now_us) {
  if (now_us >= spoken->told_us + HV_SPOKEN_APART_US) {
    spoken->told_us = now_us;
    spoken->n_told = 0;
  }
  return spoken->n_told++ < HV_SPOKEN_TOLD_MAX;
}

void hv_spoken_explain(const hv_env *env, const hv_peer_id *id, char text[HV_VERSIONS_TEXT_MAX]) {
  char who[HV_PEER_TEXT_MAX + 8] = "peer ";
  hv_versions mine = hv_spoken_mine(env);
  const hv_spoken_entry *entry = find(env, id);
  hv_peer_print(id, who + strlen(who));
  if (entry && entry->versions.lowest)
    hv_versions_explain(who, &entry->versions, &mine, text);
  else
    snprintf(text, HV_VERSIONS_TEXT_MAX, "%s speaks no version of the protocol that this peer speaks: upgrade the older hivemind_c",
             who);
}

static void tell(hv_env *env, const hv_spoken_entry *entry) {
  char text[HV_VERSIONS_TEXT_MAX];
  if (!may_tell(env->spoken, entry->learned_us))
    return;
  hv_spoken_explain(env, &entry->id, text);
  hv_env_log(env, HV_LOG_WARN, "peers", "protocol_version", "%s", text);
}

static void set_apart(hv_env *env, hv_spoken_entry *entry, int first) {
  enum { LONGER_BITS = 4, TIMES_MAX = 3 }; /* more would be beyond the limit */
  if (entry->learned_us >= entry->apart_us) {
    uint64_t time = HV_SPOKEN_APART_LEAST_US << LONGER_BITS * entry->times;
    entry->apart_us = entry->learned_us + (time < HV_SPOKEN_APART_US ? time : HV_SPOKEN_APART_US);
    entry->times += entry->times < TIMES_MAX;
  }
  if (first)
    tell(env, entry);
}

void hv_spoken_learn(hv_env *env, const hv_peer_id *id, const hv_versions *versions) {
  hv_spoken *spoken = env->spoken;
  if (!spoken || !hv_peer_is_known(id))
    return;
  hv_spoken_entry *entry = find(env, id);
  hv_versions usual = hv_versions_plain(spoken->mine.lowest);
  if (!entry && spoken->mine.lowest == spoken->mine.highest && hv_versions_equal(versions, &usual))
    return; /* what it is taken to speak anyway */
  if (!entry && !(entry = make(spoken, id)))
    return; /* it is learned again with its next message */
  int first = !entry->apart_us;
  entry->versions = *versions;
  entry->learned_us = env->now_us(env);
  if (hv_versions_common(&spoken->mine, versions))
    entry->apart_us = entry->times = 0;
  else
    set_apart(env, entry, first);
}

void hv_spoken_refused(hv_env *env, const hv_peer_id *id, uint32_t version) {
  hv_spoken *spoken = env->spoken;
  if (!spoken || !hv_peer_is_known(id))
    return;
  hv_spoken_entry *entry = find(env, id);
  if (version != spoken->mine.lowest) { /* it was another program when it was learned: it is asked again */
    if (entry)
      *entry = (hv_spoken_entry){0};
    return;
  }
  int first = !entry || !entry->apart_us;
  if (!entry && !(entry = make(spoken, id)))
    return;
  if (first)
    entry->versions = (hv_versions){0};
  entry->learned_us = env->now_us(env);
  set_apart(env, entry, first);
}
