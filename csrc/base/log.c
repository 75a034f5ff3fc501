#include "base/log.h"

#include "base/status.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct hv_log {
  pthread_mutex_t lock;
  atomic_int least;
  size_t room, first, count, dropped;
  hv_log_record *records;
};

hv_log *hv_log_new(hv_mem *mem, size_t records, hv_log_level least) {
  hv_log *log = hv_mem_zalloc(mem, sizeof *log);
  if (!log)
    return NULL;
  log->room = records ? records : 1;
  log->records = hv_mem_array(mem, log->room, sizeof *log->records);
  if (!log->records || pthread_mutex_init(&log->lock, NULL) != 0) {
    hv_mem_free(log->records);
    hv_mem_free(log);
    return NULL;
  }
  atomic_init(&log->least, (int)least);
  return log;
}

void hv_log_free(hv_log *log) {
  if (!log)
    return;
  pthread_mutex_destroy(&log->lock);
  hv_mem_free(log->records);
  hv_mem_free(log);
}

void hv_log_set_least(hv_log *log, hv_log_level least) {
  atomic_store_explicit(&log->least, (int)least, memory_order_relaxed);
}

void hv_log_vwrite(hv_log *log, uint64_t time_us, hv_log_level level, const char *room, const char *event, const char *format,
                   va_list args) {
  if (!log || (int)level < atomic_load_explicit(&log->least, memory_order_relaxed))
    return;
  hv_log_record record = {.time_us = time_us, .level = level};
  snprintf(record.room, sizeof record.room, "%s", room);
  snprintf(record.event, sizeof record.event, "%s", event);
  vsnprintf(record.text, sizeof record.text, format, args);
  hv_text_clean(record.text);

  pthread_mutex_lock(&log->lock);
  if (log->count == log->room) {
    log->first = (log->first + 1) % log->room;
    log->count--;
    log->dropped++;
  }
  log->records[(log->first + log->count++) % log->room] = record;
  pthread_mutex_unlock(&log->lock);
}

void hv_log_write(hv_log *log, uint64_t time_us, hv_log_level level, const char *room, const char *event, const char *format, ...) {
  va_list args;
  va_start(args, format);
  hv_log_vwrite(log, time_us, level, room, event, format, args);
  va_end(args);
}

int hv_log_take(hv_log *log, hv_log_record *out) {
  if (!log)
    return 0;
  pthread_mutex_lock(&log->lock);
  int any = log->count > 0;
  if (any) {
    *out = log->records[log->first];
    log->first = (log->first + 1) % log->room;
    log->count--;
  }
  pthread_mutex_unlock(&log->lock);
  return any;
}

size_t hv_log_dropped(hv_log *log) {
  if (!log)
    return 0;
  pthread_mutex_lock(&log->lock);
  size_t dropped = log->dropped;
  log->dropped = 0;
  pthread_mutex_unlock(&log->lock);
  return dropped;
}

const char *hv_log_level_name(hv_log_level level) {
  static const char *const names[] = {"debug", "info", "warning", "error"};
  return (unsigned)level < 4 ? names[level] : "unknown";
}
