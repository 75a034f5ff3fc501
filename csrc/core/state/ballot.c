#include "core/state/ballot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
  EPOCH_AT = 1,
  DIGEST_AT = 9,
  SIZE_AT = 41,
  PRIORITY_AT = 49,
  LINEAGE_AT = 53,
  ADDRS_AT = LINEAGE_AT + HV_BALLOT_LINEAGE,
  VERSION = 2,
  FEW = 3,   /* votes that are too few to show which one lies */
  UNSEEN = 2 /* the bloc of all that did not answer; a network is an odd number */
};

size_t hv_ballot_subkey(const hv_peer_id *signer, char out[HV_BALLOT_SUBKEY_MAX]) {
  char text[HV_PEER_TEXT_MAX];
  return (size_t)snprintf(out, HV_BALLOT_SUBKEY_MAX, "[owner:%s]", hv_peer_print(signer, text));
}

size_t hv_ballot_write(const hv_ballot *ballot, uint8_t out[HV_BALLOT_BYTES_MAX]) {
  uint32_t priority;
  size_t addrs = ballot->addrs.size <= HV_CONTACT_ADDRS_MAX ? ballot->addrs.size : 0;
  memcpy(&priority, &ballot->priority, sizeof priority);
  out[0] = VERSION;
  hv_le_put(out + EPOCH_AT, ballot->epoch, 8);
  memcpy(out + DIGEST_AT, ballot->digest.bytes, 32);
  hv_le_put(out + SIZE_AT, ballot->size, 8);
  hv_le_put(out + PRIORITY_AT, priority, 4);
  memcpy(out + LINEAGE_AT, ballot->lineage, HV_BALLOT_LINEAGE);
  if (addrs)
    memcpy(out + ADDRS_AT, ballot->addrs.data, addrs);
  return ADDRS_AT + addrs;
}

hv_status hv_ballot_read(hv_span bytes, hv_ballot *out) {
  if (bytes.size && bytes.data[0] != VERSION)
    return HV_VERSION;
  if (bytes.size < ADDRS_AT || bytes.size > HV_BALLOT_BYTES_MAX)
    return HV_MALFORMED;
  uint32_t priority = (uint32_t)hv_le_get(bytes.data + PRIORITY_AT, 4);
  out->epoch = hv_le_get(bytes.data + EPOCH_AT, 8);
  memcpy(out->digest.bytes, bytes.data + DIGEST_AT, 32);
  out->size = hv_le_get(bytes.data + SIZE_AT, 8);
  memcpy(&out->priority, &priority, sizeof priority);
  memcpy(out->lineage, bytes.data + LINEAGE_AT, HV_BALLOT_LINEAGE);
  out->addrs = hv_span_of(bytes.data + ADDRS_AT, bytes.size - ADDRS_AT);
  return isfinite(out->priority) ? HV_OK : HV_MALFORMED;
}

/* ---- the count ---- */

typedef int comes_before(const hv_ballot *a, const hv_ballot *b);

/* The newest epoch first, then by digest, then by size. */
static int ballot_comes_before(const hv_ballot *a, const hv_ballot *b) {
  if (a->epoch != b->epoch)
    return a->epoch > b->epoch;
  int order = memcmp(&a->digest, &b->digest, sizeof a->digest);
  return order ? order < 0 : a->size < b->size;
}

static int bloc_comes_before(const hv_ballot *a, const hv_ballot *b) {
  return a->bloc < b->bloc;
}

static void sort(hv_ballot *ballots, size_t n, comes_before *before) {
  size_t gap = 1;
  while (gap < n / 3)
    gap = 3 * gap + 1;
  for (; gap > 0; gap /= 3)
    for (size_t i = gap; i < n; i++) {
      hv_ballot moved = ballots[i];
      size_t at = i;
      for (; at >= gap && before(&moved, &ballots[at - gap]); at -= gap)
        ballots[at] = ballots[at - gap];
      ballots[at] = moved;
    }
}

static uint64_t bloc_of(const hv_ballot *ballot, int some_are_certain) {
  if (ballot->standing == HV_STANDING_INITIAL)
    return 0;
  if (ballot->seen)
    return ballot->network;
  return some_are_certain ? UNSEEN : 0;
}

/* Gives each its part of its bloc's vote. */
static void weigh(hv_ballot *ballots, size_t n) {
  int some_are_certain = 0;
  for (size_t i = 0; i < n; i++)
    some_are_certain |= ballots[i].seen || ballots[i].standing == HV_STANDING_INITIAL;
  for (size_t i = 0; i < n; i++)
    ballots[i].bloc = bloc_of(&ballots[i], some_are_certain);
  sort(ballots, n, bloc_comes_before);
  for (size_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && ballots[first].bloc && ballots[end].bloc == ballots[first].bloc;)
      end++;
    uint32_t of = (uint32_t)(end - first), rest = HV_BALLOT_VOTE % of;
    for (size_t i = first; i < end; i++)
      ballots[i].weight = HV_BALLOT_VOTE / of + (i - first < rest);
  }
}

static uint64_t weight_of(const hv_ballot *ballots, size_t first, size_t end) {
  uint64_t sum = 0;
  for (size_t i = first; i < end; i++)
    sum += ballots[i].weight;
  return sum;
}

static int same_digest(const hv_ballot *a, const hv_ballot *b) {
  return memcmp(&a->digest, &b->digest, sizeof a->digest) == 0;
}

/* Within the ballots from `first` to `end`, all of one epoch: where the digest with most votes begins, and how many it has. */
static size_t most_named(const hv_ballot *ballots, size_t first, size_t end, uint64_t *votes) {
  size_t best = first;
  *votes = 0;
  for (size_t i = first, next; i < end; i = next) {
    for (next = i + 1; next < end && same_digest(&ballots[next], &ballots[i]);)
      next++;
    uint64_t its = weight_of(ballots, i, next);
    if (its > *votes) {
      *votes = its;
      best = i;
    }
  }
  return best;
}

static int are_kin(const hv_ballot *a, const hv_ballot *b) {
  static const uint8_t none[HV_BALLOT_LINEAGE];
  return memcmp(a->lineage, b->lineage, sizeof none) == 0 && memcmp(a->lineage, none, sizeof none) != 0;
}

/* Of ballots of one epoch, one whose lineage more than half of the votes may have, and no other: different ones cancel out. */
static const hv_ballot *likely_kin(const hv_ballot *ballots, size_t n) {
  const hv_ballot *left = ballots;
  uint64_t lead = 0;
  for (size_t i = 0; i < n; i++) {
    uint64_t weight = ballots[i].weight;
    if (lead > 0 && are_kin(left, &ballots[i]))
      lead += weight;
    else if (lead >= weight)
      lead -= weight;
    else {
      left = &ballots[i];
      lead = weight - lead;
    }
  }
  return left;
}

/* The votes of these ballots of one epoch for the lineage that most have, if that is more than half; *best: one of those that name
 * the digest with most of these votes. */
static uint64_t kin_of(const hv_ballot *ballots, size_t n, size_t *best) {
  const hv_ballot *kin = likely_kin(ballots, n);
  uint64_t votes = 0, same = 0, most = 0;
  for (size_t i = 0; i < n; i++) {
    if (i > 0 && !same_digest(&ballots[i], &ballots[i - 1]))
      same = 0;
    if (!are_kin(kin, &ballots[i]))
      continue;
    votes += ballots[i].weight;
    same += ballots[i].weight;
    if (same > most) {
      most = same;
      *best = i;
    }
  }
  return votes;
}

/* Of all ballots for the chosen manifest, the one in the middle of their votes by size. */
static size_t middle(const hv_ballot *ballots, size_t n, size_t chosen) {
  const hv_ballot *b = &ballots[chosen];
  size_t first = chosen, end = chosen + 1;
  while (first > 0 && ballots[first - 1].epoch == b->epoch && same_digest(&ballots[first - 1], b))
    first--;
  while (end < n && ballots[end].epoch == b->epoch && same_digest(&ballots[end], b))
    end++;
  uint64_t votes = weight_of(ballots, first, end), below = 0;
  size_t at = first;
  while (at + 1 < end && 2 * (below + ballots[at].weight) < votes)
    below += ballots[at++].weight;
  return at;
}

hv_status hv_ballot_count(hv_ballot *ballots, size_t n, uint64_t epoch_least, size_t *out) {
  weigh(ballots, n);
  sort(ballots, n, ballot_comes_before);
  if (n == 0 || ballots[0].epoch < epoch_least)
    return HV_NOT_FOUND;
  uint64_t all = weight_of(ballots, 0, n), up_to = 0; /* up_to: the votes for this epoch and later ones */
  for (size_t first = 0, end; first < n && ballots[first].epoch >= epoch_least; first = end) {
    uint64_t votes, of_epoch;
    for (end = first + 1; end < n && ballots[end].epoch == ballots[first].epoch;)
      end++;
    of_epoch = weight_of(ballots, first, end);
    up_to += of_epoch;
    size_t best = most_named(ballots, first, end, &votes);
    int reached = epoch_least && all <= FEW * (uint64_t)HV_BALLOT_VOTE ? 3 * up_to > all : 2 * up_to > all;
    if (reached && 2 * votes > of_epoch && 3 * votes > all) {
      *out = middle(ballots, n, best);
      return HV_OK;
    }
    if (3 * kin_of(ballots + first, end - first, &best) > 2 * all) { /* more than the rest: no other epoch has a majority */
      *out = middle(ballots, n, first + best);
      return HV_OK;
    }
  }
  return HV_STATE;
}
