/* Hives for tests, as a program holds them: on loopback, without TLS. */
#ifndef HV_TESTS_HIVES_H
#define HV_TESTS_HIVES_H

#include "lib/check.h"

#include "hivemind_c.h"

/* One that is given an initial peer (NULL: none). */
hv_hive *hives_start(const char *initial, unsigned pool_threads);
/* Two, of which the second has met the first. */
void hives_start_two(hv_hive **a, hv_hive **b, unsigned pool_threads);

#endif
