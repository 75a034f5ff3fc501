#include "core/env.h"

#include <stdarg.h>
#include <string.h>

int hv_event_dispatch(const hv_event *event) {
  switch (event->kind) {
  case HV_EVENT_TIMER:
    event->timer->fire(event->timer, event);
    return 1;
  case HV_EVENT_CALL_DONE:
    event->call->done(event->call, event);
    return 1;
  case HV_EVENT_STREAM_DATA:
    event->stream->on->data(event->stream, event);
    return 1;
  case HV_EVENT_STREAM_READY:
    event->stream->on->ready(event->stream, event);
    return 1;
  case HV_EVENT_STREAM_CLOSED:
    event->stream->on->closed(event->stream, event);
    return 1;
  case HV_EVENT_WORK_DONE:
    event->job->done(event->job, event);
    return 1;
  default:
    return 0;
  }
}

void hv_env_refuse(hv_env *env, hv_request *request, hv_status status, const char *text) {
  hv_msg answer = {.kind = HV_MSG_REFUSAL, .u.refusal = {status, hv_span_of(text, strlen(text))}};
  env->reply(env, request, &answer);
}

void hv_env_log(hv_env *env, hv_log_level level, const char *room, const char *event, const char *format, ...) {
  va_list args;
  va_start(args, format);
  hv_log_vwrite(env->log, env->now_us(env), level, room, event, format, args);
  va_end(args);
}
