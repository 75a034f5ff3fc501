#include "lib/check.h"

#include <math.h>

long check_out_of_memory(hv_status (*run)(hv_mem *mem, void *arg), void *arg) {
  for (long n = 0;; n++) {
    hv_mem mem;
    hv_mem_init(&mem, NULL, HV_MEM_UNLIMITED);
    hv_mem_fail_in(&mem, n);
    hv_status status = run(&mem, arg);
    assert_int_equal(atomic_load(&mem.blocks), 0);
    assert_int_equal(atomic_load(&mem.used), 0);
    if (atomic_load(&mem.refused) == 0) {
      assert_int_equal(status, HV_OK);
      return n;
    }
  }
}

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
