#include "core/util/flow.h"

void hv_flow_saw(hv_flow *flow, uint64_t now_us, uint64_t bytes) {
  flow->came += bytes;
  if (flow->came - flow->mark < flow->total / 8 || now_us <= flow->mark_us)
    return;
  uint64_t rate = (uint64_t)((double)(flow->came - flow->mark) * 1e6 / (double)(now_us - flow->mark_us));
  if (flow->mark_us && rate > flow->best[0]) { /* the first eighth is that of the connections' start */
    flow->best[1] = flow->best[0];
    flow->best[0] = rate;
  } else if (flow->mark_us && rate > flow->best[1]) {
    flow->best[1] = rate;
  }
  flow->mark_us = now_us;
  flow->mark = flow->came;
}

uint64_t hv_flow_rate(const hv_flow *flow) {
  return flow->total >= HV_FLOW_LEAST && flow->came >= flow->total / 2 ? flow->best[1] : 0;
}

void hv_flow_learn(hv_flow_past *past, uint64_t rate) {
  uint64_t now = rate < 2 * HV_FLOW_MOST ? rate : 2 * HV_FLOW_MOST, best = now > past->before ? now : past->before;
  int held_back = past->speed && now > past->speed - past->speed / 32;
  past->speed = held_back ? best + best / 4 : best + best / 16;
  past->before = now;
}

uint64_t hv_flow_each(uint64_t speed, uint64_t total, uint64_t least, uint64_t most, size_t connections) {
  if (speed == 0 || speed > HV_FLOW_MOST || connections < 2 || least < most - most / 4)
    return 0;
  if ((double)total * 1e6 / (double)speed < HV_FLOW_LEAST_US)
    return 0;
  uint64_t each = speed / connections;
  return each ? each : 1;
}
