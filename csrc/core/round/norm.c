#include "core/round/norm.h"

#include "core/util/sort.h"

#include <float.h>
#include <math.h>

int hv_norm_is_valid(float norm) {
  return norm >= 0 && norm <= FLT_MAX; /* a NaN is neither */
}

static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

float hv_norm_most(float ratio, float *norms, size_t n) {
  if (!(ratio > 0) || n < HV_NORM_STATED)
    return 0;
  hv_sort(norms, n, sizeof *norms, by_size);
  double most = (double)ratio * (double)norms[n / 2];
  return most < (double)FLT_MAX ? (float)most : FLT_MAX;
}

hv_status hv_norm_measure(const hv_run *run, const hv_kern *kern, float *norm) {
  double most = 0, square = 0;
  hv_status status = HV_OK;
  for (uint32_t i = 0; status == HV_OK && run->has_values && i < run->n_chunks; i++) {
    status = hv_run_square(run, kern, i, &square);
    if (status == HV_NOT_FINITE)
      status = HV_OK;
    else if (status == HV_OK && square > most)
      most = square;
  }
  most = sqrt(most);
  *norm = most < (double)FLT_MAX ? (float)most : FLT_MAX;
  return status;
}
