/* A heap sort, because core may not use stdlib.
 *
 * Room: core; depends on no other module.
 * Thread: any; pure.
 * Limits: n log n for any input; not stable; elements of at most HV_SORT_SIZE_MAX bytes.
 */
#ifndef HV_CORE_SORT_H
#define HV_CORE_SORT_H

#include <stddef.h>

#define HV_SORT_SIZE_MAX 256

/* Sorts n elements of `size` bytes in place; the arguments are those of qsort. */
void hv_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));

#endif
