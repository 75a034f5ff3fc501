#include "core/progress/report.h"

#include <string.h>

enum { STANDSTILL = 16, STANDSTILL_LEAST_S = 1 };
enum { VERSION = 1, CLIENT = 1, GONE = 2 };

static void report_put(uint8_t **at, uint64_t value, size_t size) {
  hv_le_put(*at, value, size);
  *at += size;
}

static uint64_t report_take(const uint8_t **at, size_t size) {
  *at += size;
  return hv_le_get(*at - size, size);
}

static uint64_t report_least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

void hv_report_pack(const hv_report *report, uint8_t out[HV_REPORT_BYTES]) {
  uint64_t bits;
  double speed = report->speed > 0 ? report->speed : 0;
  speed = speed < HV_REPORT_SPEED_MAX ? speed : HV_REPORT_SPEED_MAX;
  memcpy(&bits, &speed, sizeof bits);
  report_put(&out, VERSION, 1);
  report_put(&out, (report->client_mode ? CLIENT : 0) | (report->gone ? GONE : 0), 1);
  report_put(&out, 0, 2);
  report_put(&out, report->age_ms, 4);
  report_put(&out, report_least(report->epoch, HV_REPORT_EPOCH_MAX), 8);
  report_put(&out, report_least(report->gone ? report->comes : report->samples, HV_REPORT_SAMPLES_MAX), 8);
  report_put(&out, report_least(report->before, HV_REPORT_SAMPLES_MAX), 8);
  report_put(&out, bits, 8);
}

hv_status hv_report_unpack(hv_span bytes, hv_report *out) {
  const uint8_t *at = bytes.data;
  if (bytes.size != HV_REPORT_BYTES || report_take(&at, 1) != VERSION)
    return HV_MALFORMED;
  uint64_t flags = report_take(&at, 1), spare = report_take(&at, 2), bits;
  *out = (hv_report){.client_mode = (flags & CLIENT) != 0, .gone = (flags & GONE) != 0, .age_ms = (uint32_t)report_take(&at, 4)};
  out->epoch = report_take(&at, 8);
  out->samples = report_take(&at, 8);
  if (out->gone) {
    out->comes = out->samples;
    out->samples = 0;
  }
  out->before = report_take(&at, 8);
  bits = report_take(&at, 8);
  memcpy(&out->speed, &bits, sizeof bits);
  if (flags > (CLIENT | GONE) || spare || out->epoch > HV_REPORT_EPOCH_MAX || out->samples > HV_REPORT_SAMPLES_MAX ||
      out->comes > HV_REPORT_SAMPLES_MAX || out->before > HV_REPORT_SAMPLES_MAX ||
      !(out->speed >= 0 && out->speed <= HV_REPORT_SPEED_MAX) || bits >> 63)
    return HV_MALFORMED; /* a speed of -0, too: one report has one form */
  return HV_OK;
}

void hv_meter_took(hv_meter *meter, uint64_t samples, uint64_t took_us) {
  if (!samples || !took_us)
    return;
  double took = (double)took_us * 1e-6, spent = took / (double)samples;
  double most = meter->weight > 0 ? STANDSTILL * meter->spent / meter->weight : spent;
  if (spent > most && took > STANDSTILL_LEAST_S) /* it did other things: that is no slow batch */
    spent = most * (double)samples > STANDSTILL_LEAST_S ? most : STANDSTILL_LEAST_S / (double)samples;
  meter->spent += meter->alpha * (spent - meter->spent);
  meter->weight += meter->alpha * (1 - meter->weight);
}

void hv_meter_done(hv_meter *meter, uint64_t samples, uint64_t now_us) {
  uint64_t now = meter->paused_us ? meter->paused_us : now_us;
  if (meter->since_us && now > meter->since_us)
    hv_meter_took(meter, samples, now - meter->since_us);
  meter->since_us = now;
}

void hv_meter_pause(hv_meter *meter, int on, uint64_t now_us) {
  if (on && !meter->paused_us)
    meter->paused_us = now_us;
  else if (!on && meter->paused_us) {
    meter->since_us += meter->since_us ? now_us - meter->paused_us : 0;
    meter->paused_us = 0;
  }
}

double hv_meter_speed(const hv_meter *meter) {
  return meter->spent > 0 ? meter->weight / meter->spent : 0;
}
