#include "lib/random.h"

#include <math.h>

uint64_t check_random(check_rng *rng) { /* splitmix64 */
  uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double check_uniform(check_rng *rng) {
  return (double)(check_random(rng) >> 11) * 0x1p-53;
}

double check_normal(check_rng *rng) {
  double u = check_uniform(rng) + 0x1p-54, v = check_uniform(rng);
  return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}
