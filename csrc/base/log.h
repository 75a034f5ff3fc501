/* A structured log: a bounded ring of records, drained by a single reader.
 *
 * Room: base (uses mem). Written by core (through hv_env) and net; drained by bind (into Python's logging), the simulator and
 * tests.
 * Limits: when the ring is full, the oldest record is dropped and counted.
 * Thread: any thread writes, one reader drains; a short mutex inside.
 */
#ifndef HV_BASE_LOG_H
#define HV_BASE_LOG_H

#include "base/mem.h"
#include "base/status.h"

#include <stdarg.h>

typedef enum hv_log_level { HV_LOG_DEBUG, HV_LOG_INFO, HV_LOG_WARN, HV_LOG_ERROR } hv_log_level;

typedef struct hv_log_record {
  uint64_t time_us; /* the writer's clock */
  hv_log_level level;
  char room[16];  /* the part that wrote it: "peers", "grpc", ... */
  char event[24]; /* a stable name that programs may match: "peer_lost" */
  char text[336]; /* one sentence, truncated if longer, without control characters */
} hv_log_record;

typedef struct hv_log hv_log;

/* A ring of `records` records (at least 1); records below the level `least` are dropped. NULL: no memory. */
hv_log *hv_log_new(hv_mem *mem, size_t records, hv_log_level least);
void hv_log_free(hv_log *log); /* NULL is fine */

/* From now on records below the level `least` are dropped. */
void hv_log_set_least(hv_log *log, hv_log_level least);

/* Writes one record. log may be NULL: nothing is written. Control characters in the text become '?': a peer may have sent them. */
void hv_log_write(hv_log *log, uint64_t time_us, hv_log_level level, const char *room, const char *event, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
void hv_log_vwrite(hv_log *log, uint64_t time_us, hv_log_level level, const char *room, const char *event, const char *format,
                   va_list args);

/* Moves the oldest record into *out. False if there is none. */
int hv_log_take(hv_log *log, hv_log_record *out);

/* Number of records that were dropped unread since the last call. */
size_t hv_log_dropped(hv_log *log);

const char *hv_log_level_name(hv_log_level level);

#endif
