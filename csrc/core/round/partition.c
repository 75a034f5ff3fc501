#include "core/round/partition.h"

#include <math.h>

static int partition_known(double bandwidth) {
  return isfinite(bandwidth) && bandwidth > 0;
}

/* The median of the known bandwidths; 1 if there is none. Quadratic, but a group is small and nothing need be allocated. */
static double usual_bandwidth(const hv_partition_member *members, size_t n) {
  size_t n_known = 0;
  for (size_t i = 0; i < n; i++)
    n_known += partition_known(members[i].bandwidth);
  for (size_t i = 0; i < n; i++) {
    size_t below = 0, same = 0;
    for (size_t j = 0; j < n; j++) {
      below += partition_known(members[j].bandwidth) && members[j].bandwidth < members[i].bandwidth;
      same += members[j].bandwidth == members[i].bandwidth;
    }
    if (partition_known(members[i].bandwidth) && below <= n_known / 2 && n_known / 2 < below + same)
      return members[i].bandwidth;
  }
  return 1;
}

typedef struct shape {
  double usual, contributors, slowest, n_chunks;
  int free_owners; /* with up to two contributors their own spans cost them nothing: then they own everything */
} shape;

static double bandwidth_of(const hv_partition_member *m, const shape *s) {
  return partition_known(m->bandwidth) ? m->bandwidth : s->usual;
}

/* The share that keeps a member's link busy for just `time` (in units of the whole volume). */
static double share_in(const hv_partition_member *m, const shape *s, double time) {
  if (!m->owns || (s->free_owners && !m->contributes))
    return 0;
  double carried = time * bandwidth_of(m, s); /* volumes its link carries in that time */
  if (s->free_owners)
    return carried;                     /* any will do: by speed, since the others wait for what comes from there */
  double base = m->contributes ? 1 : 0; /* it sends its own values anyway */
  double share = (carried - base) / (s->contributors - 2 * base);
  double most = m->most ? m->most / s->n_chunks : 1;
  return share < 0 ? 0 : share < most ? share : most;
}

static double sum_in(const hv_partition_member *members, size_t n, const shape *s, double time) {
  double sum = 0;
  for (size_t i = 0; i < n; i++)
    sum += share_in(&members[i], s, time);
  return sum;
}

static void set_shares(hv_partition_member *members, size_t n, uint32_t n_chunks) {
  shape s = {.usual = usual_bandwidth(members, n), .slowest = INFINITY, .n_chunks = n_chunks ? n_chunks : 1};
  size_t contributing_owners = 0;
  for (size_t i = 0; i < n; i++) {
    s.contributors += members[i].contributes != 0;
    contributing_owners += members[i].contributes && members[i].owns;
    if (members[i].owns && bandwidth_of(&members[i], &s) < s.slowest)
      s.slowest = bandwidth_of(&members[i], &s);
  }
  s.free_owners = s.contributors <= 2 && contributing_owners > 0;
  if (s.contributors < 1)
    s.contributors = 1; /* nobody has anything: still somebody owns it */

  double low = 0, high = (s.contributors + 2) / s.slowest; /* by then the slowest could do it alone */
  for (int i = 0; i < 100; i++) {
    double middle = (low + high) / 2;
    if (sum_in(members, n, &s, middle) >= 1)
      high = middle;
    else
      low = middle;
  }
  double sum = sum_in(members, n, &s, high);
  for (size_t i = 0; i < n; i++)
    members[i].share = share_in(&members[i], &s, high) / sum;
}

uint32_t hv_partition_most(const hv_partition_crowd *crowd, uint32_t n_chunks) {
  size_t can = crowd->contributors <= 2 && crowd->both ? crowd->both : crowd->owners; /* as free_owners */
  if (can < 3 || 2 * can < crowd->contributors)
    return n_chunks;
  return (uint32_t)ceil(HV_PARTITION_MOST * n_chunks);
}

hv_status hv_partition(hv_partition_member *members, size_t n, uint32_t n_chunks) {
  size_t owners = 0;
  for (size_t i = 0; i < n; i++)
    owners += members[i].owns != 0;
  if (n == 0)
    return HV_INVALID;
  if (owners == 0)
    return HV_STATE;
  set_shares(members, n, n_chunks);

  /* Spans end where the running sum of shares, rounded, does: so that no rounding adds up. Rounding can carry a span one chunk
   * above its limit: that chunk is the next owner's. A limit is at least half, so the others then own no more than that together.
   */
  double sum = 0;
  uint32_t at = 0;
  size_t last = n;
  for (size_t i = 0; i < n; i++) {
    sum += members[i].share;
    double end = floor(sum * n_chunks + 0.5);
    uint32_t until = end < at ? at : end > n_chunks ? n_chunks : (uint32_t)end;
    if (members[i].most && until - at > members[i].most)
      until = at + members[i].most;
    members[i].first = at;
    members[i].count = members[i].owns ? until - at : 0;
    at += members[i].count;
    if (members[i].owns)
      last = i;
  }
  members[last].count += n_chunks - at; /* what floating point left over */
  for (size_t i = last + 1; i < n; i++)
    members[i].first = n_chunks;
  return HV_OK;
}
