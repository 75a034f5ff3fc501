/* Hives for tests, as a program holds them: on loopback. */
#ifndef HV_TESTS_HIVES_H
#define HV_TESTS_HIVES_H

#include "lib/check.h"

#include "hivemind_c.h"

/* One that is given an initial peer (NULL: none), with this configuration besides. */
hv_hive *hives_start_as(hv_hive_config config, const char *initial);
/* One without TLS, and two, of which the second has met the first. */
hv_hive *hives_start(const char *initial, unsigned pool_threads);
void hives_start_two(hv_hive **a, hv_hive **b, unsigned pool_threads);

#endif
