#include "core/util/sort.h"

#include <string.h>

static void swap(char *a, char *b, size_t size) {
  char held[HV_SORT_SIZE_MAX];
  memcpy(held, a, size);
  memcpy(a, b, size);
  memcpy(b, held, size);
}

/* Lets the element at `at` sink into the heap below it, the greatest on top. */
static void sink(char *base, size_t at, size_t n, size_t size, int (*compare)(const void *, const void *)) {
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= n)
      return;
    if (child + 1 < n && compare(base + child * size, base + (child + 1) * size) < 0)
      child++;
    if (compare(base + at * size, base + child * size) >= 0)
      return;
    swap(base + at * size, base + child * size, size);
    at = child;
  }
}

void hv_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b)) {
  for (size_t i = n / 2; i > 0; i--)
    sink(base, i - 1, n, size, compare);
  for (size_t i = n; i > 1; i--) {
    swap(base, (char *)base + (i - 1) * size, size);
    sink(base, 0, i - 1, size, compare);
  }
}
