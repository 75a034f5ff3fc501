#include "core/round/gauge.h"

void hv_gauge_saw(hv_gauge *gauge, uint64_t now_us, uint64_t bytes) {
  if (now_us <= gauge->last_us || gauge->skipped < HV_GAUGE_SKIP) {
    *gauge = (hv_gauge){.since_us = now_us, .last_us = now_us, .skipped = gauge->skipped + 1};
    return;
  }
  gauge->bytes += bytes;
  gauge->last_us = now_us;
}

uint64_t hv_gauge_rate(const hv_gauge *gauge) {
  uint64_t us = gauge->last_us - gauge->since_us;
  return gauge->bytes >= HV_GAUGE_LEAST && us ? (uint64_t)((double)gauge->bytes * 1e6 / (double)us) : 0;
}

/* The middle one of those that are known, the lower of two; 0: none is. Quadratic, but a group is small. */
static uint64_t usual(const uint64_t *rates, size_t n) {
  size_t known = 0;
  for (size_t i = 0; i < n; i++)
    known += rates[i] > 0;
  for (size_t i = 0; i < n; i++) {
    size_t below = 0, same = 0;
    for (size_t j = 0; j < n; j++) {
      below += rates[j] > 0 && rates[j] < rates[i];
      same += rates[j] == rates[i];
    }
    if (rates[i] > 0 && below <= (known - 1) / 2 && (known - 1) / 2 < below + same)
      return rates[i];
  }
  return 0;
}

static uint64_t most_of(uint64_t rate) {
  return rate < UINT64_MAX / HV_GAUGE_TIMES ? rate * HV_GAUGE_TIMES : UINT64_MAX;
}

uint64_t hv_gauge_link(const uint64_t *rates, size_t n) {
  uint64_t most = most_of(usual(rates, n)), sum = 0;
  for (size_t i = 0; i < n && sum < HV_GAUGE_MOST; i++)
    sum += rates[i] < most ? rates[i] : most;
  return sum < HV_GAUGE_MOST ? sum : HV_GAUGE_MOST;
}

uint64_t hv_gauge_seen(uint64_t link, uint64_t arrived, uint32_t count) {
  int counts = count == 0 || count >= HV_GAUGE_SPAN;
  uint64_t seen = counts && arrived > link ? arrived : link;
  return seen < HV_GAUGE_MOST ? seen : HV_GAUGE_MOST;
}

uint64_t hv_gauge_blend(uint64_t before, uint64_t seen) {
  if (seen == 0 || (seen >= HV_GAUGE_MOST && before > HV_GAUGE_MOST))
    return before;
  return before ? before / 2 + seen / 2 + (before & seen & 1) : seen;
}

void hv_gauge_settle(uint64_t *rates, size_t n) {
  uint64_t middle = usual(rates, n), most = most_of(middle);
  for (size_t i = 0; i < n; i++) {
    if (rates[i] > most)
      rates[i] = most;
    if (rates[i] > 0 && rates[i] >= middle - middle / 5 && rates[i] - rates[i] / 5 <= middle)
      rates[i] = middle;
  }
}
