#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
  const char *name, *text;
} entries[HV_STATUS_COUNT] = {
#define HV_STATUS_ENTRY(name, text) [HV_##name] = {#name, text},
    HV_STATUS_MAP(HV_STATUS_ENTRY)
#undef HV_STATUS_ENTRY
};

const char *hv_status_text(hv_status status) {
  return (unsigned)status < HV_STATUS_COUNT ? entries[status].text : "unknown status";
}

const char *hv_status_name(hv_status status) {
  return (unsigned)status < HV_STATUS_COUNT ? entries[status].name : "UNKNOWN";
}

hv_status hv_fail(hv_error *err, hv_status status, const char *format, ...) {
  if (err) {
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
  }
  return status;
}
