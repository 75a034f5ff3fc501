/* What does one contributor say of itself, and how does it know its speed?
 *
 * Room: core (uses base). Pure values; any thread.
 * A report is a few numbers in a fixed layout. Whoever signs it is not believed for that: what a claim may move is tally.h's.
 * Times in it are relative: `age_ms` is how old the count was when the report was made.
 */
#ifndef HV_CORE_REPORT_H
#define HV_CORE_REPORT_H

#include "base/buf.h"

#define HV_REPORT_BYTES 40
#define HV_REPORT_EPOCH_MAX (UINT64_C(1) << 48)
#define HV_REPORT_SAMPLES_MAX (UINT64_C(1) << 48)
#define HV_REPORT_SPEED_MAX 1e12

typedef struct hv_report {
  uint64_t epoch;
  uint64_t samples; /* in this epoch */
  uint64_t before;  /* in the epoch before it, when it was left; 0 if that is not known */
  double speed;     /* samples per second; 0: not known yet */
  uint32_t age_ms;
  uint8_t client_mode;
  uint8_t gone; /* 1: this contributor has ended, the rest means nothing */
} hv_report;

/* Numbers beyond the limits are cut to them. */
void hv_report_pack(const hv_report *report, uint8_t out[HV_REPORT_BYTES]);
/* HV_MALFORMED: not exactly such bytes, or a number is beyond its limit. */
hv_status hv_report_unpack(hv_span bytes, hv_report *out);

/* Samples per second, smoothed: a moving average of the seconds that one sample takes, in which a first value weighs as it should
 * (the bias of starting from nothing is divided out). A batch of a second or more counts for 16 times the mean at most, or for a
 * second if that is more, so that a standstill is soon forgotten, and who has become slower is known after some batches. */
typedef struct hv_meter {
  double alpha;         /* weight of the newest */
  double spent, weight; /* smoothed seconds per sample, and how much of it there is yet */
  uint64_t since_us;    /* the time not accounted for yet begins here; 0: there was nothing yet */
  uint64_t paused_us;   /* when the pause began; 0: none */
} hv_meter;

/* So many samples were done since the last call (0: only look at the clock). */
void hv_meter_done(hv_meter *meter, uint64_t samples, uint64_t now_us);
/* The time in between counts for nothing. */
void hv_meter_pause(hv_meter *meter, int on, uint64_t now_us);
double hv_meter_speed(const hv_meter *meter); /* 0: not known yet */

#endif
