/* Needs of every C test: cmocka with its needs, a fresh account, and the run that fails at each allocation in turn.
 *
 * An out-of-memory run: `run` does the whole thing with the account it is given and returns how it went; it is called
 * with the first allocation failing, then the second, ... until it gets through. Each failed run must return something other
 * than HV_OK (or HV_OK if it can do without) and leave no block behind. */
#ifndef HV_TESTS_CHECK_H
#define HV_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/status.h"
#include "lib/random.h"

/* Returns how many allocations were made to fail before a run got through. */
long check_out_of_memory(hv_status (*run)(hv_mem *mem, void *arg), void *arg);

#endif
