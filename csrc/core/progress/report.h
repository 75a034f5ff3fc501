/* One contributor's report of its progress, and the meter of its speed.
 *
 * Room: core (uses base). Pure functions on values that the caller owns.
 * Thread: any.
 * Limits: HV_REPORT_*. Effect of a report on the figures: tally.h.
 * Errors: HV_MALFORMED for a stranger's bytes.
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
  uint64_t before;  /* samples with which it left the epoch before; 0: not known */
  double speed;     /* samples per second; 0: not known */
  uint32_t age_ms;  /* of these numbers, when the report was made */
  uint8_t client_mode;
  uint8_t gone;   /* 1: this contributor has ended, and the other fields mean nothing but the next one */
  uint64_t comes; /* of one that has ended: 1 + the epoch whose state it loads, to count again; 0: it loads none */
} hv_report;

/* Writes a report's bytes. Numbers beyond their limits are cut to them. */
void hv_report_pack(const hv_report *report, uint8_t out[HV_REPORT_BYTES]);
/* Reads a report. HV_MALFORMED: the size is wrong, or a number is beyond its limit. */
hv_status hv_report_unpack(hv_span bytes, hv_report *out);

#define HV_METER_ALPHA 0.1

/* A smoothed speed: an exponential moving average of the seconds for each sample, without the bias of its empty start. The time of
 * a slow batch counts for at most 16 times that of a batch at the mean speed. That limit is never below one second. So the average
 * soon forgets a pause of the program, and follows a contributor that became slower within some batches. */
typedef struct hv_meter {
  double alpha;       /* weight of the newest value, 0 to 1; usually HV_METER_ALPHA */
  double spent;       /* smoothed seconds for each sample, before the correction by weight */
  double weight;      /* sum of the weights so far, 0 to 1 */
  uint64_t since_us;  /* the end of the last batch; 0: none */
  uint64_t paused_us; /* when the pause began; 0: there is none */
} hv_meter;

/* Counts samples that took so long; of 0 samples, or no time, nothing. */
void hv_meter_took(hv_meter *meter, uint64_t samples, uint64_t took_us);
/* Counts samples done since the last call; 0 samples only set the clock. */
void hv_meter_done(hv_meter *meter, uint64_t samples, uint64_t now_us);
/* Begins (`on`) or ends a pause, whose time does not count. */
void hv_meter_pause(hv_meter *meter, int on, uint64_t now_us);
/* Samples per second; 0: not known. */
double hv_meter_speed(const hv_meter *meter);

#endif
