/* The setup of a match: text on which the members of a group must agree, before that of the tensors (contract in match.h). */
#include "core/match/match_inner.h"

#include <string.h>

/* The hash of the setup and of the tensors' schema; without a setup the latter alone. */
static hv_hash schema_of(const hv_match *match, hv_span setup) {
  uint8_t all[HV_MATCH_SETUP_MAX + sizeof match->tensors];
  hv_hash hash = match->tensors;
  if (setup.size == 0)
    return hash;
  memcpy(all, setup.data, setup.size);
  memcpy(all + setup.size, &match->tensors, sizeof match->tensors);
  match->env->sha256(match->env, hv_span_of(all, setup.size + sizeof match->tensors), &hash);
  return hash;
}

/* Puts the setup right before the text about the tensors. */
static void write_setup(hv_match *match, hv_span setup) {
  uint8_t *at = match->schema_text + HV_MATCH_SETUP_MAX - setup.size;
  size_t size = setup.size + match->tensors_size;
  if (setup.size)
    memcpy(at, setup.data, setup.size);
  match->setup_size = setup.size;
  match->config.schema_text = hv_span_of(at, size < HV_MATCH_SCHEMA_TEXT_MAX ? size : HV_MATCH_SCHEMA_TEXT_MAX);
  match->config.schema = schema_of(match, setup);
}

hv_status hv_match_set_setup(hv_match *match, hv_span setup, hv_error *err) {
  if (setup.size > HV_MATCH_SETUP_MAX)
    return hv_fail(err, HV_INVALID, "the setup has %zu bytes, and the limit is %d: describe less", setup.size, HV_MATCH_SETUP_MAX);
  if (match->seek.state != SEEK_IDLE)
    return hv_fail(err, HV_STATE, "cannot change the setup: this peer is looking for a group; wait for the step, or cancel it");
  if (hv_span_equal(setup, hv_span_of(match->schema_text + HV_MATCH_SETUP_MAX - match->setup_size, match->setup_size)))
    return HV_OK;
  match_host_close(match);
  write_setup(match, setup);
  match->n_asked = match->n_told = 0;
  match->difference[0] = 0;
  hv_roster_set_schema(&match->roster, &match->config.schema);
  match->env->timer_set(match->env, &match->news_timer, 0);
  return HV_OK;
}
