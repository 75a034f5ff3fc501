#include "core/match/group.h"

#include "core/round/gauge.h"
#include "core/round/partition.h"
#include "core/util/fold.h"

#include <stdio.h>
#include <string.h>

/* ---- the host's side ---- */

/* Counts the members of a group, for the limit of one member's span. */
static hv_partition_crowd crowd_of(const hv_match_member *members, size_t n) {
  hv_partition_crowd crowd = {0};
  for (size_t i = 0; i < n; i++) {
    int owns = members[i].addrs.size != 0, contributes = !members[i].auxiliary;
    crowd.owners += (size_t)owns;
    crowd.contributors += (size_t)contributes;
    crowd.both += (size_t)(owns && contributes);
  }
  return crowd;
}

/* The one with the smallest span of those that are too small, while more than `keep` own something; n: none. */
static size_t too_small(const hv_partition_member *shares, size_t n, uint32_t least, size_t keep) {
  size_t found = n, owners = 0;
  for (size_t i = 0; i < n; i++) {
    owners += shares[i].count > 0;
    if (shares[i].count > 0 && shares[i].count < least && (found == n || shares[i].count < shares[found].count))
      found = i;
  }
  return owners > keep ? found : n;
}

hv_status hv_group_plan(hv_env *env, hv_match_member *members, uint64_t *bandwidth, size_t n, uint32_t n_chunks, uint32_t least,
                        uint32_t *leader) {
  hv_partition_member *shares = hv_mem_array(env->mem, n, sizeof *shares);
  hv_partition_crowd crowd = crowd_of(members, n);
  uint32_t most = hv_partition_most(&crowd, n_chunks); /* as check_spans */
  int limited = most < n_chunks;
  if (!shares)
    return HV_NOMEM;
  *leader = UINT32_MAX;
  hv_gauge_settle(bandwidth, n);
  for (size_t i = 0; i < n; i++) {
    shares[i] = (hv_partition_member){
        .bandwidth = (double)bandwidth[i], .owns = members[i].addrs.size != 0, .contributes = !members[i].auxiliary};
    shares[i].most = limited ? most : 0;
    if (shares[i].owns && *leader == UINT32_MAX)
      *leader = (uint32_t)i;
  }
  hv_status status = crowd.contributors ? hv_partition(shares, n, n_chunks) : HV_STATE;
  for (size_t out; status == HV_OK && (out = too_small(shares, n, least, limited ? 2 : 1)) < n;) {
    shares[out].owns = 0;
    status = hv_partition(shares, n, n_chunks);
  }
  for (size_t i = 0; status == HV_OK && i < n; i++) {
    members[i].first = shares[i].first;
    members[i].count = shares[i].count;
  }
  hv_mem_free(shares);
  return status;
}

/* ---- the member's side ---- */

static hv_status check_spans(const hv_group_facts *facts, const hv_msg_begin *begin, hv_error *err) {
  uint64_t at = 0;
  hv_partition_crowd crowd = crowd_of(begin->members, begin->n_members);
  uint32_t most = hv_partition_most(&crowd, facts->n_chunks);
  for (size_t i = 0; i < begin->n_members; i++) {
    const hv_match_member *m = &begin->members[i];
    if (m->count > most)
      return hv_fail(err, HV_MALFORMED, "the group is invalid: member %zu would own %u of %u chunks, and may own %u at most", i,
                     m->count, facts->n_chunks, most);
    if (m->count && (m->addrs.size == 0 || m->first != at))
      return hv_fail(err, HV_MALFORMED,
                     "the group is invalid: the span of member %zu is out of order, or nothing can dial that member", i);
    at += m->count;
  }
  if (at != facts->n_chunks)
    return hv_fail(err, HV_MALFORMED, "the spans do not cover all chunks of the run");
  if (begin->leader >= begin->n_members || begin->members[begin->leader].addrs.size == 0 || crowd.contributors == 0)
    return hv_fail(err, HV_MALFORMED,
                   "the group is invalid: it has no leader that can be dialled, or no member has values to average");
  return HV_OK;
}

static hv_status check_gathers(const hv_msg_begin *begin, const hv_payload *gathers, hv_error *err) {
  uint64_t sum = 0;
  for (size_t i = 0; i < begin->n_members; i++) {
    sum += begin->members[i].gather_size;
    if (begin->members[i].gather_size > HV_MATCH_GATHER_MAX)
      return hv_fail(err, HV_MALFORMED, "the group is invalid: the data of member %zu is too large", i);
  }
  if (sum > HV_MATCH_GATHERS_MAX || sum != (gathers ? gathers->size : 0))
    return hv_fail(err, HV_MALFORMED, "the group is invalid: the members' data does not have the announced size");
  return HV_OK;
}

/* Everybody is somebody, once, and this node is as it said. */
static hv_status check_members(const hv_group_facts *facts, const hv_msg_begin *begin, size_t *me, hv_error *err) {
  *me = begin->n_members;
  for (size_t i = 0; i < begin->n_members; i++) {
    const hv_match_member *m = &begin->members[i];
    if (!hv_peer_is_known(&m->id))
      return hv_fail(err, HV_MALFORMED, "the group is invalid: member %zu has no peer ID", i);
    for (size_t j = 0; j < i; j++)
      if (hv_peer_equal(&m->id, &begin->members[j].id))
        return hv_fail(err, HV_MALFORMED, "the group is invalid: members %zu and %zu are the same peer", j, i);
    if (hv_peer_equal(&m->id, &facts->me))
      *me = i;
  }
  if (*me == begin->n_members)
    return hv_fail(err, HV_MALFORMED, "the group is invalid: this peer is not a member");
  const hv_match_member *mine = &begin->members[*me];
  if (mine->auxiliary != facts->auxiliary || (mine->addrs.size == 0) != (facts->client != 0) ||
      mine->gather_size != facts->gather.size)
    return hv_fail(err, HV_MALFORMED, "the group is invalid: it lists this peer with other properties than it announced");
  return HV_OK;
}

static hv_status append_span(hv_buf *buf, hv_span bytes) {
  uint8_t size[4] = {(uint8_t)bytes.size, (uint8_t)(bytes.size >> 8), (uint8_t)(bytes.size >> 16), (uint8_t)(bytes.size >> 24)};
  hv_status status = hv_buf_append(buf, size, sizeof size);
  return status == HV_OK && bytes.size ? hv_buf_append(buf, bytes.data, bytes.size) : status;
}

static hv_status append_number(hv_buf *buf, uint32_t number) {
  uint8_t bytes[4] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16), (uint8_t)(number >> 24)};
  return hv_buf_append(buf, bytes, sizeof bytes);
}

/* Writes all contents of BEGIN as one string of bytes, of which the id is a hash. */
static hv_status group_write_all(const hv_group_facts *facts, const hv_msg_begin *begin, hv_span gathers, hv_buf *out) {
  hv_status status = hv_buf_append(out, "hv:group", 8);
  hv_span heads[] = {facts->key, facts->epoch, hv_span_of(facts->schema.bytes, sizeof facts->schema.bytes),
                     hv_span_of(begin->nonce, sizeof begin->nonce)};
  for (size_t i = 0; i < sizeof heads / sizeof *heads && status == HV_OK; i++)
    status = append_span(out, heads[i]);
  uint32_t counts[] = {facts->n_chunks, begin->leader, (uint32_t)begin->n_members};
  for (size_t i = 0; i < 3 && status == HV_OK; i++)
    status = append_number(out, counts[i]);
  for (size_t i = 0; i < begin->n_members && status == HV_OK; i++) {
    const hv_match_member *m = &begin->members[i];
    uint32_t numbers[] = {m->auxiliary, m->first, m->count, m->gather_size};
    status = append_span(out, hv_span_of(m->id.key, sizeof m->id.key));
    if (status == HV_OK)
      status = append_span(out, m->addrs);
    for (size_t k = 0; k < 4 && status == HV_OK; k++)
      status = append_number(out, numbers[k]);
  }
  return status == HV_OK ? append_span(out, gathers) : status;
}

static hv_status make_id(hv_env *env, const hv_group_facts *facts, const hv_msg_begin *begin, hv_span gathers,
                         uint8_t id[HV_ROUND_ID_SIZE]) {
  hv_buf all;
  hv_hash hash;
  hv_buf_init(&all, env->mem, 4u << 20);
  hv_status status = group_write_all(facts, begin, gathers, &all);
  if (status == HV_OK) {
    env->sha256(env, hv_span_of(all.data, all.size), &hash);
    memcpy(id, hash.bytes, HV_ROUND_ID_SIZE);
  }
  hv_buf_fini(&all);
  return status;
}

/* The block: the group, members, spans of gathers, and their bytes. */
static hv_match_group *make_block(hv_env *env, const hv_group_facts *facts, const hv_msg_begin *begin, const hv_payload *gathers) {
  size_t n = begin->n_members, bytes = gathers ? gathers->size : 0;
  size_t members_at = (sizeof(hv_match_group) + 15) / 16 * 16, gathers_at = members_at + n * sizeof(hv_round_member);
  gathers_at = (gathers_at + 15) / 16 * 16;
  size_t bytes_at = gathers_at + n * sizeof(hv_span);
  uint8_t *block = hv_mem_zalloc(env->mem, bytes_at + bytes), *at = block + bytes_at;
  if (!block)
    return NULL;
  hv_match_group *group = (hv_match_group *)block;
  hv_round_member *members = (hv_round_member *)(block + members_at);
  hv_span *spans = (hv_span *)(block + gathers_at);
  if (gathers)
    hv_payload_read(gathers, 0, at, bytes);
  for (size_t i = 0; i < n; i++) {
    const hv_match_member *m = &begin->members[i];
    members[i] = (hv_round_member){.at.id = m->id, .client = m->addrs.size == 0, .auxiliary = m->auxiliary, .count = m->count};
    members[i].first = m->count ? m->first : 0;
    hv_roster_target(facts->roster, &m->id, m->addrs, 0, &members[i].at); /* a client has none */
    spans[i] = hv_span_of(at, m->gather_size);
    at += m->gather_size;
  }
  *group = (hv_match_group){.members = members, .gathers = spans, .n_members = n, .leader = begin->leader};
  return group;
}

hv_status hv_group_read(hv_env *env, const hv_group_facts *facts, const hv_msg_begin *begin, const hv_payload *gathers,
                        hv_match_group **out, hv_error *err) {
  size_t me;
  if (begin->n_members == 0 || begin->n_members > HV_ROUND_MEMBERS_MAX)
    return hv_fail(err, HV_MALFORMED, "the group is invalid: it must have 1 to %d members", HV_ROUND_MEMBERS_MAX);
  hv_status status = check_members(facts, begin, &me, err);
  if (status == HV_OK)
    status = check_spans(facts, begin, err);
  if (status == HV_OK)
    status = check_gathers(begin, gathers, err);
  if (status != HV_OK)
    return status;
  hv_match_group *group = make_block(env, facts, begin, gathers);
  if (!group)
    return hv_fail(err, HV_NOMEM, "cannot form a group: no memory; raise the memory limit");
  group->me = me;
  hv_span all = hv_span_of((const uint8_t *)(group->gathers + group->n_members), gathers ? gathers->size : 0);
  if (!hv_span_equal(group->gathers[me], facts->gather))
    status = hv_fail(err, HV_MALFORMED, "the group is invalid: the data of this peer was changed");
  else if (make_id(env, facts, begin, all, group->id) != HV_OK)
    status = hv_fail(err, HV_NOMEM, "cannot form a group: no memory; raise the memory limit");
  if (status == HV_OK)
    *out = group;
  else
    hv_mem_free(group);
  return status;
}

/* ---- descriptions ---- */

static hv_span next_line(hv_span *text) {
  size_t n = 0;
  while (n < text->size && text->data[n] != '\n')
    n++;
  hv_span line = hv_span_of(text->data, n);
  size_t skip = n < text->size ? n + 1 : n;
  *text = hv_span_of(text->data + skip, text->size - skip);
  return line;
}

void hv_group_difference(hv_span mine, hv_span theirs, char *out, size_t size) {
  char a[HV_QUOTE_MAX], b[HV_QUOTE_MAX];
  if (mine.size == 0 || theirs.size == 0) {
    snprintf(out, size, "its tensors are not described");
    return;
  }
  while (mine.size && theirs.size) {
    hv_span x = next_line(&mine), y = next_line(&theirs);
    if (hv_span_equal(x, y))
      continue;
    snprintf(out, size, "it has %s where this peer has %s", hv_span_quote(y, b), hv_span_quote(x, a));
    return;
  }
  if (mine.size)
    snprintf(out, size, "it ends before %s", hv_span_quote(next_line(&mine), a));
  else if (theirs.size)
    snprintf(out, size, "it goes on with %s", hv_span_quote(next_line(&theirs), b));
  else
    snprintf(out, size, "what is described is equal: chunks, or tensors beyond the description, differ");
}

/* ---- group bits ---- */

/* Places of the members among `base` digits, all different, drawn by the round's id so that small groups spread over all of them.
 */
static size_t digit_of(const hv_match_group *group, size_t base) {
  uint8_t digits[HV_ROUND_MEMBERS_MAX];
  uint64_t state = 0;
  for (size_t i = 0; i < 8; i++)
    state = state << 8 | group->id[i];
  for (size_t i = 0; i < base; i++)
    digits[i] = (uint8_t)i;
  for (size_t i = base; i > 1; i--) {
    state += 0x9e3779b97f4a7c15u;
    size_t j = (size_t)(hv_fold(state, 0xbf58476d1ce4e5b9u) % i);
    uint8_t kept = digits[i - 1];
    digits[i - 1] = digits[j];
    digits[j] = kept;
  }
  return digits[group->me % base];
}

void hv_match_next_bits(hv_span bits, size_t target_group_size, const hv_match_group *group, char out[HV_MATCH_BITS_MAX + 1]) {
  size_t base = target_group_size < HV_ROUND_MEMBERS_MAX ? target_group_size : HV_ROUND_MEMBERS_MAX, width = 0;
  size_t size = bits.size < HV_MATCH_BITS_MAX ? bits.size : HV_MATCH_BITS_MAX;
  while (((size_t)1 << width) < base)
    width++;
  if (width > size)
    width = size;
  if (size)
    memcpy(out, bits.data, size);
  out[size] = 0;
  if (width == 0)
    return;
  size_t digit = digit_of(group, base);
  memmove(out, out + width, size - width);
  for (size_t i = 0; i < width; i++)
    out[size - 1 - i] = digit >> i & 1 ? '1' : '0';
}
