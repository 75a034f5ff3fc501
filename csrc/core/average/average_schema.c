#include "core/average/average_inner.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 64 << 20, LINE_MAX = 96 };

static const char *schema_name(hv_dtype dtype) {
  static const char *const names[] = {"?", "float32", "float16", "bfloat16", "float64"};
  return names[hv_dtype_size((int)dtype) ? dtype : 0];
}

static hv_status schema_write(hv_buf *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static hv_status schema_write(hv_buf *text, const char *format, ...) {
  char line[LINE_MAX];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return hv_buf_append(text, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static hv_status say_tensor(hv_buf *text, size_t index, const hv_average_tensor *tensor) {
  hv_status status = schema_write(text, "tensor %zu: %s (", index, schema_name(tensor->part.dtype));
  for (size_t i = 0; i < tensor->n_dims && status == HV_OK; i++)
    status = schema_write(text, i ? ", %" PRId64 : "%" PRId64, tensor->shape[i]);
  const hv_run_part *part = &tensor->part;
  const char *apart = part->apart ? ", apart" : "", * or = part->narrow ? " or " : "", *narrow = hv_codec_name((int)part->narrow);
  if (status != HV_OK)
    return status;
  return schema_write(text, "), codec %s%s%s%s\n", hv_codec_name((int)part->codec), or, part->narrow ? narrow : "", apart);
}

hv_status hv_average_schema(hv_env *env, const hv_average_config *config, uint32_t chunk_values, hv_buf *text, hv_hash *hash) {
  hv_buf_init(text, env->mem, TEXT_MAX);
  hv_status status = schema_write(text, "%zu tensors, parts of %" PRIu32 " values\n", config->n_tensors, chunk_values);
  for (size_t i = 0; i < config->n_tensors && status == HV_OK; i++)
    status = say_tensor(text, i, &config->tensors[i]);
  if (status == HV_OK)
    env->sha256(env, hv_span_of(text->data, text->size), hash);
  return status;
}
