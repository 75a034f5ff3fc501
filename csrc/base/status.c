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

/* How many bytes the character at c has; 0: they are none (a stray byte, longer than need be, a surrogate, beyond U+10FFFF). */
static int character(const unsigned char *c) {
  int size = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
  for (int i = 1; i < size; i++)
    if ((c[i] & 0xc0) != 0x80) /* also at the end of the text */
      return 0;
  int wrong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
              (c[0] == 0xf4 && c[1] > 0x8f);
  return wrong ? 0 : size;
}

void hv_text_mend(char *text) {
  for (unsigned char *c = (unsigned char *)text; *c;) {
    int size = character(c);
    if (size == 0)
      *c = '?';
    c += size ? size : 1;
  }
}

hv_status hv_fail(hv_error *err, hv_status status, const char *format, ...) {
  if (err) {
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    hv_text_mend(err->text);
  }
  return status;
}
