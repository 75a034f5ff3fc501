#include "core/epoch/lineage.h"

#include <string.h>

/* ---- the rule ---- */

static int has_replica(const hv_lineage_member *member) {
  return !member->is_auxiliary && member->has_word;
}

/* Which words of a group count. */
typedef struct filter {
  const hv_lineage_member *members;
  size_t n;
  int any_right;    /* a replica is not known to be wrong: those that are do not count */
  int only_reached; /* only marks count that a peer has that can be dialled */
} filter;

static int is_open(const filter *f, const hv_lineage_member *member) {
  return has_replica(member) && !(f->any_right && member->word.rank == HV_RANK_WRONG);
}

/* True if a peer that can be dialled has that mark. */
static int is_reached(const filter *f, const hv_mark *mark) {
  for (size_t i = 0; i < f->n; i++)
    if (is_open(f, &f->members[i]) && !f->members[i].is_client && hv_mark_equal(&f->members[i].word.mark, mark))
      return 1;
  return 0;
}

static int counts(const filter *f, const hv_lineage_member *member) {
  return is_open(f, member) && !(f->only_reached && !is_reached(f, &member->word.mark));
}

static filter filter_of(const hv_lineage_member *members, size_t n) {
  filter f = {.members = members, .n = n};
  int reached = 0, hub = 0;
  for (size_t i = 0; i < n; i++) {
    f.any_right |= has_replica(&members[i]) && members[i].word.rank != HV_RANK_WRONG;
    hub |= members[i].is_auxiliary && !members[i].is_client;
  }
  for (size_t i = 0; i < n; i++)
    reached |= is_open(&f, &members[i]) && !members[i].is_client;
  f.only_reached = reached && !hub; /* no hub passes on the state of peers that nobody can dial */
  return f;
}

/* One mark: how many members have it, and the highest rank of them. */
typedef struct support {
  hv_mark mark;
  size_t count;
  int64_t rank;
} support;

/* Of a mark that counts. */
static support support_of(const filter *f, const hv_mark *mark) {
  support s = {.mark = *mark, .rank = HV_RANK_WRONG};
  for (size_t i = 0; i < f->n; i++)
    if (is_open(f, &f->members[i]) && hv_mark_equal(&f->members[i].word.mark, mark)) {
      s.count++;
      s.rank = f->members[i].word.rank > s.rank ? f->members[i].word.rank : s.rank;
    }
  return s;
}

static int is_stronger(const support *a, const support *b) {
  if (a->count != b->count)
    return a->count > b->count;
  if (a->rank != b->rank)
    return a->rank > b->rank;
  return memcmp(a->mark.bytes, b->mark.bytes, HV_MARK_SIZE) > 0;
}

int hv_lineage_is_right(const hv_lineage_view *view, const hv_lineage_member *member) {
  return view->any && has_replica(member) && hv_mark_equal(&member->word.mark, &view->swarms);
}

static void find_giver(hv_lineage_view *view, const hv_lineage_member *members, size_t n) {
  const hv_lineage_member *giver = NULL;
  for (size_t i = 0; i < n; i++) {
    if (!hv_lineage_is_right(view, &members[i]))
      continue;
    if (!members[i].is_client)
      return;
    giver = giver && hv_peer_compare(&giver->peer, &members[i].peer) < 0 ? giver : &members[i];
  }
  view->giver = view->n_right < view->n_words ? giver : NULL;
}

hv_lineage_view hv_lineage_view_of(const hv_lineage_member *members, size_t n) {
  hv_lineage_view view = {0};
  filter f = filter_of(members, n);
  support best = {0};
  for (size_t i = 0; i < n; i++) {
    view.n_words += (size_t)has_replica(&members[i]);
    if (!counts(&f, &members[i]) || (best.count && hv_mark_equal(&best.mark, &members[i].word.mark)))
      continue;
    support next = support_of(&f, &members[i].word.mark);
    if (!best.count || is_stronger(&next, &best))
      best = next;
  }
  view.any = best.count > 0;
  view.swarms = best.mark;
  for (size_t i = 0; i < n; i++)
    view.n_right += (size_t)hv_lineage_is_right(&view, &members[i]);
  find_giver(&view, members, n);
  return view;
}

/* ---- hashes ---- */

enum { BLOCK_MAX = 512 };

/* Bytes that are hashed together, after the mark that they move on. */
typedef struct block {
  uint8_t bytes[BLOCK_MAX];
  size_t size;
} block;

/* `deed` tells the hashes of different deeds apart. */
static block block_of(const char *deed, const uint8_t before[HV_MARK_SIZE]) {
  block b = {.size = strlen(deed) + 1};
  memcpy(b.bytes, deed, b.size);
  memcpy(b.bytes + b.size, before, HV_MARK_SIZE);
  b.size += HV_MARK_SIZE;
  return b;
}

static void add_number(block *b, uint64_t number) {
  hv_le_put(b->bytes + b->size, number, 8);
  b->size += 8;
}

static void add_bytes(block *b, const void *bytes, size_t size) {
  memcpy(b->bytes + b->size, bytes, size);
  b->size += size;
}

static void hash_block(const block *b, hv_env *env, uint8_t out[HV_MARK_SIZE]) {
  hv_hash hash;
  env->sha256(env, hv_span_of(b->bytes, b->size), &hash);
  memcpy(out, hash.bytes, HV_MARK_SIZE);
}

void hv_lineage_ticket(hv_env *env, uint64_t epoch, const hv_lineage_member *members, size_t n, uint8_t out[HV_MARK_SIZE]) {
  memset(out, 0, HV_MARK_SIZE);
  block b = block_of("hv:gift", out);
  add_number(&b, epoch);
  hash_block(&b, env, out);
  /* in the order of their IDs, which all members share */
  for (const hv_lineage_member *last = NULL;;) {
    const hv_lineage_member *next = NULL;
    for (size_t i = 0; i < n; i++) {
      const hv_lineage_member *one = &members[i];
      if (has_replica(one) && (!last || hv_peer_compare(&one->peer, &last->peer) > 0) &&
          (!next || hv_peer_compare(&one->peer, &next->peer) < 0))
        next = one;
    }
    if (!next)
      return;
    b = block_of("hv:gift", out);
    add_bytes(&b, next->peer.key, sizeof next->peer.key);
    add_bytes(&b, next->word.mark.bytes, HV_MARK_SIZE);
    hash_block(&b, env, out);
    last = next;
  }
}

/* ---- the mark of one peer's replica ---- */

void hv_lineage_init(hv_lineage *l) {
  *l = (hv_lineage){.is_kept = 1, .is_reachable = 1};
}

void hv_lineage_begin(hv_lineage *l, const hv_mark *digest) {
  l->mark = *digest;
  l->is_known = 1;
}

void hv_lineage_restart(hv_lineage *l, const hv_mark *mark) {
  l->mark = mark ? *mark : (hv_mark){0};
  l->is_known = mark != NULL;
  l->samples = 0;
  l->is_wrong = 0;
}

static block deed_of(const hv_lineage *l, const char *deed) {
  return block_of(deed, l->mark.bytes);
}

void hv_lineage_averaged(hv_lineage *l, hv_env *env, uint64_t stamp) {
  if (!l->is_kept)
    return;
  block b = deed_of(l, "hv:averaged");
  add_number(&b, stamp);
  hash_block(&b, env, l->mark.bytes);
}

void hv_lineage_stepped(hv_lineage *l, hv_env *env, const uint64_t *stamps, size_t n, const uint64_t *frozen, size_t n_frozen,
                        uint64_t samples) {
  enum { NUMBERS = 32 }; /* of one block */
  if (!l->is_kept)
    return;
  block b = deed_of(l, "hv:stepped");
  add_number(&b, n);
  add_number(&b, n_frozen);
  hash_block(&b, env, l->mark.bytes);
  for (size_t i = 0; i < n + n_frozen;) {
    b = deed_of(l, "hv:stepped with");
    for (size_t last = i + NUMBERS; i < n + n_frozen && i < last; i++)
      add_number(&b, i < n ? stamps[i] : frozen[i - n]);
    hash_block(&b, env, l->mark.bytes);
  }
  l->samples = samples;
}

static void moves_by_name(hv_lineage *l, hv_env *env, const char *deed, const hv_peer_id *me, uint64_t epoch, uint64_t moment_us) {
  if (!l->is_kept)
    return;
  block b = deed_of(l, deed);
  add_bytes(&b, me->key, sizeof me->key);
  add_number(&b, epoch);
  add_number(&b, moment_us);
  hash_block(&b, env, l->mark.bytes);
}

void hv_lineage_averaged_in_part(hv_lineage *l, hv_env *env, const hv_peer_id *me, uint64_t epoch, uint64_t moment_us) {
  moves_by_name(l, env, "hv:averaged in part", me, epoch, moment_us);
}

void hv_lineage_stepped_alone(hv_lineage *l, hv_env *env, const hv_peer_id *me, uint64_t epoch, uint64_t moment_us,
                              uint64_t samples) {
  moves_by_name(l, env, "hv:stepped alone", me, epoch, moment_us);
  l->samples = l->is_kept ? samples : l->samples;
}

void hv_lineage_set_up(hv_lineage *l, hv_env *env, hv_span setup) {
  if (!l->is_kept)
    return;
  hv_hash hash;
  env->sha256(env, setup, &hash);
  block b = deed_of(l, "hv:setup");
  add_bytes(&b, hash.bytes, sizeof hash.bytes);
  hash_block(&b, env, l->mark.bytes);
}

int hv_lineage_judge(hv_lineage *l, const hv_lineage_view *view) {
  int mine = !l->is_kept || !view->any || hv_mark_equal(&view->swarms, &l->mark);
  l->is_wrong = !mine;
  return mine;
}

void hv_lineage_is_left(hv_lineage *l) {
  l->is_wrong = l->is_kept;
}

hv_word hv_lineage_word(const hv_lineage *l) {
  uint64_t samples = l->samples < HV_LINEAGE_SAMPLES_MAX ? l->samples : HV_LINEAGE_SAMPLES_MAX;
  return (hv_word){.mark = l->mark,
                   .rank = l->is_wrong ? HV_RANK_WRONG : (int64_t)samples + (l->is_reachable ? HV_RANK_REACHABLE : 0)};
}

int hv_mark_equal(const hv_mark *a, const hv_mark *b) {
  return memcmp(a->bytes, b->bytes, HV_MARK_SIZE) == 0;
}

void hv_mark_digits(const hv_mark *mark, float out[HV_MARK_DIGITS]) {
  for (size_t i = 0; i < HV_MARK_DIGITS; i++) {
    uint32_t digit = 0;
    for (size_t bit = 0; bit < HV_MARK_DIGIT_BITS; bit++) {
      size_t at = i * HV_MARK_DIGIT_BITS + bit;
      if (at < 8 * HV_MARK_SIZE)
        digit |= (uint32_t)(mark->bytes[at / 8] >> at % 8 & 1) << bit;
    }
    out[i] = (float)digit;
  }
}
