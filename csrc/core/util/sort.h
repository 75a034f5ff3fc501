/* In which order? A heap sort, since core knows no stdlib.
 *
 * Room: core (knows nothing). Pure; n log n whatever a stranger sent; not stable. Elements of at most HV_SORT_SIZE_MAX bytes.
 */
#ifndef HV_CORE_SORT_H
#define HV_CORE_SORT_H

#include <stddef.h>

#define HV_SORT_SIZE_MAX 256

/* As qsort. */
void hv_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b));

#endif
