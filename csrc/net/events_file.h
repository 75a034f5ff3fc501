/* A file to which the record of one machine is written (core/epoch/trace.h), each event with one call of the system.
 *
 * Room: net (uses trace, mem).
 * Owner: the code that made it. Thread: that of the machine.
 * Errors: hv_status. If a write fails, for example because the disk is full, the record ends there.
 */
#ifndef HV_NET_EVENTS_FILE_H
#define HV_NET_EVENTS_FILE_H

#include "core/epoch/trace.h"

/* Makes the file, or goes on at its end. HV_IO, HV_NOMEM: err has a sentence. */
hv_status hv_events_file_open(hv_mem *mem, const char *path, hv_trace **out, hv_error *err);
void hv_events_file_close(hv_trace *trace); /* NULL is fine */

#endif
