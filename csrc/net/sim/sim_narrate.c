#include "net/sim/sim_inner.h"

#include <stdarg.h>
#include <stdio.h>

enum { LINE_MAX = 512 };

static void say_line(hv_sim *sim, const sim_node *node, const char *text) {
  char line[LINE_MAX];
  char who[16] = "--";
  if (node)
    snprintf(who, sizeof who, "n%u", (unsigned)node->index);
  snprintf(line, sizeof line, "+%.3fs %s %s", (double)sim->now * 1e-6, who, text);
  sim->config.say(sim->config.say_arg, line);
}

static void tell(hv_sim *sim, const sim_node *node, const char *format, va_list args) {
  char text[LINE_MAX - 64];
  vsnprintf(text, sizeof text, format, args);
  say_line(sim, node, text);
}

void sim_narrate(hv_sim *sim, const sim_node *node, const char *format, ...) {
  if (!sim->config.say)
    return;
  va_list args;
  va_start(args, format);
  tell(sim, node, format, args);
  va_end(args);
}

void hv_sim_say(hv_sim *sim, const char *format, ...) {
  if (!sim->config.say)
    return;
  va_list args;
  va_start(args, format);
  tell(sim, NULL, format, args);
  va_end(args);
}

void sim_narrate_log(hv_sim *sim, const sim_node *node) {
  hv_log_record record;
  while (hv_log_take(sim->log, &record))
    sim_narrate(sim, node, "%s %s: %s (%s)", hv_log_level_name(record.level), record.room, record.text, record.event);
}

static const char *kind_name(hv_event_kind kind) {
  static const char *const names[HV_EVENT_KINDS] = {"START",       "TIMER",        "CALL_DONE",     "REQUEST",   "STREAM_OPENED",
                                                    "STREAM_DATA", "STREAM_READY", "STREAM_CLOSED", "WORK_DONE", "PEER_DOWN",
                                                    "COMMAND",     "STOP",         "NETWORK"};
  return names[kind];
}

void sim_narrate_event(hv_sim *sim, const sim_node *node, const hv_event *event) {
  char peer[HV_PEER_SHORT_MAX + 1] = "", size[32] = "";
  int ends = event->kind == HV_EVENT_CALL_DONE || event->kind == HV_EVENT_STREAM_CLOSED || event->kind == HV_EVENT_WORK_DONE;
  if (hv_peer_is_known(&event->peer)) {
    peer[0] = ' ';
    hv_peer_short(&event->peer, peer + 1);
  }
  if (event->kind == HV_EVENT_STREAM_DATA)
    snprintf(size, sizeof size, " %zu bytes", event->payload ? event->payload->size : (size_t)0);
  sim_narrate(sim, node, "%s%s%s%s%s%s%s", kind_name(event->kind), peer, size, ends ? " " : "",
              ends ? hv_status_name(event->status) : "", event->text[0] ? ": " : "", event->text);
}
