#include "net/transport/stream_inner.h"

#include <stdio.h>

void hv_stream_move(stream *s, hv_stream_state to) {
  static const uint8_t allowed[STATES] = {[WAITING] = 1 << GREETING | 1 << CLOSING,
                                          [GREETING] = 1 << OPEN | 1 << CLOSING,
                                          [OPEN] = 1 << CLOSING,
                                          [CLOSING] = 1 << CLOSING};
  if (!(allowed[s->state] & 1 << to))
    hv_log_write(s->loop->log, s->loop->now_us, HV_LOG_ERROR, "net", "bad_move", "a stream went from state %d to %d", s->state, to);
  s->state = to;
}

void hv_stream_drop_queue(stream *s) {
  for (; s->n; s->n--, s->first = (s->first + 1) % HV_STREAM_QUEUE) {
    hv_grpc_message_free(s->queue[s->first]);
    hv_bulk_left(&s->loop->bulk, &s->of_bulk, s->sizes[s->first], hv_clock_us());
  }
}

void hv_lane_finish(lane *l, hv_status status, const char *text) {
  l->finished = 1;
  l->sending = (uint8_t)hv_grpc_call_finish(l->rpc, NULL, status, text, 0, &l->sent);
}

static void closing(stream *s, hv_status why, const char *text) {
  hv_stream_move(s, CLOSING);
  s->why = why;
  snprintf(s->why_text, sizeof s->why_text, "%s", text);
  hv_stream_drop_queue(s);
}

void hv_stream_break_off(stream *s, hv_status why, const char *text) {
  if (s->state == CLOSING)
    return;
  closing(s, why, text);
  if (s->asking)
    hv_calls_cancel(&s->loop->env, &s->meets);
  for (size_t i = 0; i < s->n_lanes; i++)
    if (s->lanes[i]->rpc)
      hv_grpc_call_cancel(s->lanes[i]->rpc);
}

void hv_stream_refuse(stream *s, hv_status status, const char *text) {
  for (size_t i = 0; i < s->n_lanes; i++)
    if (s->lanes[i]->sending || s->lanes[i]->finished) {
      hv_stream_break_off(s, status, text);
      return;
    }
  closing(s, status, text);
  for (size_t i = 0; i < s->n_lanes; i++)
    hv_lane_finish(s->lanes[i], status, text);
}

void hv_stream_reject(stream *s, hv_status status, const char *text) {
  if (s->link)
    hv_stream_break_off(s, status, text);
  else
    hv_stream_refuse(s, status, text);
}
