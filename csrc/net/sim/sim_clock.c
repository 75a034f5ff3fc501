#include "net/sim/sim_inner.h"

#include <string.h>

uint64_t sim_random(uint64_t *state) { /* splitmix64 (Steele, Lea, Flood 2014) */
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

uint64_t sim_hash_mix(uint64_t a, uint64_t b) {
  uint64_t state = a * UINT64_C(0xff51afd7ed558ccd) + b;
  return sim_random(&state);
}

void sim_fill_random(uint64_t *state, uint8_t *out, size_t size) {
  while (size) {
    uint64_t r = sim_random(state);
    size_t n = size < sizeof r ? size : sizeof r;
    memcpy(out, &r, n);
    out += n;
    size -= n;
  }
}

uint64_t sim_local_us(const sim_node *node, uint64_t time_us) {
  int64_t drift =
      (int64_t)(time_us / 1000000) * node->config.drift_ppm + (int64_t)(time_us % 1000000) * node->config.drift_ppm / 1000000;
  return SIM_CLOCK_START_US + (uint64_t)node->config.skew_us + time_us + (uint64_t)drift - node->slept_us;
}

uint64_t sim_after_us(const sim_node *node, uint64_t delay_us) {
  uint64_t now = node->sim->now;
  if (delay_us > SIM_NEVER / 2)
    delay_us = SIM_NEVER / 2;
  if (node->config.drift_ppm == 0)
    return now + delay_us;
  uint64_t due = now + (uint64_t)((double)delay_us / (1 + node->config.drift_ppm * 1e-6));
  uint64_t wanted = sim_local_us(node, now) + delay_us;
  while (sim_local_us(node, due) < wanted)
    due++;
  return due;
}
