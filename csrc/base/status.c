#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *name, *text;
} entries[HV_STATUS_COUNT] = {
#define HV_STATUS_ENTRY(name, text) [HV_##name] = {#name, text},
    HV_STATUS_MAP(HV_STATUS_ENTRY)
#undef HV_STATUS_ENTRY
};

static const char *const causes[HV_CAUSE_COUNT] = {
#define HV_CAUSE_ENTRY(name, text) [HV_CAUSE_##name] = text,
    HV_CAUSE_MAP(HV_CAUSE_ENTRY)
#undef HV_CAUSE_ENTRY
};

const char *hv_cause_name(hv_cause cause) {
  return causes[(unsigned)cause < HV_CAUSE_COUNT ? cause : HV_CAUSE_OTHER];
}

hv_cause hv_cause_of(hv_status status) {
  switch (status) {
  case HV_NOMEM:
  case HV_BUDGET:
    return HV_CAUSE_MEMORY;
  case HV_VERSION:
    return HV_CAUSE_PROTOCOL_VERSION;
  case HV_REFUSED:
    return HV_CAUSE_REFUSED;
  case HV_TIMEOUT:
    return HV_CAUSE_TIMED_OUT;
  case HV_CLOSED:
    return HV_CAUSE_CLOSED;
  case HV_IN_USE:
    return HV_CAUSE_ADDRESS_IN_USE;
  case HV_NOT_ADMITTED:
    return HV_CAUSE_NOT_INVITED;
  default:
    return HV_CAUSE_OTHER;
  }
}

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

/* C0 and DEL, and C1, which are two bytes in UTF-8. */
static int is_control(const unsigned char *c) {
  return c[0] < 0x20 || c[0] == 0x7f || (c[0] == 0xc2 && c[1] < 0xa0);
}

static int is_of_secret(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

/* Cuts what follows "hvi1" or "hvk1", which begin invitations and swarm keys (net/invitation.h). */
static void hide_secrets(char *text) {
  enum { PREFIX = 4, LEAST = 8 }; /* fewer letters are a word */
  static const char mark[] = "...";
  for (char *at = text; (at = strstr(at, "hv")); at++) {
    if ((at[2] != 'i' && at[2] != 'k') || at[3] < '0' || at[3] > '9')
      continue;
    char *end = at + PREFIX;
    while (is_of_secret(*end))
      end++;
    if (end - at < PREFIX + LEAST)
      continue;
    memcpy(at + PREFIX, mark, sizeof mark - 1);
    memmove(at + PREFIX + sizeof mark - 1, end, strlen(end) + 1);
  }
}

void hv_text_clean(char *text) {
  hide_secrets(text);
  for (unsigned char *c = (unsigned char *)text; *c;) {
    int size = character(c), shows = size > 0 && !is_control(c);
    for (int i = 0; i < (size ? size : 1); i++, c++)
      if (!shows)
        *c = '?';
  }
}

static void status_write(hv_error *err, hv_status status, hv_cause cause, const char *format, va_list args) {
  err->status = status;
  err->cause = cause ? cause : hv_cause_of(status);
  vsnprintf(err->text, sizeof err->text, format, args);
  hv_text_clean(err->text);
}

hv_status hv_fail(hv_error *err, hv_status status, const char *format, ...) {
  if (err) {
    va_list args;
    va_start(args, format);
    status_write(err, status, HV_CAUSE_OTHER, format, args);
    va_end(args);
  }
  return status;
}

hv_status hv_fail_by(hv_error *err, hv_status status, hv_cause cause, const char *format, ...) {
  if (err) {
    va_list args;
    va_start(args, format);
    status_write(err, status, cause, format, args);
    va_end(args);
  }
  return status;
}
