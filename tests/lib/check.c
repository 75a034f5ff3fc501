#include "lib/check.h"

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
