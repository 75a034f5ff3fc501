#include "core/round/round.h"

#include "core/round/norm.h"

int hv_round_takes_weight(float weight) {
  return weight == 0 || (weight >= HV_ROUND_WEIGHT_MIN && weight <= HV_CODEC_WEIGHT_MAX); /* a NaN is neither */
}

float hv_round_weight(const hv_round *round, float stated) {
  return round->weight_max > 0 && stated > round->weight_max ? round->weight_max : stated;
}

hv_status hv_round_take(const hv_round *round, uint32_t index, const hv_span *spans, size_t n_spans) {
  hv_status status = HV_OK;
  int changes = 0;
  if (round->compared && !atomic_load(round->changed))
    status = hv_run_compare(round->in, round->kern, index, round->compared, spans, n_spans, &changes);
  if (changes)
    atomic_store(round->changed, 1);
  return status == HV_OK ? hv_run_decode(round->out, round->kern, index, spans, n_spans) : status;
}

static hv_status check_members(const hv_round *round, hv_error *err) {
  uint64_t at = 0;
  for (size_t i = 0; i < round->n_members; i++) {
    const hv_round_member *m = &round->members[i];
    if (m->count && (m->client || m->first != at))
      return hv_fail(err, HV_INVALID,
                     "the round is invalid: the span of member %zu is out of order, or that member is in client mode", i);
    at += m->count;
  }
  return at == round->in->n_chunks ? HV_OK : hv_fail(err, HV_INVALID, "the spans do not cover all chunks of the run");
}

static hv_status check_buffers(const hv_round *round, hv_error *err) {
  if (!round->in)
    return hv_fail(err, HV_INVALID, "the round is invalid: the layout of its run is missing");
  if (round->in->n_chunks > HV_ROUND_CHUNKS_MAX)
    return hv_fail(err, HV_INVALID, "the run has %u chunks, and the limit is %u: make part_size_bytes larger", round->in->n_chunks,
                   HV_ROUND_CHUNKS_MAX);
  if (round->members[round->me].auxiliary)
    return round->out ? hv_fail(err, HV_INVALID, "the round is invalid: an auxiliary member receives no averages") : HV_OK;
  if ((!round->in->has_values && !round->listens) || !round->out || !round->out->has_values)
    return hv_fail(err, HV_INVALID,
                   "the round is invalid: a member that contributes needs its values and a buffer for the averages");
  if (!hv_run_alike(round->in, round->out))
    return hv_fail(err, HV_INVALID, "the round is invalid: the averages have another layout than the values");
  if (round->listens && round->weight != 0)
    return hv_fail(err, HV_INVALID, "the round is invalid: a member that listens has the weight 0, not %g", (double)round->weight);
  if (!hv_round_takes_weight(round->weight))
    return hv_fail(err, HV_INVALID, "the weight must be finite, and 0 or from 2^-64 up, not %g", (double)round->weight);
  return HV_OK;
}

hv_status hv_round_check(const hv_round *round, hv_error *err) {
  if (round->n_members == 0 || round->n_members > HV_ROUND_MEMBERS_MAX || round->me >= round->n_members ||
      round->leader >= round->n_members)
    return hv_fail(err, HV_INVALID, "the round is invalid: it must have 1 to %d members, with this peer and the leader among them",
                   HV_ROUND_MEMBERS_MAX);
  if (round->stall_ms == 0)
    return hv_fail(err, HV_INVALID, "the round is invalid: sender_timeout must be more than 0");
  if (!hv_round_takes_weight(round->weight_max))
    return hv_fail(err, HV_INVALID, "weight_max must be 0, or from 2^-64 to %g, not %g", (double)HV_CODEC_WEIGHT_MAX,
                   (double)round->weight_max);
  if (!hv_norm_is_valid(round->norm) || !hv_norm_is_valid(round->norm_ratio))
    return hv_fail(err, HV_INVALID, "the norm and its largest ratio must be finite and 0 or more, not %g and %g",
                   (double)round->norm, (double)round->norm_ratio);
  hv_status status = check_buffers(round, err);
  return status == HV_OK ? check_members(round, err) : status;
}
