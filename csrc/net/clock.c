#include "net/clock.h"

#include <sys/random.h>
#include <sys/types.h>
#include <time.h>

static uint64_t read_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t hv_clock_us(void) {
  return read_clock(CLOCK_MONOTONIC);
}

uint64_t hv_clock_asleep_us(void) {
  uint64_t awake = read_clock(CLOCK_MONOTONIC), both = read_clock(CLOCK_BOOTTIME);
  return both > awake ? both - awake : 0;
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
