/* The addresses that a program gives to a hive, read from text.
 *
 * Room: net (uses core/addr, clock). Used by hive.
 * Owner: the caller frees `targets`, also after an error.
 * Thread: any.
 */
#ifndef HV_NET_ADDRESSES_H
#define HV_NET_ADDRESSES_H

#include "core/env.h"

typedef struct hv_addresses {
  hv_target *targets;
  size_t n;
  hv_error foreign; /* what was skipped: " ADDRESS (cause), ADDRESS (cause)" */
} hv_addresses;

/* Reads a list of strings, each with one address or several, separated by commas. Addresses of other transports are skipped with a
 * warning. The status of hv_addr_parse, or HV_NOMEM. */
hv_status hv_addresses_read(hv_mem *mem, hv_log *log, const char *const *texts, size_t n, hv_addresses *out, hv_error *err);

#endif
