#include "net/hive/addresses.h"

#include "net/clock.h"

#include <stdio.h>
#include <string.h>

static void skip(hv_log *log, hv_span text, hv_addresses *out, const char *why) {
  char quote[HV_QUOTE_MAX];
  size_t used = strlen(out->foreign.text);
  hv_log_write(log, hv_clock_us(), HV_LOG_WARN, "hive", "address_skipped", "skipping an address: %s", why);
  hv_span_quote(text, quote);
  snprintf(out->foreign.text + used, sizeof out->foreign.text - used, "%s %s (its transport is not TCP)", used ? "," : "", quote);
}

static hv_status read_one(hv_log *log, hv_span text, hv_addresses *out, hv_error *err) {
  hv_target *target = &out->targets[out->n];
  hv_error why;
  while (text.size && text.data[0] == ' ')
    text.data++, text.size--;
  while (text.size && text.data[text.size - 1] == ' ')
    text.size--;
  if (text.size == 0)
    return HV_OK;
  hv_status status = hv_addr_parse(text, &target->addr, &target->id, &why);
  if (status == HV_UNSUPPORTED) {
    skip(log, text, out, why.text);
    return HV_OK;
  }
  if (status != HV_OK)
    return hv_fail_by(err, status, why.cause, "%s", why.text);
  out->n++;
  return HV_OK;
}

hv_status hv_addresses_read(hv_mem *mem, hv_log *log, const char *const *texts, size_t n, hv_addresses *out, hv_error *err) {
  size_t room = n;
  for (size_t i = 0; i < n; i++)
    for (const char *c = texts[i]; *c; c++)
      room += *c == ',';
  *out = (hv_addresses){.targets = hv_mem_array(mem, room, sizeof *out->targets)};
  if (!out->targets)
    return hv_fail(err, HV_NOMEM, "cannot start a node: no memory; raise the memory limit");
  for (size_t i = 0; i < n; i++)
    for (const char *from = texts[i];;) {
      const char *comma = strchr(from, ',');
      size_t size = comma ? (size_t)(comma - from) : strlen(from);
      hv_status status = read_one(log, hv_span_of(from, size), out, err);
      if (status != HV_OK)
        return status;
      if (!comma)
        break;
      from = comma + 1;
    }
  return HV_OK;
}
