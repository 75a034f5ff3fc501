#include "core/round.h"

#include <math.h>

static hv_status check_members(const hv_round *round, hv_error *err) {
  uint64_t at = 0;
  for (size_t i = 0; i < round->n_members; i++) {
    const hv_round_member *m = &round->members[i];
    if (!isfinite(m->weight) || m->weight < 0 || m->weight > HV_CODEC_WEIGHT_MAX)
      return hv_fail(err, HV_INVALID, "member %zu has the weight %g: it must be finite and not negative", i, (double)m->weight);
    if (m->count && (m->client || m->first != at))
      return hv_fail(err, HV_INVALID, "the span of member %zu is not the next in order, or it is a client", i);
    at += m->count;
  }
  return at == hv_round_chunks(round) ? HV_OK : hv_fail(err, HV_INVALID, "the spans do not cover the run");
}

hv_status hv_round_check(const hv_round *round, hv_error *err) {
  if (round->n_members == 0 || round->n_members > HV_ROUND_MEMBERS_MAX || round->me >= round->n_members)
    return hv_fail(err, HV_INVALID, "a round has 1 to %d members, this one among them", HV_ROUND_MEMBERS_MAX);
  if (round->chunk_values == 0 || round->chunk_values > HV_ROUND_CHUNK_MAX)
    return hv_fail(err, HV_INVALID, "a chunk has 1 to %u values", HV_ROUND_CHUNK_MAX);
  if (round->n_values / round->chunk_values >= UINT32_MAX)
    return hv_fail(err, HV_INVALID, "the run has too many chunks: make them larger");
  if (hv_codec_bound(round->codec, HV_DTYPE_FLOAT32, round->chunk_values) > HV_BULK_PAYLOAD_MAX)
    return hv_fail(err, HV_INVALID, "an encoded chunk must fit into a message of %u bytes: make chunks smaller",
                   HV_BULK_PAYLOAD_MAX);
  if (!round->members[round->me].auxiliary && (!round->in || !round->out) && round->n_values)
    return hv_fail(err, HV_INVALID, "a member that contributes needs its values and a place for the averages");
  return check_members(round, err);
}
