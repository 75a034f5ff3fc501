/* How fast is the outer step of local steps on one core, against memcpy?
 *
 *   bench_outer [--mb 256] [--rounds 9] [--momentum 0.5]
 *
 * A step reads anchor, momentum and difference twice, since it looks before it writes, and writes the first two. Each round runs a
 * memcpy of the anchor, then a step. One JSON line: the medians in seconds, float32 values a second, and
 * the ratio of the two times. */
#include "core/outer/outer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 99 };

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static float *values(size_t n, float first) {
  float *v = malloc(n * sizeof *v);
  if (!v) {
    fprintf(stderr, "no room: ask for fewer by --mb\n");
    exit(1);
  }
  for (size_t i = 0; i < n; i++)
    v[i] = first * (float)(i % 1009);
  return v;
}

int main(int argc, char **argv) {
  size_t mb = 256, rounds = 9;
  hv_outer_rule rule = {0.001f, 0.5f, 1};
  for (int i = 1; i + 1 < argc; i += 2)
    if (!strcmp(argv[i], "--mb"))
      mb = (size_t)atol(argv[i + 1]);
    else if (!strcmp(argv[i], "--rounds"))
      rounds = (size_t)atol(argv[i + 1]);
    else if (!strcmp(argv[i], "--momentum"))
      rule.momentum = (float)atof(argv[i + 1]);
  rounds = rounds && rounds < ROUNDS_MAX ? rounds : 9;
  rule.nesterov = rule.momentum > 0;
  size_t n = mb << 18;
  float *anchor = values(n, 0.01f), *momentum = values(n, 0.001f), *difference = values(n, 0.0001f), *copy = values(n, 0);
  double copies[ROUNDS_MAX], steps[ROUNDS_MAX];
  for (size_t r = 0; r < rounds; r++) {
    hv_outer_tensor tensor = {anchor, momentum, difference, n, 0};
    double begun = now_s();
    memcpy(copy, anchor, n * sizeof *copy);
    copies[r] = now_s() - begun;
    begun = now_s();
    if (hv_outer_step(&rule, &tensor, 1, NULL) != HV_OK)
      return 1;
    steps[r] = now_s() - begun;
  }
  qsort(copies, rounds, sizeof *copies, compare);
  qsort(steps, rounds, sizeof *steps, compare);
  double step = steps[rounds / 2], memcpy_s = copies[rounds / 2];
  printf("{\"bench\": \"outer\", \"mb\": %zu, \"step_s\": %.4f, \"memcpy_s\": %.4f, \"values_per_s\": %.3g, \"ratio\": %.2f, "
         "\"check\": "
         "%g}\n",
         mb, step, memcpy_s, (double)n / step, step / memcpy_s, (double)(anchor[n / 2] + copy[n / 3]));
  free(anchor);
  free(momentum);
  free(difference);
  free(copy);
  return 0;
}
