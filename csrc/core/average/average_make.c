/* How an averager is made of what the program gives (contract in average.h). */
#include "core/average/average_inner.h"

#include <math.h>

enum { CHUNK_VALUES = 1 << 17, STALL_MS = 10000 };

static hv_status check_config(const hv_average_config *config, hv_error *err) {
  if (config->n_tensors == 0)
    return hv_fail(err, HV_INVALID, "cannot make an averager: there are no tensors; give at least one");
  if (config->n_tensors > HV_AVERAGE_TENSORS_MAX)
    return hv_fail(err, HV_INVALID, "cannot make an averager: %zu tensors are too many, the limit is %u; use several averagers",
                   config->n_tensors, HV_AVERAGE_TENSORS_MAX);
  if (!isfinite(config->alpha) || fabs(config->alpha) > 1e6)
    return hv_fail(err, HV_INVALID, "averaging_alpha must be a finite number of at most a million, not %g", config->alpha);
  if (!isfinite(config->bandwidth) || config->bandwidth < 0)
    return hv_fail(err, HV_INVALID, "bandwidth must be finite and 0 or more, not %g", config->bandwidth);
  if (!hv_round_takes_weight((float)config->weight_max))
    return hv_fail(err, HV_INVALID, "weight_max must be a finite number above 0, not %g", config->weight_max);
  if (config->norm_ratio != 0 && !(config->norm_ratio >= 1 && config->norm_ratio <= HV_AVERAGE_NORM_RATIO_MAX))
    return hv_fail(err, HV_INVALID, "norm_ratio_max must be from 1 to %g, not %g", HV_AVERAGE_NORM_RATIO_MAX, config->norm_ratio);
  for (size_t i = 0; i < config->n_tensors; i++)
    if (config->tensors[i].part.device && config->alpha != 1)
      return hv_fail(
          err, HV_INVALID,
          "averaging_alpha other than 1 needs the tensors in the host's memory: move them to the CPU, or remove averaging_alpha");
  for (size_t i = 0; i < config->n_tensors; i++)
    if (config->tensors[i].n_dims > HV_AVERAGE_DIMS_MAX)
      return hv_fail(err, HV_INVALID, "tensor %zu has more than %d dimensions: reshape it", i, HV_AVERAGE_DIMS_MAX);
  return HV_OK;
}

/* So many values, in chunks; all of them are a span for one. */
static uint32_t least_chunks(const hv_average *self, uint64_t values) {
  uint64_t chunks = values / self->run.chunk_values + (values % self->run.chunk_values != 0);
  return chunks < self->run.n_chunks ? (uint32_t)chunks : self->run.n_chunks;
}

/* The match needs the text of the schema only while it is made. */
static hv_status open_match(hv_average *self, const hv_average_config *config, hv_error *err) {
  hv_match_config match = {.prefix = config->prefix,
                           .bits = config->group_bits,
                           .n_chunks = self->run.n_chunks,
                           .target_group_size = config->target_group,
                           .min_group_size = config->min_group,
                           .bandwidth = self->link_rate,
                           .request_ms = config->request_ms,
                           .least_chunks = least_chunks(self, config->min_vector),
                           .apart = config->apart != 0,
                           .auxiliary = config->auxiliary != 0};
  hv_buf text;
  hv_status status = hv_average_schema(self->all->env, config, self->run.chunk_values, &text, &match.schema);
  if (status == HV_OK) {
    size_t size = text.size < HV_MATCH_SCHEMA_TEXT_MAX ? text.size : HV_MATCH_SCHEMA_TEXT_MAX;
    match.schema_text = hv_span_of(text.data, size);
    status = hv_match_new(self->all->matches, &match, &self->match, err);
  } else {
    hv_fail(err, status, "cannot make an averager: no memory for the list of tensors; raise the memory limit");
  }
  hv_buf_fini(&text);
  return status;
}

static hv_status copy_config(hv_average *self, const hv_average_config *config, hv_error *err) {
  hv_env *env = self->all->env;
  size_t n = config->n_tensors;
  self->config = *config;
  self->config.prefix = self->config.group_bits = hv_span_of(NULL, 0); /* match has its own */
  self->link_rate = config->bandwidth < 1e18 ? (uint64_t)config->bandwidth : (uint64_t)1e18;
  self->config.stall_ms = config->stall_ms ? config->stall_ms : STALL_MS;
  hv_average_tensor *tensors = hv_mem_array(env->mem, n, sizeof *tensors);
  hv_run_part *parts = hv_mem_array(env->mem, n, sizeof *parts);
  self->config.tensors = tensors;
  hv_status status =
      tensors && parts
          ? HV_OK
          : hv_fail(err, HV_NOMEM, "cannot make an averager: no memory for the table of tensors; raise the memory limit");
  uint64_t values = 0;
  for (size_t i = 0; i < n && status == HV_OK; i++) {
    tensors[i].part = parts[i] = config->tensors[i].part; /* shapes are the schema's */
    values += parts[i].n_values < HV_RUN_VALUES_MAX ? parts[i].n_values : HV_RUN_VALUES_MAX;
  }
  uint32_t chunk = hv_run_fit(values, config->chunk_values ? config->chunk_values : CHUNK_VALUES);
  if (status == HV_OK)
    status = hv_run_init(&self->run, env->mem, parts, n, chunk, err);
  hv_mem_free(parts);
  return status;
}

hv_status hv_average_new(hv_averages *all, const hv_average_config *config, hv_average **out, hv_error *err) {
  hv_status status = all->stopping ? hv_fail(err, HV_CLOSED, "the node was shut down") : check_config(config, err);
  if (status != HV_OK)
    return status;
  hv_average *self = hv_mem_zalloc(all->env->mem, sizeof *self);
  if (!self)
    return hv_fail(err, HV_NOMEM, "cannot make an averager: no memory; raise the memory limit");
  self->all = all;
  self->kern = hv_cpu_best();
  status = copy_config(self, config, err);
  if (status == HV_OK)
    status = open_match(self, config, err);
  if (status != HV_OK) {
    average_drop(self);
    return status;
  }
  self->next = all->first;
  self->link = &all->first;
  if (self->next)
    self->next->link = &self->next;
  all->first = self;
  all->made = 1;
  *out = self;
  return HV_OK;
}
