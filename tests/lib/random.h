/* A small seeded generator for property tests: the same numbers on every machine.
 *
 * Room: tests (uses libc alone, so that programs without cmocka have it too).
 */
#ifndef HV_TESTS_RANDOM_H
#define HV_TESTS_RANDOM_H

#include <stdint.h>

typedef struct check_rng {
  uint64_t state;
} check_rng;
uint64_t check_random(check_rng *rng);
double check_uniform(check_rng *rng); /* [0, 1) */
double check_normal(check_rng *rng);

#endif
