/* A machine's record as lines of text: its configuration, each event with all that the machine reads, and the orders that followed.
 *
 * Room: core (uses fields, epoch).
 * Owner: the code that made it. Thread: that of its machine.
 * Limits: HV_TRACE_*. A record that reaches its limit ends with a line that says so.
 * Format: docs/design/records.md. replay.h reads it.
 */
#ifndef HV_CORE_EPOCH_TRACE_H
#define HV_CORE_EPOCH_TRACE_H

#include "core/epoch/fields.h"

#define HV_TRACE_HEAD "hivemind_c events 1"
#define HV_TRACE_MOST (UINT64_C(128) << 20) /* bytes of a record */
#define HV_TRACE_EVENT_MOST (1 << 20)       /* bytes of an event with its orders */
#define HV_TRACE_LINE_MOST 2304             /* bytes of a line */
#define HV_TRACE_NUMBERS_MOST (1 << 15)     /* stamps and frozen parameters of a step */
#define HV_TRACE_SETUP_MOST 512             /* bytes of a setup's digest */

typedef struct hv_trace {
  /* Keeps these bytes. 0: it cannot, and the record ends here. */
  int (*write)(void *arg, hv_span text);
  void *arg;
  uint64_t left; /* bytes that may still be written; 0 at first: HV_TRACE_MOST */
  int is_over;
  /* the trace's own: as the record says that they are */
  hv_progress_figures figures;
  hv_lineage lineage;
  hv_epoch_ledger ledger;
  hv_epoch_shown shown;
  size_t n; /* in text: what is not written yet */
  char text[2 * HV_TRACE_LINE_MOST];
} hv_trace;

/* The machine was set up at now_us, and has had no event. */
void hv_trace_begin(hv_trace *trace, const hv_epoch *machine, uint64_t now_us);
/* Gives the event to the machine, and writes both. NULL: nothing is recorded, and this is hv_epoch_on. */
void hv_trace_on(hv_trace *trace, hv_epoch *machine, const hv_epoch_event *event);

/* The second half of hv_trace_on, for the replay: the orders behind the first `before`, and what the machine is now. */
void hv_trace_result(hv_trace *trace, const hv_epoch *machine, size_t before);

#endif
