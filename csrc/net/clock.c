#include "net/clock.h"

#include <sys/random.h>
#include <sys/types.h>
#include <time.h>

uint64_t hv_clock_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int64_t hv_clock_unix_s(void) {
  return (int64_t)time(NULL);
}

void hv_random(void *out, size_t size) {
  for (size_t got = 0; got < size;) {
    ssize_t n = getrandom((char *)out + got, size - got, 0);
    if (n > 0)
      got += (size_t)n;
  }
}
