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
  int only_made;    /* those who have made their replica decide */
} filter;

static int is_open(const filter *f, const hv_lineage_member *member) {
  return has_replica(member) && !(f->any_right && member->word.rank == HV_RANK_WRONG);
}

static int has_made(const hv_lineage_member *member) {
  return member->word.rank >= 0 && (member->word.rank & HV_RANK_MADE) != 0;
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

/* True if each word says whether its replica was made: all members are of a version that judges by it. */
static int all_tell(const filter *f) {
  for (size_t i = 0; i < f->n; i++)
    if (is_open(f, &f->members[i]) && (f->members[i].word.rank < 0 || !(f->members[i].word.rank & HV_RANK_TELLS)))
      return 0;
  return 1;
}

static int64_t rank_of(const hv_lineage_member *member) {
  return member->word.rank < 0 ? member->word.rank : member->word.rank & ~HV_RANK_BY_ITSELF;
}

/* One mark: how many members have it, and the highest rank of them. */
typedef struct support {
  hv_mark mark;
  size_t count;
  int64_t rank;
} support;

/* Of a mark that counts. Where those decide who have made their replica, copies of a mark have no vote. */
static support support_of(const filter *f, const hv_mark *mark) {
  support s = {.mark = *mark, .rank = HV_RANK_WRONG};
  for (size_t i = 0; i < f->n; i++)
    if (is_open(f, &f->members[i]) && hv_mark_equal(&f->members[i].word.mark, mark)) {
      s.count += !f->only_made || has_made(&f->members[i]);
      s.rank = rank_of(&f->members[i]) > s.rank ? rank_of(&f->members[i]) : s.rank;
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

/* The strongest of the marks that count. *is_sole: no other one has as many votes. 0: there is none. */
static int finds_strongest(const filter *f, support *best, int *is_sole) {
  int any = 0;
  *is_sole = 0;
  for (size_t i = 0; i < f->n; i++) {
    const hv_mark *mark = &f->members[i].word.mark;
    if (!counts(f, &f->members[i]) || (any && hv_mark_equal(&best->mark, mark)))
      continue;
    support next = support_of(f, mark);
    *is_sole = any ? (next.count == best->count ? 0 : next.count > best->count || *is_sole) : 1;
    if (!any || is_stronger(&next, best))
      *best = next;
    any = 1;
  }
  return any;
}

hv_lineage_view hv_lineage_view_of(const hv_lineage_member *members, size_t n) {
  hv_lineage_view view = {0};
  filter f = filter_of(members, n);
  support best = {0};
  int is_sole = 0;
  f.only_made = all_tell(&f);
  if (!f.only_made || !finds_strongest(&f, &best, &is_sole) || !is_sole || !best.count) {
    f.only_made = 0; /* else one that lies that it has made its replica could decide against one other */
    view.any = (uint8_t)finds_strongest(&f, &best, &is_sole);
  } else
    view.any = 1;
  view.swarms = best.mark;
  for (size_t i = 0; i < n; i++) {
    view.n_words += (size_t)has_replica(&members[i]);
    view.n_right += (size_t)hv_lineage_is_right(&view, &members[i]);
    view.is_made |= (uint8_t)(hv_lineage_is_right(&view, &members[i]) && has_made(&members[i]));
  }
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
  l->is_wrong = l->is_made = l->steps = 0;
  l->was_loaded = 1;
}

/* A replica that began here is made with its first step. */
static void has_stepped(hv_lineage *l, uint64_t samples) {
  l->samples = samples;
  l->steps = l->steps < HV_LINEAGE_MAKES ? (uint8_t)(l->steps + 1) : l->steps;
  l->is_made |= !l->was_loaded || l->steps == HV_LINEAGE_MAKES;
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

static void moves_by_step(hv_lineage *l, hv_env *env, const uint64_t *stamps, size_t n, const uint64_t *frozen, size_t n_frozen) {
  enum { NUMBERS = 32 }; /* of one block */
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
}

void hv_lineage_stepped(hv_lineage *l, hv_env *env, const uint64_t *stamps, size_t n, const uint64_t *frozen, size_t n_frozen,
                        uint64_t samples) {
  if (!l->is_kept)
    return;
  moves_by_step(l, env, stamps, n, frozen, n_frozen);
  has_stepped(l, samples);
}

void hv_lineage_repeated(hv_lineage *l, hv_env *env, const uint64_t *stamps, size_t n, const uint64_t *frozen, size_t n_frozen,
                         uint64_t samples) {
  if (!l->is_kept)
    return;
  moves_by_step(l, env, stamps, n, frozen, n_frozen);
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
  if (l->is_kept)
    has_stepped(l, samples);
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
  l->is_made |= mine && view->is_made;
  return mine;
}

void hv_lineage_is_left(hv_lineage *l) {
  l->is_wrong = l->is_kept;
}

hv_word hv_lineage_word(const hv_lineage *l) {
  uint64_t samples = l->samples < HV_LINEAGE_SAMPLES_MAX ? l->samples : HV_LINEAGE_SAMPLES_MAX;
  int64_t bits = HV_RANK_TELLS + (l->is_reachable ? HV_RANK_REACHABLE : 0) + (l->is_made ? HV_RANK_MADE : 0) +
                 (l->is_by_itself ? HV_RANK_BY_ITSELF : 0);
  return (hv_word){.mark = l->mark, .rank = l->is_wrong ? HV_RANK_WRONG : (int64_t)samples + bits};
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
